"""The paper's encoder of tables: a residual MLP with self-attention over one token (appendix, algorithm ResMLP)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from krepes._checks import require_range
from krepes.errors import InvalidInputError


class BottleneckBlock(nn.Module):
    """``x <- GELU(x + Linear(GELU(Linear(x))))`` through ``width / r`` units."""

    def __init__(self, width: int, r: int) -> None:
        super().__init__()
        self.down = nn.Linear(width, width // r)
        self.up = nn.Linear(width // r, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``(b, width)`` of ``x`` ``(b, width)``."""
        return F.gelu(x + self.up(F.gelu(self.down(x))))


class ResMLP(nn.Module):
    """Project, attend, ``B`` bottleneck blocks, project.

    Note:
        The paper's algorithm returns after the blocks, its text projects to the output dimension: here the projection
        is there. A row is one token, and a softmax over one key is one, so the attention is the linear map ``W_o W_v``
        whatever its queries and keys: those receive no gradient.

    Args:
        d: Columns.
        out: Embedding dimension.
        width: ``w`` of the paper.
        B: Bottleneck blocks.
        r: Bottleneck factor; it divides ``width``.

    Raises:
        InvalidInputError: If a size is not positive, or ``r`` does not divide ``width``.

    Example:
        >>> import torch
        >>> ResMLP(110, out=128)(torch.zeros(5, 110)).shape
        torch.Size([5, 128])
    """

    def __init__(self, d: int, out: int = 128, *, width: int = 1032, B: int = 3, r: int = 4) -> None:
        super().__init__()
        for name, size in (("d", d), ("out", out), ("width", width), ("r", r)):
            require_range(size, name, low=1)
        require_range(B, "B", low=0)
        if width % r:
            raise InvalidInputError(f"r={r} must divide width={width}: a bottleneck has width / r units.")
        self.config = {"name": "resmlp", "d": d, "out": out, "width": width, "B": B, "r": r}
        self.project_in = nn.Linear(d, width)
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, num_heads=1, batch_first=True)
        self.blocks = nn.Sequential(*(BottleneckBlock(width, r) for _ in range(B)))
        self.project_out = nn.Linear(width, out)

    def forward(self, x: Tensor) -> Tensor:
        """Return the embeddings, ``(b, out)``, of rows ``x`` ``(b, d)``."""
        x = F.gelu(self.project_in(x))
        token = self.norm(x)[:, None]  # (b, 1, width)
        x = x + self.attention(token, token, token, need_weights=False)[0][:, 0]
        return self.project_out(self.blocks(x))
