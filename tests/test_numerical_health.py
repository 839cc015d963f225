"""Inputs at the edge of what numbers can hold: answered, or refused for the true reason before the work."""

import pytest
import torch
from torch import nn

import krepes
from krepes.errors import InvalidInputError, KrepesError, RankDeficientKernelError, UnsupportedEncoderError
from krepes.kernels import RBF
from krepes.views import GaussianNoise

X = torch.randn(60, 5, generator=torch.Generator().manual_seed(1))


class Constant(nn.Module):
    """Gives every sample nearly the same embedding, as a collapsed encoder does."""

    def __init__(self, slope):
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.slope = nn.Linear(5, 4), slope

    def forward(self, x):
        return torch.ones(len(x), 4) + self.slope * self.linear(x)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 8))


def explained(encoder, data, **settings):
    noise = GaussianNoise(0.1 * float(data.double().std()))
    return krepes.explain(encoder, data, augment=noise, progress=False, **{"m": 10, "h": 3, **settings})


@pytest.mark.parametrize("slope", [0.0, 1e-9])
def test_a_collapsed_encoder_is_named_as_such(slope):
    with pytest.raises(
        UnsupportedEncoderError, match=r"all embeddings of 48 samples are equal to 1e-06.* is collapsed"
    ):
        explained(Constant(slope), X)


def test_an_encoder_that_is_nearly_collapsed_is_still_explained():
    assert explained(Constant(1e-2), X, m=3, h=2).model.solution_.steps


def test_samples_that_are_all_the_same_are_named_as_such():
    same = X[:1].repeat(60, 1)
    with pytest.raises(UnsupportedEncoderError, match="the samples are all the same"):
        krepes.explain(network(), same, augment=GaussianNoise(0.1), m=10, h=3, progress=False)


def test_samples_too_small_for_the_encoder_to_tell_apart_are_named_with_their_size():
    with pytest.raises(UnsupportedEncoderError, match=r"the samples differ by \d\.\de-20"):
        explained(network(), 1e-20 * X)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_single(kind):
    with pytest.warns(UserWarning, match="float32"):
        found = explained(network().to(kind), X)
    plain = explained(network().to(kind).float(), X)
    torch.testing.assert_close(found.model.K_mm_, plain.model.K_mm_)


@pytest.mark.parametrize("data", [1e20 * X, X[:4]], ids=["huge", "four"])
def test_odd_sizes_are_answered(data):
    settings = {} if len(data) > 10 else {"m": 1, "h": 1}
    assert explained(network(), data, **settings).audits


def test_two_training_samples_in_one_dimension_are_refused_for_having_no_curvature_or_answered_by_round_off():
    """Of three samples two are trained on: their correlation is one whatever the embedding, to the last bit or not."""
    try:
        assert explained(network(), X[:3], m=1, h=1).audits
    except InvalidInputError as error:
        assert "the curvature of 'barlow_twins' is zero" in str(error) and "pass more samples" in str(error)


@pytest.mark.parametrize("kernel", [network(), RBF(2.0)], ids=["network", "rbf"])
@pytest.mark.parametrize("landmarks", ["rpcholesky", "kmeans++", "leverage-nystrom", "uniform"])
def test_every_sample_can_be_a_landmark(kernel, landmarks):
    assert explained(kernel, X, m=48, landmarks=landmarks).model.landmarks_.tolist() == list(range(48))


def test_duplicates_beyond_the_rank_are_refused_with_the_rank():
    with pytest.raises(RankDeficientKernelError, match="only 4 of m=10 landmarks were found"):
        explained(network(), X[:5].repeat(12, 1))


def test_one_class_is_audited_where_one_is_enough():
    found = explained(network(), X, labels=["a"] * 60)
    assert "consistency" in found.audits and "faithfulness" not in found.audits


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_is_refused(value):
    broken = X.clone()
    broken[7, 2] = value
    with pytest.raises(InvalidInputError, match="NaN or infinite"):
        krepes.explain(network(), broken, augment=GaussianNoise(0.1), m=10, h=3, progress=False)


@pytest.mark.parametrize("damping", [float("nan"), -1.0, "much"])
def test_a_damping_that_is_none_is_refused(damping):
    with pytest.raises(KrepesError, match="damping"):
        explained(network(), X, damping=damping)
