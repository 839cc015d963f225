"""Groups of audits: many numbers or dates in quarters of training, too many groups left out with the reason."""

import numpy as np
import pandas as pd
import pytest
import torch

from krepes import registry
from krepes.audit.grouping import groupings, in_quarters
from krepes.audit.questions import groups
from krepes.audit.study import Study
from krepes.kernels.classic import RBF
from krepes.model import Krepes
from krepes.runs import Settings, fit, study
from krepes.views import GaussianNoise

N, T = 200, 60
GROUPS, PROXY = (registry.load(registry.AUDITS[name]) for name in ("groups", "proxy"))


@pytest.fixture(scope="module")
def model():
    # float64: near 100 landmarks a smooth kernel in float32 is down to its rounding, which differs between kinds of CPU
    X = torch.randn(N + T, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return Krepes(RBF(2.0), m=100, h=3, augment=GaussianNoise(0.1), progress=False).fit(X[:N]), X[N:]


def asked(model, **columns):
    return Study(*model, groups={name: (values[:N], values[N:]) for name, values in columns.items()})


DATES = pd.Series(pd.Timestamp("2020-01-01") + pd.to_timedelta(range(8), unit="D"))
CASES = {
    "numbers": (range(8), [-5.0, 3.0, 99.0], ["0 to 1", "2 to 3", "6 to 7"]),
    "dates": (DATES, DATES[[0, 7]], ["2020-01-01 to 2020-01-02", "2020-01-07 to 2020-01-08"]),
    "missing": ([*range(8), np.nan], [np.nan, 7], ["(missing)", "6 to 7"]),
    "mostly the largest": ([0.0, 1.0, *[9.0] * 20], [0.0, 9.0], ["0 to 1", "9"]),
    "mostly the smallest": ([0.0] * 20 + [1.0, 2.0], [0.0, 2.0], ["0", "1 to 2"]),
    "alike to five digits": ([1 + i * 1e-9 for i in range(8)], [0.0], ["1 (quarter 1)"]),
}


@pytest.mark.parametrize("case", CASES)
def test_quarters_are_named_by_what_training_shows_of_them(case):
    train, test, wanted = CASES[case]
    found = in_quarters(pd.Series(train), pd.Series(test))
    assert found[1].tolist() == wanted and len(found[0]) == len(pd.Series(train))
    assert len(set(found[0]) - {"(missing)"}) <= 4


def test_quarters_have_a_quarter_of_training_each():
    values = pd.Series(np.random.default_rng(0).normal(size=1001))
    sizes = pd.Series(in_quarters(values, values)[0]).value_counts()
    assert len(sizes) == 4 and sizes.min() >= 249


def test_many_numbers_are_cut_and_few_are_not(model):
    many, few = [i % 40 for i in range(N + T)], [i % 12 for i in range(N + T)]
    words = [f"{i % 40}" for i in range(N + T)]
    found = groupings(asked(model, many=many, few=few, words=words))
    assert len(set(found["many"][0])) == 4 and set(found["few"][0]) == set(range(12))
    assert list(found["words"][0]) == words[:N]
    names = set(groups.measure(asked(model, many=many)).table["group"])
    assert names == {"0 to 9", "10 to 19", "20 to 29", "30 to 39"}


def test_more_than_fifty_groups_are_left_out_with_the_reason(model):
    words = [f"name {i % 60}" for i in range(N + T)]
    result = GROUPS(asked(model, who=words))
    size = result.sentence.split()[6]
    assert 50 < int(size) <= 60
    assert result.sentence == (
        f"who is left out: it has {size} groups, of which at most 50 are crossed: make a column of fewer values and "
        f"pass it in groups=."
    )
    assert result.verdict == "neutral" and result.headline is None and result.findings == () and not result.figures
    assert result.plain == result.sentence and result.views[0].rows[0][0] == "who"
    both = GROUPS(asked(model, who=words, side=["left", "right"] * ((N + T) // 2)))
    assert both.sentence.startswith("By side, ") and both.sentence.endswith("pass it in groups=.")
    assert [view.caption for view in both.views][-1] == "Columns that were left out"
    assert both.headline is not None and set(both.table["method"]) > {"influence", "left out"}


def test_a_hidden_date_of_a_csv_is_audited_in_quarters(tmp_path):
    rng = np.random.default_rng(0)
    days = rng.permutation(N)
    born = pd.Series(pd.Timestamp("1990-01-01") + pd.to_timedelta(days, unit="D")).dt.strftime("%Y-%m-%d")
    pd.DataFrame({"born": born, "income": days * 1.0, "x": rng.normal(size=N)}).to_csv(tmp_path / "a.csv", index=False)
    settings = Settings(data=str(tmp_path / "a.csv"), sensitive=("born",), kernel="rbf", m=20, h=2)
    found = study(fit(settings, tmp_path / "run", progress=False))
    table = GROUPS(found).table
    assert table["group"].nunique() == 4 and table["group"].str.fullmatch(r"1990-\d\d-\d\d to 1990-\d\d-\d\d").all()
    proxy = PROXY(found).table.set_index("measure")["estimate"]
    assert proxy["majority"] < 0.5
