"""Small encoders whose parameters reach the layers by way of views, slices, lookups, norms and other functions."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations


class Lambda(nn.Module):
    def __init__(self, function, **modules):
        super().__init__()
        self.function = function
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, *args, **kwargs):
        return self.function(self, *args, **kwargs)


def parameter(*shape):
    return nn.Parameter(0.5 * torch.randn(*shape))


def with_buffer(module, **buffers):
    for name, value in buffers.items():
        module.register_buffer(name, value)
    return module


def vectors(*shape):
    return lambda n, g: torch.randn(n, *shape, generator=g)


def tokens(n, g):
    return torch.randint(0, 9, (n, 5), generator=g)


def positions():
    """A table looked up by constant numbers and a kind of token that is the same for all, as in BERT."""

    def forward(self, ids):
        kinds = self.kinds(self.zeros[:, : ids.shape[1]].expand(len(ids), -1))
        x = self.words(ids) + kinds + self.places(self.numbers[:, : ids.shape[1]])
        return self.out(torch.tanh(self.norm(x))).mean(1)

    module = Lambda(
        forward,
        words=nn.Embedding(9, 6),
        kinds=nn.Embedding(2, 6),
        places=nn.Embedding(8, 6),
        norm=nn.LayerNorm(6),
        out=nn.Linear(6, 4),
    )
    return with_buffer(module, numbers=torch.arange(8)[None], zeros=torch.zeros(1, 8, dtype=torch.long))


def sliced_positions():
    """Tokens and positions cut out of larger tables, with arithmetic on the way."""

    def forward(self, x):
        first = self.token.to(x).repeat(len(x), 1, 1)
        x = torch.cat([first, self.fc(x)], dim=1) + 2.0 * self.table[:, : x.shape[1] + 1]
        return torch.tanh(x - self.shift[1:4]).flatten(1)

    return Lambda(forward, fc=nn.Linear(4, 3), token=parameter(1, 1, 3), table=parameter(1, 7, 3), shift=parameter(5))


def layer_scale():
    """A scale per channel, viewed, on pictures in channels-first and channels-last order, and a quotient."""

    def forward(self, x):
        x = self.conv(x) * self.gamma[:, None, None] + x
        x = torch.tanh(x.permute(0, 2, 3, 1) * self.last / (1 + self.width.exp()))
        return x.flatten(1)

    return Lambda(
        forward, conv=nn.Conv2d(3, 3, 3, padding=1), gamma=parameter(3), last=parameter(3), width=parameter(3)
    )


class Windows(nn.Module):
    """Attention in windows folded into the batch, with relative positions, a mask, and scaled cosines."""

    def __init__(self, *, fused):
        super().__init__()
        self.fused = fused
        self.qkv, self.out = nn.Linear(6, 18), nn.Linear(6, 6)
        self.table, self.scale = parameter(5, 2), nn.Parameter(torch.tensor([[[0.3]], [[0.7]]]))
        self.register_buffer("index", (torch.arange(3)[:, None] - torch.arange(3)[None] + 2).flatten())
        self.register_buffer("mask", torch.zeros(2, 3, 3).index_fill(2, torch.tensor([1]), -2.0))

    def forward(self, x):
        n, windows = len(x), 2
        x = x.reshape(n * windows, 3, 6)
        q, k, v = self.qkv(x).reshape(n * windows, 3, 3, 2, 3).permute(2, 0, 3, 1, 4)
        bias = self.table[self.index].view(3, 3, 2).permute(2, 0, 1).contiguous()
        q = F.normalize(q, dim=-1) * self.scale.clamp(max=4.0).exp()
        if self.fused:
            mask = (bias[None] + self.mask[:, None]).repeat(n, 1, 1, 1)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=1.0)
        else:
            scores = q @ k.transpose(-2, -1) + bias.unsqueeze(0)
            scores = scores.view(n, windows, 2, 3, 3) + self.mask[:, None][None]
            y = scores.view(n * windows, 2, 3, 3).softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(n, windows, 3, 6)).mean((1, 2))


def products():
    """Weights in products of every spelling, as GPT-2's Conv1D and its kin have them."""

    def forward(self, x):
        n, T, _ = x.shape
        x = torch.tanh(torch.addmm(self.bias, x.reshape(-1, 4), self.first).view(n, T, 6))
        x = torch.tanh(x @ self.second)
        x = torch.tanh(torch.matmul(self.third, x.transpose(1, 2)))  # (n, 4, T)
        heads = torch.einsum("nct,hcd->nhtd", x, self.heads)
        mixed = torch.einsum("nhtd,hde->nhte", heads, self.each) + torch.matmul(heads, self.again)
        return (mixed * self.gate[None, :, None, None]).sum(2).flatten(1) @ self.last

    return Lambda(
        forward,
        first=parameter(4, 6),
        bias=parameter(6),
        second=parameter(6, 5),
        third=parameter(4, 5),
        heads=parameter(2, 4, 3),
        each=parameter(2, 3, 4),
        again=parameter(2, 3, 4),
        gate=parameter(2),
        last=parameter(8, 3),
    )


def normed_weights():
    """Weight norm in both spellings, spectral and orthogonal weights."""
    old = nn.utils.weight_norm
    return nn.Sequential(
        old(nn.Conv1d(3, 4, 2), dim=2),
        nn.Tanh(),
        parametrizations.weight_norm(nn.Conv1d(4, 4, 2)),
        nn.Tanh(),
        nn.Flatten(),
        parametrizations.spectral_norm(nn.Linear(12, 5)),
        nn.Tanh(),
        parametrizations.orthogonal(nn.Linear(5, 4)),
    )


def transposed():
    return nn.Sequential(
        nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1),
        nn.PReLU(4),
        nn.ConvTranspose2d(4, 4, 2, groups=2, dilation=2),
        nn.PReLU(),
        nn.Flatten(2),
        nn.ConvTranspose1d(4, 2, 3, stride=3, bias=False),
        nn.Flatten(),
    )


def bags():
    def forward(self, ids, weights):
        mean, total = self.mean(ids), self.total(ids, per_sample_weights=weights)
        return torch.tanh(mean + total + self.table[ids - 9].sum(1))

    return Lambda(
        forward,
        mean=nn.EmbeddingBag(9, 4, padding_idx=2),
        total=nn.EmbeddingBag(9, 4, mode="sum"),
        table=parameter(9, 4),
    )


def queries():
    """Learned queries that talk to each other before they see the data, and to the data after that."""

    def forward(self, x):
        q = self.norm(self.latents).expand(len(x), -1, -1)
        q = q + self.own(q, q, q, need_weights=False)[0]
        return self.cross(q, x, x, need_weights=False)[0].mean(1)

    return Lambda(
        forward,
        latents=parameter(2, 8),
        norm=nn.LayerNorm(8),
        own=nn.MultiheadAttention(8, 2, batch_first=True),
        cross=nn.MultiheadAttention(8, 2, batch_first=True, kdim=5, vdim=5),
    )


def lstm():
    return Lambda(
        lambda self, x: self.fc(self.cell(self.lstm(x)[0][:, -1])).tanh(),
        lstm=nn.LSTM(4, 3, num_layers=2, bidirectional=True, batch_first=True),
        cell=nn.GRUCell(6, 4),
        fc=nn.Linear(4, 3, bias=False),
    )


DERIVED = {
    "positions by constant numbers": (positions, tokens),
    "tokens and positions cut out": (sliced_positions, vectors(2, 4)),
    "layer scale": (layer_scale, vectors(3, 4, 4)),
    "relative positions, added": (lambda: Windows(fused=False), vectors(2, 3, 6)),
    "relative positions, fused": (lambda: Windows(fused=True), vectors(2, 3, 6)),
    "products of every spelling": (products, vectors(5, 4)),
    "normed weights": (normed_weights, vectors(3, 5)),
    "transposed convolutions": (transposed, vectors(3, 3, 3)),
    "bags of words": (
        bags,
        lambda n, g: {"ids": torch.randint(0, 9, (n, 5), generator=g), "weights": torch.randn(n, 5, generator=g)},
    ),
    "learned queries": (queries, lambda n, g: torch.randn(n, 4, 5, generator=g)),
    "lstm": (lstm, vectors(4, 4)),
}
"""Each entry is ``name: (make encoder, make inputs)``."""
