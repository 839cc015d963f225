"""Faults that once survived the tests: each of these fails if its fault is planted again."""

import io

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console
from scipy import stats

from krepes import registry
from krepes.audit import class_coverage
from krepes.cli import show
from krepes.concepts import ConceptVector, Significance
from krepes.concepts.vector import ConceptSettings
from krepes.runs.answers import study
from krepes.runs.augment import open_stream
from krepes.runs.dataset import open_dataset, split
from krepes.runs.fitting import fit
from krepes.runs.settings import Settings
from krepes.views.source import all_of


@pytest.fixture(scope="module")
def space(tmp_path_factory):
    """A run whose id, group and label tell their own row, so that no index can stand in for another unseen."""
    folder = tmp_path_factory.mktemp("faults")
    rng = np.random.default_rng(0)
    n = 150
    frame = pd.DataFrame({
        "who": [f"p{i}" for i in range(n)],
        "row": [f"r{i}" for i in range(n)],
        "colour": rng.choice(["red", "green", "blue"], n),
        "x": rng.normal(size=n),
        "y": rng.normal(size=n),
    })
    frame.to_csv(folder / "t.csv", index=False)
    settings = Settings(data=str(folder / "t.csv"), id_column="who", exclude=("row",), kernel="rbf", m=20, h=4, seed=3)
    return fit(settings, folder / "run", progress=False), frame


def test_every_label_belongs_to_the_sample_it_is_shown_with(space):
    """Training, held-out and landmark values are looked up in three index spaces: each must be its own."""
    run, frame = space
    of = dict(zip(frame["who"], frame["row"], strict=True))
    assert list(run.of_train("row")) == [of[id] for id in run.train_ids]
    assert list(run.of_test("row")) == [of[id] for id in run.test_ids]
    assert list(run.of_landmarks("row")) == [of[id] for id in run.model.landmark_ids_]
    X = {id: run.asked.take(torch.tensor([run.asked.place(id)])) for id in run.test_ids[:5]}
    torch.testing.assert_close(run.samples(run.test_ids[:5]), torch.cat(list(X.values())))
    train, test = run.tables
    assert list(train["row"]) == list(run.of_train("row")) and list(test["row"]) == list(run.of_test("row"))


def test_the_groups_of_an_audit_are_those_of_its_landmarks(space):
    """Every sample is a group of its own: a landmark's group must be the landmark itself."""
    run, frame = space
    asked = study(run, groups=["row"])
    of_landmarks = asked.of_landmarks(asked.groups["row"][0])
    of = dict(zip(frame["who"], frame["row"], strict=True))
    assert of_landmarks == [of[id] for id in run.model.landmark_ids_]


def test_members_of_a_group_are_of_that_group(space):
    run, frame = space
    inside, outside = run.members("colour", "red")
    red = {id for id, colour in zip(frame["who"], frame["colour"], strict=True) if colour == "red"}
    expected = [id for id in run.train_ids if id in red]
    torch.testing.assert_close(all_of(inside), run.samples(expected))
    torch.testing.assert_close(all_of(outside), run.samples([id for id in run.train_ids if id not in red]))


def test_default_views_drop_a_category_as_a_whole(space):
    run, frame = space
    settings = Settings(
        data=run.settings.data, id_column="who", exclude=("row",), augment_options={"drop": 0.5, "noise": 0.0}
    )
    dataset = open_dataset(settings)
    stream = open_stream(settings, dataset, split(dataset.n, settings)[0])
    columns = dataset.encoding.groups["colour"]
    dropped = (stream.views_of(torch.arange(100))[..., list(columns)] == 0).all(-1)
    kept = (stream.views_of(torch.arange(100))[..., list(columns)] != 0).any(-1)
    one_hot = stream.plain(torch.arange(100))[:, list(columns)]
    assert 0.3 < float(dropped.double().mean()) < 0.7
    views = stream.views_of(torch.arange(100))[..., list(columns)]
    assert bool((views[kept] == one_hot.expand(2, -1, -1)[kept]).all()), "a view shows the whole category or none of it"


@pytest.mark.parametrize(
    "text", ["[red]stop[/red]", "[link=http://x]a[/link]", "a\x1b[31mb", "back\x08space", "\u202eabc"]
)
def test_markup_and_escapes_from_data_are_shown_as_they_are(monkeypatch, text):
    out = io.StringIO()
    monkeypatch.setattr(show, "console", Console(file=out, force_terminal=True, width=100, color_system="standard"))
    show.show_frame(pd.DataFrame({text: [text]}), text)
    shown = out.getvalue()
    assert "\x1b[31m" not in shown and "\x08" not in shown and "\u202e" not in shown
    if "\x1b" not in text and "\x08" not in text and "\u202e" not in text:
        assert shown.count(text) == 3


def test_the_random_interval_of_coverage_is_that_of_random_orders():
    """Two classes, one of them once among 50: the landmarks needed are uniform over 1..50, but for the first."""
    labels = ["a"] * 49 + ["b"]
    found = class_coverage(torch.rand(50, generator=torch.Generator().manual_seed(0)), labels, orders=20_000)
    assert found.random == pytest.approx(25.98, abs=0.5)
    assert found.random_low == pytest.approx(2, abs=1) and found.random_high == pytest.approx(49, abs=1)


def test_significance_at_few_draws_has_the_factor_of_a_single_observation():
    null = torch.tensor([0.50, 0.55, 0.45, 0.60, 0.40], dtype=torch.float64)
    value = torch.tensor(0.75, dtype=torch.float64)
    t = (0.75 - 0.5) / (null.std() * np.sqrt(1 + 1 / 5))
    assert float(Significance(value, null).p_value) == pytest.approx(2 * stats.t.sf(float(t), df=4), rel=1e-12)
    wrong = 2 * stats.t.sf(float((0.75 - 0.5) / null.std()), df=4)
    assert float(Significance(value, null).p_value) > 1.15 * wrong


def test_p_values_of_random_concepts_are_uniform():
    """Without the factor, five draws would call a tenth of all random values significant at five per cent."""
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(6, 4000, generator=generator, dtype=torch.float64)
    p = Significance(draws[0], draws[1:]).p_value
    assert float((p <= 0.05).double().mean()) == pytest.approx(0.05, abs=0.012)


def test_each_fit_of_a_concept_holds_out_another_third():
    """With one seed for all splits every draw would be judged on the same positives."""
    generator = torch.Generator().manual_seed(0)
    Z, W = (torch.randn(30, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    W = W[:30].repeat(1, 1)
    found = ConceptVector.of_embeddings(Z, W, settings=ConceptSettings(resamples=20, random_concepts=20))
    assert len(set(found.accuracies.tolist())) > 3
    again = ConceptVector.of_embeddings(Z, W, settings=ConceptSettings(resamples=20, random_concepts=20))
    assert torch.equal(found.accuracies, again.accuracies)


def test_registries_name_what_they_say():
    for table in (registry.OBJECTIVES, registry.LANDMARKS, registry.AUDITS):
        for name, made in registry.loaded(table).items():
            assert made.name == name
    for table in (registry.ENCODERS, registry.LOSSES, registry.KERNELS, registry.AUGMENTATIONS, registry.DATASETS):
        assert all(callable(made) for made in registry.loaded(table).values())
