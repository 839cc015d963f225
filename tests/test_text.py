"""Texts as samples: tokens, padding, views of words, the encoder, and words that two texts agree on, by an oracle."""

import numpy as np
import pytest
import torch
from torch import nn

import krepes
from krepes import EmpiricalNTK, Krepes, ViewStream, batches
from krepes.attribution import TokenTable, agreements
from krepes.data import HashedTokenizer, tokenized
from krepes.data.marks import MarkedText, marked, shortened
from krepes.data.reviews import reviews
from krepes.data.tokenizer import bucket, pieces
from krepes.encoders import TextEncoder, pretrain
from krepes.encoders.adapters.tokenizers import ForeignTokenizer, as_tokenizer
from krepes.errors import InvalidInputError, UnsupportedEncoderError
from krepes.report import render
from krepes.report.content import Part, Report
from krepes.report.desk import Desk
from krepes.report.sections.landmarks import landmarks
from krepes.report.sections.samples import samples
from krepes.views import Compose, Dropout, SpanMask, WordCrop, WordDrop, WordSwap, word_views
from krepes.views.tokens import Words, kept_channels

TEXTS = [
    "The waiters were friendly, and the soup came hot.",
    "bad",
    "I hated everything!! Unbelievably terrible food",
    "",
    "One two three four five six seven eight nine ten",
]
KNOWN = [2232, 8658]
VOCABULARY = HashedTokenizer().vocabulary


def test_tokens_do_not_depend_on_case_or_forms_and_words_begin_in_the_lower_half():
    one, other = (HashedTokenizer().tokens(text) for text in ("Waiters ﬁne!", "WAITERS fine !"))
    assert list(one.ids) == list(other.ids)
    assert [bool(VOCABULARY.continues[i]) for i in one.ids] == [False, True, False, False]
    assert one.pieces == ["waite", "##rs", "fine", "!"] and one.spans[1] == (0, 7)
    assert HashedTokenizer().tokens("日本 wait").pieces == ["日", "本", "wait"]
    assert HashedTokenizer().tokens(" \n").ids == [2]
    assert len(HashedTokenizer(longest=7).tokens("word " * 50).ids) == 7
    # Numbers that were written down once: another machine or version must give the same.
    assert [bucket("waite", False, 16384), bucket("rs", True, 16384)] == KNOWN


def test_batches_are_padded_to_their_longest_and_one_width_pads_all_alike():
    texts = tokenized(TEXTS)
    assert texts.take(torch.tensor([1, 3]))["input_ids"].shape == (2, 1)
    whole = texts.take(torch.arange(5))
    assert whole["attention_mask"].sum(1).tolist() == [len(texts.ids(i)) for i in range(5)]
    assert whole["input_ids"].shape[1] == texts.longest
    fixed = tokenized(TEXTS, one_width=True)
    assert fixed.take(torch.tensor([1]))["input_ids"].shape == (1, texts.longest)
    joined = batches.concatenate([texts.take(torch.tensor([i])) for i in range(5)])
    assert torch.equal(joined["input_ids"], whole["input_ids"])
    with pytest.raises(InvalidInputError, match="text 1 is a int"):
        tokenized(["a", 3])
    with pytest.raises(InvalidInputError, match="all 2 texts are empty"):
        tokenized(["", " "])


VIEWS = {
    "drop": WordDrop(VOCABULARY, 0.5),
    "crop": WordCrop(VOCABULARY, 0.3),
    "mask": SpanMask(VOCABULARY, 0.4),
    "swap": WordSwap(VOCABULARY, 0.8),
    "dropout": Dropout(0.3),
    "all": Compose(word_views(VOCABULARY), Dropout(0.1)),
}


@pytest.mark.parametrize("augment", VIEWS.values(), ids=VIEWS)
def test_views_of_a_text_do_not_depend_on_the_padding_of_its_batch(augment):
    stream = ViewStream(tokenized(TEXTS), augment)
    together = stream.views_of(torch.arange(5))
    for i in range(5):
        alone = stream.views_of(torch.tensor([i]))
        length = alone["input_ids"].shape[2]
        for key in alone:
            if key == "dropout":
                assert torch.equal(alone[key][:, 0], together[key][:, i])
            else:
                assert torch.equal(alone[key][:, 0], together[key][:, i, :length])
                assert not together[key][:, i, length:].any()


@pytest.mark.parametrize("seed", range(5))
def test_views_keep_words_whole_and_at_least_one_of_them(seed):
    texts = tokenized(TEXTS)
    X = texts.take(torch.arange(5))
    whole = [_words(X, i) for i in range(5)]
    for name, augment in VIEWS.items():
        V = ViewStream(texts, augment, seed=seed).views_of(torch.arange(5))
        for u in range(2):
            for i in range(5):
                found = _words({key: V[key][u] for key in ("input_ids", "attention_mask")}, i)
                assert found or not whole[i], name
                known = [word for word in found if word != (1,)]
                assert all(word in whole[i] for word in known) or name in {"mask", "all"}
                if name == "swap":
                    assert sorted(found) == sorted(whole[i])
                if name == "crop":
                    start = next((s for s in range(len(whole[i])) if whole[i][s : s + len(found)] == found), None)
                    assert not whole[i] or (start is not None and len(found) >= np.ceil(0.3 * len(whole[i])))


def _words(X, i):
    words = Words.find(X, VOCABULARY, "test").of[i]
    return [tuple(X["input_ids"][i][words == w].tolist()) for w in range(int(words.max()) + 1)]


def test_views_of_a_frame_stay_inside_it_and_wrong_samples_are_refused():
    framed = krepes.data.tokenizer.Vocabulary(10, 0, None, (8, 9), torch.zeros(10, dtype=torch.bool))
    X = {"input_ids": torch.tensor([[8, 1, 2, 3, 9, 0]]), "attention_mask": torch.tensor([[1, 1, 1, 1, 1, 0]])}
    noise = krepes.views.Noise(torch.tensor([4]), view=0, seed=1)
    for augment in (WordDrop(framed, 0.9), WordCrop(framed, 0.0), WordSwap(framed, 1.0)):
        row = augment(X, noise)
        kept = row["input_ids"][0][row["attention_mask"][0] != 0].tolist()
        assert kept[0] == 8 and kept[-1] == 9 and len(kept) >= 3
    with pytest.raises(InvalidInputError, match="no token for hidden words"):
        SpanMask(framed)
    with pytest.raises(InvalidInputError, match="takes tokens"):
        WordDrop(framed)(torch.zeros(2, 3), noise)
    with pytest.raises(InvalidInputError, match="one has the number"):
        WordDrop(framed)({"input_ids": torch.tensor([[77]]), "attention_mask": torch.tensor([[1]])}, noise)


def test_dropout_drops_the_share_it_says_and_keeps_the_mean():
    key = torch.randint(-(2**62), 2**62, (50, 1), generator=torch.Generator().manual_seed(0))
    kept = kept_channels(torch.cat([key, torch.full_like(key, round(0.25 * 2**24))], dim=1), 20, 30)
    assert abs(float((kept == 0).double().mean()) - 0.25) < 0.01
    assert abs(float(kept.mean()) - 1) < 0.02
    shorter = kept_channels(torch.cat([key, torch.full_like(key, round(0.25 * 2**24))], dim=1), 7, 30)
    assert torch.equal(shorter, kept[:, :7])


def test_encoder_and_kernel_do_not_see_padding():
    torch.manual_seed(0)
    encoder, texts = TextEncoder(width=8, out=5).double(), tokenized(TEXTS)
    whole = texts.take(torch.arange(5))
    kernel = EmpiricalNTK(encoder)
    K = kernel(whole, whole)
    assert {entry.rule for entry in kernel.coverage()} == {"embedding", "linear", "layer_norm", "head"}
    for i in range(5):
        alone = texts.take(torch.tensor([i]))
        assert torch.allclose(encoder(**alone), encoder(**whole)[i : i + 1], atol=1e-12)
        assert torch.allclose(kernel(alone, whole), K[i : i + 1], rtol=1e-10)
    with pytest.raises(InvalidInputError, match="takes tokens"):
        encoder(torch.zeros(2, 3))


class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.places = nn.Embedding(16384, 6), nn.Parameter(torch.randn(40, 6))

    def forward(self, input_ids, attention_mask):
        H = torch.tanh(self.table(input_ids) + self.places[: input_ids.shape[1]]) * attention_mask.unsqueeze(2)
        return H.sum(1)


def test_a_table_of_positions_needs_one_width_and_says_so():
    encoder, texts = Positions(), tokenized(TEXTS)
    kernel = EmpiricalNTK(encoder)
    prepared = kernel.prepare(texts.take(torch.arange(5)))
    with pytest.raises(UnsupportedEncoderError, match="one_width=True"):
        kernel.rows(texts.take(torch.tensor([1, 3])), prepared)
    fixed = tokenized(TEXTS, one_width=True)
    assert kernel(fixed.take(torch.tensor([1, 3])), fixed.take(torch.arange(5))).shape == (2, 5)


@pytest.fixture(scope="module")
def fitted():
    torch.manual_seed(0)
    texts = tokenized(reviews(80)["review"].tolist(), HashedTokenizer(buckets=512))
    encoder = TextEncoder(buckets=512, width=8, out=6)
    stream = ViewStream(texts, word_views(texts.tokenizer.vocabulary), batch_size=40)
    pretrain(encoder, stream, epochs=1, projector=(16,), progress=False)
    return Krepes(encoder.double(), m=20, h=4, kernel_kind="exact", heads=2, progress=False).fit(stream), texts


@pytest.mark.parametrize("centre", [True, False])
def test_parts_of_tokens_are_those_of_autograd(fitted, centre):
    model, texts = fitted
    model = Krepes(model.kernel, m=20, h=4, kernel_kind="exact", heads=2, centre=centre, progress=False).fit(
        model.stream_
    )
    table, X = TokenTable(model), texts.take(torch.arange(6))
    oracle = _table_gradients(model, X)  # (6, r, V, E), by autograd, a text at a time
    reference = _table_gradients(model, model.reference_)
    mean = reference.mean(0) if centre else torch.zeros_like(oracle[0])
    found = table.lookup(X)
    for i, j in ((0, 1), (3, 2), (4, 4)):
        parts = table.parts(found, i, found, j)
        # The gradient of a sum of tokens, token by token: each alone, the others' rows taken out of the graph.
        whole = float((oracle[i] * (oracle[j] - mean)).sum())
        assert float(parts.first.sum()) == pytest.approx(whole, rel=1e-9, abs=1e-12)
        for t, d in enumerate(_token_gradients(model, texts.take(torch.tensor([i])))):
            row = int(texts.ids(i)[t])
            slow = float((d * (oracle[j] - mean)[:, row]).sum())
            assert float(parts.first[t]) == pytest.approx(slow, rel=1e-9, abs=1e-12)
        given = float(((oracle[i] - mean) * (oracle[j] - mean)).sum())
        share = agreements(model, texts.tokenizer, _pair(texts, i), _pair(texts, j), [(0, 0)]).shares[0]
        assert share == pytest.approx(given / float(table.kernel(X, X)[i, j]), rel=1e-6)


def _pair(texts, i):
    return texts.take(torch.tensor([i])), [texts.texts[i]]


def _heads(model):
    return model.base_kernel_.tangent.cotangents


def _table_gradients(model, X):
    module, out = model.encoder_.module, []
    for i in range(batches.count(X)):
        one = batches.take(X, slice(i, i + 1))
        grads = []
        for w in _heads(model):
            weight = module.table.weight.detach().clone().requires_grad_()
            Z = torch.func.functional_call(module, {"table.weight": weight}, (), one)
            grads.append(torch.autograd.grad((Z @ w).sum(), weight)[0])
        out.append(torch.stack(grads))
    return torch.stack(out)


def _token_gradients(model, X):
    """Return for each token of one text the gradient of each head in its own row, as if no other token shared it."""
    module, held = model.encoder_.module, {}
    hook = module.table.register_forward_hook(
        lambda _m, _i, rows: held.setdefault("rows", rows.detach().requires_grad_())
    )
    try:
        Z = module(**X)
        grads = [torch.autograd.grad((Z @ w).sum(), held["rows"], retain_graph=True)[0][0] for w in _heads(model)]
    finally:
        hook.remove()
    return torch.stack(grads, dim=1)  # (length, r, E)


def test_words_are_marked_only_where_both_texts_have_them(fitted):
    model, texts = fitted
    made = agreements(model, texts.tokenizer, _pair(texts, 0), _pair(texts, 1), [(0, 0)])
    other = set(pieces_of(texts.texts[0]))
    assert all(pieces(word)[0] in other for word in made.others[0].words) and not made.note
    plain = Krepes(model.kernel, m=6, h=4, parameters=["last.*"], progress=False).fit(model.stream_)
    unmarked = agreements(plain, texts.tokenizer, _pair(texts, 0), _pair(texts, 1), [(0, 0)])
    assert "sees no table" in unmarked.note and unmarked.others[0].words == []


def pieces_of(text):
    return [piece for piece in HashedTokenizer().tokens(text).pieces]


def test_marks_are_cut_at_words_and_safe_to_print():
    text = "first words here " * 20 + "the END\x1b[31m of it"
    spans = [(text.index("END"), text.index("END") + 3)]
    short = shortened(marked(text, spans, [1.0], [True]), 40)
    assert short.words == ["END"] and str(short).startswith("…") and "\x1b" not in str(short)
    assert "".join(part for part, _ in short.pieces).strip("…") in text
    assert str(marked("a b", [(0, 1), (2, 3)], [1.0, 0.05], [True, True])) == "*a* b"
    assert str(marked("a b", [(0, 1), (2, 3)], [1.0, 0.9], [True, False])) == "*a* b"
    assert str(marked("a b c", [(0, 1), (2, 3), (4, 5)], [1.0, 0.9, -1.0], [True] * 3)) == "*a b* c"
    assert marked("", [], [], []).pieces == () and str(marked(" ", [], [], [])) == " "
    stops = [(0, 1), (1, 2), (3, 4), (4, 5)]
    assert str(marked("a, b.", stops, [1.0] * 4, [True] * 4)) == "*a, b*."
    assert str(marked("a, b.", stops, [1.0] * 4, [True, True, False, True])) == "*a*, b."
    assert str(shortened("x" * 500, 20)) == "x" * 20
    assert shortened(MarkedText.of("short")).pieces == (("short", 0),)


def test_one_call_explains_a_list_of_texts():
    torch.manual_seed(0)
    table = reviews(90)
    found = krepes.explain(
        TextEncoder(width=16, out=8),
        table["review"].tolist(),
        labels=table["product"],
        m=20,
        h=4,
        progress=False,
        report={"shown": 3, "counterfactual": False},
    )
    desk = Desk(found.study)
    quotes = samples(desk).blocks[0].choices[0].blocks[0].blocks[0]
    said = "".join(part for part, _ in quotes.quotes[0].text.pieces)
    assert said in set(table["review"]) and [quote.tone for quote in quotes.quotes[:2]] == ["ours", "attracts"]
    page = render(Report("", (Part("", (samples(desk), landmarks(desk))),)))
    assert '<mark class="m3">' in page and said[:20] in page
    with pytest.raises(InvalidInputError, match="pass tokenizer="):
        krepes.explain(nn.Linear(2, 2), ["a", "b"])
    with pytest.raises(InvalidInputError, match="krepes.data.tokenized"):
        ViewStream(["a", "b"], WordDrop(VOCABULARY))


class Fake:
    """As much of a tokenizer of transformers as is used, word pieces by a space."""

    is_fast, pad_token_id, mask_token_id, all_special_ids, model_max_length = True, 0, 3, [0, 1, 2, 3], 6
    names = ("[PAD]", "[CLS]", "[SEP]", "[MASK]", "good", "##ness", "soup")

    def get_vocab(self):
        return {name: i for i, name in enumerate(self.names)}

    def convert_ids_to_tokens(self, ids):
        return [self.names[i] for i in ids]

    def __call__(self, text, truncation, max_length, return_offsets_mapping):
        found = [(self.names.index(w), (text.index(w.strip("#")), text.index(w.strip("#")) + 4)) for w in text.split()]
        ids = [(1, (0, 0)), *found[: max_length - 2], (2, (0, 0))]
        return {"input_ids": [i for i, _ in ids], "offset_mapping": [span for _, span in ids]}


def test_a_tokenizer_of_transformers_keeps_its_numbers_spans_and_words():
    made = as_tokenizer(Fake(), 128)
    assert isinstance(made, ForeignTokenizer)
    found = made.tokens("good soup")
    assert (found.ids, found.pieces) == ([1, 4, 6, 2], ["[CLS]", "good", "soup", "[SEP]"])
    assert found.spans == [(0, 0), (0, 4), (5, 9), (0, 0)]
    known = made.vocabulary
    assert (known.size, known.pad, known.hidden, known.special) == (7, 0, 3, (0, 1, 2))
    assert known.continues.tolist() == [False] * 5 + [True, False]
    with pytest.raises(InvalidInputError, match="is no tokenizer"):
        as_tokenizer(len, 8)
