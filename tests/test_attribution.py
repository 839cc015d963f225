"""Attribution: the parts add up to the shift, streams equal wholes, planted neighbours are found."""

import dataclasses
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close
from torch.utils.data import TensorDataset

from krepes.attribution import (
    RANKINGS,
    Attribution,
    attribute,
    attribute_stream,
    attributions,
    compared_scores,
    kernel_similarity,
    latent_cosine,
    random_scores,
)
from krepes.attribution.stream import COPIES, HELD
from krepes.errors import InvalidInputError, NotFittedError
from krepes.kernels.classic import RBF
from krepes.model import Krepes
from krepes.views import GaussianNoise
from oracles import attribution as oracle

EXACT = {"rtol": 1e-10, "atol": 1e-12}  # float64, sums of at most 60 terms of order one: only round-off may differ
OBJECTIVES = ["barlow_twins", "vicreg", "kpca"]  # two views and two views and one; with and without a gamma


def fitted(objective="barlow_twins", *, seed=0, n=200, m=20, h=4, **changed):
    X = torch.randn(n, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    settings = {"m": m, "h": h, "augment": GaussianNoise(0.1), "progress": False, "seed": seed} | changed
    if objective == "kpca":
        settings["augment"] = None
    return Krepes(RBF(2.0), objective=objective, **settings).fit(X), X


@pytest.fixture(scope="module", params=OBJECTIVES)
def run(request):
    """A model, test samples it has not seen, and their attribution."""
    model, _ = fitted(request.param)
    X = torch.randn(30, 5, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    return model, X, attribute(model, X)


def random_attribution(t, p, m, h, seed):
    g = torch.Generator().manual_seed(seed)
    K, dA, dgamma = (torch.randn(*shape, generator=g).double() for shape in [(t, p, m), (p, m, h), (h,)])
    return Attribution(K, dA, dgamma, range(m), range(t))


sizes = st.tuples(*(st.integers(1, 5) for _ in range(4)), st.integers(0, 1000))


def test_contributions_and_dgamma_sum_to_what_the_embedding_moved(run):
    model, X, found = run
    moved = model.transform(X) - model.kernel_rows(X) @ model.A0_
    assert_close(found.shift, moved, **EXACT)
    for i in range(len(X)):
        assert_close(found.contribution(i).sum(0) + found.dgamma, moved[i], **EXACT)


def test_directional_parts_sum_to_the_length_of_the_shift(run):
    _, _, found = run
    total = found.directional.sum(1) + found.direction @ found.dgamma
    assert_close(total, torch.linalg.vector_norm(found.shift, dim=1), **EXACT)


def test_scores_equal_the_loop_over_landmarks_and_views(run):
    model, X, found = run
    assert_close(found.scores, oracle.scores(model.kernel_rows(X), model.dA_, found.m), **EXACT)


def test_one_view_gives_the_paper_s_kernel_times_norm():
    model, X = fitted("kpca")
    assert model.p_ == 1
    found = attribute(model, X[:10])
    assert_close(found.scores, model.kernel_rows(X[:10]) * model.dA_.norm(dim=1), **EXACT)
    assert_close(found.omega, model.dA_.norm(dim=1), **EXACT)


def test_equal_views_of_a_landmark_act_as_one_with_their_coefficients_added():
    found = random_attribution(t=4, p=1, m=6, h=3, seed=0)
    halves = torch.stack([0.3 * found.dA[0], 0.7 * found.dA[0]])
    twice = dataclasses.replace(found, K_tm=found.K_tm.repeat(1, 2, 1), dA=halves)
    assert_close(twice.scores, found.scores, **EXACT)


def test_scores_do_not_jump_where_the_views_of_a_landmark_cancel():
    """k = (a, -a + e) on opposite rows: the length of the contribution is 2 a |dA|, its sign would flip with e."""
    e = torch.tensor([-1e-9, 0.0, 1e-9], dtype=torch.float64)
    K = torch.stack([torch.full_like(e, 0.7), -0.7 + e], dim=1)[..., None]  # (3, 2, 1)
    row = torch.tensor([3.0, 4.0], dtype=torch.float64)
    found = Attribution(K, torch.stack([row, -row])[:, None], torch.zeros(2).double(), range(1), range(3))
    assert_close(found.contribution(1)[0].norm(), torch.tensor(7.0).double(), **EXACT)
    assert_close(found.scores[:, 0], 5 * e, rtol=1e-6, atol=1e-15)


@given(sizes)
@settings(max_examples=20, deadline=None)
def test_a_score_is_linear_in_the_kernel_and_no_shorter_than_the_contribution_if_the_views_agree_in_sign(size):
    found = random_attribution(*size)
    other = random_attribution(*size[:4], size[4] + 1)
    both = dataclasses.replace(found, K_tm=2 * found.K_tm + other.K_tm)
    assert_close(both.scores, 2 * found.scores + dataclasses.replace(found, K_tm=other.K_tm).scores, **EXACT)
    positive = dataclasses.replace(found, K_tm=found.K_tm.abs())
    lengths = torch.stack([positive.contribution(i).norm(dim=1) for i in range(len(found))])
    assert bool((positive.scores >= lengths - 1e-12).all())


@given(sizes)
@settings(max_examples=40, deadline=None)
def test_decomposition_holds_for_any_sizes(size):
    found = random_attribution(*size)
    K, dA = found.K_tm.flatten(1), found.dA.flatten(0, 1)
    assert_close(found.scores, oracle.scores(K, dA, found.m), **EXACT)
    assert_close(found.directional, oracle.toward(K, dA, found.m, found.direction), **EXACT)
    assert_close(found.directional.sum(1) + found.direction @ found.dgamma, found.shift.norm(dim=1), **EXACT)
    assert_close(found.omega, dA.unflatten(0, found.dA.shape[:2]).square().sum((0, 2)).sqrt(), **EXACT)
    everyone = torch.arange(found.m).expand(len(found), -1)
    assert_close(found.partial_shift(everyone) + found.dgamma, found.shift, **EXACT)


def test_rows_read_landmark_by_landmark_instead_of_view_by_view_are_caught():
    found = random_attribution(t=4, p=2, m=3, h=2, seed=0)
    K, dA = (x.transpose(-2, -1).flatten(-2) for x in (found.K_tm, found.dA.movedim(2, 0)))
    with pytest.raises(AssertionError):
        assert_close(found.scores, oracle.scores(K, dA.T, found.m), **EXACT)


def test_a_sample_that_does_not_move_has_no_direction_and_zero_parts():
    found = random_attribution(t=3, p=2, m=5, h=4, seed=1)
    still = dataclasses.replace(found, dA=torch.zeros_like(found.dA), dgamma=torch.zeros(4, dtype=torch.float64))
    assert_close(still.directional, torch.zeros(3, 5, dtype=torch.float64))
    assert_close(still.scores, torch.zeros(3, 5, dtype=torch.float64))
    assert set(still.to_frame(k=2)["effect"]) == {"none"}


def test_rankings_put_first_what_their_name_says(run):
    _, _, found = run
    S, D = found.scores, found.directional
    for by, keys in {"score": S, "repulsive": -S, "magnitude": S.abs(), "directional": D}.items():
        top = found.top(7, by=by)
        assert_close(keys.gather(1, top.indices), keys.sort(dim=1, descending=True).values[:, :7])
        assert_close(top.scores, (D if by == "directional" else S).gather(1, top.indices))
    assert bool((found.top(1, by="repulsive").scores < 0).all())


@pytest.mark.parametrize("by", RANKINGS)
def test_order_of_landmarks_and_of_views_does_not_matter(run, by):
    _, _, found = run
    order = torch.randperm(found.m, generator=torch.Generator().manual_seed(0))
    shuffled = dataclasses.replace(
        found,
        K_tm=found.K_tm.flip(1)[:, :, order],
        dA=found.dA.flip(0)[:, order],
        landmark_ids=[found.landmark_ids[l] for l in order.tolist()],
    )
    ours, theirs = found.top(5, by=by), shuffled.top(5, by=by)
    np.testing.assert_array_equal(ours.ids, theirs.ids)
    assert_close(ours.scores, theirs.scores, **EXACT)


def test_toward_is_odd_and_linear(run):
    _, _, found = run
    v, w = torch.randn(2, 4, generator=torch.Generator().manual_seed(0)).double()
    assert_close(found.toward(-v), -found.toward(v), **EXACT)
    assert_close(found.toward(2 * v + w), 2 * found.toward(v) + found.toward(w), **EXACT)


def budget_of(count, model, X):
    """Return a budget that holds so many samples at a time."""
    return 4 * count * (COPIES * 8 * len(model.A_) + HELD * X[0].numel() * X.element_size())


@pytest.mark.parametrize("by", RANKINGS)
def test_streamed_top_equals_top_at_once(run, by, tmp_path):
    model, X, found = run
    np.save(tmp_path / "X.npy", X.numpy())
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    seen = []
    top = attribute_stream(
        model,
        mapped,
        k=6,
        by=by,
        visitors=[lambda rows, piece: seen.append((rows, piece.scores))],
        memory_budget=budget_of(7, model, X),
    )
    whole = found.top(6, by=by)
    assert [rows for rows, _ in seen] == [slice(0, 7), slice(7, 14), slice(14, 21), slice(21, 28), slice(28, 30)]
    np.testing.assert_array_equal(top.ids, whole.ids)
    assert_close(top.scores, whole.scores, **EXACT)
    assert_close(torch.cat([scores for _, scores in seen]), found.scores, **EXACT)


def test_pieces_carry_the_ids_of_their_samples_and_a_dataset_serves_as_well(run):
    model, X, found = run
    names = [f"person {i}" for i in range(30)]
    for data in (X, TensorDataset(X, torch.zeros(30))):
        budget = budget_of(11, model, X)
        pieces = [piece.sample_ids for _, piece in attributions(model, data, ids=names, memory_budget=budget)]
        assert pieces == [names[:11], names[11:22], names[22:]]


def test_frame_reports_the_user_s_own_ids():
    X = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    rows = [f"row-{i:03d}" for i in range(60)]
    model = Krepes(RBF(2.0), m=12, h=3, augment=GaussianNoise(0.1), progress=False).fit(X, ids=rows)
    found = attribute(model, X[:4], ids=["a", "b", "c", "d"])
    frame = found.to_frame(k=3, by="magnitude")
    assert frame["sample"].tolist() == [name for name in "abcd" for _ in range(3)]
    assert frame["rank"].tolist() == [1, 2, 3] * 4
    row = frame.iloc[4]
    l = [rows[i] for i in model.landmarks_].index(row["landmark"])
    assert row["score"] == pytest.approx(float(found.scores[1, l]))
    assert row["kernel"] == pytest.approx(float(kernel_similarity(found)[1, l]))
    assert row["along_shift"] == pytest.approx(float(found.directional[1, l]))
    assert row["effect"] == ("attracts" if found.scores[1, l] > 0 else "repels")


def small_mlp(seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 12))


@pytest.mark.parametrize("kernel", [lambda seed: RBF(2.0), small_mlp], ids=["rbf", "mlp"])
def test_planted_near_duplicate_is_the_nearest_and_among_the_most_attractive(kernel):
    nearest = attractive = 0
    for seed in range(20):
        g = torch.Generator().manual_seed(seed)
        X = torch.randn(150, 6, generator=g)
        model = Krepes(kernel(seed), m=30, h=6, augment=GaussianNoise(0.1), progress=False, seed=seed).fit(X)
        planted = int(torch.randint(30, (1,), generator=g))
        twin = X[model.landmarks_[planted]] + 0.01 * torch.randn(6, generator=g)
        found = attribute(model, twin[None])
        nearest += int(kernel_similarity(found).argmax()) == planted
        attractive += planted in found.top(5).indices
    assert nearest >= 19
    assert attractive >= 19


def test_baselines_have_one_shape_and_mean_what_they_say(run, generator):
    _, X, found = run
    Z, W = torch.randn(30, 7, generator=generator), torch.randn(found.m, 7, generator=generator)
    table = compared_scores(found, generator=generator, Z_test=Z, Z_landmarks=W)
    assert list(table) == ["influence", "directional", "latent cosine", "kernel", "random"]
    assert {tuple(scores.shape) for scores in table.values()} == {(30, found.m)}
    expected = nn.functional.cosine_similarity(Z[:, None].double(), W[None].double(), dim=2)
    assert_close(table["latent cosine"], expected, **EXACT)
    shifted = latent_cosine(Z + 100, W + 100, mean=torch.full((7,), 100.0))
    assert_close(shifted, expected, rtol=0, atol=1e-4)  # adding 100 in float32 loses seven bits of the embeddings
    assert "latent cosine" not in compared_scores(found, generator=generator)


def test_random_scores_do_not_depend_on_the_pieces():
    draw = torch.Generator().manual_seed(3)
    pieces = torch.cat([random_scores(t, 5, generator=draw) for t in (2, 7, 1)])
    assert_close(random_scores(10, 5, generator=torch.Generator().manual_seed(3)), pieces, rtol=0, atol=0)


def test_refusals_say_what_to_do(run, generator):
    model, X, found = run
    with pytest.raises(InvalidInputError, match="k=21 landmarks were asked of m=20"):
        found.top(21)
    with pytest.raises(InvalidInputError, match="k=0 .* between 1 and 20"):
        attribute_stream(model, X, k=0)
    with pytest.raises(InvalidInputError, match="by='loudest' is unknown: choose one of score"):
        found.to_frame(by="loudest")
    with pytest.raises(InvalidInputError, match="shape \\(3,\\): it must be \\(4,\\)"):
        found.toward(torch.ones(3))
    with pytest.raises(InvalidInputError, match="NaN"):
        found.toward(torch.full((4,), torch.nan))
    with pytest.raises(InvalidInputError, match="29 ids were given for 30"):
        attribute(model, X, ids=range(29))
    with pytest.raises(InvalidInputError, match="NaN"):
        attribute(model, X.clone().fill_(torch.nan))
    with pytest.raises(InvalidInputError, match="no test sample"):
        attribute(model, X[:0])
    with pytest.raises(InvalidInputError, match="do not fit together"):
        dataclasses.replace(found, sample_ids=range(3))
    with pytest.raises(InvalidInputError, match="belong together"):
        compared_scores(found, generator=generator, Z_test=X)
    with pytest.raises(InvalidInputError, match=r"100 bytes.* a sample against q=\d+ landmark points.* Raise"):
        next(attributions(model, X, memory_budget=100))
    for ask in (attribute, attribute_stream):
        with pytest.raises(NotFittedError):
            ask(Krepes(RBF(1.0)), X)


@pytest.mark.slow
@pytest.mark.parametrize("budget", [2**27, 2**30])
def test_two_hundred_thousand_samples_stream_within_the_budget(tmp_path, budget):
    """200,000 x 1,000 landmarks of two views are 3.2 GB of kernel values; the peak is read in a fresh process."""
    X = np.random.default_rng(0).normal(size=(200_000, 14)).astype(np.float32)
    np.save(tmp_path / "X.npy", X)
    augment = GaussianNoise(0.1)
    Krepes(RBF(4.0), m=1000, h=16, augment=augment, progress=False).fit(X[:2000]).save(tmp_path / "run")
    # Not getrusage: its peak survives exec, so a child of a large process starts with that of its parent.
    script = textwrap.dedent(r"""
        import re, sys, numpy as np, torch
        torch.set_num_threads(1)
        from krepes.attribution import attribute_stream
        from krepes.kernels.classic import RBF
        from krepes.model import Krepes

        def kib(entry):
            return int(re.search(entry + r":\s+(\d+)", open("/proc/self/status").read())[1])

        folder, budget = sys.argv[1], int(sys.argv[2])
        model = Krepes.load(folder + "/run", RBF(4.0))
        X = np.load(folder + "/X.npy", mmap_mode="r")
        before = kib("VmRSS")
        top = attribute_stream(model, X, k=10, by="directional", memory_budget=budget)
        assert top.ids.shape == (200_000, 10)
        print((kib("VmHWM") - before) * 2**10)
    """)
    command = [sys.executable, "-c", script, str(tmp_path), str(budget)]
    rise = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    print(f"budget {budget / 2**20:.0f} MiB: peak memory rose by {rise / 2**20:.0f} MiB")
    # Pieces are never longer than they need to be: 262 MB of the larger budget. Beside it stand 48 MB of results, the
    # 11 MB of X and the kernel's temporaries, at most 256 MiB.
    assert rise < min(budget, 2**28) + 2**28
