"""Unusual forward passes: served exactly, or refused with the true reason; and real classes of other libraries."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from krepes.errors import UnsupportedEncoderError
from krepes.kernels.entk import EmpiricalNTK
from networks import Lambda
from oracles.jacobian import tangent_features

EXACT = 1e-12


def error(kernel, encoder, X, output=None):
    """Largest deviation from written-out Jacobians, relative to the largest entry."""
    K = kernel(X, X)
    features = tangent_features(encoder, X, kernel.tangent.cotangents, output=output)
    expected = features @ features.T
    return float((K - expected).abs().max() / expected.abs().max())


def slow(kernel):
    return {entry.parameter for entry in kernel.coverage() if entry.rule.startswith("per-sample")}


class Squares(torch.autograd.Function):
    """``(x Wᵀ)²`` with a backward pass of its own, which no transform can batch."""

    @staticmethod
    def forward(ctx, x, W):
        y = x @ W.T
        ctx.save_for_backward(x, W, y)
        return y.square()

    @staticmethod
    def backward(ctx, g):
        x, W, y = ctx.saved_tensors
        return (2 * g * y) @ W, (2 * g * y).T @ x


def squares():
    return Lambda(
        lambda self, x: self.b(Squares.apply(self.a(x), self.W)),
        a=nn.Linear(3, 3),
        W=nn.Parameter(torch.randn(4, 3)),
        b=nn.Linear(4, 2),
    )


def routed(self, x):
    """Each sample goes to the expert that its first entry asks for."""
    y = torch.zeros(len(x), 2, dtype=x.dtype)
    for k, expert in enumerate(self.experts):
        rows = ((x[:, 0] > 0) == bool(k)).nonzero().squeeze(1)
        y[rows] = expert(x[rows])
    return self.out(y)


def experts():
    return Lambda(routed, experts=nn.ModuleList([nn.Linear(3, 2), nn.Linear(3, 2)]), out=nn.Linear(2, 2))


def test_a_function_with_its_own_backward_pass_is_served_and_its_cost_is_told(generator):
    torch.manual_seed(0)
    encoder, X = squares().double(), torch.randn(5, 3, generator=generator, dtype=torch.float64)
    kernel = EmpiricalNTK(encoder)
    assert error(kernel, encoder, X) <= EXACT
    assert slow(kernel) == {"W"}
    rule = next(entry.rule for entry in kernel.coverage() if entry.parameter == "W")
    assert "one sample at a time" in rule and "% of the time" in rule


def test_routing_that_the_first_samples_show_is_served(generator):
    torch.manual_seed(0)
    encoder, X = experts().double(), torch.randn(6, 3, generator=generator, dtype=torch.float64)
    X[:, 0] = torch.tensor([1.0, -1, 1, -1, 1, 1])
    kernel = EmpiricalNTK(encoder)
    kernel.tangent.probe(X[:3])
    assert error(kernel, encoder, X) <= EXACT
    assert slow(kernel) == {f"experts.{k}.{p}" for k in (0, 1) for p in ("weight", "bias")}


def test_routing_that_begins_later_is_refused(generator):
    torch.manual_seed(0)
    encoder, X = experts(), torch.randn(6, 3, generator=generator)
    X[:, 0] = torch.tensor([1.0, 1, 1, 1, -1, 1])
    kernel = EmpiricalNTK(encoder)
    kernel.tangent.probe(X[:3])
    with pytest.raises(
        UnsupportedEncoderError, match=r"'experts.1.weight' got \(5, 3\) from a batch of 6.*on the data"
    ):
        kernel.diagonal(X)


def test_a_branch_that_begins_to_count_later_is_refused(generator):
    def forward(self, x):
        extra = self.extra(x)
        return self.fc(x) + extra if float(x.detach().max()) > 5 else self.fc(x)

    torch.manual_seed(0)
    X = torch.randn(6, 3, generator=generator)
    kernel = EmpiricalNTK(Lambda(forward, fc=nn.Linear(3, 2), extra=nn.Linear(3, 2)))
    kernel.diagonal(X)
    unused = {entry.parameter for entry in kernel.coverage() if entry.rule.startswith("unused")}
    assert unused == {"extra.weight", "extra.bias"}  # called, but nothing of it reaches the output
    X[2, 1] = 6.0
    with pytest.raises(UnsupportedEncoderError, match="'extra.weight' takes part.*depends on the data"):
        kernel.diagonal(X)


def under_autocast(self, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = self.a(x)
    return self.b(hidden.float())


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("first", [False, True])
def test_older_checkpoints_are_refused_for_what_they_are(first, generator):
    def forward(self, x):
        return self.b(checkpoint(self.a, x if first else self.before(x), use_reentrant=True))

    encoder = Lambda(forward, before=nn.Linear(3, 3), a=nn.Linear(3, 3), b=nn.Linear(3, 2))
    with pytest.raises(UnsupportedEncoderError, match="recomputes layers.*checkpoint"):
        EmpiricalNTK(encoder).diagonal(torch.randn(4, 3, generator=generator))


def test_autocast_inside_the_forward_pass_is_refused(generator):
    encoder = Lambda(under_autocast, a=nn.Linear(3, 4), b=nn.Linear(4, 2))
    with pytest.raises(UnsupportedEncoderError, match=r"'a.(weight|bias)' runs under autocast \(torch.bfloat16\)"):
        EmpiricalNTK(encoder).diagonal(torch.randn(4, 3, generator=generator))


def test_an_exported_graph_is_served_by_rules(generator):
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.PReLU(), nn.Linear(4, 2, bias=False)).double().eval()
    X = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    exported = torch.export.export(layers, (X,), dynamic_shapes=({0: torch.export.Dim("n", min=1)},)).module()
    kernel = EmpiricalNTK(exported)
    reference = EmpiricalNTK(layers)(X, X)
    assert float((kernel(X, X) - reference).abs().max()) <= EXACT * float(reference.abs().max())
    assert not slow(kernel)


def bert(transformers):
    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=12,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
    )
    return transformers.BertModel(config), lambda n, g: torch.randint(0, 50, (n, 7), generator=g), "last_hidden_state"


def gpt2(transformers):
    config = transformers.GPT2Config(
        vocab_size=50, n_positions=16, n_embd=12, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
    )
    return transformers.GPT2Model(config), lambda n, g: torch.randint(0, 50, (n, 7), generator=g), "last_hidden_state"


def convnext(transformers):
    config = transformers.ConvNextConfig(hidden_sizes=[4, 6], depths=[1, 1], num_stages=2, layer_scale_init_value=0.3)
    return transformers.ConvNextModel(config), lambda n, g: torch.randn(n, 3, 16, 16, generator=g), "pooler_output"


def swin(transformers):
    config = transformers.SwinConfig(
        image_size=16, patch_size=2, embed_dim=4, depths=[2], num_heads=[2], window_size=4, initializer_range=0.3
    )
    return transformers.SwinModel(config), lambda n, g: torch.randn(n, 3, 16, 16, generator=g), "pooler_output"


@pytest.mark.parametrize("build", [bert, gpt2, convnext, swin])
def test_classes_of_transformers_have_no_parameter_on_the_slow_route(build, generator, real):
    transformers = real("transformers")
    torch.manual_seed(0)
    encoder, inputs, output = build(transformers)
    X = inputs(4, generator)
    X = X.double() if X.is_floating_point() else X
    kernel = EmpiricalNTK(encoder.double().eval(), output=output)
    assert error(kernel, encoder, X, output=lambda result: result[output]) <= EXACT
    assert not slow(kernel)
