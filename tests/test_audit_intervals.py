"""Intervals: against scipy, in pieces, at the edges, and by how often they hold the truth."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest
from torch.testing import assert_close

from krepes.audit.intervals import RunningMean, mean_interval, share_interval, wilson_interval
from krepes.errors import InvalidInputError

TIGHT = {"rtol": 1e-12, "atol": 1e-12}  # the same closed formula in float64


@pytest.mark.parametrize(("successes", "trials"), [(0, 7), (7, 7), (3, 11), (480, 500)])
def test_wilson_interval_is_that_of_scipy(successes, trials):
    found = wilson_interval(torch.tensor(successes), torch.tensor(trials))
    wanted = binomtest(successes, trials).proportion_ci(method="wilson")
    assert_close(torch.stack([found.low, found.high]), torch.tensor([wanted.low, wanted.high]).double(), **TIGHT)


def test_no_trial_gives_no_share_and_the_whole_interval():
    found = wilson_interval(torch.tensor(0), torch.tensor(0))
    assert bool(found.estimate.isnan())
    assert (float(found.low), float(found.high)) == (0.0, 1.0)


def test_share_interval_of_zeros_and_ones_is_wilsons(generator):
    values = (torch.rand(83, generator=generator) < 0.3).double()
    found, wanted = share_interval(values), wilson_interval(values.sum(), torch.tensor(83))
    assert_close(torch.stack([found.low, found.high]), torch.stack([wanted.low, wanted.high]), **TIGHT)


def test_share_interval_tightens_with_the_spread_and_keeps_width_when_all_agree():
    narrow = share_interval(torch.tensor([0.4, 0.6]).repeat(50))
    coins = share_interval(torch.tensor([0.0, 1.0]).repeat(50))
    unanimous = share_interval(torch.ones(50))
    assert float(narrow.high - narrow.low) < 0.25 * float(coins.high - coins.low)
    assert 0.9 < float(unanimous.low) < 1.0 == float(unanimous.high)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.floats(-1e6, 1e6))
@settings(max_examples=30, deadline=None)
def test_pieces_do_not_matter(sizes, offset):
    values = torch.randn(sum(sizes), 3, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(sizes)))
    total = RunningMean()
    for piece in (values + offset).split(sizes):
        total.add(piece)
    # Adding 1e6 costs six of sixteen digits of the values themselves.
    assert_close(total.mean - offset, values.mean(0), rtol=0, atol=1e-8)
    if len(values) > 1:
        assert_close(total.variance, values.var(0), rtol=1e-7, atol=1e-8)


def test_one_sample_has_an_infinite_interval_and_none_is_refused():
    assert float(mean_interval(torch.tensor([2.0])).high) == float("inf")
    with pytest.raises(InvalidInputError, match="no test sample"):
        RunningMean().interval()
    with pytest.raises(InvalidInputError, match="between 0 and 1"):
        share_interval(torch.tensor([0.5, 1.5]))
    with pytest.raises(InvalidInputError, match="NaN"):
        mean_interval(torch.tensor([1.0, float("nan")]))


@pytest.mark.parametrize(
    ("draw", "truth", "interval"),
    [
        (lambda g: torch.rand(400, 60, generator=g).square(), 1 / 3, mean_interval),
        (lambda g: (torch.rand(400, 60, generator=g) < 0.9).double(), 0.9, share_interval),
        (lambda g: (torch.rand(400, 60, 5, generator=g) < 0.8).double().mean(2), 0.8, share_interval),
    ],
    ids=["mean", "share", "fractions"],
)
def test_95_percent_intervals_hold_the_truth_90_to_99_percent_of_the_time(draw, truth, interval, generator):
    found = interval(draw(generator).T)  # 400 test sets of 60 samples
    held = ((found.low <= truth) & (truth <= found.high)).double().mean()
    assert 0.90 <= float(held) <= 0.99
