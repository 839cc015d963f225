"""Work of each phase of a fit and of each answer, counted: looks at samples, kernel values and multiply-adds."""

from collections import Counter
from contextlib import contextmanager

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from krepes import Krepes
from krepes.attribution import attribute
from krepes.engine.phases import Phases
from krepes.influence import How, influence_of, similarity
from krepes.kernels import RBF
from krepes.kernels.entk import EmpiricalNTK
from krepes.views import GaussianNoise, ViewStream

D, WIDTH, OUT, M, H = 5, 12, 6, 12, 4
POINTS, REFERENCE, BLOCK = 2 * M, 512, 64
WEIGHTS, FIRST = D * WIDTH + WIDTH * OUT, D * WIDTH
HEAD = OUT + 1
THROUGH = 2 * (2 * WEIGHTS - FIRST)
"""Operations of a look: forward, and backward but for the first layer."""
ALONG = 2 * (WEIGHTS + HEAD)
"""Of the product of a sample with the mean feature, once more through every layer."""
ADDED = 2 * (WEIGHTS + WIDTH + OUT + HEAD)
"""Of adding a sample to the mean feature, biases included."""
PAIR = 2 * (D + WIDTH + WIDTH + OUT + HEAD)
"""Of a kernel value: inputs and outputs of each layer, and the head."""


def into(total, a, b, *_, **__):
    """Products that are added in place, which torch's counter leaves out."""
    return 2 * a[0] * a[1] * b[1]


@pytest.fixture
def values(monkeypatch):
    """Kernel values that were asked for: of rows against points, and of points among themselves."""
    found, rows, enter = Counter(), EmpiricalNTK.rows, EmpiricalNTK.enter

    def counted_rows(self, X, prepared, **asked):
        found["rows"] += len(X) * prepared.m
        return rows(self, X, prepared, **asked)

    def counted_enter(self, Y, **asked):
        found["gram"] += len(Y) ** 2 if asked.get("gram") else 0
        return enter(self, Y, **asked)

    monkeypatch.setattr(EmpiricalNTK, "rows", counted_rows)
    monkeypatch.setattr(EmpiricalNTK, "enter", counted_enter)
    return found


@pytest.fixture
def phases(monkeypatch, values):
    """Kernel values and operations of each phase of the last fit."""
    found, opened = {}, Phases.open

    @contextmanager
    def phase(self, name, samples=None):
        before = Counter(values)
        counter = FlopCounterMode(display=False, custom_mapping={torch.ops.aten.addmm_: into})
        with counter, opened(self, name, samples):
            yield
        found[name] = {"rows": 0, "gram": 0} | dict(values - before) | {"work": counter.get_total_flops()}

    monkeypatch.setattr(Phases, "open", phase)
    return found


def fitted(n):
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(D, WIDTH), nn.Tanh(), nn.Linear(WIDTH, OUT))
    X = torch.randn(n, D, generator=torch.Generator().manual_seed(1))
    model = Krepes(encoder, m=M, h=H, damping=0.1, kernel_kind="exact", progress=False)
    return model.fit(ViewStream(X, GaussianNoise(0.1), seed=1, batch_size=65))


@pytest.mark.parametrize("n", [260, 520])
def test_each_phase_of_a_fit_works_as_much_as_its_formula_says(n, phases):
    looks = {name: spent.samples for name, spent in fitted(n).work_.items()}
    reference = min(n, REFERENCE)
    assert phases["reference"] == {"rows": 0, "gram": 0, "work": reference * (THROUGH + ADDED)}
    points = POINTS * (THROUGH + ALONG) + POINTS**2 * PAIR
    assert phases["landmarks"] == {"rows": 0, "gram": POINTS**2, "work": points}
    seen = 2 * n - POINTS  # the landmarks' own rows come with their points
    moments = 2 * n * (2 * (POINTS + 1)) ** 2
    work = seen * (THROUGH + ALONG) + seen * POINTS * PAIR + moments
    assert looks["pass"] == seen
    assert phases["pass"] == {"rows": seen * POINTS, "gram": 0, "work": work}


@pytest.mark.parametrize("n", [260, 520])
def test_a_selection_measures_each_candidate_once_against_each_landmark(n, phases):
    looks = {name: spent.samples for name, spent in fitted(n).work_.items()}["selection"]
    chosen = phases["selection"]
    rounds = chosen["gram"] // BLOCK**2
    assert chosen["rows"] == n * M + n + 1, "every landmark, the diagonal, and one to learn the type"
    assert chosen["gram"] == rounds * BLOCK**2 and rounds <= 3, "proposals among themselves"
    assert looks <= (rounds + 1) * n + rounds * BLOCK + M + 3
    measured = looks * (THROUGH + ALONG) + (chosen["rows"] + chosen["gram"]) * PAIR
    factor = 2 * (n * M * M + rounds * (BLOCK**2 * M + BLOCK * BLOCK * BLOCK))
    assert measured <= chosen["work"] <= measured + factor


def test_the_solve_does_not_grow_with_the_rows(phases):
    fitted(260)
    small = phases["solve"]
    fitted(520)
    assert phases["solve"] == small and small["rows"] == small["gram"] == 0


def test_answers_ask_for_one_kernel_value_a_row_and_point(values):
    n = 260
    model = fitted(n)
    X = torch.randn(30, D, generator=torch.Generator().manual_seed(2))
    values.clear()
    attribute(model, X)
    assert values == {"rows": 30 * POINTS}
    outcomes = [similarity(model, X[i : i + 1], X[i + 1 : i + 2]) for i in range(10)]
    values.clear()
    influence_of(model, outcomes, progress=False)
    assert values == {"rows": 2 * n * POINTS}, "ten outcomes share the rows of the surrogate"
    values.clear()
    influence_of(model, outcomes, method="lazy", how=How(steps=2, draws=3), progress=False)
    assert values == {"rows": (3 * 2 * n + 20) * POINTS, "gram": POINTS**2}, (
        "one pass a draw, and the samples asked about"
    )


def test_a_solve_shows_which_damping_it_tries(capsys):
    X = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    shown = {"m": 8, "h": 2, "augment": GaussianNoise(0.1)}
    Krepes(RBF(2.0), progress=True, **shown).fit(X)
    said = capsys.readouterr().err
    assert "damping 1e+04: loss" in said and "solve: " in said
    Krepes(RBF(2.0), progress=False, **shown).fit(X)
    assert capsys.readouterr().err == ""
