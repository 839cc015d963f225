"""Streams replay bit for bit; noise is a function of its address; sources of every kind give the same samples."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset, WeightedRandomSampler

from krepes.errors import InvalidInputError
from krepes.views import (
    Augmentation,
    Compose,
    FeatureDrop,
    GaussianNoise,
    Identity,
    Noise,
    OnFields,
    PerView,
    Scarf,
    ViewStream,
    asymmetric_cifar,
    symmetric_cifar,
)
from krepes.views.noise import _signed
from oracles import views as oracle

EXACT = dict(rtol=0, atol=0)
X = torch.randn(37, 6, generator=torch.Generator().manual_seed(0))
IMAGES = torch.rand(11, 3, 9, 12, generator=torch.Generator().manual_seed(1))
STREAMS = {
    "gaussian": (X, GaussianNoise(0.3)),
    "gaussian64": (X.double(), GaussianNoise(0.3)),
    "drop": (X, FeatureDrop(0.4)),
    "scarf": (X, Scarf(X)),
    "scarf-both": (X, Scarf(X, both=True)),
    "composed": (X, Compose(GaussianNoise(0.1), FeatureDrop(0.3), GaussianNoise(0.1))),
    "identity": (X, Identity()),
    "symmetric": (IMAGES, symmetric_cifar()),
    "asymmetric": (IMAGES, asymmetric_cifar()),
}


@pytest.fixture(params=STREAMS)
def stream(request):
    data, augment = STREAMS[request.param]
    return ViewStream(data, augment, seed=3, batch_size=8)


def whole(stream):
    """All views of a pass, (p, n, ...)."""
    return torch.cat([views for _, views in stream], dim=1)


# Noise: a function of its address


def test_first_output_is_the_published_one():
    assert oracle.splitmix64(0) == 0xE220A8397B1DCDAF


def test_bits_equal_splitmix64_in_python_integers():
    noise = Noise(torch.tensor([0, 1, 10**9]), view=1, seed=42, path=(2, "x"))
    bits = noise.bits("mask", 4)
    for row, index in enumerate([0, 1, 10**9]):
        for position in range(4):
            assert int(bits[row, position]) == _signed(oracle.noise_bits(42, index, 1, (2, "x"), "mask", position))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("kind", "law"), [("uniform", "uniform"), ("normal", "norm")])
def test_numbers_follow_their_law(kind, law, dtype, seed):
    numbers = getattr(Noise(torch.arange(2000), 0, seed), kind)("a", 50, dtype=dtype)
    assert numbers.dtype == dtype
    # 1e5 draws of a right generator fall below this level once in a million seeds.
    assert stats.kstest(numbers.flatten().double().numpy(), law).pvalue > 1e-6


def test_uniform_numbers_stay_below_one_and_normal_ones_finite():
    noise = Noise(torch.arange(20_000), 0, 0)
    assert 0 <= noise.uniform("a", 100).min() and noise.uniform("a", 100).max() < 1
    assert noise.normal("a", 100).isfinite().all()


def test_integers_fall_equally_often():
    counts = torch.bincount(Noise(torch.arange(5000), 0, 0).integers("a", 7, 10).flatten(), minlength=7)
    assert len(counts) == 7 and stats.chisquare(counts.numpy()).pvalue > 1e-6


NEIGHBOURS = {
    "index": lambda i: Noise(i + 1, 0, 0).normal("a", 8),
    "view": lambda i: Noise(i, 1, 0).normal("a", 8),
    "seed": lambda i: Noise(i, 0, 1).normal("a", 8),
    "stream": lambda i: Noise(i, 0, 0).normal("b", 8),
    "path": lambda i: Noise(i, 0, 0).split(0).normal("a", 8),
    "position": lambda i: Noise(i, 0, 0).normal("a", 9)[:, 1:],
}


@pytest.mark.parametrize("what", NEIGHBOURS)
def test_neighbouring_addresses_are_uncorrelated(what):
    i = torch.arange(20_000)
    first, second = Noise(i, 0, 0).normal("a", 8), NEIGHBOURS[what](i)
    # Five standard errors of a correlation of 1.6e5 independent pairs, for the values and for their squares.
    bound = 5 / (20_000 * 8) ** 0.5
    for power in (1, 2):
        pair = torch.stack([(first**power).flatten(), (second**power).flatten()])
        assert abs(float(torch.corrcoef(pair)[0, 1])) < bound


# Streams: replay


def test_second_pass_and_every_batch_size_repeat_the_views_bitwise(stream):
    views = whole(stream)
    torch.testing.assert_close(whole(stream), views, **EXACT)
    for batch_size in (1, 5, 1000):
        torch.testing.assert_close(whole(stream.with_batch_size(batch_size)), views, **EXACT)


def test_views_of_chosen_samples_are_those_of_the_pass(stream):
    chosen = torch.tensor([7, 2, 2, 10])
    torch.testing.assert_close(stream.views_of(chosen), whole(stream)[:, chosen], **EXACT)


@settings(max_examples=25, deadline=None)
@given(
    chosen=st.lists(st.integers(0, len(IMAGES) - 1), min_size=1, max_size=20),
    seed=st.integers(-(2**63), 2**63),
    name=st.sampled_from(["composed", "scarf", "symmetric"]),
)
def test_order_repetition_and_company_of_samples_change_no_view(chosen, seed, name):
    data, augment = STREAMS[name]
    stream = ViewStream(data, augment, seed=seed)
    alone = torch.cat([stream.views_of(torch.tensor([i])) for i in chosen], dim=1)
    torch.testing.assert_close(stream.views_of(torch.tensor(chosen)), alone, **EXACT)


def test_two_threads_repeat_the_views_of_one():
    # One image is more than the 32768 numbers from which torch splits a loop between threads.
    large = torch.rand(3, 3, 112, 112, generator=torch.Generator().manual_seed(0))
    stream = ViewStream(large, symmetric_cifar())
    chosen = torch.arange(3)
    one = stream.views_of(chosen)
    torch.set_num_threads(2)
    try:
        torch.testing.assert_close(stream.views_of(chosen), one, **EXACT)
        torch.testing.assert_close(stream.views_of(chosen[-1:]), one[:, -1:], **EXACT)
    finally:
        torch.set_num_threads(1)


def test_views_differ_between_seeds_and_between_views():
    a, b = (ViewStream(X, GaussianNoise(1.0), seed=seed).views_of(torch.arange(5)) for seed in (0, 1))
    assert (a != b).all() and (a[0] != a[1]).all()


def test_pass_gives_every_sample_once_in_order(stream):
    batches = list(stream)
    assert torch.cat([indices for indices, _ in batches]).tolist() == list(range(stream.n))
    assert len(batches) == len(stream)
    assert all(views.shape[:2] == (stream.p, len(indices)) for indices, views in batches)


def test_number_of_views_comes_from_the_augmentation_or_the_caller():
    assert ViewStream(X, Identity()).p == 1
    assert ViewStream(X, Compose(Identity(), GaussianNoise(0.1))).p == 2
    assert whole(ViewStream(X, GaussianNoise(0.1), p=3)).shape == (3, *X.shape)


def test_each_view_of_an_asymmetric_pair_has_its_own_augmentation():
    views = whole(ViewStream(X, PerView(Identity(), GaussianNoise(0.1))))
    torch.testing.assert_close(views[0], X, **EXACT)
    assert (views[1] != X).all()
    with pytest.raises(InvalidInputError, match="view 3 was asked of a PerView of 2"):
        whole(ViewStream(X, PerView(Identity(), Identity()), p=3))


def test_parts_of_a_composition_have_noise_of_their_own():
    views = whole(ViewStream(torch.zeros(4000, 2), Compose(GaussianNoise(1.0), GaussianNoise(1.0))))
    # Independent parts add in variance, to 2; the same noise twice would give 4. Standard error 0.02.
    assert 1.8 < float(views.var()) < 2.2


def test_plain_samples_are_normalised_but_carry_no_noise():
    stream = ViewStream(IMAGES, asymmetric_cifar(mean=(0.5,) * 3, std=(0.25,) * 3))
    torch.testing.assert_close(stream.plain(torch.tensor([4, 0])), (IMAGES[[4, 0]] - 0.5) / 0.25)
    torch.testing.assert_close(ViewStream(X, Scarf(X, both=True)).plain(torch.arange(3)), X[:3], **EXACT)


def test_views_do_not_write_into_the_source():
    data, images = X.clone(), IMAGES.clone()
    whole(ViewStream(data, STREAMS["composed"][1]))
    whole(ViewStream(images, symmetric_cifar()))
    torch.testing.assert_close(data, X, **EXACT)
    torch.testing.assert_close(images, IMAGES, **EXACT)


# Sources


class Labelled(Dataset):
    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return self.data[i], f"label {i}", None


class Endless(IterableDataset):
    def __iter__(self):
        yield X[0]


def sources(folder):
    np.save(folder / "rows.npy", X.numpy())
    return {
        "tensor": X,
        "array": X.numpy(),
        "memmap": np.load(folder / "rows.npy", mmap_mode="r"),
        "tensor dataset": TensorDataset(X, torch.zeros(len(X))),
        "dataset with labels": Labelled(X),
        "subset": Subset(TensorDataset(torch.cat([X, X])), range(len(X))),
        "loader": DataLoader(TensorDataset(X, torch.zeros(len(X))), batch_size=16, shuffle=True),
        "loader with collate": DataLoader(
            Labelled(X), 16, collate_fn=lambda items: (torch.stack([i[0] for i in items]),)
        ),
    }


def test_every_source_of_the_same_rows_gives_the_same_views(tmp_path, recwarn):
    expected = whole(ViewStream(X, GaussianNoise(0.1)))
    for name, source in sources(tmp_path).items():
        torch.testing.assert_close(whole(ViewStream(source, GaussianNoise(0.1))), expected, **EXACT, msg=name)
    assert not [w for w in recwarn if "not writable" in str(w.message)]


def test_loader_lends_its_batch_size():
    loader = DataLoader(TensorDataset(X), batch_size=16)
    assert ViewStream(loader, Identity()).batch_size == 16
    assert ViewStream(loader, Identity(), batch_size=4).batch_size == 4


@pytest.mark.parametrize("kind", [dict, tuple])
def test_nested_samples_keep_their_nesting(kind):
    data = {"x": X, "z": X[:, :2].numpy()} if kind is dict else (X, X[:, :2].numpy())
    x, z = ("x", "z") if kind is dict else (0, 1)
    stream = ViewStream(data, OnFields({x: GaussianNoise(0.1)}), batch_size=5)
    for indices, views in stream:
        assert isinstance(views, kind)
        assert (views[x] != X[indices]).any()
        torch.testing.assert_close(views[z], X[indices, :2].expand(2, -1, -1), **EXACT)
    torch.testing.assert_close(stream.plain(torch.tensor([3]))[x], X[[3]], **EXACT)


def test_memmap_is_read_by_the_batch(tmp_path):
    file = np.lib.format.open_memmap(tmp_path / "big.npy", mode="w+", dtype=np.float32, shape=(10**7, 8))
    file[-1] = 1
    stream = ViewStream(np.load(tmp_path / "big.npy", mmap_mode="r"), Identity())
    torch.testing.assert_close(stream.views_of(torch.tensor([10**7 - 1])), torch.ones(1, 1, 8), **EXACT)


# Fingerprint


def test_fingerprint_sees_data_seed_augmentation_and_views_but_not_the_batch_size():
    stream = ViewStream(X, GaussianNoise(0.1), seed=0)
    other = X.clone()
    other[-1, -1] += 1e-6
    changed = [
        ViewStream(other, GaussianNoise(0.1), seed=0),
        ViewStream(X.double(), GaussianNoise(0.1), seed=0),
        ViewStream(X, GaussianNoise(0.1), seed=1),
        ViewStream(X, GaussianNoise(0.2), seed=0),
        ViewStream(X, GaussianNoise(0.1), seed=0, p=1),
        ViewStream(X, Scarf(X), seed=0),
        ViewStream(X, Scarf(other), seed=0),
    ]
    assert len({stream.fingerprint(), *(s.fingerprint() for s in changed)}) == 8
    assert stream.with_batch_size(3).fingerprint() == stream.fingerprint()
    assert ViewStream(X.numpy(), GaussianNoise(0.1), seed=0).fingerprint() == stream.fingerprint()


def test_description_is_json_and_names_every_setting(stream):
    told = json.loads(json.dumps(stream.describe()))
    assert (told["n"], told["p"], told["seed"], told["batch_size"]) == (stream.n, stream.p, 3, 8)
    assert told["sample"]["shape"] == list(stream.plain(torch.tensor([0])).shape[1:])


# Refusals


class Doubled(Augmentation):
    def __call__(self, X, noise):
        return torch.cat([X, X])


class Broken(Augmentation):
    def __call__(self, X, noise):
        return X / 0


NAN = X.clone()
NAN[20, 3] = float("nan")
REFUSED = {
    "nan": (NAN, "batch of samples 16 to 23 holds 1 NaN"),
    "empty": (X[:0], "holds no sample"),
    "lengths": ((X, X[:5]), r"share their first axis, got lengths \[5, 37\]"),
    "ragged": (np.array([[1.0], [1.0, 2.0]], dtype=object), "dtype object: ragged"),
    "ragged dataset": (
        Labelled([torch.zeros(3), torch.zeros(4)]),
        r"do not stack into one batch: found \(3,\), \(4,\)",
    ),
    "no tensor": (Labelled([object()]), "found object"),
    "iterable": (Endless(), "IterableDataset: its samples have no index"),
    "iterable loader": (DataLoader(Endless()), "IterableDataset: its samples have no index"),
    "sampler": (
        DataLoader(TensorDataset(X), sampler=WeightedRandomSampler(torch.ones(len(X)), 5)),
        "draws by WeightedRandomSampler",
    ),
    "number": (3, "int is no source of samples"),
    "words": ({"x": X, "name": "adult"}, "holds a str"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unusable_sources_are_refused_with_the_reason(name):
    source, message = REFUSED[name]
    with pytest.raises(InvalidInputError, match=message):
        list(ViewStream(source, Identity(), batch_size=8))


def test_augmentations_that_break_the_batch_are_refused():
    with pytest.raises(InvalidInputError, match="Doubled made 74 samples out of 37"):
        whole(ViewStream(X, Doubled()))
    with pytest.raises(InvalidInputError, match="views by Broken holds"):
        whole(ViewStream(X, Broken()))


@pytest.mark.parametrize("indices", [[], [-1], [0, 37]])
def test_indices_outside_the_source_are_refused(indices):
    with pytest.raises(InvalidInputError, match="of a stream of 37 samples"):
        ViewStream(X, Identity()).views_of(torch.tensor(indices))


@pytest.mark.parametrize("arguments", [{"batch_size": 0}, {"p": 0}])
def test_numbers_out_of_range_are_refused(arguments):
    with pytest.raises(InvalidInputError, match="must be at least 1"):
        ViewStream(X, Identity(), **arguments)
    with pytest.raises(InvalidInputError, match="must be at least 1"):
        ViewStream(X, Identity()).with_batch_size(0)
