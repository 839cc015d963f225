r"""The kernel model itself, once its coefficients are known: its kernel, its rows and its embeddings.

f(x) = Aᵀ k_x + γ,      k_x = [k(x, z) for each landmark point z],      A = A0 + dA

or, started at the encoder, f(x) = e(x) + Aᵀ k_x with A0 = 0: rows are then [k_x ; e(x)], coefficients [A ; I ; 0].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from krepes import batches
from krepes._describe import Description
from krepes.batches import Batch
from krepes.budget import Budget, MemoryBudget
from krepes.data.tabular import TabularEncoder
from krepes.encoders.frozen import FrozenEncoder
from krepes.encoders.outputs import Output
from krepes.engine.init import ENCODER, WIDTH, start
from krepes.engine.known import KnownRows
from krepes.engine.moments import Moments
from krepes.engine.residual import WithEmbedding, require_residual, residual_gram, solve_from_encoder
from krepes.engine.rowstore import RowStore
from krepes.engine.solution import Solution
from krepes.engine.solvers import solve
from krepes.errors import InvalidInputError, NotFittedError
from krepes.kernels.auto import KernelChoice, tangent_kernel
from krepes.kernels.base import Kernel, MeanFeature
from krepes.kernels.entk import EmpiricalNTK
from krepes.kernels.refusals import require_apart
from krepes.kernels.sketch import SketchedNTK
from krepes.kernels.transforms import Centred, Cosine
from krepes.model.intake import encoded
from krepes.objectives.base import Objective
from krepes.objectives.shared import led
from krepes.processes import current
from krepes.views import ViewStream
from krepes.views.source import as_source


class Surrogate:
    """What `krepes.model.Krepes` is after a fit or a load; its attributes are described there."""

    kernel: nn.Module | Kernel
    h: int | None
    init: str
    centre: bool | None
    cosine: bool | None
    seed: int
    landmarks: Any
    candidates: int | None
    reference: int
    kernel_kind: str
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
    processes_: int

    def embed(self, X: Any) -> Tensor:
        """Return the embeddings ``Z = K A + 1 γᵀ``, ``(t, h)``, float64, of samples ``X`` ``(t, ...)``."""
        theta = self._solution().theta
        return torch.cat([self._model_rows(x) @ theta[:-1] + theta[-1] for x in self._pieces(X)])

    def model_rows(self, X: Any) -> Tensor:
        """Return what coefficients multiply, ``(t, q)``: kernel rows; from the encoder, ``[K e]`` ``(t, q + d)``."""
        return torch.cat([self._model_rows(x) for x in self._pieces(X)])

    def _model_rows(self, X: Batch) -> Tensor:
        K = self.kernel_.rows(X, self.prepared_).K.to("cpu", torch.float64)
        return torch.cat([K, self._encoder().encode(X)], dim=1) if self.init == ENCODER else K

    def kernel_rows(self, X: Any) -> Tensor:
        """Return ``K_tm``, ``(t, q)``, float64: the kernel of samples ``X`` ``(t, ...)`` with the landmark points."""
        return torch.cat([self.kernel_.rows(x, self.prepared_).K.to("cpu", torch.float64) for x in self._pieces(X)])

    def _pieces(self, X: Any) -> Iterator[Batch]:
        """Yield samples, of a source or a batch, as many at a time as the budget holds with their rows."""
        self._solution()
        source, _ = as_source(self.samples(X))
        # Four copies of a piece of the rows at most: the kernel's, float64, and what making them takes.
        each = 32 * len(self.A_) + 2 * batches.sample_bytes(source.take(torch.arange(min(1, source.n))))
        size = self._budget.rows(each, what=f"a sample against q={len(self.A_)} landmark points", share=1 / 4)
        for rows in torch.arange(source.n).split(size):
            yield source.take(rows)

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
    def h_(self) -> int:
        """Embedding dimension: as asked for, or the encoder's own where the model starts there."""
        return int(self._solution().theta.shape[1])

    @property
    def transforms_(self) -> tuple[bool, bool]:
        """Whether the kernel is centred and normalised: as asked for, else unless the model starts at the encoder."""
        centre, cosine = (self.init != ENCODER if asked is None else asked for asked in (self.centre, self.cosine))
        return centre, cosine

    @property
    def pass_kernel_(self) -> Kernel:
        """The kernel of the pass, whose rows are `model_rows`; it takes ``prepared_``."""
        return WithEmbedding(self.kernel_, self._encoder()) if self.init == ENCODER else self.kernel_

    @property
    def pass_gram_(self) -> Tensor:
        """Gram matrix beside the rows of the pass, ``(q, q)``, or ``(q + d, q + d)`` with zeros for the embedding."""
        return residual_gram(self.K_mm_, self._encoder_width()) if self.init == ENCODER else self.K_mm_

    @property
    def A0_(self) -> Tensor:
        """Coefficients at the start, ``(q, h)``."""
        return self._solution().theta0[: len(self.K_mm_)] if self.init == ENCODER else self._solution().theta0[:-1]

    @property
    def dA_(self) -> Tensor:
        """What the objective adds, ``(q, h)``."""
        return self.A_ - self.A0_

    @property
    def A_(self) -> Tensor:
        """Coefficients after the step, ``(q, h)``."""
        return self._solution().theta[: len(self.A0_)]

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

    def solved(
        self, data: Moments | RowStore | None, *, damping: Any, relative: bool = True, theta0: Tensor | None = None
    ) -> Solution:
        """Return the step over some data, from ``theta0`` ``(q + 1, h)`` or the model's start; all else is its own."""
        data = replace(data, budget=self._budget) if isinstance(data, Moments) else data
        how: dict[str, Any] = {"damping": damping, "relative": relative, "steps": self.steps, "tol": self.tol}
        if self.init == ENCODER:
            return solve_from_encoder(self.objective_, data, len(self.K_mm_), self._encoder_width(), **how)
        if theta0 is None:
            A0 = start(self.K_mm_, self.h or WIDTH, init=self.init, rcond=self._rcond, seed=self.seed)
            theta0 = torch.nn.functional.pad(A0, (0, 0, 0, 1))
        return solve(self.objective_, data, theta0, **how)

    def solved_together(self, damping: Any, relative: bool) -> Solution:
        """Return the step over the model's data: the first process takes it, the others add up rows or wait."""
        return led(self.objective_, self.data_, current(), lambda x: self.solved(x, damping=damping, relative=relative))

    def require_start(self) -> int:
        """Refuse a start at the encoder that cannot be, once the kernel is known.

        Returns:
            What rows hold beside the kernel, ``d`` numbers or none.

        Raises:
            InvalidInputError: If there is no encoder, the objective needs more than embeddings, or ``h`` is another.
        """
        if self.init != ENCODER:
            return 0
        require_residual(self.objective_)
        d = self._encoder_width()
        if self.h not in {None, d}:
            raise InvalidInputError(
                f"h={self.h} was asked for; a model that starts at the encoder has its {d}: leave h out."
            )
        return d

    def _encoder(self) -> FrozenEncoder:
        if self.encoder_ is None:
            raise InvalidInputError(
                f"init='encoder' starts at an encoder's embeddings, and the kernel {type(self.base_kernel_).__name__} "
                f"has none. Pass the network, or init='pca'."
            )
        return self.encoder_

    def _encoder_width(self) -> int:
        self._encoder()
        assert isinstance(self.base_kernel_, (EmpiricalNTK, SketchedNTK))
        self.base_kernel_.tangent.probe(self.reference_)
        return int(self.base_kernel_.tangent.cotangents.shape[1])

    def set_base(self, samples: Batch, kind: str) -> None:
        """Set the base kernel, for an encoder of a kind of `krepes.kernels.auto.KINDS`."""
        if isinstance(self.kernel, nn.Module):
            frozen = FrozenEncoder(self.kernel, output=self.output, device=self.device)
            require_apart(frozen.encode, samples)
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
            self.base_kernel_.tangent.probe(samples)
        elif (self.output, self.parameters, self.heads, self.device) != (None, "*", 1, None):
            raise InvalidInputError(
                f"output, parameters, heads and device belong to an encoder, and the kernel is a "
                f"{type(self.kernel).__name__}. Give them where that is made, such as EmpiricalNTK(encoder, heads=...)."
            )
        elif isinstance(self.kernel, Kernel):
            self.base_kernel_, self.kernel_choice_ = self.kernel, KernelChoice("given", "a kernel was passed")
        else:
            raise InvalidInputError(f"kernel must be a torch module or a Kernel, got {type(self.kernel).__name__}.")

    def transformed(self, base: Kernel, reference: Batch, mean: MeanFeature | None = None) -> Kernel:
        """Return a kernel centred at some reference samples and normalised, as far as the model wants it.

        Args:
            base: The kernel.
            reference: The samples.
            mean: Their mean feature, where it is known.

        Returns:
            The kernel with its transforms.
        """
        centre, cosine = self.transforms_
        kernel = Centred(base, reference, mean) if centre else base
        return Cosine(kernel) if cosine else kernel

    def set_points(self, *, diagonal: bool = False) -> KnownRows:
        """Prepare the landmark points and take their Gram matrix, looking at each once.

        Args:
            diagonal: Whether the pass will ask for ``k(x, x)``.

        Returns:
            Their rows, as a pass would find them: row ``u m + l`` of the points is view ``u`` of landmark ``l``.
        """
        self.prepared_, own = self.pass_kernel_.enter(self.points_, gram=True, diagonal=diagonal)
        by_view = (self.p_, self.m_)
        squares = None if own.diagonal is None else own.diagonal.unflatten(0, by_view)
        known = KnownRows(self.landmarks_, own.K.unflatten(0, by_view), squares)
        K = own.K[:, : len(own.K)]
        # Below the rounding of the kernel's own type an eigenvalue is noise, whatever the type it is stored in.
        self._rcond = max(1e-10, 32 * torch.finfo(K.dtype).eps)
        K = K.to("cpu", torch.float64)
        self.K_mm_ = (K + K.T) / 2
        return known
