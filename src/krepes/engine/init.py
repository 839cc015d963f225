r"""Where the coefficients start: ``A0``, the point at which the objective is expanded.

Principal components make ``A0ᵀ K_mm A0 = I`` exactly, so that the step taken from there is what the objective adds to
plain kernel PCA; Kaiming starts from noise, as a network would. The third start, at the encoder itself, has no ``A0``:
see `krepes.engine.residual`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from krepes.errors import InvalidInputError, RankDeficientKernelError
from krepes.linalg import top_eigenpairs

ENCODER = "encoder"
"""The start at the encoder's own embeddings, with ``A0 = 0``."""
WIDTH = 32
"""Embedding dimension of the other starts, where none is asked for."""


def principal_component_init(K_mm: Tensor, h: int, *, rcond: float = 1e-10) -> Tensor:
    r"""Start the coefficients at the Nyström feature map: ``A0 = U_h Λ_h^{-1/2}``.

    With :math:`K_{mm} \approx U_h \Lambda_h U_h^\top` the embedding :math:`\Phi = K_{nm} A_0` satisfies
    :math:`\Phi\Phi^\top \approx K_{nn}`, and :math:`A_0^\top K_{mm} A_0 = I_h`.

    Args:
        K_mm: Landmark Gram matrix, ``(m, m)``, symmetric PSD.
        h: Embedding dimension, at most the numerical rank of ``K_mm``.
        rcond: Eigenvalues below ``rcond * λ_max`` count as zero.

    Returns:
        ``A0``, ``(m, h)``, columns by decreasing eigenvalue, the largest entry of each positive.

    Example:
        >>> principal_component_init(torch.diag(torch.tensor([1.0, 4.0, 9.0])), h=2)
        tensor([[0.0000, 0.0000],
                [0.0000, 0.5000],
                [0.3333, 0.0000]])
    """
    return _whitening(K_mm, h, rcond)[:, :h]


def constrained_maximiser(S: Tensor, K_mm: Tensor, h: int, *, rcond: float = 1e-10) -> Tensor:
    r"""Maximise ``tr(Aᵀ S A)`` subject to ``Aᵀ K_mm A = I_h``: the top generalised eigenvectors of ``S v = μ K_mm v``.

    The closed form of kernel PCA and of the simple contrastive loss; `principal_component_init` is the case
    ``S = K_mm²``.

    Args:
        S: Symmetric, ``(m, m)``, not necessarily positive.
        K_mm: Landmark Gram matrix, ``(m, m)``, symmetric PSD.
        h: Number of columns, at most the numerical rank of ``K_mm``.
        rcond: Eigenvalues of ``K_mm`` below ``rcond * λ_max`` count as zero.

    Returns:
        ``A``, ``(m, h)``, columns by decreasing ``μ``, the largest entry of each positive.
    """
    W = _whitening(K_mm, h, rcond)
    _, E = torch.linalg.eigh(W.T @ S @ W)
    A = W @ E[:, -h:].flip(1)
    return A * A.gather(0, A.abs().argmax(0, keepdim=True)).sign()


def kaiming_init(q: int, h: int, *, generator: torch.Generator) -> Tensor:
    """Start the coefficients at noise, ``A0 ~ N(0, 2/q)``: variance-preserving for rows of unit size.

    Args:
        q: Number of landmark points.
        h: Embedding dimension.
        generator: Source of the noise; its device is the result's.

    Returns:
        ``A0``, ``(q, h)``, float64.

    Raises:
        InvalidInputError: If ``q`` or ``h`` is not positive.
    """
    if q < 1 or h < 1:
        raise InvalidInputError(f"q={q} landmark points and h={h} dimensions: both must be at least 1.")
    noise = torch.randn(q, h, generator=generator, device=generator.device, dtype=torch.float64)
    return math.sqrt(2.0 / q) * noise


def start(K_mm: Tensor, h: int, *, init: str, rcond: float, seed: int) -> Tensor:
    """Return the coefficients at the start by name.

    Args:
        K_mm: Landmark Gram matrix, ``(q, q)``.
        h: Embedding dimension.
        init: ``"pca"`` or ``"kaiming"``.
        rcond: For ``"pca"``: eigenvalues below ``rcond * λ_max`` count as zero.
        seed: For ``"kaiming"``.

    Returns:
        ``A0``, ``(q, h)``.

    Raises:
        InvalidInputError: If the name is unknown.
    """
    if init == "pca":
        return principal_component_init(K_mm, h, rcond=rcond)
    if init == "kaiming":
        return kaiming_init(len(K_mm), h, generator=torch.Generator().manual_seed(seed))
    raise InvalidInputError(f"init={init!r} is unknown: choose 'pca', 'kaiming' or 'encoder'.")


def _whitening(K_mm: Tensor, h: int, rcond: float) -> Tensor:
    """Return ``W = U Λ^{-1/2}``, ``(m, r)`` with ``Wᵀ K_mm W = I``, or refuse if ``h`` exceeds the rank ``r``."""
    eigenvalues, U = top_eigenpairs(K_mm, rcond=rcond)
    rank = len(eigenvalues)
    if not 1 <= h <= rank:
        largest = f"{eigenvalues[0]:.2e}" if rank else "not positive"
        raise RankDeficientKernelError(
            f"h={h} is not between 1 and the numerical rank {rank} of K_mm {tuple(K_mm.shape)} "
            f"(λ_max={largest}, rcond={rcond:.0e}). Lower h to {rank} or below, choose more or more varied landmarks, "
            f"or lower rcond if you trust these eigenvalues."
        )
    return U / eigenvalues.sqrt()
