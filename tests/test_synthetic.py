"""The planted population: reproducible, readable, and driven by what it says it is driven by."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from torch.testing import assert_close

from krepes.attribution import attribute
from krepes.data.synthetic import applicants
from krepes.errors import InvalidInputError
from krepes.kernels.classic import RBF
from krepes.model import Krepes
from krepes.views import GaussianNoise


def codes(population, column):
    values = population.frame[column]
    return values.cat.codes if isinstance(values.dtype, pd.CategoricalDtype) else pd.qcut(values, 4, labels=False)


def test_a_seed_fixes_the_population():
    first, again, other = applicants(100, seed=3), applicants(100, seed=3), applicants(100, seed=4)
    pd.testing.assert_frame_equal(first.frame, again.frame)
    assert_close(first.X, again.X, rtol=0, atol=0)
    assert not torch.equal(first.X, other.X)


def test_encoded_columns_fold_back_to_the_table():
    people = applicants(300, seed=1)
    assert sorted(i for s in people.groups.values() for i in range(s.start, s.stop)) == list(range(people.X.shape[1]))
    for column, where in people.groups.items():
        values, block = people.frame[column], people.X[:, where].double()
        if isinstance(values.dtype, pd.CategoricalDtype):
            assert_close(block.argmax(1), torch.tensor(values.cat.codes.to_numpy(np.int64)))
            assert_close((block > 0).sum(1), torch.ones(300, dtype=torch.int64))
        else:
            assert np.corrcoef(values, block[:, 0])[0, 1] == pytest.approx(1.0, abs=1e-6)  # X is float32
            assert float(block.mean()) == pytest.approx(0.0, abs=1e-6)


def test_the_width_does_not_depend_on_which_levels_were_drawn():
    assert applicants(2, seed=0).X.shape[1] == applicants(2000, seed=0).X.shape[1]


@pytest.mark.parametrize("seed", range(3))
def test_the_proxy_follows_the_driver_and_the_noise_does_not(seed):
    people = applicants(4000, seed=seed)
    assert_close(people.labels, torch.tensor(people.frame[people.driver].cat.codes.to_numpy(np.int64)))
    agreement = np.mean(codes(people, people.proxy) == people.labels.numpy())
    assert agreement == pytest.approx(0.8 + 0.2 / 4, abs=0.03)  # five standard errors of 4000 draws
    for column in people.noise_columns:
        table = pd.crosstab(people.frame[people.driver], codes(people, column))
        assert stats.chi2_contingency(table).pvalue > 1e-4, column


def test_without_the_driver_only_the_proxy_tells():
    people = applicants(50, seed=0, encode_driver=False)
    assert people.driver not in people.groups
    assert people.driver in people.frame
    assert people.X.shape[1] == applicants(50, seed=0).X.shape[1] - 4
    assert len(people.jitter) == people.X.shape[1]


@pytest.mark.parametrize("seed", range(5))
def test_top_landmarks_share_the_driver_then_the_proxy_and_not_the_noise(seed):
    people = applicants(600, seed=seed)
    augment = GaussianNoise(people.jitter)
    model = Krepes(RBF(1.5), m=60, h=8, augment=augment, progress=False, seed=seed).fit(people.X[:400])
    top = attribute(model, people.X[400:]).top(10)
    gain = {}
    for column in (people.driver, people.proxy, *people.noise_columns):
        level = torch.tensor(np.asarray(codes(people, column)).astype(np.int64))
        same = level[model.landmarks_][None] == level[400:, None]  # (t, m)
        gain[column] = float(same.double().gather(1, top.indices).mean() - same.double().mean())
    noisiest = max(gain[column] for column in people.noise_columns)
    assert gain[people.driver] > gain[people.proxy] + 0.1
    assert gain[people.proxy] > noisiest + 0.1
    assert noisiest < 0.1


def test_refusals_name_the_number():
    with pytest.raises(InvalidInputError, match="n=1 is out of range"):
        applicants(1)
    with pytest.raises(InvalidInputError, match=r"proxy_strength=1.5 .* between 0 and 1"):
        applicants(10, proxy_strength=1.5)
