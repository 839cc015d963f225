"""Small encoders of every kind the tangent kernel must serve; each entry is ``name: (make encoder, make inputs)``."""

import torch
import torch.nn.functional as F
from torch import nn

from krepes.encoders.convnet import ConvNet
from krepes.encoders.resmlp import ResMLP
from krepes.encoders.resnet import resnet18
from networks_derived import DERIVED, Lambda


class ViT(nn.Module):
    """Patches, class token, positions, a block with layer scale, hand-written attention by F.sdpa."""

    def __init__(self, E=12, heads=3):
        super().__init__()
        self.patch = nn.Conv2d(3, E, 4, stride=4)
        self.cls = nn.Parameter(torch.randn(1, 1, E))
        self.pos = nn.Parameter(torch.randn(1, 5, E))
        self.norm1, self.norm2 = nn.LayerNorm(E), nn.LayerNorm(E)
        self.qkv, self.proj = nn.Linear(E, 3 * E), nn.Linear(E, E)
        self.mlp = nn.Sequential(nn.Linear(E, 2 * E), nn.GELU(), nn.Linear(2 * E, E))
        self.scale = nn.Parameter(torch.full((E,), 0.5))
        self.heads = heads

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], dim=1) + self.pos
        B, T, E = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(B, T, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(B, T, E)
        x = x + self.scale * self.proj(a)
        x = x + self.mlp(self.norm2(x))
        return x[:, 0]


class Text(nn.Module):
    """Token embedding with padding, learned positions looked up by index, attention with a padding mask, mean pool."""

    def __init__(self, V=11, E=8):
        super().__init__()
        self.words, self.positions = nn.Embedding(V, E, padding_idx=0), nn.Embedding(7, E)
        self.attention = nn.MultiheadAttention(E, 2, batch_first=True)
        self.norm = nn.LayerNorm(E)
        self.out = nn.Linear(E, 6)

    def forward(self, ids, mask):
        x = self.words(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        a, _ = self.attention(x, x, x, key_padding_mask=mask)
        x = self.norm(x + a).masked_fill(mask.unsqueeze(2), 0.0)
        return self.out(x.mean(1))


def text_inputs(n, g):
    ids = torch.randint(1, 11, (n, 7), generator=g)
    mask = torch.arange(7) >= torch.randint(3, 8, (n, 1), generator=g)
    return {"ids": ids.masked_fill(mask, 0), "mask": mask}


def settle_batch_norm(encoder, g):
    """Give running statistics and affine parameters values that matter."""
    for module in encoder.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.running_mean.copy_(0.3 * torch.randn(module.num_features, generator=g))
            module.running_var.copy_(0.5 + torch.rand(module.num_features, generator=g))
            module.weight.data.copy_(0.5 + torch.rand(module.num_features, generator=g))
            module.bias.data.copy_(0.3 * torch.randn(module.num_features, generator=g))
    return encoder


def cnn():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 12, 3, stride=2, padding=1),
        nn.BatchNorm2d(12),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(12, 5),
    )


def tied():
    """One linear layer used twice, and a decoder tied to the first layer's weight."""
    return Lambda(
        lambda self, x: F.linear(self.b(torch.tanh(self.b(torch.tanh(self.a(x))))), self.a.weight.T),
        a=nn.Linear(6, 6),
        b=nn.Linear(6, 6),
    )


def tied_embedding():
    """Token embedding whose table is also the output projection."""
    return Lambda(
        lambda self, ids: F.linear(torch.tanh(self.mix(self.words(ids).mean(1))), self.words.weight),
        words=nn.Embedding(9, 5),
        mix=nn.Linear(5, 5),
    )


def batch_second():
    """A transformer encoder layer that wants (tokens, batch, features)."""
    return Lambda(
        lambda self, x: self.layer(x.transpose(0, 1)).mean(0),
        layer=nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, dropout=0.1),
    )


def images(channels, size):
    return lambda n, g: torch.randn(n, channels, size, size, generator=g)


def vectors(*shape):
    return lambda n, g: torch.randn(n, *shape, generator=g)


NETWORKS = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(7, 16), nn.ReLU(), nn.Linear(16, 9), nn.Tanh(), nn.Linear(9, 4)),
        vectors(7),
    ),
    "resmlp": (lambda: ResMLP(10, out=6, width=32, B=2), vectors(10)),
    "cnn": (cnn, images(3, 8)),
    "convnet": (lambda: ConvNet(width=4, out=6), images(3, 16)),
    "resnet18": (lambda: resnet18(cifar_stem=True, width=8), images(3, 16)),
    "vit": (ViT, images(3, 8)),
    "transformer layer": (
        lambda: Lambda(
            lambda self, x: self.layer(x).mean(1), layer=nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        ),
        vectors(5, 8),
    ),
    "transformer, batch second": (batch_second, vectors(5, 8)),
    "text": (Text, text_inputs),
    "tied": (tied, vectors(6)),
    "tied embedding": (tied_embedding, lambda n, g: torch.randint(0, 9, (n, 4), generator=g)),
    "conv1d": (
        lambda: nn.Sequential(nn.Conv1d(4, 6, 3, padding="same", dilation=2), nn.GELU(), nn.Flatten()),
        vectors(4, 9),
    ),
    "conv1d, even kernel": (lambda: nn.Sequential(nn.Conv1d(4, 6, 4, padding="same"), nn.Flatten()), vectors(4, 9)),
    "conv2d, grouped and dilated": (
        lambda: nn.Sequential(
            nn.Conv2d(4, 8, 3, groups=2, padding=2, dilation=2, stride=2),
            nn.GELU(),
            nn.Conv2d(8, 8, 3, groups=8),
            nn.Flatten(),
        ),
        images(4, 9),
    ),
    "conv2d, many channels": (
        lambda: nn.Sequential(
            nn.Conv2d(40, 48, 3, padding=1, stride=2), nn.Tanh(), nn.Conv2d(48, 40, 3, padding=1), nn.Flatten()
        ),
        images(40, 4),
    ),
    "conv3d": (lambda: nn.Sequential(nn.Conv3d(2, 5, (1, 3, 2), padding=(0, 1, 1)), nn.Flatten()), vectors(2, 3, 4, 4)),
    "frames folded into the batch": (
        lambda: Lambda(lambda self, x: self.conv(x.flatten(0, 1)).reshape(len(x), -1), conv=nn.Conv2d(2, 3, 3)),
        vectors(4, 2, 5, 5),
    ),
    "tokens folded behind the batch": (
        lambda: Lambda(
            lambda self, x: self.fc(x.transpose(0, 1).reshape(-1, 6)).reshape(4, len(x), 5).tanh().sum(0),
            fc=nn.Linear(6, 5),
        ),
        vectors(4, 6),
    ),
    "group, instance and rms norm": (
        lambda: nn.Sequential(
            nn.GroupNorm(2, 4),
            nn.InstanceNorm2d(4, affine=True),
            nn.Tanh(),
            nn.Flatten(),
            nn.RMSNorm(64),
            nn.Linear(64, 5, bias=False),
        ),
        images(4, 4),
    ),
    "scalar temperature": (
        lambda: Lambda(
            lambda self, x: self.fc(x) * self.t.exp(), fc=nn.Linear(6, 3), t=nn.Parameter(torch.tensor(0.3))
        ),
        vectors(6),
    ),
    "windows folded into the batch": (
        lambda: Lambda(
            lambda self, x: self.fc(x.unflatten(1, (2, 3)).flatten(0, 1)).tanh().reshape(len(x), -1), fc=nn.Linear(6, 5)
        ),
        vectors(6, 6),
    ),
    "gru": (
        lambda: Lambda(
            lambda self, x: self.fc(self.gru(x)[0][:, -1]), gru=nn.GRU(4, 5, batch_first=True), fc=nn.Linear(5, 3)
        ),
        vectors(6, 4),
    ),
    "bilinear, tuple input": (
        lambda: Lambda(lambda self, x, y: self.mix(x, y).tanh(), mix=nn.Bilinear(3, 4, 5)),
        lambda n, g: (torch.randn(n, 3, generator=g), torch.randn(n, 4, generator=g)),
    ),
    "cross attention": (
        lambda: Lambda(
            lambda self, x, y: self.attention(x, y, y, need_weights=False)[0].mean(1),
            attention=nn.MultiheadAttention(8, 2, batch_first=True),
        ),
        lambda n, g: (torch.randn(n, 3, 8, generator=g), torch.randn(n, 4, 8, generator=g)),
    ),
    **DERIVED,
}


def make(name, seed=0):
    """Return an encoder with sensible random weights and a function drawing inputs."""
    torch.manual_seed(seed)
    build, inputs = NETWORKS[name]
    return settle_batch_norm(build(), torch.Generator().manual_seed(seed)), inputs
