"""Inverses of structured curvatures, as ``damping -> (r -> (B + damping·I)⁻¹ r)``, shared by the objectives."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from krepes.linalg import safe_cholesky
from krepes.objectives.base import Product


def shared_cholesky(B: Tensor) -> Callable[[float], Product]:
    """Return the inverse of ``B ⊗ I_h + damping·I``: one matrix ``B`` ``(q + 1, q + 1)`` shared by all columns."""

    def at(damping: float) -> Product:
        eye = torch.eye(B.shape[0], dtype=B.dtype, device=B.device)
        L, _ = safe_cholesky(B + damping * eye)
        return lambda r: torch.cholesky_solve(r, L)

    return at


def kronecker(B: Tensor, G: Tensor) -> Callable[[float], Product]:
    """Return the inverse of ``V -> B V G + damping·V``, with ``B`` ``(q + 1, q + 1)`` and ``G`` ``(h, h)`` PSD."""
    beta, U = torch.linalg.eigh(B)
    gamma, E = torch.linalg.eigh(G)
    spectrum = torch.outer(beta.clamp_min(0), gamma.clamp_min(0))

    def at(damping: float) -> Product:
        return lambda r: U @ ((U.T @ r @ E) / (spectrum + damping)) @ E.T

    return at


def low_rank(B: Tensor, weights: Tensor) -> Callable[[float], Product]:
    """Return the inverse of ``V -> B Bᵀ V diag(weights) + damping·V``, ``B`` ``(q + 1, r)``, ``weights`` ``(h,)``."""

    @cache
    def decomposed() -> tuple[Tensor, Tensor]:  # when first asked for: most solves never do
        # By QR first: it keeps the zero row of B (an inert shift) exactly zero, which an SVD does not promise.
        Q, R = torch.linalg.qr(B)
        W, s, _ = torch.linalg.svd(R, full_matrices=False)
        return Q @ W, torch.outer(s.square(), weights)

    def at(damping: float) -> Product:
        U, spectrum = decomposed()

        def inverse(r: Tensor) -> Tensor:
            inside = U.T @ r
            return U @ (inside / (spectrum + damping)) + (r - U @ inside) / damping

        return inverse

    return at
