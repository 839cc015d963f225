"""The model that starts at the encoder, from fit to run folder, against the linearised network written out."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import jacrev

from krepes import influence as inf
from krepes import registry
from krepes.attribution import attribute
from krepes.audit import select_by_spectrum
from krepes.audit.study import Study
from krepes.concepts import ConceptVector
from krepes.engine.residual import NEAR, Residual, moved
from krepes.errors import InvalidInputError
from krepes.kernels.classic import RBF
from krepes.kernels.entk import EmpiricalNTK
from krepes.model import Krepes
from krepes.objectives import (
    BYOL,
    OBJECTIVES,
    BarlowTwins,
    SimCLR,
    SimpleContrastive,
    SpectralContrastive,
    SpectralTriplets,
    VICReg,
)
from krepes.views import GaussianNoise, ViewStream
from oracles import influence as slow
from oracles import moments as literal

AUDITS = registry.loaded(registry.AUDITS)
WORKS = sorted(set(OBJECTIVES) - {"kpca", "kae"})
N, D = 40, 3


def network(dtype=torch.float64):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, D)).to(dtype)


@pytest.fixture(scope="module")
def X():
    return torch.randn(N, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def fit(X, objective="vicreg", **changed):
    settings = {"m": 6, "init": "encoder", "augment": GaussianNoise(0.3), "progress": False}
    return Krepes(changed.pop("encoder", network()), objective=objective, **settings | changed).fit(X)


def features(model, X):
    """Gradients of the random head through the network, one sample at a time, with those of the head and its bias."""
    encoder, head = model.kernel, model.base_kernel_.tangent.cotangents[0]
    found = []
    for x in X:
        e = encoder(x[None])[0]
        g = torch.autograd.grad(e @ head, list(encoder.parameters()))
        found.append(torch.cat([*(part.flatten() for part in g), e.detach(), torch.ones(1).double()]))
    return torch.stack(found)


@pytest.mark.parametrize("name", WORKS)
def test_it_starts_at_the_encoder_and_the_step_lowers_every_loss_of_embeddings(name, X):
    model = fit(X, name)
    assert model.solution_.loss_after < model.solution_.loss_before and model.solution_.converged
    with torch.no_grad():
        e = model.kernel(X)
    torch.testing.assert_close(model.model_rows(X) @ model.solution_.theta0[:-1], e)
    K = model.base_kernel_(X, model.points_)  # raw: neither centred nor normalised
    torch.testing.assert_close(model.transform(X), e + K @ model.dA_)
    assert model.h_ == D and not model.gamma_.any() and not model.A0_.any()


def test_the_kernel_is_that_of_the_linearised_network(X):
    model = fit(X)
    phi = features(model, X[:7])
    torch.testing.assert_close(model.kernel_rows(X[:7]), phi @ features(model, model.points_).T)
    assert fit(X, centre=True).transforms_ == (True, False) and fit(X, init="pca", h=3).transforms_ == (True, True)


RESIDUALS = {
    "barlow_twins": (BarlowTwins(lam=0.1), partial(literal.barlow_residual, lam=0.1, centre=True)),
    "vicreg": (VICReg(), partial(literal.vicreg_residual, irls=True)),
    "spectral": (SpectralContrastive(), partial(literal.spectral_residual, rho=0.0, pooled=False)),
}


@pytest.mark.parametrize("name", RESIDUALS)
def test_the_step_is_damped_gauss_newton_of_the_loss_of_the_linearised_network(name, X):
    objective, residuals = RESIDUALS[name]
    model = fit(X, objective, damping=0.5, relative=False, tol=1e-12)
    views = model.stream_.views_of(torch.arange(N))
    with torch.no_grad():
        E = torch.stack([model.kernel(view) for view in views])
    K = torch.stack([features(model, view) @ features(model, model.points_).T for view in views])

    def of(A):  # the embeddings themselves, seen through the identity
        return residuals(SimpleNamespace(Kbar=E + K @ A, K=torch.eye(D - 1).double()), torch.eye(D).double())

    A = torch.zeros(12, D, dtype=torch.float64)
    J = jacrev(of)(A).flatten(1)
    step = -torch.linalg.solve(2 * J.T @ J + 0.5 * torch.eye(J.shape[1]).double(), 2 * J.T @ of(A))
    torch.testing.assert_close(model.dA_, step.reshape(12, D), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["vicreg", "simclr"])
def test_the_search_for_damping_stays_near_the_encoder(name, X):
    model = fit(X, name)
    with torch.no_grad():
        E = model.kernel(model.stream_.views_of(torch.arange(N))[0])
    Z = model.transform(model.stream_.views_of(torch.arange(N))[0])
    part = float((Z - E - (Z - E).mean(0)).norm() / (E - E.mean(0)).norm())
    assert moved(model.data_, model.A_) == pytest.approx(part, rel=1e-5)  # stored rows are float32
    assert 0 < part <= NEAR
    far = fit(X, name, damping=1e-6)  # as told: the loss may then be that of another encoder
    assert moved(far.data_, far.A_) > NEAR


def test_contributions_of_landmarks_sum_to_the_shift(X):
    model = fit(X)
    found = attribute(model, X[:5])
    with torch.no_grad():
        shift = model.transform(X[:5]) - model.kernel(X[:5])
    torch.testing.assert_close(found.shift, shift)
    torch.testing.assert_close(torch.stack([found.contribution(i).sum(0) for i in range(5)]), shift)
    torch.testing.assert_close(found.directional.sum(1), shift.norm(dim=1))


WEIGHTED = {
    "barlow_twins": (BarlowTwins(), slow.barlow, 2),
    "vicreg": (VICReg(), slow.vicreg, 2),
    "spectral": (SpectralContrastive(rho=0.1), partial(slow.spectral, rho=0.1), 2),
    "simple": (SimpleContrastive(rho=0.2), partial(slow.simple, rho=0.2), 2),
    "byol": (BYOL(batch=16), slow.byol, 2),
    "simclr": (SimCLR(tau=0.5, batch=16), partial(slow.simclr, size=16, tau=0.5), 2),
    "triplets": (SpectralTriplets(batch=16), slow.triplets, 3),
}


@pytest.mark.parametrize("name", WEIGHTED)
def test_influence_equals_the_finite_difference_of_a_resolved_update(name, X):
    objective, weighted, views = WEIGHTED[name]
    stream = ViewStream(X, GaussianNoise(0.3), seed=5, batch_size=7, p=views)
    model = fit(stream, objective, damping=3.0, tol=1e-12, augment=None, m=4)
    outcomes = [inf.similarity(model, X[:1], X[1:2], reference=X), inf.group_distance(model, X[:9], X[9:20])]
    found = inf.influence_of(model, outcomes, progress=False)
    q, residual = len(model.K_mm_), Residual(model.objective_, D)
    theta0 = model.solution_.theta0
    rows = torch.stack([model.model_rows(view) for view in stream.views_of(torch.arange(N))])
    if model.moments_ is None:
        rows = next(model.data_.batches(N))[..., :-1]  # stored in single precision: the loss sees these
    problem = SimpleNamespace(Kbar=torch.nn.functional.pad(rows, (0, 1), value=1.0), K=model.data_.K, theta0=theta0)
    bound = model.objective_.at(model.data_, theta0)
    H = bound.linearise(model.data_, model.solution_.theta).H.to_dense(dtype=torch.float64)[: q * D, : q * D]
    H = H + model.solution_.damping_absolute * torch.eye(len(H)).double()

    def resolve(w):
        return residual.whole(slow.one_update(lambda A, w: weighted(problem, residual.whole(A), w), model.A_, w=w, H=H))

    for i in (0, 17, N - 1):
        expected = slow.finite_differences(outcomes, resolve, N, i)
        torch.testing.assert_close(torch.tensor(found.values[i]), expected, rtol=1e-4, atol=1e-7)


def test_a_model_without_rows_is_a_fit_without_them(X):
    model = fit(X, "barlow_twins")
    less = model.without([3, 4])
    kept = [i for i in range(N) if i not in {3, 4}]
    Kbar = torch.nn.functional.pad(
        torch.stack([model.model_rows(view) for view in model.stream_.views_of(torch.tensor(kept))]), (0, 1), value=1.0
    )
    M = torch.einsum("ubi,vbj->uvij", Kbar, Kbar) / len(kept)
    torch.testing.assert_close(less.data_.M, M)
    assert not torch.equal(less.dA_, model.dA_)
    torch.testing.assert_close(less.solution_.theta[12:], model.solution_.theta[12:])


@pytest.mark.parametrize("name", ["vicreg", "simclr"])
def test_a_run_folder_gives_the_model_back(name, X, tmp_path):
    model = fit(X, name)
    model.save(tmp_path / "run")
    again = Krepes.load(tmp_path / "run", model.kernel)
    torch.testing.assert_close(again.transform(X), model.transform(X), rtol=0, atol=0)
    torch.testing.assert_close(attribute(again, X[:3]).scores, attribute(model, X[:3]).scores, rtol=0, atol=0)
    assert again.init == "encoder" and again.h_ == D
    if name == "vicreg":
        torch.testing.assert_close(again.moments_.K, model.moments_.K, rtol=0, atol=0)
        outcome = [inf.similarity(one, X[:1], X[1:2]) for one in (model, again)]
        first = inf.influence_of(model, outcome[0], progress=False).values
        second = inf.influence_of(again, outcome[1], stream=model.stream_, progress=False).values
        np.testing.assert_allclose(second, first, rtol=1e-9, atol=1e-12)


def test_a_refit_keeps_the_start(X):
    model = fit(X)
    other = model.refit(objective="barlow_twins")
    torch.testing.assert_close(other.dA_, fit(X, "barlow_twins", landmarks=model.landmarks_).dA_, rtol=1e-5, atol=1e-8)
    with pytest.raises(InvalidInputError, match="'init'.*act before the pass"):
        model.refit(init="pca")
    with pytest.raises(InvalidInputError, match="'init'.*act before the pass"):
        fit(X, init="pca", h=3).refit(init="encoder")


def test_audits_and_concepts_see_the_embedding_that_started_at_the_encoder(X):
    model = fit(X)
    study = Study(model, X[:12])
    shown = AUDITS["spectrum"].compute(study).table
    assert shown["model"].iloc[0].startswith("the encoder itself") and len(shown) == 2
    assert "of the encoder itself." in AUDITS["spectrum"].sentence(shown)
    trust = AUDITS["trust"].compute(study).table
    assert "not centred" in " ".join(AUDITS["trust"].warnings(trust))
    assert select_by_spectrum({"one": model}).winner == "one"
    positives, others = X[X[:, 0] > 0], X[X[:, 0] <= 0]
    concept = ConceptVector.fit(model, positives, others)
    Z = model.transform(positives), model.transform(others)
    torch.testing.assert_close(concept.v, ConceptVector.of_embeddings(*Z).v)


@pytest.mark.parametrize("name", ["kpca", "kae"])
def test_what_reconstructs_cannot_start_at_the_encoder(name, X):
    with pytest.raises(InvalidInputError, match="cannot start at the encoder.*barlow_twins.*simclr"):
        fit(X, name)


def test_impossible_starts_are_refused_before_the_pass(X):
    with pytest.raises(InvalidInputError, match="RBF has none"):
        fit(X, encoder=RBF(1.0))
    with pytest.raises(InvalidInputError, match="h=7 was asked for.*has its 3: leave h out"):
        fit(X, h=7)
    assert fit(X, h=3).h_ == 3
    assert fit(X, encoder=EmpiricalNTK(network())).h_ == 3
    assert fit(X, kernel_kind="sketch", q=64).h_ == 3
