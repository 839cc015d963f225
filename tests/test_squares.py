"""Quadratic forms as few squares: against forms written out in float64, and their work counted."""

import dataclasses
import shutil
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from krepes.engine.moments import moments_of
from krepes.influence import scoring
from krepes.influence.keeping import KeptRows
from krepes.influence.lazy import scores
from krepes.influence.linearised import Linearised, pivots
from krepes.influence.rungs import lazy
from krepes.influence.squares import few_squares
from krepes.kernels.entk import EmpiricalNTK
from krepes.views import GaussianNoise, ViewStream

N, Q, O = 4000, 24, 12


@pytest.fixture
def rows(generator):
    """Rows of two views whose directions differ in size by four orders, and whose mean is not zero."""
    size = torch.logspace(0, -4, Q - 1, dtype=torch.float64)
    mix = torch.linalg.qr(torch.randn(Q - 1, Q - 1, generator=generator, dtype=torch.float64)).Q
    both = torch.randn(1, N, Q - 1, generator=generator, dtype=torch.float64)
    own = torch.randn(2, N, Q - 1, generator=generator, dtype=torch.float64)
    return torch.nn.functional.pad(((both + 0.3 * own) * size + 0.5) @ mix, (0, 1), value=1.0)


@pytest.fixture
def forms(generator):
    """Forms that are neither symmetric nor blind to the mean."""
    return torch.randn(O, 2, 2, Q, Q, generator=generator, dtype=torch.float64)


def test_scores_lose_no_more_than_they_may(rows, forms):
    moments = moments_of(rows, torch.eye(Q - 1))
    slow = scores(forms, moments, rows)
    for tol in (0.1, 1e-2, 1e-3):
        found = few_squares(forms, moments, dtype=torch.float64, tol=tol)
        gap = (found(rows) - slow).square().mean(0).sqrt() / slow.std(0)
        assert found.left_out <= tol and float(gap.max()) < 1.1 * tol, (tol, gap.max())
        assert float(found(rows).mean(0).abs().max()) < 1e-9 * float(slow.std(0).max())
    torch.testing.assert_close(few_squares(forms, moments, dtype=torch.float64, tol=1e-12)(rows), slow)
    single = few_squares(forms, moments, dtype=torch.float32)(rows.float())
    assert float(((single - slow).square().mean(0).sqrt() / slow.std(0)).max()) < 1.2e-3


def test_squares_multiply_as_often_as_they_say_and_less_than_forms_written_out(rows, forms):
    found = few_squares(forms, moments_of(rows, torch.eye(Q - 1)), dtype=torch.float32)
    with FlopCounterMode(display=False) as counter:
        found(rows[:, :128].float())
    assert counter.get_total_flops() == 2 * 128 * found.work
    assert found.work < O * (2 * Q) ** 2 / 4


@pytest.fixture
def replay():
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    X = torch.randn(60, 5, dtype=torch.float64)
    return Linearised.of(encoder, EmpiricalNTK(encoder), X[:6]), ViewStream(X, GaussianNoise(0.2), batch_size=7), X


def asked(X):
    return lambda embed: (lambda Z: torch.stack([Z[i] @ Z[i + 1] for i in range(9)]))(embed(X))


@pytest.mark.parametrize("name", ["barlow_twins", "vicreg", "spectral"])
def test_many_outcomes_are_those_asked_one_by_one(name, replay, monkeypatch):
    linearised, stream, X = replay
    how = {"steps": 4, "draws": 2, "progress": False}
    slow = lazy(linearised, stream, name, asked(X), **how)
    monkeypatch.setattr(scoring, "EXACT_WORK", 0)
    fast = lazy(linearised, stream, name, asked(X), **how, memory_budget=200_000)  # several groups of outcomes
    torch.testing.assert_close(fast.values, slow.values)
    gap = (fast.dw - slow.dw).square().mean(0).sqrt() / slow.dw.std(0)
    assert 0 < float(gap.max()) < 5e-3, "sixty rows are not normal: a few times what is left out"


def test_rows_that_find_no_room_on_disk_are_made_again(replay, monkeypatch):
    linearised, stream, X = replay
    slow = lazy(linearised, stream, "barlow_twins", asked(X), steps=3, draws=2, progress=False)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    fast = lazy(linearised, stream, "barlow_twins", asked(X), steps=3, draws=2, progress=False)
    assert torch.equal(slow.dw, fast.dw)


def test_rows_are_kept_in_the_type_of_the_kernel(replay):
    linearised, stream, _ = replay
    for dtype in (torch.float32, torch.float64):
        kept = KeptRows(dataclasses.replace(linearised, dtype=dtype), stream, 2)
        made, again = list(kept.made(False)), list(kept.again(False))
        assert len(made) == len(again) == 2 * len(stream)
        for (chosen, rows), (places, found) in zip(made, again, strict=True):
            assert torch.equal(chosen, places) and torch.equal(rows, found) and found.dtype == dtype
        assert kept._file.nbytes == 2 * 60 * 2 * linearised.width * dtype.itemsize


def test_of_many_points_those_are_taken_that_the_others_explain_least(replay):
    linearised, _, X = replay
    K = linearised.kernel(X, X)
    found, expected = pivots(K, 8), []
    for _ in range(8):
        rest = K - K[:, expected] @ torch.linalg.pinv(K[expected][:, expected]) @ K[expected] if expected else K
        expected.append(int(rest.diagonal().argmax()))
    assert found.tolist() == sorted(expected)
    few = Linearised.of(linearised.encoder.module, linearised.kernel, X, rank=4)
    assert few.prepared.m == 8 and few.R.shape == (8, 4)
    torch.testing.assert_close(few.rows(X)[:, 4:7], linearised.rows(X)[:, -4:-1])
