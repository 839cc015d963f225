"""The intervention at a glance: the best baseline is named with its sign, and costs are medians by number of rows."""

import pandas as pd
import pytest

from krepes.proof.result import CEILING, TRAINING
from krepes.proof.subject import MARGIN, PAIR
from krepes.reproduce.intervention import INTERVENTION, KEYS, ROWS
from krepes.reproduce.ladder import SECONDS
from krepes.reproduce.overview import SLOPE, costs, studies


def table():
    lines = []
    for number, (data, loss) in enumerate([("adult", "vicreg"), ("adult", "byol"), ("adult-3000", "vicreg")]):
        for outcome in (MARGIN, PAIR):
            scores = {"lazy": 0.2, "TRAK": 0.1, "latent cosine": -0.3, "warm": 0.4 + 0.1 * number, CEILING: 0.7}
            lines += [(data, loss, outcome, *line) for line in scores.items()]
            lines.append((data, loss, outcome + SLOPE, "warm", 1.5))
        lines += [(data, loss, SECONDS, *line) for line in {"warm": 6.0 + number, TRAINING: 2.0}.items()]
    return pd.DataFrame(lines, columns=[*KEYS, "mean"]).assign(spread=float("nan"))


def test_every_study_has_a_line_for_each_outcome_with_its_best_baseline():
    found = studies(table())
    assert list(zip(found["data"], found["loss"], found["outcome"], strict=True))[:3] == [
        ("adult", "vicreg", MARGIN),
        ("adult", "vicreg", PAIR),
        ("adult", "byol", MARGIN),
    ]
    assert found.columns.tolist()[3:] == ["ceiling", "warm", "lazy", "best baseline", "slope of warm"]
    assert found["warm"].tolist() == ["0.4", "0.4", "0.5", "0.5", "0.6", "0.6"]
    assert set(found["best baseline"]) == {"-0.3 latent cosine"} and set(found["slope of warm"]) == {1.5}


def test_costs_are_medians_over_studies_of_as_many_rows():
    found = costs(table(), ROWS).set_index(["rows", "rung"])
    assert found.loc[("300", "warm"), "seconds for an outcome"] == 6.5
    assert found.loc[("300", "warm"), "for an outcome and 1,000 rows"] == pytest.approx(6.5 / 0.3)
    assert found.loc[("3,000", "warm"), "for an outcome and 1,000 rows"] == pytest.approx(8 / 3)
    assert found.loc[("300", "warm"), "in trainings"] == 3.25 and found.loc[("300", TRAINING), "in trainings"] == 1
    assert found["studies"].tolist() == [2, 2, 1, 1]


def test_the_target_has_both():
    assert [len(digest(table())) for digest in INTERVENTION.digests.values()] == [6, 4]
