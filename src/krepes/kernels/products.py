"""Products of gradients that stay accurate in float32: long sums in blocks, and lengths, in float64."""

from __future__ import annotations

import torch
from torch import Tensor

INNER_BLOCK = 16_384
"""Longest inner dimension of one float32 product: longer ones are summed block by block in float64."""


def inner(G: Tensor, G_other: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    """Return ``G G'ᵀ``, ``(n, m)``, with a long inner dimension summed in blocks so that float32 stays accurate.

    Args:
        G: ``(n, P)``.
        G_other: ``(m, P)``.
        dtype: Type to multiply in, such as bfloat16; ``None`` for that of ``G``.

    Returns:
        The products, in the type of ``G`` (float64 when they were summed over more than one block).
    """
    P = G.shape[1]
    if len(G_other) < len(G) and G_other.device == G.device:  # a third faster with the fewer rows on the left
        return inner(G_other, G, dtype=dtype).T
    if P <= INNER_BLOCK:
        return matmul(G, G_other.to(G.device).T, dtype)
    total = torch.zeros(G.shape[0], G_other.shape[0], dtype=torch.float64, device=G.device)
    for start in range(0, P, INNER_BLOCK):
        block = slice(start, start + INNER_BLOCK)
        total += matmul(G[:, block], G_other[:, block].to(G.device).T, dtype)
    return total


def matmul(A: Tensor, B: Tensor, dtype: torch.dtype | None) -> Tensor:
    """Return ``A B``, multiplied in ``dtype`` and returned in that of ``A``."""
    return A @ B if dtype is None else (A.to(dtype) @ B.to(dtype)).to(A.dtype)


def square_lengths(x: Tensor) -> Tensor:
    """Return ``|x_i|²`` along the last axis, summed in float64 without a copy of ``x``."""
    return torch.linalg.vector_norm(x, dim=-1, dtype=torch.float64).square_()
