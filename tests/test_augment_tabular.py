"""Tabular augmentations: the right law, whole categories, exact counts, clean halves."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from krepes.errors import InvalidInputError
from krepes.views import FeatureDrop, GaussianNoise, Noise, Scarf
from krepes.views.tabular import feature_of_column

EXACT = dict(rtol=0, atol=0)
N = 4000
NOISE = Noise(torch.arange(N), view=1, seed=0)
GROUPS = [[1, 2, 3], [5, 4]]


def one_hot_rows(n, generator):
    """A number, a category of three columns, a category of two, a number."""
    first = torch.nn.functional.one_hot(torch.randint(3, (n,), generator=generator), 3)
    second = torch.nn.functional.one_hot(torch.randint(2, (n,), generator=generator), 2)
    numbers = torch.randn(n, 2, generator=generator)
    return torch.cat([numbers[:, :1], first, second, numbers[:, 1:]], dim=1)


# Gaussian noise


def test_gaussian_noise_has_its_scale_in_each_column():
    scale = torch.tensor([0.0, 0.5, 2.0])
    added = GaussianNoise(scale)(torch.zeros(N, 3), NOISE)
    torch.testing.assert_close(added[:, 0], torch.zeros(N), **EXACT)
    for column in (1, 2):
        assert stats.kstest(added[:, column].double().numpy() / float(scale[column]), "norm").pvalue > 1e-6


def test_gaussian_noise_does_not_depend_on_the_sample_it_is_added_to(generator):
    X = torch.randn(N, 3, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(GaussianNoise(0.1)(X, NOISE) - X, GaussianNoise(0.1)(0 * X, NOISE), rtol=0, atol=1e-14)


# Dropped features


def test_features_are_dropped_at_the_rate_independently():
    dropped = FeatureDrop(0.3)(torch.ones(N, 5), NOISE) == 0
    # Five standard errors of 20000 draws, and of a correlation of 4000.
    assert abs(float(dropped.float().mean()) - 0.3) < 5 * (0.21 / (5 * N)) ** 0.5
    correlation = torch.corrcoef(dropped.T.float()) - torch.eye(5)
    assert float(correlation.abs().max()) < 5 / N**0.5


def test_dropped_features_take_the_fill():
    mean = torch.tensor([10.0, 20.0, 30.0])
    view = FeatureDrop(0.5, fill=mean)(torch.zeros(N, 3), NOISE)
    assert ((view == 0) | (view == mean)).all() and (view == mean).any(0).all()


@pytest.mark.parametrize(("rate", "expected"), [(0.0, 1.0), (1.0, 0.0)])
def test_rates_zero_and_one_drop_nothing_and_everything(rate, expected):
    torch.testing.assert_close(FeatureDrop(rate)(torch.ones(N, 4), NOISE), torch.full((N, 4), expected), **EXACT)


def test_columns_of_a_category_are_dropped_together():
    dropped = FeatureDrop(0.5, groups=GROUPS)(torch.ones(N, 7), NOISE) == 0
    for group in GROUPS:
        assert (dropped[:, group].all(1) == dropped[:, group].any(1)).all()
    assert (dropped[:, 1] != dropped[:, 4]).any() and (dropped[:, 0] != dropped[:, 6]).any()


# SCARF


def test_scarf_corrupts_exactly_the_floor_of_rate_times_features():
    reference = torch.full((3, 7), 9.0)
    for rate, corrupted in [(0.6, 4), (0.0, 0), (1.0, 7), (0.99, 6)]:
        view = Scarf(reference, rate)(torch.zeros(N, 7), NOISE)
        assert ((view == 9).sum(1) == corrupted).all()


def test_scarf_takes_a_rate_that_binary_numbers_miss_at_its_word():
    view = Scarf(torch.ones(1, 100), 0.29)(torch.zeros(3, 100), Noise(torch.arange(3), 1, 0))
    assert view.sum(1).tolist() == [29.0] * 3


def test_scarf_chooses_all_features_equally_often():
    counts = Scarf(torch.ones(1, 7), 0.6)(torch.zeros(N, 7), NOISE).sum(0)
    assert stats.chisquare(counts.numpy()).pvalue > 1e-6


def test_scarf_draws_from_the_marginal_of_the_feature_itself(generator):
    reference = torch.randn(500, 2, generator=generator) * torch.tensor([1.0, 3.0]) + torch.tensor([0.0, 100.0])
    view = Scarf(reference, 1.0)(torch.zeros(N, 2), NOISE)
    for column in range(2):
        assert torch.isin(view[:, column], reference[:, column]).all()
        assert stats.ks_2samp(view[:, column].numpy(), reference[:, column].numpy()).pvalue > 1e-6


def test_scarf_draws_a_row_of_its_own_for_each_feature_and_sample():
    reference = torch.arange(1000.0)[:, None].expand(1000, 3)
    view = Scarf(reference, 1.0)(torch.zeros(N, 3), NOISE)
    # Rows shared between features or neighbours would correlate fully; five standard errors allow 0.08.
    assert float((torch.corrcoef(view.T) - torch.eye(3)).abs().max()) < 5 / N**0.5
    assert abs(float(torch.corrcoef(torch.stack([view[1:, 0], view[:-1, 0]]))[0, 1])) < 5 / N**0.5


def test_scarf_leaves_the_first_view_clean_unless_told():
    reference, X = torch.ones(5, 4), torch.zeros(N, 4)
    first = Noise(torch.arange(N), view=0, seed=0)
    torch.testing.assert_close(Scarf(reference)(X, first), X, **EXACT)
    assert (Scarf(reference, both=True)(X, first) == 1).any()


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), rate=st.floats(0, 1))
def test_scarf_never_shows_half_a_category(seed, rate):
    generator = torch.Generator().manual_seed(seed)
    X, reference = one_hot_rows(50, generator), one_hot_rows(20, generator)
    view = Scarf(reference, rate, groups=GROUPS)(X, Noise(torch.arange(50), 1, seed))
    for group in GROUPS:
        assert (view[:, group].sum(1) == 1).all()


def test_scarf_without_groups_does_break_categories(generator):
    X, reference = one_hot_rows(50, generator), one_hot_rows(20, generator)
    view = Scarf(reference)(X, Noise(torch.arange(50), 1, 0))
    assert (view[:, GROUPS[0]].sum(1) != 1).any()


# Refusals


@pytest.mark.parametrize("groups", [[[0, 1], [1, 2]], [[0, 7]], [[-1]], [[]]])
def test_groups_that_overlap_or_leave_the_table_are_refused(groups):
    with pytest.raises(InvalidInputError, match="name each column at most once, between 0 and 6"):
        feature_of_column(7, groups)


REFUSED = {
    "rate": (lambda: FeatureDrop(1.5), "rate=1.5 is out of range"),
    "scarf rate": (lambda: Scarf(torch.ones(2, 2), -0.1), "rate=-0.1 is out of range"),
    "negative scale": (lambda: GaussianNoise(torch.tensor([1.0, -1.0])), "scale=-1 is out of range"),
    "nan scale": (lambda: GaussianNoise(float("nan")), "scale holds 1 NaN"),
    "empty reference": (lambda: Scarf(torch.ones(0, 2)), "rows of Scarf's reference=0"),
    "nan reference": (lambda: Scarf(torch.tensor([[float("nan")]])), "Scarf's reference holds 1 NaN"),
    "width": (lambda: Scarf(torch.ones(2, 3))(torch.zeros(N, 4), NOISE), "reference has 3 columns, the samples have 4"),
    "scale width": (lambda: GaussianNoise(torch.ones(3))(torch.zeros(N, 4), NOISE), "scale has 3 columns"),
    "integers": (lambda: GaussianNoise(1.0)(torch.zeros(N, 4).long(), NOISE), r"rows of real numbers \(b, d\)"),
    "images": (lambda: FeatureDrop(0.1)(torch.zeros(N, 1, 2, 2), NOISE), r"got \(4000, 1, 2, 2\)"),
    "nested": (lambda: FeatureDrop(0.1)({"x": torch.zeros(N, 2)}, NOISE), "got dict.*OnFields"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unusable_settings_and_rows_are_refused(name):
    act, message = REFUSED[name]
    with pytest.raises(InvalidInputError, match=message):
        act()
