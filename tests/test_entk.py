"""The tangent kernel against written-out Jacobians, network by network, and what must hold around it."""

import copy
import math
import warnings

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from krepes.budget import Budget
from krepes.encoders.resmlp import ResMLP
from krepes.errors import InvalidInputError, NotFittedError, UnsupportedEncoderError
from krepes.kernels import forms, patches, products
from krepes.kernels.entk import EmpiricalNTK
from networks import NETWORKS, Lambda, make
from oracles.jacobian import call, tangent_features

# Relative to max |K|. float64: a few hundred roundings of 1e-16. float32: those of the forward and backward pass.
FLOAT64, FLOAT32 = 1e-12, 2e-6
pytestmark = pytest.mark.filterwarnings(
    "ignore:There is a performance drop",
    "ignore:Using padding='same'",
    "ignore:`torch.nn.utils.weight_norm` is deprecated",
)


def to_double(X):
    if isinstance(X, dict):
        return {key: to_double(x) for key, x in X.items()}
    if isinstance(X, tuple):
        return tuple(to_double(x) for x in X)
    return X.double() if X.is_floating_point() else X


def errors(K, reference):
    """Entry by entry, relative to the largest entry of the reference."""
    return (K.double() - reference).abs() / reference.abs().max()


def oracle(kernel, encoder, X, Y, **kwargs):
    heads = kernel.tangent.cotangents
    return tangent_features(encoder, X, heads, **kwargs) @ tangent_features(encoder, Y, heads, **kwargs).T


def relu_signs(encoder, X):
    """Signs of every ReLU's input, sample by sample, ``(n, units)``."""
    signs, handles = [], []
    for module in encoder.modules():
        if isinstance(module, nn.ReLU):
            handles.append(module.register_forward_pre_hook(lambda _, args: signs.append((args[0] > 0).flatten(1))))
    with torch.no_grad():
        call(encoder.eval(), X)
    for handle in handles:
        handle.remove()
    return torch.cat(signs, dim=1) if signs else torch.zeros(0)


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("name", NETWORKS)
def test_float64_kernel_is_the_jacobian_product(name, heads, generator):
    encoder, inputs = make(name)
    X, Y = to_double(inputs(5, generator)), to_double(inputs(4, generator))
    kernel = EmpiricalNTK(encoder.double(), heads=heads)
    assert errors(kernel(X, Y), oracle(kernel, encoder, X, Y)).max() <= FLOAT64


@pytest.mark.parametrize("first", [nn.Linear(6, 6), nn.Identity()], ids=["behind a layer", "of the data"])
def test_complex_values_of_real_parameters_go_sample_by_sample(first, generator):
    """Layers over a spectrum, as Fourier neural operators have them."""
    encoder = Lambda(
        lambda self, x: torch.fft.irfft(self.gain * torch.fft.rfft(self.first(x)) * torch.complex(self.re, self.im)),
        **{name: nn.Parameter(torch.randn(4, generator=generator)) for name in ("gain", "re", "im")},
        first=first,
    ).double()
    X, Y = (torch.randn(n, 6, generator=generator).double() for n in (5, 4))
    kernel = EmpiricalNTK(encoder, heads=2)
    assert errors(kernel(X, Y), oracle(kernel, encoder, X, Y)).max() <= FLOAT64
    rules = {entry.parameter: entry.rule for entry in kernel.coverage()}
    assert rules["gain"] == "free parameter" and rules["re"].startswith("per-sample")


@pytest.mark.parametrize("name", NETWORKS)
def test_float32_kernel_is_the_jacobian_product_but_for_flipped_relus(name, generator):
    encoder, inputs = make(name)
    X, Y = inputs(12, generator), inputs(6, generator)
    kernel = EmpiricalNTK(encoder)
    error = errors(kernel(X, Y), oracle(kernel, encoder, X, Y))
    wide = copy.deepcopy(encoder).double()
    flipped = []
    for Z in (X, Y):
        narrow_signs, wide_signs = relu_signs(encoder, Z), relu_signs(wide, to_double(Z))
        flipped.append(
            (narrow_signs != wide_signs).any(1) if narrow_signs.ndim == 2 else torch.zeros(len(error)).bool()
        )
    for i, j in (error > FLOAT32).nonzero().tolist():
        assert flipped[0][i] or flipped[1][j], f"entry {i, j} is off by {error[i, j]:.1e} and no ReLU flipped"


@pytest.mark.parametrize("name", NETWORKS)
def test_every_parameter_is_covered_by_a_rule(name, generator):
    encoder, inputs = make(name)
    kernel = EmpiricalNTK(encoder)
    kernel.diagonal(inputs(4, generator))
    coverage = {entry.parameter: entry.rule for entry in kernel.coverage()}
    assert list(coverage) == [*dict(encoder.named_parameters()), "head.weight", "head.bias"]
    fallback = {name for name, rule in coverage.items() if rule.startswith("per-sample")}
    assert not fallback
    assert not any(rule == "left out" for rule in coverage.values())


@pytest.mark.parametrize("name", ["cnn", "vit", "conv2d, many channels", "tied embedding", "text"])
@pytest.mark.parametrize("route", ["factors", "explicit"])
def test_both_routes_give_the_same_kernel(name, route, generator, monkeypatch):
    encoder, inputs = make(name)
    X, Y = to_double(inputs(5, generator)), to_double(inputs(4, generator))
    monkeypatch.setattr(forms.Form, "route", lambda self, m: route)
    monkeypatch.setattr(forms, "TILE", 200)
    for module in (forms, products):
        monkeypatch.setattr(module, "INNER_BLOCK", 50)
    kernel = EmpiricalNTK(encoder.double(), heads=2)
    assert errors(kernel(X, Y), oracle(kernel, encoder, X, Y)).max() <= FLOAT64


@pytest.mark.parametrize("name", ["cnn", "conv1d", "conv2d, grouped and dilated", "conv2d, many channels", "conv3d"])
@pytest.mark.parametrize("many", [0, 10**9])
def test_shifted_and_unfolded_pictures_give_the_same_gradients(name, many, generator, monkeypatch):
    encoder, inputs = make(name)
    X, Y = to_double(inputs(5, generator)), to_double(inputs(4, generator))
    monkeypatch.setattr(forms.Form, "route", lambda self, m: "explicit")
    monkeypatch.setattr(patches, "MANY_PIXELS", many)
    kernel = EmpiricalNTK(encoder.double(), heads=2)
    assert errors(kernel(X, Y), oracle(kernel, encoder, X, Y)).max() <= FLOAT64


@pytest.mark.parametrize("name", ["mlp", "cnn", "text", "frames folded into the batch", "gru"])
def test_diagonal_and_mean_come_out_of_the_same_call(name, generator):
    encoder, inputs = make(name)
    X, R = to_double(inputs(5, generator)), to_double(inputs(7, generator))
    kernel = EmpiricalNTK(encoder.double(), heads=2)
    w = torch.linspace(-1, 2, 7, dtype=torch.float64)
    mean = kernel.mean_feature(R, w)
    rows = kernel.rows(X, kernel.prepare(R), diagonal=True, mean=mean)
    K_xr, K_rr = oracle(kernel, encoder, X, R), oracle(kernel, encoder, R, R)
    tight = {"rtol": 1e-10, "atol": 1e-12 * float(K_rr.max())}  # sums of products of order |K|
    torch.testing.assert_close(rows.diagonal, oracle(kernel, encoder, X, X).diagonal(), **tight)
    torch.testing.assert_close(kernel.diagonal(X), rows.diagonal, **tight)
    torch.testing.assert_close(rows.mean, K_xr @ w, **tight)
    torch.testing.assert_close(torch.tensor(mean.square, dtype=torch.float64), w @ K_rr @ w, **tight)


@pytest.mark.parametrize("name", ["mlp", "cnn", "text"])
def test_budget_moves_landmarks_to_disk_and_changes_nothing(name, generator):
    encoder, inputs = make(name)
    X, Y = to_double(inputs(9, generator)), to_double(inputs(8, generator))
    kernel = EmpiricalNTK(encoder.double())
    expected = kernel(X, Y)
    # The largest need of one sample: the written-out gradient in float64, or the activations against 8 columns.
    written = max(8 * form.transient() for form in kernel.tangent.forms(X))
    kernel.budget = Budget(math.ceil(max(written, kernel.tangent.bytes_per_sample + 4 * 8 * 8)))
    prepared = kernel.prepare(Y)
    assert prepared.spilled
    torch.testing.assert_close(kernel.rows(X, prepared).K, expected, rtol=1e-12, atol=0)  # another order of summation


def test_bfloat16_contraction_is_near_and_not_exact(generator):
    encoder, inputs = make("mlp")
    X = inputs(20, generator)
    exact, rough = EmpiricalNTK(encoder)(X, X), EmpiricalNTK(encoder, contraction=torch.bfloat16)(X, X)
    error = float(errors(rough, exact.double()).max())
    assert 1e-5 < error < 2e-2  # 8 bits of mantissa: 4e-3 an entry


def test_queries_and_keys_of_one_token_attention_are_not_computed(generator):
    """The values' third of the packed projection is all there is, and the kernel is that of all thirds."""
    encoder = ResMLP(6, out=4, width=16, B=1).double()
    kernel = EmpiricalNTK(encoder)
    X, Y = (torch.randn(n, 6, generator=generator, dtype=torch.float64) for n in (4, 5))
    prepared = kernel.prepare(Y)
    thirds = [side.form for side in prepared.sides if getattr(side.form, "ahead", 0)]
    assert [(form.d.shape[3], form.ahead) for form in thirds] == [(16, 32)]
    rows, columns = (tangent_features(encoder, x, kernel.tangent.cotangents) for x in (X, Y))
    found = kernel.rows(X, prepared, diagonal=True, mean=kernel.mean_feature(Y))
    assert_close(found.K, rows @ columns.T)
    assert_close(found.diagonal, rows.square().sum(1))
    assert_close(found.mean, rows @ columns.mean(0))


class Attending(torch.nn.Module):
    """One attention, over as many tokens as a sample has."""

    def __init__(self):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(8, num_heads=2, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0].mean(1)


def test_a_sample_of_one_token_among_longer_ones_has_its_queries_and_keys(generator):
    """What the first samples were decides: several tokens there, and a batch of one token agrees with them."""
    encoder = Attending().double()
    long, short = (torch.randn(4, T, 8, generator=generator, dtype=torch.float64) for T in (3, 1))
    kernel, alone = EmpiricalNTK(encoder), EmpiricalNTK(encoder)
    prepared = kernel.prepare(long)
    assert_close(kernel.rows(short, kernel.prepare(short)).K, alone.rows(short, alone.prepare(short)).K)
    assert kernel.rows(short, prepared).K.shape == (4, 4)
    with pytest.raises(UnsupportedEncoderError, match="one token a sample on the first samples"):
        alone.rows(long, alone.prepare(short))


def test_more_heads_average_more_probes(generator):
    encoder, inputs = make("mlp")
    X = inputs(12, generator)

    def spread(heads):
        kernels = torch.stack([EmpiricalNTK(encoder, heads=heads, seed=s)(X, X) for s in range(12)])
        return float(kernels.std(0).mean())

    assert spread(16) < 0.5 * spread(1)  # a quarter in expectation


def test_parameter_choice_is_the_kernel_of_that_subset(generator):
    encoder, inputs = make("mlp")
    X = to_double(inputs(5, generator))
    for pattern, names in [("last", {"4.weight", "4.bias"}), ("*.bias", {"0.bias", "2.bias", "4.bias"})]:
        kernel = EmpiricalNTK(encoder.double(), parameters=pattern)
        assert errors(kernel(X, X), oracle(kernel, encoder, X, X, names=names)).max() <= FLOAT64
        assert {c.parameter for c in kernel.coverage() if c.rule == "linear"} == names
    with pytest.raises(UnsupportedEncoderError, match=r"no parameter is left.*'nothing'"):
        EmpiricalNTK(encoder, parameters="nothing")


def test_frozen_parameters_count_unless_excluded(generator):
    encoder, inputs = make("mlp")
    X = to_double(inputs(4, generator))
    encoder.double()[0].requires_grad_(False)
    included, excluded = EmpiricalNTK(encoder), EmpiricalNTK(encoder, include_frozen=False)
    assert errors(included(X, X), oracle(included, encoder, X, X)).max() <= FLOAT64
    names = {"2.weight", "2.bias", "4.weight", "4.bias"}
    assert errors(excluded(X, X), oracle(excluded, encoder, X, X, names=names)).max() <= FLOAT64
    assert {c.parameter for c in excluded.coverage() if c.rule == "left out"} == {"0.weight", "0.bias"}


def test_encoder_is_left_as_it_was(generator):
    encoder = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2)).train()
    encoder[1].eval()
    encoder[0].weight.requires_grad_(False)
    before = copy.deepcopy(encoder.state_dict())
    EmpiricalNTK(encoder)(torch.randn(6, 4, generator=generator), torch.randn(3, 4, generator=generator))
    assert [module.training for module in encoder] == [True, False, True, True]
    assert [p.requires_grad for p in encoder.parameters()] == [False, True, True, True, True, True]
    assert all(p.grad is None for p in encoder.parameters())
    torch.testing.assert_close(encoder.state_dict(), before, rtol=0, atol=0)


def test_one_sample_is_enough_to_start(generator):
    encoder, inputs = make("transformer, batch second")
    x, Y = to_double(inputs(1, generator)), to_double(inputs(5, generator))
    kernel = EmpiricalNTK(encoder.double())
    assert errors(kernel(x, Y), oracle(kernel, encoder, x, Y)).max() <= FLOAT64


@pytest.mark.parametrize("blank", [0.0, 1.0])
def test_blank_first_samples_do_not_hide_where_the_batch_is(blank, generator):
    """Three samples of three equal tokens: samples and tokens look alike there, and the batch is the second axis."""

    def forward(self, x):
        return self.b(torch.tanh(self.a(x.transpose(0, 1)))).mean(0)

    torch.manual_seed(0)
    encoder = Lambda(forward, a=nn.Linear(4, 6), b=nn.Linear(6, 2)).double()
    X = torch.randn(9, 3, 4, generator=generator, dtype=torch.float64)
    X[:3] = blank
    kernel = EmpiricalNTK(encoder)
    assert errors(kernel(X, X), oracle(kernel, encoder, X, X)).max() <= FLOAT64


def test_a_backbone_without_gradients_can_be_left_out(generator):
    encoder = Refused.without_gradients().double()
    X = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    kernel = EmpiricalNTK(encoder, parameters=["fc.*"])
    features = nn.functional.pad(encoder.backbone(X).detach(), (0, 1), value=1.0)
    Z = nn.functional.pad(encoder(X).detach(), (0, 1), value=1.0)
    K = kernel(X, X)
    expected = float(kernel.tangent.cotangents.square().sum()) * features @ features.T + Z @ Z.T
    torch.testing.assert_close(K, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_a_scripted_part_is_served_by_the_fallback(generator):
    encoder = nn.Sequential(Refused.scripted(), nn.Tanh())
    X = torch.randn(5, 3, generator=generator)
    kernel = EmpiricalNTK(encoder)
    assert errors(kernel(X, X), oracle(kernel, encoder, X, X)).max() <= FLOAT32


def test_output_picks_the_embedding(generator):
    encoder = Lambda(lambda self, x: {"embedding": self.fc(x), "loss": x.sum()}, fc=nn.Linear(4, 3))
    X = torch.randn(5, 4, generator=generator)
    with pytest.raises(UnsupportedEncoderError, match="pick the embedding"):
        EmpiricalNTK(encoder).diagonal(X)
    kernel = EmpiricalNTK(encoder, output=lambda out: out["embedding"])
    reference = EmpiricalNTK(encoder.fc)
    torch.testing.assert_close(kernel(X, X), reference(X, X), rtol=1e-6, atol=1e-6)


def test_a_wrong_rule_is_caught_and_replaced(generator, monkeypatch):
    """The check against autograd on the first samples is what lets an unusual layer through safely."""
    from krepes.kernels import layers

    encoder, inputs = make("mlp")
    X = to_double(inputs(5, generator))
    honest = layers.LinearRule.form

    def halved(self, site, d, n, layout, *, weight, bias):
        return honest(self, site, [0.5 * part for part in d], n, layout, weight=weight, bias=bias)

    monkeypatch.setattr(layers.LinearRule, "form", halved)
    kernel = EmpiricalNTK(encoder.double())
    assert errors(kernel(X, X), oracle(kernel, encoder, X, X)).max() <= FLOAT64
    assert all(c.rule.startswith(("per-sample", "head")) for c in kernel.coverage())


class Refused:
    """Encoders that must be refused, with the words that say why."""

    def nan_weight():
        encoder = nn.Linear(3, 2)
        encoder.weight.data[1, 2] = float("nan")
        return encoder

    def quantized():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return nn.Sequential(torch.ao.nn.quantized.dynamic.Linear(3, 2), nn.Linear(2, 2))

    def overwriting():
        def forward(self, x):
            hidden = self.first(x)
            out = self.fc(hidden)
            hidden.relu_()
            return out + hidden

        return Lambda(forward, first=nn.Linear(3, 3), fc=nn.Linear(3, 3))

    def recomputing():
        return Lambda(
            lambda self, x: self.fc(checkpoint(self.first, x, use_reentrant=False)),
            first=nn.Linear(3, 3),
            fc=nn.Linear(3, 2),
        )

    def without_gradients():
        def forward(self, x):
            with torch.no_grad():
                hidden = self.backbone(x)
            return self.fc(hidden)

        return Lambda(forward, backbone=nn.Linear(3, 3), fc=nn.Linear(3, 2))

    def scripted():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.jit.trace(nn.Linear(3, 2), torch.zeros(1, 3))

    CASES = {
        "recomputing": (recomputing, "checkpoint"),
        "gradients switched off": (without_gradients, "'backbone.weight' runs with gradients switched off"),
        "TorchScript": (scripted, "is a TorchScript module"),
        "weak batch statistics": (
            lambda: Lambda(lambda self, x: self.fc(x) - 5e-3 * self.fc(x).mean(0), fc=nn.Linear(3, 2)),
            "alone in its batch",
        ),
        "batch statistics in bfloat16": (
            lambda: Lambda(lambda self, x: self.fc(x) - self.fc(x).mean(0), fc=nn.Linear(3, 2, dtype=torch.bfloat16)),
            "alone in its batch",
        ),
        "no parameters": (lambda: nn.Flatten(), "no parameters"),
        "rows that move": (
            lambda: Lambda(lambda self, x: self.table(x.long().abs() % 5), table=nn.Embedding(5, 2, max_norm=1.0)),
            r"'table' \(Embedding\) has max_norm=1: it rescales its own rows",
        ),
        "complex": (lambda: nn.Linear(3, 2, dtype=torch.complex64), "complex"),
        "quantized": (quantized, "quantized module"),
        "batch statistics": (
            lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, track_running_stats=False)),
            "without running statistics",
        ),
        "hidden batch statistics": (
            lambda: Lambda(lambda self, x: self.fc(x) - self.fc(x).mean(0), fc=nn.Linear(3, 2)),
            "alone in its batch",
        ),
        "random": (
            lambda: Lambda(lambda self, x: nn.functional.dropout(self.fc(x), 0.5, training=True), fc=nn.Linear(3, 8)),
            "two forward passes of the same samples differ",
        ),
        "input overwritten": (overwriting, "input of 'fc.weight'.*overwritten in place"),
        "data-dependent": (
            lambda: Lambda(
                lambda self, x: self.b(self.a(x)) if len(x) < 4 else self.a(x), a=nn.Linear(3, 3), b=nn.Linear(3, 3)
            ),
            "depends on the data",
        ),
    }


@pytest.mark.parametrize("name", Refused.CASES)
def test_refusals_say_why(name, generator):
    build, words = Refused.CASES[name]
    torch.manual_seed(0)
    with pytest.raises(UnsupportedEncoderError, match=words):
        EmpiricalNTK(build()).diagonal(torch.randn(6, 3, generator=generator))


def test_not_finite_weights_and_inputs_are_refused_with_their_place(generator):
    with pytest.raises(InvalidInputError, match=r"parameter 'weight' holds 1 NaN.*\(1, 2\)"):
        EmpiricalNTK(Refused.nan_weight())
    X = torch.randn(6, 3, generator=generator)
    X[5, 1] = float("inf")
    with pytest.raises(
        InvalidInputError, match=r"input of the encoder holds 1 NaN or infinite entries of 18.*\(5, 1\)"
    ):
        EmpiricalNTK(nn.Linear(3, 2)).diagonal(X)
    with pytest.raises(InvalidInputError, match="holds no sample"):
        EmpiricalNTK(nn.Linear(3, 2)).diagonal(X[:0])


def test_coverage_before_any_data_says_what_to_do():
    with pytest.raises(NotFittedError, match="call the kernel on some data first"):
        EmpiricalNTK(nn.Linear(3, 2)).coverage()


def test_description_is_plain_and_follows_the_weights(generator):
    encoder, _ = make("mlp")
    first = EmpiricalNTK(encoder, heads=2, seed=7).describe()
    assert (first["heads"], first["head_seed"], first["parameter_count"]) == (2, 7, 321)
    encoder[0].bias.data[0] += 1
    assert EmpiricalNTK(encoder, heads=2, seed=7).describe()["weights_sha256"] != first["weights_sha256"]


@pytest.mark.parametrize("budget", ["1G", "16K"])
def test_both_sides_in_one_pass_are_both_sides_in_two(budget):
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Flatten(), nn.Linear(28, 3)).double()
    X, Y = torch.randn(9, 4, 5).double(), torch.randn(6, 4, 5).double()
    kernel, seen = EmpiricalNTK(encoder, memory_budget=budget), []
    kernel(X, Y)
    encoder.register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))
    K = kernel(X, Y)
    assert sum(seen) == 15 and (seen == [15]) == (budget == "1G")
    torch.testing.assert_close(K, kernel.rows(X, kernel.prepare(Y)).K, rtol=1e-12, atol=1e-12)
    assert kernel(X.float(), Y).shape == (9, 6)


def test_gradients_are_written_out_where_that_moves_less_than_products_of_tokens():
    """Few landmarks and a wide layer: writing a gradient out moves more than products of its tokens cost."""
    wide = forms.Outer(torch.zeros(1, 32, 1, 192), torch.zeros(1, 32, 1, 768), bias=True)
    assert [wide.route(m) for m in (1, 8, 200)] == ["factors", "factors", "explicit"]
    long = forms.Outer(torch.zeros(1, 256, 1, 48), torch.zeros(1, 256, 1, 192), bias=True)
    assert {long.route(m) for m in (1, 8, 200)} == {"explicit"}
