"""Concepts: planted directions are found and significant, random ones are not; Psi adds up."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from torch.testing import assert_close

from krepes.attribution import attribute
from krepes.concepts import (
    ConceptSettings,
    ConceptVector,
    Significance,
    aggregate,
    aggregate_significance,
    concept_influence,
)
from krepes.data.synthetic import applicants
from krepes.errors import InvalidInputError
from krepes.kernels.classic import RBF
from krepes.model import Krepes
from krepes.views import GaussianNoise
from oracles import attribution as oracle

EXACT = {"rtol": 1e-10, "atol": 1e-12}  # float64, sums of 60 terms of order one: only round-off may differ


@pytest.fixture(scope="module")
def people():
    found = applicants(800, seed=0)
    return dataclasses.replace(found, X=found.X.double())


@pytest.fixture(scope="module")
def model(people):
    augment = GaussianNoise(people.jitter)
    return Krepes(RBF(1.5), m=60, h=8, augment=augment, progress=False).fit(people.X[:600])


@pytest.fixture(scope="module")
def found(model, people):
    return attribute(model, people.X[600:])


@pytest.fixture(scope="module")
def concept(model, people):
    """Group 1 against the others, in the space of the shift."""
    chosen = people.labels[:600] == 1
    positives, others = people.X[:600][chosen], people.X[:600][~chosen]
    return ConceptVector.fit(model, positives, others, name="group 1", settings=ConceptSettings(space="dA"))


def planted(a, b, direction, generator, *, scale=1.0):
    """Two normal clouds, the first moved along a direction."""
    Z_positive = torch.randn(a, len(direction), generator=generator).double() + scale * direction
    return Z_positive, torch.randn(b, len(direction), generator=generator).double()


@pytest.fixture
def axis():
    direction = torch.zeros(10, dtype=torch.float64)
    direction[[2, 5]] = torch.tensor([3.0, -4.0], dtype=torch.float64) / 5
    return direction


@pytest.mark.parametrize("standardise", [True, False])
def test_a_planted_direction_is_found_stable_and_significant(standardise, axis, generator):
    settings = ConceptSettings(standardise=standardise)
    found = ConceptVector.of_embeddings(*planted(150, 300, axis, generator, scale=3.0), settings=settings)
    assert float(found.v.norm()) == pytest.approx(1.0, abs=1e-12)
    assert float(found.v @ axis) > 0.9  # of random directions in 10 dimensions, 8 in 100,000
    # The best any rule can do is Φ(3/2) = 0.933; 100 held-out samples a fit, averaged over 20 that share positives.
    assert float(found.accuracy.value) == pytest.approx(stats.norm.cdf(1.5), abs=0.05)
    assert found.stability > 0.85
    assert float(found.accuracy.p_value) < 1e-4
    assert float(found.accuracy.p_rank) == pytest.approx(1 / 51)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_the_unit_of_the_embeddings_does_not_matter_when_standardised(scale, axis, generator):
    Z_positive, Z_negative = planted(60, 90, axis, generator, scale=2.0)
    here = ConceptVector.of_embeddings(Z_positive, Z_negative)
    there = ConceptVector.of_embeddings(scale * Z_positive + 7 * scale, scale * Z_negative + 7 * scale)
    assert_close(here.v, there.v, rtol=0, atol=1e-6)  # the solver's own tolerance is 1e-4 of the objective
    assert_close(here.accuracies, there.accuracies)


def test_swapping_the_sets_turns_the_direction_round(axis, generator):
    Z_positive, Z_negative = planted(80, 80, axis, generator, scale=4.0)
    there = ConceptVector.of_embeddings(Z_positive, Z_negative)
    back = ConceptVector.of_embeddings(Z_negative, Z_positive)
    assert float(there.v @ back.v) < -0.9
    assert float((Z_positive.mean(0) - Z_negative.mean(0)) @ there.v) > 0


def test_stability_is_the_mean_cosine_of_pairs(axis, generator):
    found = ConceptVector.of_embeddings(*planted(30, 60, axis, generator))
    W = found.directions
    pairs = [float(W[i] @ W[j]) for i in range(len(W)) for j in range(i)]
    assert found.stability == pytest.approx(np.mean(pairs), abs=1e-12)


def test_random_concepts_are_rarely_significant(generator):
    """At 5 % two-sided, 20 random sets of one cloud: more than 4 significant ones have a probability of 0.3 %."""
    Z = torch.randn(200, 6, generator=generator).double()
    by_mean = 0
    for seed in range(20):
        order = torch.randperm(200, generator=torch.Generator().manual_seed(seed))
        settings = ConceptSettings(seed=seed, random_concepts=20)
        found = ConceptVector.of_embeddings(Z[order[:50]], Z[order[50:]], settings=settings)
        by_mean += float(found.accuracy.p_value) < 0.05
    assert by_mean <= 4


def test_a_planted_group_is_a_concept_that_pulls_its_own_samples(concept, found, people):
    own = people.labels[600:] == 1
    assert float(concept.accuracy.value) > 0.95
    assert float(concept.accuracy.p_value) < 1e-6
    against = aggregate_significance(found, concept)
    assert_close(against.value, aggregate(found, concept), **EXACT)
    ours = Significance(against.value[own], against.null[:, own]).mean()
    assert float(ours.value) > 0
    assert float(ours.p_value) < 0.05
    assert float(ours.p_rank) < 0.05
    assert float(against.value[own].mean()) > float(against.value[~own].max())


def test_a_random_set_pulls_no_one_significantly(model, found, people):
    """Of 10 random sets, 3 or more at 5 % have a probability of 1 %."""
    passed = 0
    for seed in range(10):
        order = torch.randperm(600, generator=torch.Generator().manual_seed(seed))
        settings = ConceptSettings(space="dA", seed=seed, random_concepts=20)
        concept = ConceptVector.fit(model, people.X[order[:60]], people.X[order[60:]], settings=settings)
        passed += float(aggregate_significance(found, concept).mean().p_value) < 0.05
    assert passed < 3


def test_influence_of_the_opposite_concept_is_the_opposite(found, concept):
    opposite = dataclasses.replace(concept, v=-concept.v)
    assert_close(concept_influence(found, opposite), -concept_influence(found, concept), **EXACT)
    assert_close(aggregate(found, -concept.v), -aggregate(found, concept), **EXACT)


def test_psi_over_all_landmarks_is_the_shift_along_the_concept(found, concept):
    everything = aggregate(found, concept, k=found.m)
    assert_close(everything, (found.shift - found.dgamma) @ concept.v, **EXACT)
    assert_close(everything, concept_influence(found, concept).sum(1), **EXACT)


def test_psi_equals_the_sum_over_the_sorted_landmarks(model, found, concept, people):
    few = dataclasses.replace(found, K_tm=found.K_tm[:6], sample_ids=range(6))
    K = model.kernel_rows(people.X[600:606])
    assert_close(aggregate(few, concept), oracle.psi(K, model.dA_, 60, concept.v, k=5), **EXACT)


def test_spaces_are_the_embedding_and_what_the_objective_added(model, people):
    positives, negatives = people.X[:100], people.X[100:300]
    for space, A in {"A": model.A_, "dA": model.dA_}.items():
        settings = ConceptSettings(space=space)
        ours = ConceptVector.fit(model, positives, negatives, settings=settings)
        Z = [model.kernel_rows(X) @ A for X in (positives, negatives)]
        assert_close(ours.v, ConceptVector.of_embeddings(*Z, settings=settings).v, **EXACT)
        assert ours.settings.space == space
        assert ours.sizes == (100, 200, 100)


def test_frame_has_a_row_for_each_fit(concept):
    frame = concept.to_frame()
    assert frame.groupby("kind").size().to_dict() == {"fitted": 20, "random": 50}
    assert set(frame["concept"]) == {"group 1"}
    means = frame.groupby("kind")["accuracy"].mean()
    assert means["fitted"] == pytest.approx(float(concept.accuracies.mean()))
    assert means["random"] == pytest.approx(0.5, abs=0.05)  # balanced accuracy of shuffled labels
    assert frame.loc[frame["kind"] == "fitted", "cosine"].mean() > frame.loc[frame["kind"] == "random", "cosine"].max()
    pd.testing.assert_frame_equal(frame, concept.to_frame())


def test_the_same_seed_gives_the_same_concept(axis, generator):
    Z = planted(40, 80, axis, generator)
    first, again = (ConceptVector.of_embeddings(*Z, settings=ConceptSettings(seed=5)) for _ in range(2))
    assert_close(first.directions, again.directions, rtol=0, atol=0)
    assert_close(first.random_accuracies, again.random_accuracies, rtol=0, atol=0)


def test_p_values_of_a_single_draw_from_the_null_are_uniform(generator):
    """The t-test is exact for normal draws, the rank test for any: Kolmogorov-Smirnov over 2000 of them."""
    draws = torch.randn(40, 2000, generator=generator).double()
    found = Significance(draws[0], draws[1:])
    assert stats.kstest(found.p_value.numpy(), "uniform").pvalue > 1e-3
    assert float((found.p_rank <= 0.1).double().mean()) == pytest.approx(0.1, abs=0.04)


def test_a_null_without_spread_decides_by_equality():
    null = torch.full((20, 2), 0.5, dtype=torch.float64)
    assert Significance(torch.tensor([0.5, 0.6]).double(), null).p_value.tolist() == [1.0, 0.0]


def test_refusals_say_what_to_do(model, found, axis, generator):
    Z_positive, Z_negative = planted(20, 20, axis, generator)
    with pytest.raises(InvalidInputError, match="positive embeddings have shape \\(8, 10\\).* at least 9"):
        ConceptVector.of_embeddings(Z_positive[:8], Z_negative)
    with pytest.raises(InvalidInputError, match="negative embeddings have shape \\(0, 10\\).*positives and negatives"):
        ConceptVector.of_embeddings(Z_positive, Z_negative[:0])
    with pytest.raises(InvalidInputError, match="negative embeddings have shape \\(20, 9\\)"):
        ConceptVector.of_embeddings(Z_positive, Z_negative[:, 1:])
    with pytest.raises(InvalidInputError, match="positive embeddings holds 200 NaN"):
        ConceptVector.of_embeddings(Z_positive * torch.nan, Z_negative)
    with pytest.raises(InvalidInputError, match="finds no direction"):
        ConceptVector.of_embeddings(torch.ones(20, 3), torch.ones(20, 3))
    with pytest.raises(InvalidInputError, match="space='B' is unknown"):
        ConceptSettings(space="B")
    with pytest.raises(InvalidInputError, match="resamples=5 .* at least 20"):
        ConceptSettings(resamples=5)
    with pytest.raises(InvalidInputError, match="concept has shape \\(10,\\), embeddings \\(8,\\)"):
        aggregate(found, axis)
