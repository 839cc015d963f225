"""Tables of tokens in a replay: rows that are looked up are followed as if the whole table were, and no others."""

import copy

import pytest
import torch
from torch import nn

from krepes.data import tokenized
from krepes.data.reviews import reviews
from krepes.encoders import TextEncoder
from krepes.encoders.functional import SGD, Steps
from krepes.errors import InvalidInputError
from krepes.influence import tables, warm
from krepes.influence.gradients import row_gradients
from krepes.influence.reverse import differentiate
from krepes.influence.rungs import of_encoder
from krepes.influence.tables import UsedRows, narrowed
from krepes.views import ViewStream, word_views

N = 12


@pytest.fixture(scope="module")
def stream():
    texts = tokenized(reviews(N, seed=3)["review"].tolist())
    return ViewStream(texts, word_views(texts.tokenizer.vocabulary), seed=1, batch_size=N)


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    return TextEncoder(width=3, depth=1, out=4).double()


def test_a_narrow_table_gives_the_derivatives_of_the_whole_one(stream, encoder, monkeypatch):
    new = tokenized(["a quite unknown sentence about zebras", "the room was good"]).take(torch.arange(2))

    def outcomes(embed):
        Z = embed(new)
        return torch.stack([Z[0] @ Z[1], Z[0].sum()])

    found = {}
    for way in ("narrow", "whole"):
        if way == "whole":
            monkeypatch.setattr(warm, "narrowed", lambda encoder, *_: encoder)
        steps = warm.warm_steps(encoder, stream, "barlow_twins", lr=0.01, steps=3)
        own = steps.twins.encoder
        measure = of_encoder(outcomes, own)
        state = steps.start()
        found[way] = differentiate(steps, measure, progress=False), row_gradients(steps, state, measure, range(2)), own
    assert isinstance(found["narrow"][2].table, UsedRows) and len(found["narrow"][2].table.weight) < 300
    assert isinstance(found["whole"][2].table, nn.Embedding)
    for name in ("values", "dw"):
        a, b = (getattr(found[way][0], name) for way in found)
        assert (a - b).abs().max() <= 1e-9 * b.abs().max()
    for name in ("gram", "along"):
        a, b = (getattr(found[way][1], name) for way in found)
        assert (a - b).abs().max() <= 1e-9 * b.abs().max()


class Tied(nn.Module):
    """Looks tokens up, and uses the same table, or a part of it, once more."""

    def __init__(self, how):
        super().__init__()
        self.how, self.table = how, nn.Embedding(16400, 3)
        self.other = self.table if how == "module" else nn.Embedding(16400, 3)
        if how == "weight":
            self.other.weight = self.table.weight

    def forward(self, input_ids, attention_mask):
        if self.how == "shifted":
            return self.table(input_ids + 1).mean(1)
        z = self.table(input_ids).mean(1)
        return z * (self.table.weight.mean(0) if self.how == "use" else self.other(input_ids.flip(1)).mean(1))


@pytest.mark.parametrize("how", ["module", "weight", "use", "shifted"])
def test_a_table_that_is_used_in_another_way_stays_whole(stream, how):
    made = Tied(how)
    views = warm.warm_steps(TextEncoder(width=4, out=2), stream, "barlow_twins", lr=1.0, steps=2).views
    assert all(type(module) is not UsedRows for module in narrowed(made, views, range(2)).modules())
    assert isinstance(made.table, nn.Embedding)


def test_a_row_that_a_training_was_not_said_to_use_is_refused_and_modes_stay(stream, encoder):
    views = warm.warm_steps(encoder, stream, "barlow_twins", lr=1.0, steps=1).views
    own = narrowed(copy.deepcopy(encoder).train(), views, range(1))
    assert own.training and isinstance(own.table, UsedRows) and own.table.weight.requires_grad
    new = tokenized(["zebras everywhere"]).take(torch.arange(1))
    with pytest.raises(InvalidInputError, match="rows of a table of 16384"):
        own(**new)
    assert torch.equal(tables.open_to_others(own)(**new), encoder(**new))
    assert Steps(steps_of(own, stream), views, SGD(0.1), 1, N).start()["encoder.table.weight"].shape[0] < 300


def steps_of(own, stream):
    return warm.warm_steps(own, stream, "barlow_twins", lr=1.0, steps=1).twins
