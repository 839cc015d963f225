r"""The kernel model itself, once its coefficients are known: its kernel, its rows and its embeddings.

f(x) = Aᵀ k_x + γ,      k_x = [k(x, z) for each landmark point z],      A = A0 + dA
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from krepes import batches
from krepes._describe import Description
from krepes.batches import Batch
from krepes.budget import Budget, MemoryBudget
from krepes.data.tabular import TabularEncoder
from krepes.encoders.frozen import FrozenEncoder
from krepes.encoders.outputs import Output
from krepes.engine.moments import Moments
from krepes.engine.rowstore import RowStore
from krepes.engine.solution import Solution
from krepes.engine.solvers import solve
from krepes.errors import InvalidInputError, NotFittedError
from krepes.kernels.auto import KernelChoice, tangent_kernel
from krepes.kernels.base import Kernel
from krepes.kernels.entk import EmpiricalNTK
from krepes.kernels.refusals import require_spread
from krepes.kernels.sketch import SketchedNTK
from krepes.kernels.transforms import Centred, Cosine
from krepes.model.intake import encoded
from krepes.model.removal import moments_of_sets, places_of
from krepes.objectives.base import MomentObjective, Objective
from krepes.views import ViewStream

LOOKED_AT = 64
"""Samples whose embeddings must not all be the same."""


class Surrogate:
    """What `krepes.model.Krepes` is after a fit or a load; its attributes are described there."""

    kernel: nn.Module | Kernel
    centre: bool
    cosine: bool
    q: int
    memory_budget: MemoryBudget
    output: Output
    parameters: str | Sequence[str]
    heads: int
    device: str | torch.device | None
    steps: int
    tol: float
    objective_: Objective[Any]
    stream_: ViewStream
    stored_data_: Description
    n_samples_: int
    m_: int
    p_: int
    landmarks_: Tensor
    landmark_ids_: list[Any]
    points_: Batch
    reference_: Batch
    base_kernel_: Kernel
    kernel_: Kernel
    kernel_choice_: KernelChoice
    prepared_: Any
    K_mm_: Tensor
    data_: Moments | RowStore | None
    encoding_: TabularEncoder | None
    solution_: Solution

    def embed(self, X: Any) -> Tensor:
        """Return the embeddings ``Z = K A + 1 γᵀ``, ``(t, h)``, float64, of samples ``X`` ``(t, ...)``."""
        A, gamma = self.A_, self.gamma_
        # Four copies of a piece of the rows at most: the kernel's, float64, and what making them takes.
        size = self._budget.rows(32 * len(A), what=f"a sample against q={len(A)} landmark points")
        return torch.cat([self.kernel_rows(x) @ A + gamma for _, x in batches.chunks(self.samples(X), size)])

    def kernel_rows(self, X: Any) -> Tensor:
        """Return ``K_tm``, ``(t, q)``, float64: the kernel of samples ``X`` ``(t, ...)`` with the landmark points."""
        self._solution()
        return self.kernel_.rows(self.samples(X), self.prepared_).K.to("cpu", torch.float64)

    def without(self, rows: ArrayLike, *, stream: ViewStream | None = None) -> Self:
        """Return the model that a fit without some rows would have given, on the same landmarks and damping.

        Exact, and without a pass: the rows are taken out of the moments, and the steps are taken again.

        Args:
            rows: Places ``(r,)`` in the training data, or a mask ``(n,)``.
            stream: The training data; needed for a loaded model.

        Returns:
            A new model; this one is left as it is. A landmark that was removed stays a landmark.
        """
        return next(self.without_each([rows], stream=stream))

    def without_each(self, sets: Sequence[ArrayLike], *, stream: ViewStream | None = None) -> Iterator[Self]:
        """Yield the model without each of several sets of rows; kernel rows that sets share are made once.

        Args:
            sets: Rows of each, as `without` takes them.
            stream: The training data; needed for a loaded model.

        Yields:
            The models, in the order of the sets.

        Raises:
            InvalidInputError: If the model has no moments or no training data, or fewer than two rows would stay.
        """
        stream = getattr(self, "stream_", None) if stream is None else stream
        moments, objective = self.moments_, self.objective_
        if moments is None or stream is None or not isinstance(objective, MomentObjective):
            raise InvalidInputError(
                "rows can be taken out of moments only: this model keeps kernel rows, or its data are not at hand. Use "
                "an objective of moments, and pass the stream of the fit."
            )
        if stream.n != moments.n:
            raise InvalidInputError(f"the stream has {stream.n} rows, the model was fitted on {moments.n}.")
        places = [places_of(rows, stream.n) for rows in sets]
        how = (stream, objective, self.kernel_, self.prepared_, self.K_mm_, self._budget)
        damping: float | Literal["auto"] = self.solution_.damping if self.solution_.accepted else "auto"
        for gone in moments_of_sets(places, *how):
            less = copy.copy(self)
            less.data_ = moments - gone
            less.n_samples_ = less.data_.n
            theta0 = self.solution_.theta0
            less.solution_ = solve(objective, less.data_, theta0, damping=damping, steps=self.steps, tol=self.tol)
            yield less

    def samples(self, X: Any) -> Batch:
        """Return samples as the encoder takes them: a DataFrame is encoded as the training table was."""
        return encoded(X, getattr(self, "encoding_", None))

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the ``h`` coordinates, for the containers of ``set_output``."""
        return np.array([f"krepes{i}" for i in range(self.A_.shape[1])], dtype=object)

    def describe_data(self) -> Description:
        """Return the stream's settings and fingerprint: its own, or as the run folder has them."""
        if not hasattr(self, "stream_"):
            return self.stored_data_
        return {**self.stream_.describe(), "fingerprint": self.stream_.fingerprint()}

    @property
    def encoder_(self) -> FrozenEncoder | None:
        """The encoder that is explained, as the kernel calls it; ``None`` where the kernel has none."""
        kernel = self.base_kernel_
        return kernel.tangent.encoder if isinstance(kernel, (EmpiricalNTK, SketchedNTK)) else None

    @property
    def A0_(self) -> Tensor:
        """Coefficients at the start, ``(q, h)``."""
        return self._solution().theta0[:-1]

    @property
    def dA_(self) -> Tensor:
        """What the objective adds, ``(q, h)``."""
        return self._solution().theta[:-1] - self.A0_

    @property
    def A_(self) -> Tensor:
        """Coefficients after the step, ``(q, h)``."""
        return self._solution().theta[:-1]

    @property
    def gamma_(self) -> Tensor:
        """Shift after the step, ``(h,)``; it starts at zero, so it is also the change of the shift."""
        return self._solution().theta[-1]

    @property
    def moments_(self) -> Moments | None:
        """Second moments of the kernel rows, or ``None`` for a row objective."""
        self._solution()
        return self.data_ if isinstance(self.data_, Moments) else None

    @property
    def _budget(self) -> Budget:
        return Budget.of(self.memory_budget)

    def _solution(self) -> Solution:
        if not hasattr(self, "solution_"):
            raise NotFittedError("this Krepes is not fitted: call fit on data or views first, or load a run folder.")
        return self.solution_

    def set_kernel(self, samples: Batch, kind: str) -> None:
        """Set the base kernel, for an encoder of a kind of `krepes.kernels.auto.KINDS`, and the transformed one."""
        if isinstance(self.kernel, nn.Module):
            frozen = FrozenEncoder(self.kernel, output=self.output, device=self.device)
            few = batches.take(samples, slice(0, LOOKED_AT))
            require_spread(frozen.encode(few), few)
            self.base_kernel_, self.kernel_choice_ = tangent_kernel(
                frozen,
                samples,
                self.m_ * self.p_,
                kernel=kind,
                q=self.q,
                memory_budget=self._budget,
                heads=self.heads,
                parameters=self.parameters,
            )
        elif (self.output, self.parameters, self.heads, self.device) != (None, "*", 1, None):
            raise InvalidInputError(
                f"output, parameters, heads and device belong to an encoder, and the kernel is a "
                f"{type(self.kernel).__name__}. Give them where that is made, such as EmpiricalNTK(encoder, heads=...)."
            )
        elif isinstance(self.kernel, Kernel):
            self.base_kernel_, self.kernel_choice_ = self.kernel, KernelChoice("given", "a kernel was passed")
        else:
            raise InvalidInputError(f"kernel must be a torch module or a Kernel, got {type(self.kernel).__name__}.")
        self.kernel_ = self.transformed(self.base_kernel_, self.reference_)

    def transformed(self, base: Kernel, reference: Batch) -> Kernel:
        """Return a kernel centred at some reference samples and normalised, as far as the model wants it."""
        kernel = Centred(base, reference) if self.centre else base
        return Cosine(kernel) if self.cosine else kernel

    def set_points(self) -> None:
        """Prepare the landmark points and take their Gram matrix."""
        self.prepared_ = self.kernel_.prepare(self.points_)
        K = self.kernel_.rows(self.points_, self.prepared_).K
        # Below the rounding of the kernel's own type an eigenvalue is noise, whatever the type it is stored in.
        self._rcond = max(1e-10, 32 * torch.finfo(K.dtype).eps)
        K = K.to("cpu", torch.float64)
        self.K_mm_ = (K + K.T) / 2
