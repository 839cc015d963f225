"""Growing a table: marginals and associations hold, what must agree agrees; and the measures of that are right."""

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr
from scipy.stats.contingency import association

from krepes.data import adult
from krepes.data.adult_1m import adult_1m
from krepes.data.likeness import associations, compare, marginal_difference
from krepes.errors import InvalidInputError

EDUCATION = ["11th", "HS-grad", "Some-college", "Bachelors", "Masters"]


@pytest.fixture(scope="module")
def census():
    """Made-up people: income follows education and age, relationship follows sex and marital status."""
    rng = np.random.default_rng(0)
    n = 2000
    level, age = rng.integers(5, size=n), rng.integers(17, 80, n)
    married, male = rng.random(n) < 0.5, rng.random(n) < 0.6
    rich = rng.random(n) < 1 / (1 + np.exp(-(level - 2 + (age - 45) / 15)))
    return pd.DataFrame({
        "age": age,
        "education": np.array(EDUCATION)[level],
        "education-num": level + 7,
        "marital-status": np.where(married, "Married", "Single"),
        "relationship": np.where(married, np.where(male, "Husband", "Wife"), "Unmarried"),
        "sex": np.where(male, "Male", "Female"),
        "workclass": pd.Series(rng.choice(["Private", "State", "None"], n)).replace("None", np.nan),
        "hours-per-week": np.clip(rng.normal(30 + 2 * level + 5 * male, 5), 1, 99).round(),
        "income": np.where(rich, ">50K", "<=50K"),
    })


@pytest.fixture(scope="module")
def grown(census):
    return adult_1m(census, 20_000, seed=1)


def test_marginals_hold(census, grown):
    # Copies serve ten times each; partners make up half of a column, noise about sqrt(0.5 * 20000) / 20000 = 0.005.
    assert compare(census, grown).worst_marginal < 0.015


def test_associations_hold_up_to_what_cells_lose(census, grown):
    likeness = compare(census, grown)
    assert likeness.worst_association < 0.06
    assert likeness.associations["original"].max() > 0.9


def test_shuffled_columns_would_be_caught(census, grown):
    rng = np.random.default_rng(0)
    shuffled = pd.DataFrame({name: rng.permutation(grown[name].to_numpy(object)) for name in grown}).astype(
        grown.dtypes
    )
    likeness = compare(census, shuffled)
    assert likeness.worst_marginal < 0.015
    assert likeness.worst_association > 0.9


def test_what_must_agree_agrees(census, grown):
    for block in (["education", "education-num"], ["marital-status", "relationship", "sex"]):
        assert set(grown[block].itertuples(index=False)) <= set(census[block].itertuples(index=False))


def test_types_columns_and_gaps_are_kept(census, grown):
    pd.testing.assert_series_equal(grown.dtypes, census.dtypes)
    assert len(grown) == 20_000
    assert grown["workclass"].isna().mean() == pytest.approx(census["workclass"].isna().mean(), abs=0.015)


def test_most_rows_are_new_unless_nothing_is_swapped(census, grown):
    assert compare(census, grown).new > 0.5
    copies = compare(census, adult_1m(census, 4000, swap=0.0))
    assert (copies.new, copies.worst_marginal, copies.worst_association) == pytest.approx((0, 0, 0), abs=1e-12)


def test_the_seed_decides(census, grown):
    pd.testing.assert_frame_equal(adult_1m(census, 20_000, seed=1), grown)
    assert not adult_1m(census, 20_000, seed=2).equals(grown)


def test_too_few_rows_are_refused(census):
    with pytest.raises(InvalidInputError, match="5 rows are too few to grow from"):
        adult_1m(census[:5], 100)
    with pytest.raises(InvalidInputError, match=r"swap=0\.9 is out of range"):
        adult_1m(census, 100, swap=0.9)


def test_associations_are_those_of_the_textbooks(census):
    found = associations(census).set_index(["first", "second"])["association"]
    table = pd.crosstab(census["education"], census["income"])
    assert found["education", "income"] == pytest.approx(association(table, method="cramer"), rel=1e-10)
    assert found["age", "hours-per-week"] == pytest.approx(
        abs(spearmanr(census["age"], census["hours-per-week"]).statistic), rel=1e-10
    )
    ranks = census["age"].rank()
    explained = ranks.groupby(census["income"]).transform("mean").var() / ranks.var()
    assert found["age", "income"] == pytest.approx(explained**0.5, rel=1e-10)


def test_marginal_differences_by_hand():
    assert marginal_difference(pd.Series(["a", "b"]), pd.Series(["a", None])) == pytest.approx(0.5)
    assert marginal_difference(pd.Series([1.0, 2.0, 3.0, 4.0]), pd.Series([3.0, 4.0])) == pytest.approx(0.5)


def test_tables_of_other_columns_are_not_compared(census):
    with pytest.raises(InvalidInputError, match="two tables of the same columns"):
        compare(census, census.drop(columns="age"))


@pytest.mark.realdata
def test_adult_grown_to_a_million_keeps_its_marginals_and_associations():
    data = adult.load(split="all")
    frame = data.frame.assign(income=data.labels)
    likeness = compare(frame, adult_1m(frame))
    print(f"\nadult to 1,000,000 rows: {likeness}")
    assert likeness.worst_marginal < 0.005
    assert likeness.worst_association < 0.05


ROWS = """
import pandas as pd
from krepes.data import adult
from krepes.data.adult_1m import adult_1m
found = adult.load()
print(pd.util.hash_pandas_object(adult_1m(found.frame.assign(label=found.labels), 50_000), index=False).sum())
"""


@pytest.mark.realdata
def test_the_number_of_threads_changes_no_row():
    """A run that was fitted with two threads is opened with one: its data must be the same."""
    sums = set()
    for threads in ("1", "2"):
        threaded = os.environ | {
            name: threads for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        }
        sums.add(subprocess.run([sys.executable, "-c", ROWS], env=threaded, capture_output=True, check=True).stdout)
    assert len(sums) == 1
