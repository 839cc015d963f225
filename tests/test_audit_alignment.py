"""Feature Alignment Gap: against loops, in pieces, on constant and missing values, on a planted truth."""

from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from krepes.attribution import attribute
from krepes.audit import AlignmentSum, FeatureSpace, alignment_gap, alignment_of, fold_one_hot
from krepes.audit.alignment import draw_sets
from krepes.audit.features import agreement
from krepes.audit.intervals import RunningMean
from krepes.audit.permutation import holm
from krepes.audit.shuffles import LEVEL, enough_draws, landmark_orders, pair_sums
from krepes.data.synthetic import applicants
from krepes.errors import InvalidInputError
from krepes.kernels.classic import RBF
from krepes.model import Krepes
from krepes.preset import presets
from krepes.views import GaussianNoise
from oracles import audit as oracle
from peak import peak_rise

TIGHT = {"rtol": 1e-10, "atol": 1e-12}  # float64 sums of at most a few hundred terms


def table(n, seed):
    rng = np.random.default_rng(seed)
    return pd.DataFrame({
        "age": rng.integers(18, 80, n),
        "wage": rng.lognormal(3, 1, n),
        "town": rng.choice(["Bonn", "Graz", "Lyon"], n),
        "member": rng.random(n) < 0.5,
    })


@pytest.fixture
def problem(generator):
    train = table(100, 0)
    return torch.randn(12, 30, generator=generator).double(), table(12, 1), train.iloc[:30], FeatureSpace.of(train)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("variant", ["raw", "normalised"])
def test_gap_equals_loops_over_samples_sets_and_columns(problem, variant):
    scores, rows, landmark_rows, space = problem
    found = alignment_of(scores, rows, landmark_rows, space, k=4, sets=20).frame
    found = found[found["variant"] == variant].set_index("column")["estimate"]
    train = table(100, 0)
    spans = {name: float(train[name].max() - train[name].min()) for name in ("age", "wage")}
    sets = draw_sets(12, 20, 4, 30, generator=seeded()).tolist()
    wanted = oracle.alignment(
        scores.tolist(), rows, landmark_rows, spans | {"town": None, "member": None}, sets, 4,
        normalise=variant == "normalised",
    )  # fmt: skip
    assert_close(torch.tensor(found.to_numpy()), torch.tensor([wanted[name] for name in found.index]), **TIGHT)


def holed(n, seed):
    """A table of every kind of column, with values missing and, for rows that are no training rows, out of range."""
    rng = np.random.default_rng(seed)
    day = pd.Series(pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D"))
    frame = table(n, seed).assign(day=day.mask(rng.random(n) < 0.2))
    return frame.assign(wage=frame["wage"].mask(rng.random(n) < 0.2), town=frame["town"].mask(rng.random(n) < 0.2))


@pytest.mark.parametrize("variant", ["raw", "normalised"])
def test_null_equals_loops_over_orders_of_the_landmarks(generator, variant):
    train, rows = holed(30, 0), holed(6, 1)
    space, landmark_rows = FeatureSpace.of(train), train.iloc[:9]
    scores = torch.randn(6, 9, generator=generator).double()
    total = AlignmentSum(space.encode(rows), space.encode(landmark_rows), space.defined, k=3, draws=15)
    total.add(scores[:2], total.x[:2])
    total.add(scores[2:], total.x[2:])
    found = total.frame(space).query("variant == @variant").set_index("column")
    spans = {name: train[name].max() - train[name].min() for name in ("age", "wage", "day")}
    gaps = oracle.shuffled_alignment(
        scores.tolist(), rows, landmark_rows, spans | {"town": None, "member": None},
        draw_sets(6, 20, 3, 9, generator=seeded()).tolist(), 3, total._shuffled._orders.tolist(),
        normalise=variant == "normalised",
    )  # fmt: skip
    for name, values in gaps.items():
        row, null = found.loc[name], values[1:]
        wanted = [values[0], null.mean(), *np.quantile(null, (0.05, 0.95)), (1 + (null >= values[0] - 1e-9).sum()) / 16]
        np.testing.assert_allclose(
            row[["estimate", "null", "null_low", "null_high", "p"]].astype(float), wanted, 1e-9, 1e-12
        )
    assert sorted(found["p_corrected"]) == sorted(holm(torch.tensor(found["p"].to_numpy())).tolist())


def test_sums_over_sorted_samples_equal_the_table_of_all_pairs(generator):
    """Values at every distance: near, just below and above 1 and 2, codes, missing, unseen, far out of range."""
    near = 5 * torch.rand(40, generator=generator, dtype=torch.float64)
    x = torch.cat([near, torch.tensor([0.0, 0.9, 1.9, 2.9, 3.0, 1e9, -1e9, 1e9, 7e5, 1e300], dtype=torch.float64)])
    z = torch.tensor([0.0, 0.7, 1.6, 2.5, 3.0, 4.0, 1e9], dtype=torch.float64)
    for part in (x, x[40:], x[-1:]):
        W = torch.randn(len(part), 6, generator=generator, dtype=torch.float64)
        assert_close(pair_sums(W, part, z), agreement(part[:, None], z).T @ W, **TIGHT)


def test_null_of_the_normalised_gap_is_centred_at_zero_and_that_of_the_raw_one_is_not(problem):
    """Over all orders the mean is zero exactly; 2000 random ones come within four of their own standard errors."""
    scores, rows, landmark_rows, space = problem
    frame = alignment_of(scores, rows, landmark_rows, space, k=4, draws=2000).frame
    ours = frame[frame["variant"] == "normalised"]
    error = (ours["null_high"] - ours["null_low"]) / 3.29 / 2000**0.5
    assert bool((ours["null"].abs() < 4 * error).all())
    raw = frame[frame["variant"] == "raw"]
    assert bool((raw["null_low"] > 0).all())


def test_a_column_that_all_landmarks_share_is_never_beyond_its_null(problem):
    """Every order gives the same sum up to round-off, at any scale of the scores."""
    scores, rows, landmark_rows, space = problem
    for scale in (1e-8, 1.0, 1e8):
        found = alignment_of(scale * scores, rows, landmark_rows.assign(town="Bonn", wage=1.0), space, k=4).frame
        assert set(found[found["column"].isin(["town", "wage"])]["p"]) == {1.0}


def test_of_a_large_test_set_every_third_sample_makes_the_null_in_any_pieces(problem, monkeypatch):
    scores, rows, landmark_rows, space = problem
    monkeypatch.setattr("krepes.audit.alignment.MOST_SAMPLES", 4)
    x, z = space.encode(rows), space.encode(landmark_rows)
    totals = []
    for pieces in ([slice(0, 12)], [slice(0, 1), slice(1, 6), slice(6, 8), slice(8, 12)]):
        total = AlignmentSum(x, z, space.defined, k=4, draws=50)
        for part in pieces:
            total.add(scores[part], x[part])
        totals.append(total)
    frames = [total.frame(space) for total in totals]
    pd.testing.assert_frame_equal(*frames, rtol=1e-9)
    assert [total._shuffled._n for total in totals] == [4, 4]


def test_enough_shuffles_for_a_p_that_survives_correction():
    assert all(c / (1 + enough_draws(c)) < 0.05 for c in (1, 30, 49, 50, 51, 784))


def test_pieces_change_nothing_but_round_off(problem):
    scores, rows, landmark_rows, space = problem
    whole = alignment_of(scores, rows, landmark_rows, space, k=4).frame
    x, z = space.encode(rows), space.encode(landmark_rows)
    three = 8 * 3 * 4 * 8 * 21 * 4 * x.shape[1]  # three samples in an eighth of it
    total = AlignmentSum(x, z, space.defined, k=4, memory_budget=three)
    for part in (slice(0, 5), slice(5, 12)):
        total.add(scores[part], total.x[part])
    pd.testing.assert_frame_equal(whole, total.frame(space), rtol=1e-10)


def test_sets_are_distinct_and_every_landmark_is_equally_likely():
    sets = draw_sets(3000, 20, 3, 8, generator=seeded())
    assert bool((sets.sort(-1).values.diff(dim=-1) > 0).all())
    # 180,000 draws over 8 landmarks: a standard deviation of 0.6 % of each count.
    assert_close(torch.bincount(sets.flatten()) / 22_500, torch.ones(8), rtol=0, atol=0.03)
    assert_close(draw_sets(1, 1, 8, 8, generator=seeded()).flatten().sort().values, torch.arange(8))


def test_normalised_gap_ignores_the_scale_of_scores_and_raw_follows_it(problem):
    scores, rows, landmark_rows, space = problem
    one, ten = (alignment_of(c * scores, rows, landmark_rows, space, k=4) for c in (1, 10))
    pd.testing.assert_frame_equal(one.ranked(), ten.ranked(), rtol=1e-9)
    raw_one, raw_ten = (found.ranked("raw")["estimate"] for found in (one, ten))
    pd.testing.assert_series_equal(10 * raw_one, raw_ten)


def test_equal_scores_have_no_normalised_gap_though_raw_and_top_differ(generator):
    """Weights alike and the top chosen without regard to the columns: only chance remains."""
    train = table(400, 0)
    rows, landmark_rows = table(600, 1), train.iloc[:50]
    scores = 1 + 1e-9 * torch.rand(600, 50, generator=generator, dtype=torch.float64)
    found = alignment_of(scores, rows, landmark_rows, FeatureSpace.of(train)).ranked()
    assert bool((found["estimate"].abs() < 0.03).all())


def test_constant_columns_are_undefined_with_a_reason():
    train = table(50, 0).assign(country="AT", year=2020)
    found = alignment_of(torch.rand(4, 50), train[:4], train, FeatureSpace.of(train))
    undefined = found.frame[found.frame["estimate"].isna()]
    assert set(undefined["column"]) == {"country", "year"}
    assert set(undefined["note"]) == {"constant in the 50 training rows"}
    assert list(found.ranked()["column"][-2:]) == ["country", "year"]


def test_missing_agrees_with_missing_only_and_unseen_with_nothing():
    train = pd.DataFrame({"wage": [0.0, 10.0, np.nan], "town": ["Bonn", "Graz", None]})
    space = FeatureSpace.of(train)
    x = space.encode(pd.DataFrame({"wage": [np.nan, 5.0, 25.0], "town": [None, "Graz", "Oslo"]}))
    v = 1 - (x[:, None] - space.encode(train)).abs().clamp_max(1)
    assert v[..., 0].tolist() == [[0, 0, 1], [0.5, 0.5, 0], [0, 0, 0]]
    assert v[..., 1].tolist() == [[0, 0, 1], [0, 1, 0], [0, 0, 0]]


@pytest.mark.parametrize("stored", ["str", object])
def test_texts_are_placed_as_python_sorts_them_however_they_are_stored(stored):
    rng = np.random.default_rng(0)
    texts = [str(rng.choice(list("abäßzÅ𝔘é \U0001f600"))) + str(rng.integers(50)) for _ in range(400)]
    asked = pd.Series([*texts[:50], None, "absent", *texts[300:]], dtype=stored)
    train = pd.DataFrame({"text": pd.Series([*texts, None], dtype=stored)})
    order = sorted(set(texts))
    wanted = [1e9 if pd.isna(x) else order.index(x) if x in order else -1e9 for x in asked]
    assert FeatureSpace.of(train).encode(pd.DataFrame({"text": asked}))[:, 0].tolist() == wanted


def test_a_million_texts_that_all_differ_are_held_as_bytes_and_not_as_objects():
    pytest.importorskip("pandas", minversion="3")  # before, every text is an object
    code = """
        import numpy as np, pandas as pd, pyarrow as pa, pyarrow.compute
        from krepes.audit import FeatureSpace
        texts = pa.array(np.arange(1_000_000)).cast(pa.large_string())
        train = pd.DataFrame({"name": pd.arrays.ArrowStringArray(texts, dtype=pd.Series(["a"]).dtype)})
        FeatureSpace.of(train[:1000]).encode(train[:20])
        with measured():
            FeatureSpace.of(train).encode(train[:20])
    """
    assert peak_rise(code) < 105e6  # 141 MB with an object for each


def test_ranges_come_from_training_alone():
    space = FeatureSpace.of(pd.DataFrame({"wage": [0.0, 10.0]}))
    x = space.encode(pd.DataFrame({"wage": [1000.0, 4.0]}))
    assert_close(x[:, 0], torch.tensor([100.0, 0.4]).double())


def test_numbers_can_be_declared_categories():
    space = FeatureSpace.of(pd.DataFrame({"code": [1, 2, 9], "age": [1, 2, 3]}), categorical=["code"])
    assert set(space.categories) == {"code"}
    assert set(space.ranges) == {"age"}


def test_folding_one_hot_groups_gives_back_the_original_columns():
    people = applicants(200, seed=0)
    words = {name: people.groups[name] for name in ("group", "education")}
    folded = fold_one_hot(people.X, words)
    for name in words:
        codes = people.frame[name].cat.codes.to_numpy()
        np.testing.assert_array_equal(folded[name], codes)
    assert folded.shape[1] == 2 + people.X.shape[1] - 4 - 5


def test_refusals(problem):
    scores, rows, landmark_rows, space = problem
    with pytest.raises(InvalidInputError, match=r"lacks \['town'\]"):
        alignment_of(scores, rows.drop(columns="town"), landmark_rows, space)
    with pytest.raises(InvalidInputError, match="sets=5 is out of range: it must be at least 20"):
        alignment_of(scores, rows, landmark_rows, space, sets=5)
    with pytest.raises(InvalidInputError, match="do not fit 11 test rows and 30 landmark rows"):
        alignment_of(scores, rows[1:], landmark_rows, space)
    with pytest.raises(InvalidInputError, match="'wage' holds infinity"):
        FeatureSpace.of(pd.DataFrame({"wage": [1.0, np.inf]}))
    with pytest.raises(InvalidInputError, match="0 rows"):
        FeatureSpace.of(table(0, 0))


def rbf(d, seed):
    return RBF(2.0)


def network(d, seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(d, 32), nn.GELU(), nn.Linear(32, 16))


def planted(seed, *, kernel=rbf, n=600, t=400, preset=None):
    """A model of a population whose column 'group' drives the latent space, and its test rows."""
    people = applicants(n + t, seed=seed)
    own = {"m": 80, "h": 8, "augment": GaussianNoise(people.jitter), "progress": False, "seed": seed}
    given = own if preset is None else presets[preset].arguments(**own)
    model = Krepes(kernel(people.X.shape[1], seed), **given).fit(people.X[:n])
    landmark_rows = people.frame.iloc[model.landmarks_.tolist()]
    return people, model, people.X[n:], people.frame.iloc[n:], landmark_rows, FeatureSpace.of(people.frame[:n])


def test_model_level_call_equals_the_score_matrix_and_keeps_the_top():
    _, model, X, rows, landmark_rows, space = planted(0, n=200, t=50)
    found = alignment_gap(model, X, rows, landmark_rows, space, k=5, memory_budget=200_000)
    attribution = attribute(model, X)
    wanted = alignment_of(attribution.scores, rows, landmark_rows, space, k=5)
    pd.testing.assert_frame_equal(found.frame, wanted.frame, rtol=1e-9)
    assert_close(found.top.indices, attribution.top(5).indices)
    with pytest.raises(InvalidInputError, match="79 landmark rows were given for 80 landmarks"):
        alignment_gap(model, X, rows, landmark_rows[1:], space)
    with pytest.raises(InvalidInputError, match="49 rows were given for 50 test samples"):
        alignment_gap(model, X, rows[1:], landmark_rows, space)


@pytest.mark.parametrize("kernel", [rbf, pytest.param(network, marks=pytest.mark.slow)])
def test_planted_column_comes_first_above_every_noise_column_in_19_of_20_seeds(kernel):
    wins = 0
    for seed in range(20):
        people, model, X, rows, landmark_rows, space = planted(seed, kernel=kernel)
        found = alignment_gap(model, X, rows, landmark_rows, space, draws=0).ranked().set_index("column")
        noise = found.loc[list(people.noise_columns), "high"].max()
        wins += found.index[0] == people.driver and found.loc[people.driver, "low"] > noise
    assert wins >= 19


def unseen(n, seed):
    """Columns that have nothing to do with anything: a coin, a word, a number and a day, each with values missing."""
    rng = np.random.default_rng([seed, 1])
    day = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D")
    columns = {
        "coin": rng.choice(["heads", "tails"], n),
        "word": rng.choice(list("abcde"), n),
        "number": rng.normal(size=n),
        "day": day,
    }
    return pd.DataFrame({name: pd.Series(values).mask(rng.random(n) < 0.1) for name, values in columns.items()})


def judged(seed, *, kernel=rbf, agreement="indicator", preset=None):
    """Return both gaps of the columns of a planted population, unseen noise added, and the driver's name."""
    people, model, X, rows, _, space = planted(seed, kernel=kernel, preset=preset)
    whole = pd.concat([people.frame, unseen(len(people.frame), seed)], axis=1)
    train, rows = whole[:600], whole[600:]
    landmark_rows = train.iloc[model.landmarks_.tolist()]
    space = FeatureSpace.of(train, agreement=agreement)
    found = alignment_gap(model, X, rows, landmark_rows, space, seed=seed)
    return {variant: found.ranked(variant) for variant in ("normalised", "raw")}, people.driver


def excess(found):
    """Return the columns that pass their null, the largest gap above shuffles first."""
    passed = found[found["p_corrected"] <= LEVEL]
    return passed.loc[(passed["estimate"] - passed["null"]).sort_values(ascending=False).index, "column"].tolist()


WAYS = {
    "rbf": {"kernel": rbf},
    "network": {"kernel": network},
    "rbf, codes": {"kernel": rbf, "agreement": "codes"},
    "network, codes": {"kernel": network, "agreement": "codes"},
    "network, paper": {"kernel": network, "preset": "paper", "agreement": "codes"},
}
LEAST = {"network, paper": 0.5}
"""Without centring one direction holds most of the paper's kernel, and fewer planted columns show: 41 of 60."""


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_unseen_noise_is_flagged_in_at_most_5_percent_of_60_seeds_and_the_planted_column_comes_first(way):
    names, seeds = list(unseen(5, 0)), 60
    count = {variant: {"first": 0, "flagged": [], "bare": [], "sure": []} for variant in ("normalised", "raw")}
    for seed in range(seeds):
        both, driver = judged(seed, **WAYS[way])
        for variant, found in both.items():
            of, noise = count[variant], found.set_index("column").loc[names]
            of["first"] += excess(found)[:1] == [driver]
            of["flagged"].append(noise["p_corrected"] <= LEVEL)
            of["bare"].append(noise["p"] <= LEVEL)
            of["sure"].append(noise["low"] > 0)
    for variant, of in count.items():
        rates = [float(np.mean(of[key])) for key in ("flagged", "bare", "sure")]
        print(
            f"{way}, {variant}: planted column first in {of['first']} of {seeds} seeds; unseen noise flagged in "
            f"{rates[0]:.1%} (uncorrected {rates[1]:.1%}; an interval above zero flags {rates[2]:.1%})"
        )
        assert of["first"] >= LEAST.get(way, 0.95) * seeds
        assert np.mean(of["flagged"], axis=0).max() <= 0.05
        # 240 columns of true level 5 %: four standard deviations above it.
        assert rates[1] <= 0.05 + 4 * (0.05 * 0.95 / 240) ** 0.5


@pytest.mark.parametrize("way", ["rbf", "rbf, codes", "network, paper"])
def test_the_planted_column_passes_its_null_and_unseen_noise_does_not(way):
    for seed in range(2 if way == "rbf" else 1):
        both, driver = judged(seed, **WAYS[way])
        for found in both.values():
            passed = excess(found)
            assert not set(passed) & set(unseen(5, 0))
            assert way in LEAST or passed[0] == driver
        normalised = both["normalised"]
        assert way in LEAST or normalised[normalised["p_corrected"] <= LEVEL]["column"].iloc[0] == driver


def test_strong_landmarks_make_noise_look_sure_to_an_interval_but_not_to_the_null(generator):
    """Three landmarks attract everyone: what they happen to share shows in all samples. 200 bent coins."""
    rng = np.random.default_rng(0)
    train = pd.DataFrame({f"coin {j}": rng.random(300) < 0.8 for j in range(200)})
    scores = torch.rand(80, 30, generator=generator).double() + 2.0 * (torch.arange(30) < 3)
    found = alignment_of(scores, train[200:280], train[:30], FeatureSpace.of(train), k=3).ranked()
    assert (found["low"] > 0).mean() > 0.2
    assert (found["p"] <= 0.05).mean() < 0.05 + 4 * (0.05 * 0.95 / 200) ** 0.5
    assert not (found["p_corrected"] <= LEVEL).any()


def test_a_shuffled_driver_column_does_not_win():
    """The control of the planted truth: the same model, the driver's column torn from its rows."""
    people, model, X, rows, landmark_rows, space = planted(0)
    rng = np.random.default_rng(0)
    rows, landmark_rows = (
        frame.assign(group=frame["group"].sample(frac=1, random_state=rng).to_numpy())
        for frame in (rows, landmark_rows)
    )
    found = alignment_gap(model, X, rows, landmark_rows, space).ranked().set_index("column")
    assert found.index[0] == people.proxy
    assert abs(found.loc["group", "estimate"]) < 0.05


def test_corrected_intervals_hold_all_columns_together():
    """Of twelve means of noise, each in its interval in 95 % of cases, all are in 54 %, and corrected in 95."""
    single, together = 0, 0
    draw = torch.Generator().manual_seed(0)
    for _ in range(400):
        total = RunningMean()
        total.add(torch.randn(60, 12, generator=draw))
        for count, corrected in ((1, False), (12, True)):
            found = total.interval(count)
            held = bool(((found.low <= 0) & (found.high >= 0)).all())
            together += held and corrected
            single += held and not corrected
    assert 0.4 < single / 400 < 0.65 and 0.9 < together / 400 < 0.98
    _, model, X, rows, landmark_rows, space = planted(0, n=200, t=50)
    frame = alignment_gap(model, X, rows, landmark_rows, space, k=5).frame.dropna(subset=["estimate"])
    width, wide = frame["high"] - frame["low"], frame["high_corrected"] - frame["low_corrected"]
    z = NormalDist().inv_cdf(1 - 0.025 / frame["column"].nunique())
    np.testing.assert_allclose(wide / width, z / NormalDist().inv_cdf(0.975), rtol=1e-6)


def test_intervals_hold_the_large_sample_gap_90_to_99_percent_of_the_time():
    """200 test sets of 80 samples out of a pool of 16,000, whose gap stands for the truth."""
    people = applicants(16_600, seed=0)
    frame, X = people.frame, people.X
    model = Krepes(RBF(2.0), m=80, h=8, augment=GaussianNoise(people.jitter), progress=False).fit(X[:600])
    space, landmark_rows = FeatureSpace.of(frame[:600]), frame.iloc[model.landmarks_.tolist()]
    scores = attribute(model, X[600:]).scores
    truth = (
        alignment_of(scores, frame[600:], landmark_rows, space, draws=0, seed=1)
        .ranked()
        .set_index("column")["estimate"]
    )
    held = []
    for draw in range(200):
        part = slice(80 * draw, 80 * (draw + 1))
        found = alignment_of(scores[part], frame[600:][part], landmark_rows, space, draws=0, seed=draw).ranked()
        found = found.set_index("column").loc[truth.index]
        held.append((found["low"] <= truth) & (truth <= found["high"]))
    assert 0.90 <= np.mean(held) <= 0.99


STREAM = """
import numpy as np, pandas as pd, torch
from krepes.audit import FeatureSpace, alignment_gap
from krepes.kernels.classic import RBF
from krepes.model import Krepes
from krepes.views import GaussianNoise

torch.set_num_threads(1)
t, m, c = 200_000, 1000, 14
rng = np.random.default_rng(0)
frame = pd.DataFrame({f"column {j}": rng.normal(size=t) for j in range(c - 4)})
for j in range(c - 4, c):
    frame[f"column {j}"] = rng.integers(5, size=t).astype(str)
X = torch.from_numpy(frame.iloc[:, : c - 4].to_numpy(dtype=np.float32))
model = Krepes(RBF(4.0), m=m, h=16, landmarks="uniform", augment=GaussianNoise(0.1), progress=False).fit(X[:4000])
landmark_rows, space = frame.iloc[model.landmarks_.tolist()], FeatureSpace.of(frame[:4000])
with measured():
    found = alignment_gap(model, X, frame, landmark_rows, space, k=10)
assert found.top.indices.shape == (t, 10) and int(found.frame["n"].min()) == t
"""


@pytest.mark.slow
def test_200_000_rows_by_1000_landmarks_stream_within_2_gib():
    extra = peak_rise(STREAM) / 2**30
    print(f"200,000 x 1,000 x 14, top-10 and Alignment Gap: {extra:.2f} GiB extra")
    assert extra < 2


def test_dates_are_places_in_a_range_and_huge_numbers_do_not_overflow():
    days = ["1500-01-01", "1500-01-11", None, "1500-01-06"]
    frame = pd.DataFrame({"day": pd.Series(np.array(days, "datetime64[s]")), "far": [-1.7e308, 1.7e308, 0.0, 1e308]})
    space = FeatureSpace.of(frame)
    X = space.encode(frame)
    assert list(space.ranges) == ["day", "far"]
    assert_close(X[:2], torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64))
    assert_close(agreement(X[0], X[3])[0], torch.tensor(0.5, dtype=torch.float64))
    assert_close(X[2, 1], torch.tensor(0.5, dtype=torch.float64))
    assert agreement(X[2], X[3])[0] == 0.0
    assert_close(space.encode(frame.assign(day=frame["day"].dt.tz_localize("UTC"))), X)


def slow_codes(x, z, categories):
    """The paper's v, written out: distance of integer codes over their range."""
    if pd.isna(x) or pd.isna(z):
        return float(pd.isna(x) and pd.isna(z))
    if x not in categories:
        return 0.0
    return 1 - min(abs(categories.index(x) - categories.index(z)) / (len(categories) - 1), 1)


def test_codes_equal_the_paper_s_formula_written_out():
    train, rows = holed(40, 0), holed(8, 1)
    rows.loc[0, "town"] = "Oslo"
    space = FeatureSpace.of(train, agreement="codes")
    v = agreement(space.encode(rows)[:, None], space.encode(train))
    assert space.placed == {"town", "member"}
    for name in ("town", "member"):
        known = sorted(train[name].dropna().unique())
        wanted = [[slow_codes(x, z, known) for z in train[name]] for x in rows[name]]
        assert_close(v[..., space.defined.index(name)], torch.tensor(wanted, dtype=torch.float64), **TIGHT)
    # Numbers, dates and columns of two values are what they were.
    plain = FeatureSpace.of(train)
    u = agreement(plain.encode(rows)[:, None], plain.encode(train))
    same = [space.defined.index(name) for name in ("age", "wage", "day", "member")]
    assert_close(v[..., same], u[..., same], **TIGHT)
    assert not torch.equal(v, u)


def test_ordered_categories_agree_by_their_places_and_others_by_being_equal():
    sizes = pd.CategoricalDtype(["small", "middle", "never", "large"], ordered=True)
    frame = pd.DataFrame({
        "size": pd.Series(["small", "middle", "large", None], dtype=sizes),
        "colour": pd.Series(["red", "blue", "green", None], dtype="category"),
        "mixed": [1, "one", 2.5, None],
    })
    space = FeatureSpace.of(frame)
    v = agreement(space.encode(frame)[:, None], space.encode(frame))
    assert space.placed == {"size"}
    assert v[..., 0].tolist() == [[1, 0.5, 0, 0], [0.5, 1, 0.5, 0], [0, 0.5, 1, 0], [0, 0, 0, 1]]
    assert torch.equal(v[..., 1], torch.eye(4).double()) and torch.equal(v[..., 2], torch.eye(4).double())
    coded = FeatureSpace.of(frame, agreement="codes")
    assert list(coded.categories["colour"]) == ["blue", "green", "red"] and "mixed" in coded.placed
    with pytest.raises(InvalidInputError, match="agreement='nearest' is unknown: choose one of indicator, codes"):
        FeatureSpace.of(frame, agreement="nearest")


@pytest.mark.parametrize("variant", ["raw", "normalised"])
def test_gap_and_null_of_codes_equal_loops(generator, variant):
    train = holed(30, 0)
    rows, landmark_rows = holed(6, 1), train.iloc[:9]
    space = FeatureSpace.of(train, agreement="codes")
    scores = torch.randn(6, 9, generator=generator).double()
    found = alignment_of(scores, rows, landmark_rows, space, k=3, draws=15).frame
    found = found[found["variant"] == variant].set_index("column").loc["town"]
    known = sorted(train["town"].dropna().unique())
    numbers = [frame["town"].map(known.index, na_action="ignore").astype(float) for frame in (rows, landmark_rows)]
    orders = landmark_orders(9, draws=15, seed=0).tolist()
    gaps = oracle.shuffled_alignment(
        scores.tolist(), pd.DataFrame({"town": numbers[0]}), pd.DataFrame({"town": numbers[1]}),
        {"town": float(len(known) - 1)}, draw_sets(6, 20, 3, 9, generator=seeded()).tolist(), 3, orders,
        normalise=variant == "normalised",
    )["town"]  # fmt: skip
    wanted = [gaps[0], gaps[1:].mean(), (1 + (gaps[1:] >= gaps[0] - 1e-9).sum()) / 16]
    np.testing.assert_allclose(found[["estimate", "null", "p"]].astype(float), wanted, 1e-9, 1e-12)
