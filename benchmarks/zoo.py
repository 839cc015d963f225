"""Real architectures of timm, torchvision and transformers in small sizes, with random weights."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from krepes.encoders import ResMLP, resnet18
from krepes.encoders.adapters.operators import mend_torchvision
from krepes.encoders.outputs import pick

TEXT = {"hidden_size": 192, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 768}
PICTURE = {"image_size": 64, "patch_size": 8}


def import_library(name: str) -> Any:
    """Return a library, also beside a torchvision that was built for another torch."""
    if name != "krepes":
        mend_torchvision()
    return importlib.import_module(name)


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
        network = Picked(self.make(import_library(self.library)), self.output).eval()
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


def timm(name: str, **settings: Any) -> Architecture:
    """Return a model of timm without its classifier."""
    return Architecture("timm", lambda library: library.create_model(name, num_classes=0, **settings), pictures)


def vision(name: str) -> Architecture:
    """Return a model of torchvision."""
    return Architecture("torchvision", lambda library: getattr(library.models, name)(), pictures)


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
    "DistilBERT": hugging("DistilBert", words, LAST, vocab_size=1000, dim=192, n_layers=4, n_heads=4, hidden_dim=768),
    "ELECTRA": hugging("Electra", words, LAST, vocab_size=1000, embedding_size=96, **TEXT),
    "ALBERT": hugging("Albert", words, LAST, vocab_size=1000, embedding_size=96, **TEXT),
    "MPNet": hugging("MPNet", words, LAST, vocab_size=1000, **TEXT),
    "CLIP text": hugging(
        "CLIPText", words, LAST, vocab_size=1000, eos_token_id=2, bos_token_id=1, max_position_embeddings=32, **TEXT
    ),
    "DeiT": hugging("DeiT", pictures, LAST, **TEXT, **PICTURE),
    "SigLIP vision": hugging("SiglipVision", pictures, LAST, **TEXT, **PICTURE),
    "HuBERT": hugging("Hubert", lambda n: torch.randn(n, 800), LAST, **SOUND, **TEXT),
    "ResNet-50 (transformers)": hugging(
        "ResNet", pictures, POOLED, depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 256, 512]
    ),
    "EfficientNet-B0 (timm)": timm("efficientnet_b0"),
    "MLP-Mixer (timm)": timm("mixer_s32_224", img_size=64),
    "ViT-Tiny (timm)": timm("vit_tiny_patch16_224", img_size=64),
    "ConvNeXt Atto (timm)": timm("convnext_atto"),
    "ResNet-50 (timm)": timm("resnet50"),
    "RegNet-X (timm)": timm("regnetx_002"),
    "MobileNet V3 (timm)": timm("mobilenetv3_small_050"),
    "PoolFormer (timm)": timm("poolformer_s12"),
    "MobileNet V3 (torchvision)": vision("mobilenet_v3_small"),
    "Swin (torchvision)": vision("swin_t"),
    "ResNet-50 (torchvision)": vision("resnet50"),
    "DenseNet-121 (torchvision)": vision("densenet121"),
    "ShuffleNet V2 (torchvision)": vision("shufflenet_v2_x0_5"),
    "MNASNet (torchvision)": vision("mnasnet0_5"),
}
