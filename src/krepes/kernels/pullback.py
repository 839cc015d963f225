r"""The way back from a value made of parameters, remembered: the weights are frozen, so one matrix serves all batches.

A gradient in ``D = h(p)`` becomes one in ``p`` by ``J = ∂D/∂p``, ``g_p = Jᵀ g_D`` (see `derived`). A table of relative
positions is read in many places, so that many rows of ``J`` are equal:

    J = S J',      Jᵀ g = J'ᵀ (Sᵀ g),      S: a single one in each row

``Sᵀ g`` is a sum by places. Where a value is made of moved entries, ``J'`` is the identity: nothing else is to be done.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from krepes.kernels.derived import pull, push

LARGEST_VALUE = 1 << 18
"""Entries of a value that is looked at: a weight norm gives whole weights, whose rows are all different."""
LARGEST_ROWS = 1 << 21
"""Entries of ``J'`` beyond which its product costs more than autograd's own way back."""
AT_A_TIME = 1 << 22
"""Entries of the gradients from which rows of ``J'`` are made at a time."""


@dataclass(frozen=True)
class Pullback:
    """``J`` of one value.

    Attributes:
        value: The value it was found at: another one may come by another way.
        places: For each entry of the value, its row of ``J'``; beyond the last one if it depends on no parameter.
        rows: ``J'``, ``(k, P)``, or ``None`` for the identity.
        shapes: Of the parameters, ``P`` entries in all.
    """

    value: Tensor
    places: Tensor
    rows: Tensor | None
    shapes: tuple[torch.Size, ...]

    def fits(self, value: Tensor) -> bool:
        """Return whether a batch has the very value."""
        return value.shape == self.value.shape and torch.equal(value.detach(), self.value)

    def __call__(self, g: Tensor) -> list[Tensor]:
        """Return ``Jᵀ g_i`` of gradients ``(n, *value.shape)``: ``(n, *shape)`` for each parameter."""
        n, sizes = len(g), [shape.numel() for shape in self.shapes]
        k = sum(sizes) if self.rows is None else len(self.rows)
        summed = g.new_zeros(n, k + 1).index_add_(1, self.places, g.reshape(n, -1))[:, :k]
        flat = summed if self.rows is None else summed @ self.rows
        return [part.reshape(n, *shape) for part, shape in zip(flat.split(sizes, dim=1), self.shapes, strict=True)]


def remember(value: Tensor, leaves: list[Tensor]) -> Pullback | None:
    """Return the way back from a value, or ``None`` where autograd's own is as good.

    Args:
        value: A derived value, with its graph.
        leaves: The parameters it is made of.

    Returns:
        The way back. It is for this value alone, and for one that tells its entries apart: a table of zeros does not.
    """
    if value.numel() > LARGEST_VALUE:
        return None
    draw = torch.Generator().manual_seed(0)
    try:
        images = torch.stack([_image(value, leaves, draw) for _ in range(2)], dim=1)
        moved = _moved(value, leaves[0]) if len(leaves) == 1 else None
    except RuntimeError:  # a function without second derivatives
        return None
    _, places = torch.unique(images, dim=0, return_inverse=True)
    k = int(places.max()) + 1
    if 2 * len(torch.unique(value.detach())) < k:
        return None
    shapes = tuple(leaf.shape for leaf in leaves)
    if moved is not None:
        return Pullback(value.detach().clone(), moved, None, shapes)
    if k * sum(leaf.numel() for leaf in leaves) > LARGEST_ROWS:
        return None
    return Pullback(value.detach().clone(), places, _rows(value, leaves, places, k), shapes)


def _image(value: Tensor, leaves: list[Tensor], draw: torch.Generator) -> Tensor:
    """Return ``J u``, flat, for random ``u``: entries with one row of ``J`` have the same bits."""
    directions = [torch.rand(leaf.shape, generator=draw, dtype=torch.float64).to(leaf) + 0.5 for leaf in leaves]
    parts = [push(value, leaf, u).reshape(-1) for leaf, u in zip(leaves, directions, strict=True)]
    return torch.stack(parts).sum(0)


def _moved(value: Tensor, leaf: Tensor) -> Tensor | None:
    """Return the place in the parameter from which each entry of a value comes, or ``None`` if some are changed."""
    size = leaf.numel()
    numbers = torch.arange(1, size + 1, device=leaf.device).to(leaf.dtype).reshape(leaf.shape)
    found = push(value, leaf, numbers).reshape(-1).round().long()
    places = torch.where(found == 0, size, found - 1)
    if size >= 1 << 24 or bool((places < 0).any()) or bool((places > size).any()):
        return None
    draw = torch.Generator().manual_seed(1)
    u = torch.rand(size, generator=draw, dtype=torch.float64).to(leaf) + 0.5
    expected = torch.cat([u, u.new_zeros(1)])[places]
    return places if torch.equal(push(value, leaf, u.reshape(leaf.shape)).reshape(-1), expected) else None


def _rows(value: Tensor, leaves: list[Tensor], places: Tensor, k: int) -> Tensor:
    """Return ``J'``, ``(k, P)``: the gradients of one entry of each kind."""
    N = value.numel()
    first = torch.full((k,), N, device=places.device).scatter_reduce_(
        0, places, torch.arange(N, device=places.device), "amin"
    )
    found = []
    for some in first.split(max(1, AT_A_TIME // N)):
        g = torch.zeros(len(some), N, dtype=value.dtype, device=value.device).scatter_(1, some.unsqueeze(1), 1.0)
        parts = pull(value, leaves, g.reshape(len(some), *value.shape))
        found.append(torch.cat([part.reshape(len(some), -1) for part in parts], dim=1))
    return torch.cat(found)
