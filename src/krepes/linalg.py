"""Small dense linear algebra with the tolerances made explicit: eigenvalues, Cholesky, linear operators, precision."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from krepes.errors import InvalidInputError, PrecisionWarning

AUTOCAST = ("cpu", "cuda", "mps", "xpu")


@contextmanager
def without_autocast() -> Generator[None, None, None]:
    """Multiply in the types that are given, also where the caller has ``torch.autocast`` on; decorates functions too.

    A `PrecisionWarning` says so, from one place, so that by Python's default it is shown once.
    """
    known = (device for device in AUTOCAST if torch.amp.is_autocast_available(device))
    active = [device for device in known if torch.is_autocast_enabled(device)]
    with ExitStack() as stack:
        for device in active:
            stack.enter_context(torch.autocast(device, enabled=False))
        if active:
            warnings.warn(
                f"torch.autocast is on for {', '.join(active)}: kernels and embeddings are computed without it, in the "
                f"encoder's own precision, for its eight to eleven bits are too few for gradients.",
                PrecisionWarning,
                stacklevel=1,
            )
        yield


@dataclass(frozen=True)
class LinearOperator:
    """A symmetric linear map ``v -> H v`` that is never formed.

    Attributes:
        matvec: The product, taking and returning a tensor of ``shape``.
        shape: Shape of ``v``, for KREPES ``(q + 1, h)``.
        diagonal: The diagonal of ``H``, of ``shape``, or ``None`` where it is not known.
    """

    matvec: Callable[[Tensor], Tensor]
    shape: tuple[int, ...]
    diagonal: Tensor | None = None

    def __matmul__(self, v: Tensor) -> Tensor:
        return self.matvec(v)

    def to_dense(self, *, dtype: torch.dtype = torch.float64) -> Tensor:
        """Return the matrix, ``(size, size)``, one product per column: for tests and tiny problems."""
        size = int(torch.Size(self.shape).numel())
        columns = [self.matvec(e.reshape(self.shape)).reshape(-1) for e in torch.eye(size, dtype=dtype)]
        return torch.stack(columns, dim=1)


def top_eigenpairs(K: Tensor, *, rcond: float = 1e-10) -> tuple[Tensor, Tensor]:
    r"""Eigenpairs of a symmetric PSD matrix above a relative cut-off, largest first.

    Args:
        K: Symmetric matrix, ``(m, m)``.
        rcond: Eigenvalues below ``rcond * λ_max`` count as zero. Relative, so blind to the scale of ``K``.

    Returns:
        ``eigenvalues`` ``(r,)`` and ``U`` ``(m, r)`` with ``K ≈ U diag(eigenvalues) Uᵀ``; each column's entry of
        largest magnitude is positive, so that the result does not depend on the LAPACK build's choice of sign.
    """
    eigenvalues, U = torch.linalg.eigh(K)
    keep = eigenvalues > rcond * eigenvalues[-1].clamp_min(0)
    eigenvalues, U = eigenvalues[keep].flip(0), U[:, keep].flip(1)
    if U.shape[1]:
        U = U * U.gather(0, U.abs().argmax(0, keepdim=True)).sign()
    return eigenvalues, U


def safe_cholesky(K: Tensor, *, attempts: int = 6) -> tuple[Tensor, float]:
    """Cholesky factor of a PSD matrix, with the smallest jitter of a ladder that makes it succeed.

    Args:
        K: Symmetric PSD matrix, ``(m, m)``.
        attempts: Rungs of the ladder: 0, then 1e-14 to 1e-6 of the mean diagonal (float64), by factors of 100.

    Returns:
        ``L`` lower triangular with ``L Lᵀ = K + jitter I``, and the ``jitter`` that was added.

    Raises:
        InvalidInputError: If even the largest jitter does not make the matrix positive definite.
    """
    base = 1e-14 if K.dtype == torch.float64 else 1e-7
    scale = float(K.diagonal().mean().clamp_min(torch.finfo(K.dtype).tiny))
    jitter = 0.0
    for attempt in range(attempts):
        jitter = 0.0 if attempt == 0 else scale * base * 100.0 ** (attempt - 1)
        L, info = torch.linalg.cholesky_ex(K + jitter * torch.eye(K.shape[0], dtype=K.dtype, device=K.device))
        if int(info) == 0:
            return L, jitter
    raise InvalidInputError(
        f"the matrix {tuple(K.shape)} is not positive semi-definite: Cholesky failed with a jitter of {jitter:.1e} "
        f"against a mean diagonal of {scale:.1e}. Check the kernel for asymmetry or NaN."
    )
