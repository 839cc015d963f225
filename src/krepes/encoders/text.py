"""A small encoder of texts that learns in seconds: a table of hashed pieces, convolutions over neighbours, the mean."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from krepes._checks import require_range
from krepes.data.tokenizer import PAD
from krepes.errors import InvalidInputError
from krepes.views.tokens import kept_channels

STRETCH = 40.0
"""Rows of the table are that much smaller than what they stand for, so that they learn, and weigh in the kernel, as
much as the layers behind them: a row takes part in few texts, a layer in all."""


class TextEncoder(nn.Module):
    """Tokens to one embedding: a table, convolutions over three neighbours with shortcuts, the mean, a linear layer.

    Padding changes nothing: what the mask leaves out is zero before every layer and is not counted in the mean.

    Args:
        buckets: Numbers that tokens have, as in `krepes.data.HashedTokenizer`.
        width: Channels of a token.
        depth: Convolutions.
        out: Embedding dimension.

    Raises:
        InvalidInputError: If a size is not positive.

    Example:
        >>> from krepes.data import tokenized
        >>> X = tokenized(["good food", "bad"]).take(torch.tensor([0, 1]))
        >>> TextEncoder(width=8, out=4)(**X).shape
        torch.Size([2, 4])
    """

    def __init__(self, *, buckets: int = 16384, width: int = 64, depth: int = 2, out: int = 64) -> None:
        super().__init__()
        for name, size in (("buckets", buckets), ("width", width), ("out", out)):
            require_range(size, name, low=1)
        require_range(depth, "depth", low=0)
        self.config = {"name": "text", "buckets": buckets, "width": width, "depth": depth, "out": out}
        self.table = nn.Embedding(buckets, width, padding_idx=PAD)
        nn.init.normal_(self.table.weight, std=1 / STRETCH)
        self.mixes = nn.ModuleList(nn.Linear(3 * width, width) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.last = nn.Linear(width, out)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, dropout: Tensor | None = None) -> Tensor:
        """Return the embeddings.

        Args:
            input_ids: Tokens, ``(b, length)``.
            attention_mask: Zero where a token is padding; by default where it is number 0.
            dropout: Noise of a `krepes.views.Dropout` view, ``(b, 2)``: drops channels of tokens; ``None`` drops none.

        Returns:
            ``(b, out)``.

        Raises:
            InvalidInputError: If these are no tokens.
        """
        if input_ids.ndim != 2 or input_ids.is_floating_point():
            raise InvalidInputError(
                f"the text encoder takes tokens (b, length), got {tuple(input_ids.shape)} {input_ids.dtype}. Make "
                f"them with krepes.data.tokenized(texts)."
            )
        kept = input_ids != PAD if attention_mask is None else attention_mask != 0
        mask = kept.unsqueeze(2).to(self.table.weight.dtype)
        x = STRETCH * self.table(input_ids)
        if dropout is not None:
            x = x * kept_channels(dropout, x.shape[1], x.shape[2]).to(x.dtype)
        x = x * mask
        for mix, norm in zip(self.mixes, self.norms, strict=True):
            before, after = F.pad(x, (0, 0, 1, 0))[:, :-1], F.pad(x, (0, 0, 0, 1))[:, 1:]
            x = (x + F.gelu(norm(mix(torch.cat([before, x, after], dim=2))))) * mask
        return self.last(x.sum(1) / mask.sum(1).clamp(min=1))
