"""A plain multi-layer perceptron."""

from __future__ import annotations

from torch import Tensor, nn

from krepes._checks import require_range


class MLP(nn.Module):
    """``depth`` hidden layers of ``width`` rectified units, then a linear map.

    Args:
        d: Inputs; samples of any shape with d numbers are flattened.
        width: Units of a hidden layer.
        depth: Hidden layers; none leaves a linear map.
        out: Embedding dimension.

    Raises:
        InvalidInputError: If a size is not positive.

    Example:
        >>> import torch
        >>> MLP(64, width=32, depth=2, out=16)(torch.zeros(5, 8, 8)).shape
        torch.Size([5, 16])
    """

    def __init__(self, d: int, width: int = 256, depth: int = 2, out: int = 128) -> None:
        super().__init__()
        for name, size in (("d", d), ("width", width), ("out", out)):
            require_range(size, name, low=1)
        require_range(depth, "depth", low=0)
        self.config = {"name": "mlp", "d": d, "width": width, "depth": depth, "out": out}
        sizes = [d, *[width] * depth]
        layers: list[nn.Module] = [nn.Flatten()]
        for fan_in, fan_out in zip(sizes, sizes[1:], strict=False):
            layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(sizes[-1], out))

    def forward(self, x: Tensor) -> Tensor:
        """Return the embeddings, ``(b, out)``, of ``x`` ``(b, ...)``."""
        return self.layers(x)
