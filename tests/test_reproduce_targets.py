"""Every target from end to end on embedded data in place of the real: digits for pictures, applicants for tables."""

from dataclasses import replace

import pandas as pd
import pytest
import torch

from krepes.audit import confidence_drop_of
from krepes.audit.rankings import landmark_samples
from krepes.encoders import FrozenEncoder
from krepes.preset import presets
from krepes.reproduce import (
    SCALES,
    TARGETS,
    Scale,
    alignment,
    consistency,
    coverage,
    demographics,
    encoders,
    faithfulness,
    reproduce,
    scalability,
)
from krepes.reproduce.base import Target
from krepes.reproduce.probes import probe_encoder, probe_input
from krepes.reproduce.trial import SETTINGS, Trial, objective_of, side_by_side
from krepes.runs.settings import Settings

TABLES = {"adult", "bank", "covertype", "higgs"}
DIGITS = Settings(data="digits", encoder="mlp", encoder_options={"width": 16, "out": 8}, augment="crops", max_rows=300)
PEOPLE = replace(DIGITS, data="applicants", label="group", augment="drop")
TINY = Scale(
    "quick", seeds=1, m=70, h=4, wide=5, test=40, rows=200, images=120, streamed=90, halves=4, retrainings=2
)  # a k-NN of 50 votes among landmarks after ten are deleted


@pytest.fixture
def embedded(monkeypatch):
    def recipe(data, *, loss, scale, seed):
        return replace(PEOPLE if data in TABLES else DIGITS, loss=loss, seed=seed, epochs=1)

    monkeypatch.setattr("krepes.reproduce.trial.recipe", recipe)
    monkeypatch.setattr("krepes.reproduce.grids.base", lambda data, seed: recipe(data, loss=None, scale="", seed=seed))
    monkeypatch.setattr("krepes.reproduce.grids.strong", lambda seed: recipe("mnist", loss=None, scale="", seed=seed))
    monkeypatch.setattr("krepes.reproduce.grids.STEP", {PEOPLE.data: 10, DIGITS.data: 10})
    monkeypatch.setattr("krepes.reproduce.grids.DATA", ("mnist", "adult"))
    monkeypatch.setattr(
        "krepes.reproduce.grids.GRIDS", {"lam": (0.01, 0.1), "lr": (1e-3, 1e-2), "spread weight": (0, 25)}
    )
    monkeypatch.setitem(SCALES, "quick", TINY)
    monkeypatch.setattr(coverage, "DRAWS", 2)
    monkeypatch.setitem(scalability.SIZES, "quick", {scalability.FULL: (210, 240), scalability.FIXED: (210, 240)})


SAID = ("| yes |", "**no**", "**holds", "**does not hold**")
NAMES = [
    "alignment",
    "consistency",
    "coverage",
    "encoders",
    "faithfulness",
    "init",
    "landmarks",
    "repulsive",
    "samples",
    "spectral",
]


@pytest.mark.parametrize("name", [*NAMES, "scalability"])
def test_a_target_runs_draws_and_judges(name, embedded, tmp_path):
    target: Target = TARGETS[name]
    table = reproduce(target, "quick", None, tmp_path)
    assert set(table.columns) >= {*target.keys, "mean", "seeds"}
    assert not table.duplicated(list(target.keys)).any()
    assert table["mean"].notna().mean() > 0.9
    if target.paper is not None:
        known = target.paper.merge(table, on=list(target.keys))
        assert len(known) == len(target.paper), "the paper's figures must stand beside rows that were measured"
    assert target.draw is None or (tmp_path / f"{name}-quick.png").stat().st_size > 5_000
    page = (tmp_path / f"{name}-quick.md").read_text()
    assert f"`krepes reproduce {name} --scale quick`" in page and any(word in page for word in SAID)


def test_groups_stand_side_by_side_under_our_settings_and_the_paper_s(embedded, tmp_path):
    """Digits in place of faces: the claims name groups that digits do not have."""
    made = Trial(TINY, 0, None, tmp_path)
    found = demographics.run(made)
    rows = found.rows.set_index(list(demographics.KEYS))["value"].sort_index()
    assert not rows.index.duplicated().any() and set(found.pictures) == {"influence", "latent-cosine"}
    for setting in SETTINGS:
        shares = rows[setting, "influence", "share"].drop("all").groupby(level=0).sum()
        assert shares.tolist() == pytest.approx([1.0] * len(shares))
        assert 0 < rows[setting, "influence", "p", "all", "their own"] <= 1
    assert not rows["ours", "influence"].equals(rows["paper", "influence"])


def test_a_trial_fits_by_the_preset_at_the_sizes_of_its_scale(embedded, tmp_path):
    trial = Trial(TINY, 0, None, tmp_path)
    made = trial.experiment("adult")
    ours, paper = trial.fit(made), trial.fit(made, preset="paper", m=20)
    assert (ours.m, paper.m, ours.h, paper.h) == (TINY.m, 20, TINY.h, TINY.h)
    assert ours.objective == "barlow_twins" and paper.objective_.centre is False
    for name in ("centre", "cosine", "landmarks", "init", "relative", "steps"):
        assert getattr(paper, name) == presets["paper"].arguments()[name]
    assert trial.fit(made, preset="paper", objective="simclr", tol=1e-3).n_samples_ == TINY.streamed
    table = side_by_side(lambda preset: pd.DataFrame([{"value": 1.0 if preset is None else 2.0}]))
    assert dict(zip(table["setting"], table["value"], strict=True)) == {"ours": 1.0, "paper": 2.0}
    assert objective_of(None, "byol") == "byol" and objective_of("paper", "byol").reduction == "sum"


def test_categories_are_one_column_and_one_for_each_value():
    table = pd.DataFrame({"slope": [1, 2, 3], "soil": pd.Categorical(["a", "b", "a"], categories=["a", "b", "c"])})
    found = alignment.tables_of(table)
    single = found[alignment.SINGLE]
    assert list(found) == [alignment.FOLDED, alignment.SINGLE]
    assert list(single) == ["slope", "soil_a", "soil_b", "soil_c"] and single["soil_a"].tolist() == [1.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("name", "claim"),
    [("alignment", "Adult: sex and relationship lead"), ("faithfulness", "Adult: both probes rank class")],
)
def test_one_data_set_alone_is_judged_by_its_own_claims(name, claim, embedded, tmp_path):
    reproduce(TARGETS[name], "quick", None, tmp_path, only=["adult"])
    page = (tmp_path / f"{name}-quick.md").read_text()
    assert claim in page and "Covertype" not in page.split(f"## {name}")[0]
    assert "--only adult" in page and (tmp_path / f"{name}-quick.png").exists()


def test_deletion_by_omega_takes_the_same_ten_landmarks_from_every_sample(embedded, tmp_path):
    trial = Trial(TINY, 0, None, tmp_path)
    made = trial.experiment("mnist")
    model = trial.fit(made)
    found = faithfulness._deleted(trial, made, model).set_index(["vote", "among", "method"])["estimate"]
    omega = model.dA_.square().sum(1).view(-1, len(model.landmark_ids_)).sum(0)  # over dimensions, then over views
    ten = omega.argsort(descending=True)[:10].tolist()
    encoder = FrozenEncoder(made.encoder)
    E, Z = encoder.encode(made.test), encoder.encode(landmark_samples(model))
    slow = confidence_drop_of({"ten": torch.tensor(len(E) * [ten])}, E, Z, made.landmark_labels(model))
    assert found["uniform", "any class", "omega"] == pytest.approx(slow["estimate"].item(), abs=1e-12)
    assert found["uniform", "any class", "omega"] != found["uniform", "any class", "influence"]


def test_neighbours_in_the_surrogate_s_space_are_nearest_by_the_cosine_of_its_embeddings(embedded, tmp_path):
    trial = Trial(TINY, 0, None, tmp_path)
    made = trial.experiment("mnist")
    model = trial.fit(made)
    Z, landmarks = (model.embed(X).double() for X in (made.test, landmark_samples(model)))
    found = consistency.surrogate_neighbours(made, model, k=3)
    for z, top in zip(Z, found, strict=True):
        near = torch.stack([z @ one / (z.norm() * one.norm()) for one in landmarks])
        assert near[top].tolist() == pytest.approx(near.sort(descending=True).values[:3].tolist(), abs=1e-12)


def test_seeds_that_share_encoders_do_not_train_them_in_the_same_order(embedded, tmp_path):
    found = [encoders.run(Trial(TINY, seed, None, tmp_path)).rows for seed in (0, 1)]
    first, second = ([name for name in dict.fromkeys(rows["data"])] for rows in found)
    assert first == second[::-1] == list(encoders.USES)
    assert not pd.concat(found).groupby(list(encoders.KEYS)).size().ne(2).any()


def test_seeds_share_probes_that_see_all_labels_and_judge_each_its_own_test_samples(embedded, tmp_path, monkeypatch):
    monkeypatch.setattr(encoders, "USES", {"mnist": ("barlow_twins",)})
    monkeypatch.setattr(encoders, "commit_of_code", lambda: "1234567")
    fits, plain = [], encoders.is_right
    monkeypatch.setattr(encoders, "is_right", lambda *seen: (fits.append(len(seen[0])), plain(*seen))[1])
    for seed in (0, 1):
        trial = Trial(TINY, seed, None, tmp_path)
        made = trial.experiment("mnist")
        found = encoders.run(trial).rows.set_index("measure")["value"]
        assert found["probe accuracy"] == pytest.approx(probe_encoder(made, made.stream.n), abs=1e-3)
        assert found[encoders.INPUT] == pytest.approx(probe_input(made, made.stream.n), abs=1e-3)
    assert fits == [240, 240], "one on the encoder and one on the input, with all training rows"
    monkeypatch.setattr(encoders, "commit_of_code", lambda: "1234567 with uncommitted changes")
    encoders.run(trial)
    encoders.run(trial)
    assert len(fits) == 6, "code that no commit tells keeps nothing"
