"""Real architectures with random weights: exactness, share of parameters on the slow route, speed against torch.func.

One thread; classes of libraries that are not installed are skipped. Sizes are small enough for minutes, in the shape of
the published models: what is compared is the same network and the same head on both sides, chunk sizes swept.
"""

from __future__ import annotations

import copy
import importlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import rivals
from benchmarks.entk import seconds
from krepes.encoders import ResMLP, resnet18
from krepes.encoders.outputs import pick
from krepes.kernels.entk import EmpiricalNTK

TEXT = {"hidden_size": 192, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 768}
PICTURE = {"image_size": 64, "patch_size": 8}
SMALL_BATCH, ROWS, LANDMARKS = 4, 16, 8
"""Samples of the exactness check, and of both sides of the speed comparison."""


@dataclass(frozen=True)
class Architecture:
    """One network: where it comes from, its settings, its samples and where its embedding is."""

    library: str
    make: Callable[[Any], nn.Module]
    inputs: Callable[[int], Tensor]
    output: str | None = None

    def build(self) -> nn.Module:
        """Return the network with random weights, of which none is zero or one for lack of training."""
        torch.manual_seed(0)
        network = Picked(self.make(importlib.import_module(self.library)), self.output).eval()
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.add_(0.02 * torch.randn_like(parameter))
        return network


class Picked(nn.Module):
    """A network that returns its embedding alone."""

    def __init__(self, network: nn.Module, output: str | None) -> None:
        super().__init__()
        self.network, self.output = network, output

    def forward(self, x: Tensor) -> Tensor:
        """Return ``(n, d)``: of a sequence, the mean over its tokens."""
        z = pick(self.network(x), self.output)
        return z.mean(1) if z.ndim == 3 else z.flatten(1)


def words(n: int) -> Tensor:
    """Return ``n`` texts of 32 words."""
    return torch.randint(5, 1000, (n, 32))


def pictures(n: int) -> Tensor:
    """Return ``n`` pictures."""
    return torch.randn(n, 3, 64, 64)


def hugging(name: str, inputs: Callable[[int], Tensor], output: str, **settings: Any) -> Architecture:
    """Return the class ``<name>Model`` of transformers with a configuration of its own."""

    def make(library: Any) -> nn.Module:
        model: nn.Module = getattr(library, f"{name}Model")(getattr(library, f"{name}Config")(**settings))
        return model

    return Architecture("transformers", make, inputs, output)


LAST, POOLED = "last_hidden_state", "pooler_output"
STAGES: dict[str, Any] = {"depths": [2, 2, 2], "num_stages": 3, "hidden_sizes": [48, 96, 192]}
SHIFTED: dict[str, Any] = {
    "image_size": 64,
    "patch_size": 4,
    "embed_dim": 48,
    "depths": [2, 2],
    "num_heads": [3, 6],
    "window_size": 4,
}
SOUND: dict[str, Any] = {"conv_dim": [48, 48], "conv_kernel": [10, 5], "conv_stride": [5, 5]}
ARCHITECTURES: dict[str, Architecture] = {
    "ResMLP": Architecture("krepes", lambda _: ResMLP(110), lambda n: torch.randn(n, 110)),
    "ResNet-18": Architecture("krepes", lambda _: resnet18(width=32), lambda n: torch.randn(n, 3, 32, 32)),
    "BERT": hugging("Bert", words, LAST, vocab_size=1000, **TEXT),
    "RoBERTa": hugging("Roberta", words, LAST, vocab_size=1000, **TEXT),
    "GPT-2": hugging(
        "GPT2", words, LAST, vocab_size=1000, n_embd=192, n_layer=4, n_head=4, bos_token_id=0, eos_token_id=0
    ),
    "Llama": hugging("Llama", words, LAST, vocab_size=1000, **TEXT),
    "T5 encoder": Architecture(
        "transformers",
        lambda t: t.T5EncoderModel(
            t.T5Config(vocab_size=1000, d_model=192, d_kv=48, d_ff=768, num_layers=4, num_heads=4)
        ),
        words,
        LAST,
    ),
    "ViT": hugging("ViT", pictures, LAST, **TEXT, **PICTURE),
    "DINOv2": hugging("Dinov2", pictures, LAST, hidden_size=192, num_hidden_layers=4, num_attention_heads=4, **PICTURE),
    "BEiT": hugging("Beit", pictures, LAST, use_relative_position_bias=True, **TEXT, **PICTURE),
    "CLIP vision": hugging("CLIPVision", pictures, POOLED, **TEXT, **PICTURE),
    "ConvNeXt": hugging("ConvNext", pictures, POOLED, **STAGES),
    "ConvNeXt V2": hugging("ConvNextV2", pictures, POOLED, **STAGES),
    "Swin": hugging("Swin", pictures, POOLED, **SHIFTED),
    "Swin V2": hugging("Swinv2", pictures, POOLED, **SHIFTED),
    "wav2vec 2.0": hugging("Wav2Vec2", lambda n: torch.randn(n, 800), LAST, **SOUND, **TEXT),
    "EfficientNet-B0 (timm)": Architecture(
        "timm", lambda t: t.create_model("efficientnet_b0", num_classes=0), pictures
    ),
    "MLP-Mixer (timm)": Architecture(
        "timm", lambda t: t.create_model("mixer_s16_224", img_size=64, num_classes=0), pictures
    ),
    "MobileNet V3 (torchvision)": Architecture("torchvision", lambda t: t.models.mobilenet_v3_small(), pictures),
    "Swin (torchvision)": Architecture("torchvision", lambda t: t.models.swin_t(), pictures),
}


def exactness(network: nn.Module, X: Tensor) -> tuple[float, float]:
    """Return the largest error against float64 autograd, relative to the largest entry, and the slow share."""
    network = copy.deepcopy(network).double()
    X = X.double() if X.is_floating_point() else X
    kernel = EmpiricalNTK(network)
    K, w = kernel(X, X), kernel.tangent.cotangents[0]
    leaves = [parameter.requires_grad_() for parameter in network.parameters()]
    rows = []
    for i in range(len(X)):
        z = network(X[i : i + 1])[0]
        found = torch.autograd.grad(z @ w, leaves, allow_unused=True)
        rows.append(torch.cat([*[g.flatten() for g in found if g is not None], z.detach(), z.new_ones(1)]))
    G = torch.stack(rows)
    reference = G @ G.T
    coverage = kernel.coverage()
    slow = sum(entry.size for entry in coverage if entry.rule.startswith("per-sample"))
    error = float((K - reference).abs().max() / reference.abs().max())
    return error, slow / sum(entry.size for entry in coverage)


def speed(network: nn.Module, X: Tensor, Y: Tensor) -> dict[str, float]:
    """Return CPU seconds of KREPES, and how many times slower torch.func is (one backward a sample if it cannot)."""
    kernel = EmpiricalNTK(network)
    kernel(X[:3], Y[:3])
    ours = seconds(partial(kernel, X, Y))
    w = kernel.tangent.cotangents[0]
    try:
        theirs = min(seconds(partial(rivals.torch_func, network, w, X, Y, chunk), 1) for chunk in (4, 8))
        return {"CPU s": ours, "torch.func / KREPES": theirs / ours}
    except RuntimeError:  # a layer that vmap cannot batch
        loop = min(seconds(partial(rivals.backward_loop, network, w, X, Y, chunk), 1) for chunk in (4, 8))
        return {"CPU s": ours, "backward loop / KREPES": loop / ours}


def measure(architecture: Architecture) -> dict[str, float]:
    """Return the figures of one architecture."""
    network = architecture.build()
    error, share = exactness(network, architecture.inputs(SMALL_BATCH))
    size = sum(parameter.numel() for parameter in network.parameters())
    figures = {"million parameters": size / 1e6, "error": error, "slow share": share}
    return figures | speed(network, architecture.inputs(ROWS), architecture.inputs(LANDMARKS))


def run() -> dict[str, Any]:
    """Return the figures of every architecture that can be built here."""
    torch.set_num_threads(1)
    table: dict[str, Any] = {}
    for name, architecture in ARCHITECTURES.items():
        try:
            importlib.import_module(architecture.library)
        except ImportError as error:
            print(f"    {name:28s} skipped: {error}", flush=True)
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table[name] = measure(architecture)
        print(f"    {name:28s} " + ", ".join(f"{k} {v:.3g}" for k, v in table[name].items()), flush=True)
    return table


def main() -> dict[str, Any]:
    """Print the figures, a line an architecture."""
    return run()


if __name__ == "__main__":
    main()
