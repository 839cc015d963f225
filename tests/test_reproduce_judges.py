"""What the claims over the result tables need to hold: each judge on a made-up table that just passes or just fails."""

import subprocess

import pandas as pd
import pytest
import torch

from krepes.reproduce import SCALES, TARGETS, base, faithfulness, grids, scalability, spectral
from krepes.reproduce.ablations import LOSSES, SELECTORS
from krepes.reproduce.claims import decide
from krepes.reproduce.trial import Trial
from krepes.runs.settings import Settings


def verdicts(name, rows, columns):
    judge = TARGETS[name].judge
    return dict(judge(pd.DataFrame(rows, columns=[*columns, "mean"]).assign(spread=0.0)))


FAITHFUL = {
    "accuracy gap": 0.0,
    "Kendall tau over classes": 0.8,
    "Kendall tau over samples": 0.8,
    "confidence drop, influence": 0.5,
    "confidence drop, random": 0.01,
    "confidence drop, latent cosine": 1.0,
}


def faithful(**changed):
    rows = [
        (data, loss, measure, value)
        for data in faithfulness.DATA
        for loss in faithfulness.LOSSES
        for measure, value in (FAITHFUL | (changed if (data, loss) == ("mnist", "vicreg") else {})).items()
    ]
    return verdicts("faithfulness", rows, faithfulness.KEYS)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"accuracy gap": -0.011}, "1 point"),
        ({"Kendall tau over samples": 0.74}, "over samples"),
        ({"confidence drop, influence": 0.49}, "50 times"),
    ],
)
def test_one_loss_of_one_data_set_is_enough_to_break_its_claim_and_no_other(changed, words):
    assert all(faithful().values())
    broken = [claim for claim, holds in faithful(**changed).items() if not holds]
    assert len(broken) == 1 and broken[0].startswith("mnist") and words in broken[0]


@pytest.mark.parametrize(("kernel", "holds"), [(1.69, False), (1.71, True), (2.29, True), (2.31, False)])
def test_the_full_kernel_grows_about_quadratically_or_the_claim_fails(kernel, holds):
    rows = [
        (data, method, n, measure, value)
        for data in scalability.DATA
        for method in scalability.METHODS
        for n, measure, value in (
            (0, "exponent of seconds", 1.0),
            (0, "exponent of seconds of the kernel alone", kernel),
            (1_500, "accuracy", 0.8),
        )
    ]
    found = verdicts("scalability", rows, scalability.KEYS)
    assert [value for claim, value in found.items() if "full kernel grows" in claim] == [holds, holds]


@pytest.mark.parametrize(("ahead", "holds"), [(4, False), (5, True)])
def test_a_lead_for_half_of_the_losses_is_no_lead(ahead, holds):
    rows = [("encoder", "–", 0.9), *((loss, "uniform", 0.8) for loss in LOSSES)]
    rows += [
        (loss, way, 0.9 if number < ahead else 0.79) for way in SELECTORS[1:] for number, loss in enumerate(LOSSES)
    ]
    assert list(verdicts("landmarks", rows, ["loss", "landmarks"]).values()) == [holds] * 3


def test_a_result_says_when_its_code_was_not_committed(tmp_path, monkeypatch):
    package = tmp_path / "pkg"
    (package / "reproduce").mkdir(parents=True)
    (package / "code.py").write_text("")
    monkeypatch.setattr(base, "__file__", str(package / "reproduce" / "base.py"))
    assert base._commit() == "unknown"
    commit = ["commit", "-qm", "first", "--no-gpg-sign"]
    for arguments in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", *commit]):
        subprocess.run(["git", "-C", tmp_path, *arguments], check=True)
    clean = base._commit()
    (package / "code.py").write_text("changed")
    assert len(clean) >= 7 and " " not in clean
    assert base._commit() == f"{clean} with uncommitted changes"


def test_an_untrained_encoder_has_other_weights_and_the_same_data(tmp_path, monkeypatch):
    settings = Settings(data="digits", encoder="mlp", encoder_options={"width": 8, "out": 4}, epochs=1, max_rows=80)
    monkeypatch.setattr("krepes.reproduce.trial.recipe", lambda data, **rest: settings)
    trial = Trial(SCALES["quick"], 0, None, tmp_path)
    made = trial.experiment("digits")
    fresh, again = trial.untrained(made), trial.untrained(made)
    assert fresh.test is made.test and fresh.stream is made.stream
    assert not torch.equal(fresh.encoder(made.test), made.encoder(made.test))
    assert torch.equal(fresh.encoder(made.test), again.encoder(made.test))


def selected(dear=(), fell=0.0, peak=0.1):
    """A made-up table of all grids: retrieval costs three points on the ``dear`` ones and nothing elsewhere."""
    rows = []
    for data in grids.DATA:
        for grid in (*grids.GRIDS, *([spectral.ONE] if data == "mnist" else [])):
            for name in (*grids.CRITERIA, grids.RANDOM):
                cost = 3.0 if (data, grid) in dear else 0.0 if name == "retrieval" else 1.0
                rows += [(data, grid, grids.COST, name, cost), (data, grid, grids.FELL, name, fell)]
            for at in grids.GRIDS["lam"]:
                best = {name: float(at == peak) for name in grids.CRITERIA} | {grids.PROBE: float(at == 0.1)}
                rows += [(data, grid, f"{at:g}", name, value) for name, value in best.items()]
    return pd.DataFrame(rows, columns=[*spectral.KEYS, "mean"])


def test_a_recommended_criterion_must_be_cheap_on_eight_of_ten_grids_and_never_pick_a_collapse():
    judge = TARGETS["spectral"].judge
    assert all(holds for _, holds in judge(selected()))
    dear = [("adult", "lam"), ("adult", "lr"), ("cifar10", "lam")]
    for count, wanted in ((1, [True, True]), (2, [True, False]), (3, [False, False])):
        found = judge(selected(dear[:count]))
        assert [holds for _, holds in found] == [*wanted, True, True]
        assert f"on {12 - count} of 12 grids (all)" in found[0][0]
    assert [holds for _, holds in judge(selected(fell=1.0))] == [True, True, True, False]
    assert not judge(selected([("mnist", grid) for grid in grids.GRIDS]))[2][1]


@pytest.mark.parametrize(("peak", "dear", "holds"), [(0.1, (), 5), (1.0, (), 5), (0.001, (), 0), (0.1, ("lam",), 1)])
def test_a_criterion_peaks_where_the_probe_does_or_the_reading_fails(peak, dear, holds):
    found = decide(TARGETS["spectral"].claims[0], selected([("mnist", grid) for grid in dear], peak=peak))
    assert sum(reading["holds"] for reading in found["readings"]) == holds
    assert f"peak at {peak:g}, of the probe at 0.1" in found["readings"][0]["figure"]
