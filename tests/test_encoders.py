"""Encoders: the stated architecture written out again, the names of torchvision, learning by pre-training."""

import pytest
import torch
import torch.nn.functional as F

from krepes.encoders import MLP, ConvNet, ResMLP, resnet18, resnet34, resnet50
from krepes.errors import InvalidInputError

# float64: the written-out version multiplies in another order, nothing more.
TIGHT = dict(rtol=1e-12, atol=1e-12)


def parameters(encoder):
    return sum(parameter.numel() for parameter in encoder.parameters())


def test_mlp_is_its_formula(generator):
    encoder = MLP(12, width=7, depth=2, out=5).double()
    x = torch.randn(4, 3, 4, generator=generator, dtype=torch.float64)
    (W1, b1, W2, b2, W3, b3) = encoder.parameters()
    h = (x.flatten(1) @ W1.T + b1).clamp(min=0)
    h = (h @ W2.T + b2).clamp(min=0)
    torch.testing.assert_close(encoder(x), h @ W3.T + b3, **TIGHT)


def test_resmlp_is_the_algorithm_of_the_paper(generator):
    encoder = ResMLP(6, out=3, width=8, B=2, r=4).double()
    s = {name: value.detach() for name, value in encoder.named_parameters()}
    x = torch.randn(5, 6, generator=generator, dtype=torch.float64)
    h = F.gelu(x @ s["project_in.weight"].T + s["project_in.bias"])
    token = (h - h.mean(1, keepdim=True)) / (h.var(1, keepdim=True, correction=0) + 1e-5).sqrt()
    # A softmax over one key is one: attention is W_o (W_v token + b_v) + b_o.
    value = token @ s["attention.in_proj_weight"][16:].T + s["attention.in_proj_bias"][16:]
    h = h + value @ s["attention.out_proj.weight"].T + s["attention.out_proj.bias"]
    for block in ("blocks.0", "blocks.1"):
        inner = F.gelu(h @ s[f"{block}.down.weight"].T + s[f"{block}.down.bias"])
        h = F.gelu(h + inner @ s[f"{block}.up.weight"].T + s[f"{block}.up.bias"])
    expected = h @ s["project_out.weight"].T + s["project_out.bias"]
    torch.testing.assert_close(encoder(x), expected, **TIGHT)


def test_resmlp_queries_and_keys_get_no_gradient():
    encoder = ResMLP(6, out=3, width=8).double()
    encoder(torch.ones(2, 6, dtype=torch.float64)).sum().backward()
    gradient = encoder.attention.in_proj_weight.grad
    # Backpropagating through the softmax leaves round-off, where the mathematics has zero.
    assert gradient[:16].abs().max() < 1e-14 * gradient[16:].abs().max()


def test_convnet_is_its_formula_behind_whitened_patches(generator):
    encoder = ConvNet(in_channels=1, width=3, out=5).double().eval()
    X = torch.rand(6, 1, 12, 12, generator=generator, dtype=torch.float64)
    encoder.whiten(X)
    patches = torch.stack([
        X[i, 0, r : r + 2, c : c + 2].flatten() for i in range(6) for r in range(11) for c in range(11)
    ])
    Y = patches @ encoder.whitening[:4].flatten(1).T
    variances = torch.linalg.eigvalsh(patches.T.cov())
    torch.testing.assert_close(Y.T.cov(), (variances / (variances + 5e-4)).diag(), **TIGHT)
    assert torch.equal(encoder.whitening[:4], -encoder.whitening[4:])
    h = F.relu(F.conv2d(X, encoder.whitening))
    for place in range(6):
        h = F.conv2d(h, encoder.convs[place].weight, padding=0 if place == 5 else 1)
        h = F.max_pool2d(h, 2) if place in {0, 2, 4} else h
        h = F.relu(h / (1 + 1e-5) ** 0.5)  # fresh batch norm: mean zero, variance one
    torch.testing.assert_close(encoder(X), h.mean((2, 3)), **TIGHT)


def test_convnet_whitening_is_kept_and_never_trained():
    encoder = ConvNet(width=4, out=6)
    assert "whitening" in encoder.state_dict() and "whitening" not in dict(encoder.named_parameters())
    assert parameters(encoder) == 9 * (24 * 4 + 4 * 4 + 4 * 8 + 8 * 8 + 8 * 16) + 16 * 6 + 2 * (4 + 4 + 8 + 8 + 16 + 6)


def test_resmlp_has_the_size_its_formula_gives():
    w, d, out = 1032, 110, 128
    attention, block = 4 * (w * w + w), 2 * w * (w // 4) + w // 4 + w
    # The paper says roughly five million; counted with all four attention matrices it is six.
    assert parameters(ResMLP(d)) == (d + 1) * w + 2 * w + attention + 3 * block + (w + 1) * out == 6_114_470


@pytest.mark.parametrize(
    ("make", "published", "classifier"),
    [
        (resnet18, 11_689_512, 513_000),
        (resnet34, 21_797_672, 513_000),
        (resnet50, 25_557_032, 2_049_000),
    ],
    ids=["18", "34", "50"],
)
def test_resnets_have_the_published_size_without_their_classifier(make, published, classifier):
    with torch.device("meta"):
        assert parameters(make(cifar_stem=False)) == published - classifier


def torchvision_shapes(depths, kernels, expansion):
    """Names and shapes of torchvision's ResNets without fc, from the facts of their table: blocks and their kernels."""
    shapes = {"conv1.weight": (64, 3, 7, 7), **norm("bn1", 64)}
    fan_in = 64
    for stage, depth in enumerate(depths, start=1):
        planes = 64 * 2 ** (stage - 1)
        for block in range(depth):
            name, fan_block = f"layer{stage}.{block}", fan_in
            widths = [planes] * (len(kernels) - 1) + [planes * expansion]
            for k, (kernel, fan_out) in enumerate(zip(kernels, widths, strict=True), start=1):
                shapes |= {
                    f"{name}.conv{k}.weight": (fan_out, fan_in, kernel, kernel),
                    **norm(f"{name}.bn{k}", fan_out),
                }
                fan_in = fan_out
            if block == 0 and (stage > 1 or fan_block != fan_in):
                shapes |= {f"{name}.downsample.0.weight": (fan_in, fan_block, 1, 1)}
                shapes |= norm(f"{name}.downsample.1", fan_in)
    return shapes


def norm(name, width):
    statistics = {f"{name}.{s}": (width,) for s in ("weight", "bias", "running_mean", "running_var")}
    return {**statistics, f"{name}.num_batches_tracked": ()}


@pytest.mark.parametrize(
    ("make", "depths", "kernels", "expansion", "entries"),
    [
        (resnet18, (2, 2, 2, 2), (3, 3), 1, 120),
        (resnet34, (3, 4, 6, 3), (3, 3), 1, 216),
        (resnet50, (3, 4, 6, 3), (1, 3, 1), 4, 318),
    ],
    ids=["18", "34", "50"],
)
def test_plain_resnets_have_the_names_and_shapes_of_torchvision(make, depths, kernels, expansion, entries):
    with torch.device("meta"):
        state = make(cifar_stem=False).state_dict()
    expected = torchvision_shapes(depths, kernels, expansion)
    assert {key: tuple(value.shape) for key, value in state.items()} == expected
    # torchvision's state dicts have 122, 218 and 320 entries, of which fc.weight and fc.bias are two.
    assert len(expected) == entries


def test_plain_stem_quarters_the_image():
    encoder = resnet50(cifar_stem=False, width=4)
    assert (encoder.conv1.stride, encoder.conv1.padding) == ((2, 2), (3, 3))
    assert encoder.maxpool(encoder.conv1(torch.zeros(1, 3, 224, 224))).shape == (1, 4, 56, 56)
    # The stride of a bottleneck is on its 3x3 convolution, as torchvision has it and not the paper.
    assert (encoder.layer2[0].conv1.stride, encoder.layer2[0].conv2.stride) == ((1, 1), (2, 2))


@pytest.mark.parametrize(("make", "millions"), [(resnet18, 11.17), (resnet50, 23.50)], ids=["18", "50"])
def test_cifar_resnets_have_their_known_size(make, millions):
    with torch.device("meta"):
        assert parameters(make()) / 1e6 == pytest.approx(millions, abs=5e-3)


def test_resnet_block_adds_its_input(generator):
    """With the last scale at zero a block without projection is the identity on positive inputs."""
    block = resnet18(width=4).layer1[0].eval()
    torch.nn.init.zeros_(block.bn2.weight)
    x = torch.rand(2, 4, 5, 5, generator=generator)
    torch.testing.assert_close(block(x), x)


@pytest.mark.parametrize(("make", "out"), [(resnet18, 32), (resnet34, 32), (resnet50, 128)], ids=["18", "34", "50"])
@pytest.mark.parametrize("cifar_stem", [True, False])
def test_resnet_embeds_small_and_large_images(make, out, cifar_stem, generator):
    encoder = make(cifar_stem=cifar_stem, width=4, in_channels=1).eval()
    x = torch.rand(3, 1, 32, 40, generator=generator)
    Z = encoder(x)
    assert Z.shape == (3, out) and encoder.out == out and Z.std(0).max() > 0
    # In eval mode a sample's embedding does not depend on the batch; float32 products may be ordered otherwise.
    torch.testing.assert_close(encoder(x[1:2]), Z[1:2], rtol=1e-4, atol=1e-5)


def test_cifar_stem_pads_by_two_unless_told_otherwise():
    stem = resnet18(width=4).conv1
    assert (stem.stride, stem.padding, stem.kernel_size) == ((1, 1), (2, 2), (3, 3))
    assert stem(torch.zeros(1, 3, 32, 32)).shape == (1, 4, 34, 34)
    assert resnet18(width=4, cifar_padding=1).conv1(torch.zeros(1, 3, 32, 32)).shape == (1, 4, 32, 32)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: MLP(0), "d=0 is out of range"),
        (lambda: MLP(3, depth=-1), "depth=-1"),
        (lambda: ResMLP(3, width=10, r=4), "r=4 must divide width=10"),
        (lambda: resnet18(width=0), "width=0"),
        (lambda: resnet18(in_channels=0), "in_channels=0"),
        (lambda: resnet18(cifar_padding=-1), "cifar_padding=-1"),
    ],
)
def test_unusable_sizes_are_refused(act, message):
    with pytest.raises(InvalidInputError, match=message):
        act()
