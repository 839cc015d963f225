r"""`Krepes`: from views to landmarks, kernel, principal components, one damped Gauss-Newton step.

    f(x) = Aᵀ k_x + γ,      A = A0 + dA,      A0 = principal components,      dA = what the objective adds

``A`` has one row a landmark point, view by view: row ``u m + l`` is view ``u`` of landmark ``l``.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from torch import Tensor, nn

from krepes import batches
from krepes._checks import require_range
from krepes.batches import Batch
from krepes.budget import DEFAULT_BUDGET, Budget, MemoryBudget
from krepes.encoders.frozen import FrozenEncoder
from krepes.encoders.outputs import Output, describe_output
from krepes.engine.init import kaiming_init, principal_component_init
from krepes.engine.moments import Moments
from krepes.engine.rows import collect_moments, input_size, samples_within
from krepes.engine.rowstore import RowStore, store_rows
from krepes.engine.solution import Solution
from krepes.engine.solvers import solve
from krepes.errors import InvalidInputError, NotFittedError, RunFolderError
from krepes.kernels.auto import tangent_kernel
from krepes.kernels.base import Kernel
from krepes.kernels.classic import Linear
from krepes.kernels.entk import EmpiricalNTK
from krepes.kernels.sketch import SketchedNTK
from krepes.kernels.transforms import Centred, Cosine
from krepes.landmarks import SELECTORS, LandmarkSelector, select
from krepes.landmarks.pool import open_pool
from krepes.objectives import OBJECTIVES, MomentObjective, Objective, make_objective
from krepes.runs.store import flatten_batch, read_run, unflatten_batch, versions, write_run
from krepes.views import Augmentation, Identity, ViewStream

AFTER_THE_PASS = frozenset({"objective", "h", "init", "damping", "steps", "tol"})


class Krepes(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Explain an encoder by a kernel model of what its self-supervised objective adds to the kernel's own geometry.

    Args:
        kernel: A frozen encoder (its tangent kernel is taken, exact or sketched by predicted cost), or any `Kernel`.
        objective: A name of `krepes.objectives.OBJECTIVES`, or an objective.
        m: Number of landmarks.
        h: Embedding dimension, at most the rank of the landmark kernel.
        landmarks: How to choose them: a name of `krepes.landmarks.SELECTORS`, or a selector.
        candidates: Landmarks are chosen among so many uniformly drawn samples; ``None`` for all.
        augment: Makes the views when `fit` is given plain data instead of a `ViewStream`.
        centre: Centre the kernel at the mean feature of a reference sample. Without it no influence is negative.
        cosine: Normalise the kernel to ``k(x, x) = 1``.
        reference: Size of the reference sample, drawn uniformly.
        init: ``"pca"`` for principal components, ``"kaiming"`` for random coefficients.
        damping: ``"auto"`` for the value of lowest loss after the step, or a number relative to the mean curvature.
        steps: Gauss-Newton steps; 1 is the paper's.
        tol: Relative residual of the linear solve.
        seed: Seed of the reference, the landmarks and the initialisation; also of the views made from plain data.
        memory_budget: What each part of the work may hold at a time, besides the landmark points and the reference:
            bytes, or text such as ``"2G"``. It changes results only at round-off. Candidates that do not fit are kept
            in a temporary file, and work of which not even one sample fits is refused.
        progress: Show progress bars.
        output: Where in an encoder's result the embedding is: a position, a key or dotted path, or a function.
        parameters: Of an encoder, those in its tangent kernel: ``"*"``, ``"last"``, or glob patterns of names.
        heads: Random scalar heads over an encoder.
        device: Where an encoder computes; by default where it is. All else is float64 on the CPU.

    Attributes:
        landmarks_: Indices of the landmarks among the samples, ``(m,)``, sorted.
        landmark_ids_: The same as the user's row ids.
        points_: The landmark points, all views, ``(q, ...)`` with ``q = p m``.
        kernel_: The kernel with its transforms.
        K_mm_: Gram matrix of the points, ``(q, q)``, float64.
        A0_: Start, ``(q, h)``.
        dA_: What the objective adds, ``(q, h)``.
        gamma_: Shift, ``(h,)``; it starts at zero.
        moments_: Second moments of the rows, or ``None`` for a row objective.
        solution_: The story of the solve.

    Example:
        >>> from krepes.kernels.classic import RBF
        >>> from krepes.views import GaussianNoise
        >>> X = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
        >>> model = Krepes(RBF(2.0), m=20, h=5, augment=GaussianNoise(0.1), progress=False).fit(X)
        >>> model.solution_.loss_after < model.solution_.loss_before
        True
        >>> model.transform(X[:3]).shape
        torch.Size([3, 5])
    """

    def __init__(
        self,
        kernel: nn.Module | Kernel,
        *,
        objective: str | Objective[Any] = "barlow_twins",
        m: int = 200,
        h: int = 32,
        landmarks: str | LandmarkSelector = "rpcholesky",
        candidates: int | None = 10_000,
        augment: Augmentation | None = None,
        centre: bool = True,
        cosine: bool = True,
        reference: int = 512,
        init: str = "pca",
        damping: float | Literal["auto"] = "auto",
        steps: int = 1,
        tol: float = 1e-8,
        seed: int = 0,
        memory_budget: MemoryBudget = DEFAULT_BUDGET,
        progress: bool = True,
        output: Output = None,
        parameters: str | Sequence[str] = "*",
        heads: int = 1,
        device: str | torch.device | None = None,
    ) -> None:
        self.kernel = kernel
        self.objective = objective
        self.m = m
        self.h = h
        self.landmarks = landmarks
        self.candidates = candidates
        self.augment = augment
        self.centre = centre
        self.cosine = cosine
        self.reference = reference
        self.init = init
        self.damping = damping
        self.steps = steps
        self.tol = tol
        self.seed = seed
        self.memory_budget = memory_budget
        self.progress = progress
        self.output = output
        self.parameters = parameters
        self.heads = heads
        self.device = device

    def fit(
        self, X: Any, y: None = None, *, ids: Sequence[Any] | None = None, workdir: str | Path | None = None
    ) -> Krepes:
        """Choose landmarks, pass once over the data, take the step.

        Args:
            X: A `ViewStream`, or plain data (tensor, array, Dataset, DataLoader) that ``augment`` makes views of.
            y: Ignored: labels never reach the fit.
            ids: The user's own row ids, one a sample; by default ``0..n-1``.
            workdir: A folder for finished shards of the pass: a killed fit resumes from it. Row objectives keep their
                kernel rows there; without it they go to a temporary folder.

        Returns:
            The fitted model.
        """
        self.__dict__.pop("solution_", None)  # a fit that fails must not leave old coefficients to new landmarks
        self.objective_ = make_objective(self.objective)
        self.stream_ = self._stream(X)
        self.n_samples_, self.p_ = self.stream_.n, self.stream_.p
        self._require_sizes(ids)
        draw = torch.Generator().manual_seed(self.seed)
        order = torch.randperm(self.n_samples_, generator=draw)
        self.reference_ = self.stream_.plain(order[: self.reference].sort().values)
        self._set_kernel(self.reference_)
        pool = order[: self.candidates].sort().values
        self.landmarks_ = pool[self._select(pool, draw)]
        rows = self.landmarks_.tolist()
        # A list first: a pandas column would look a row up by its index label, not by its place.
        names = range(self.n_samples_) if ids is None else list(ids)
        self.landmark_ids_ = [_plain(names[row]) for row in rows]
        self.points_ = batches.map_tensors(lambda x: x.flatten(0, 1), self.stream_.views_of(self.landmarks_))
        self._prepare()
        self.data_ = self._pass(workdir)
        self._solve()
        return self

    def refit(self, **changes: Any) -> Krepes:
        """Return a model of another objective on the same landmarks and kernel rows, without another pass.

        Args:
            **changes: Parameters that act after the pass: ``objective``, ``h``, ``init``, ``damping``, ``steps``,
                ``tol``.

        Returns:
            A new model; this one is left as it is.

        Raises:
            InvalidInputError: If another parameter is named, or the pass did not keep what the objective needs: moments
                and rows do not replace each other, and inputs or traces are kept for an objective that asks for them.
        """
        self._solution()
        early = sorted(set(changes) - AFTER_THE_PASS)
        if early:
            raise InvalidInputError(f"{early} act before the pass: fit again. A refit takes {sorted(AFTER_THE_PASS)}.")
        model: Krepes = copy.copy(self).set_params(**changes)
        model.objective_ = make_objective(model.objective)
        model._stream(self.stream_) if hasattr(self, "stream_") else None
        model._require_data()
        model._solve()
        return model

    def transform(self, X: Batch) -> Tensor:
        """Return the embeddings ``Z = K A + 1 γᵀ``, ``(t, h)``, float64, of samples ``X`` ``(t, ...)``."""
        A, gamma = self.A_, self.gamma_
        # Four copies of a piece of the rows at most: the kernel's, float64, and what making them takes.
        size = self._budget.rows(32 * len(A), what=f"a sample against q={len(A)} landmark points")
        return torch.cat([self.kernel_rows(x) @ A + gamma for _, x in batches.chunks(X, size)])

    def kernel_rows(self, X: Batch) -> Tensor:
        """Return ``K_tm``, ``(t, q)``, float64: the kernel of samples ``X`` ``(t, ...)`` with the landmark points."""
        self._solution()
        return self.kernel_.rows(X, self.prepared_).K.to("cpu", torch.float64)

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

    def save(self, folder: str | Path, *, files: Mapping[str, bytes] | None = None, rows: Path | None = None) -> None:
        """Write a run folder; see `krepes.runs.store`. Kernel rows of a row objective stay in their ``workdir``.

        Args:
            folder: Where to; an earlier run there is replaced.
            files: Further files by name to keep beside it.
            rows: A finished row store to move into it.
        """
        self._solution()
        arrays = {
            "landmarks": self.landmarks_,
            "theta0": self.solution_.theta0,
            "theta": self.solution_.theta,
            "K_mm": self.K_mm_,
            **flatten_batch("points", self.points_),
            **flatten_batch("reference", self.reference_),
        }
        if self.moments_ is not None:
            arrays["M"] = self.moments_.M
            arrays |= {"KX": self.moments_.KX} if self.moments_.KX is not None else {}
        write_run(folder, arrays, self._manifest(), files, rows)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        kernel: nn.Module | Kernel,
        *,
        output: Output = None,
        device: str | torch.device | None = None,
    ) -> Krepes:
        """Read a run folder back.

        Args:
            folder: What `save` wrote.
            kernel: The encoder or kernel of the run: weights are not stored, their fingerprint is compared.
            output: Where in the encoder's result the embedding is, if the run was told by a function.
            device: Where the encoder computes; by default where it is.

        Returns:
            A model that transforms and explains; the stream of training data is not part of it.

        Raises:
            RunFolderError: If the encoder's weights, the kernel's settings or its values are not those of the run.
        """
        arrays, manifest = read_run(folder)
        recorded = manifest["parameters"].pop("output", None)
        if output is None and isinstance(recorded, dict):
            raise RunFolderError(
                f"{folder} was fitted with output={recorded['function']}, a function, and holds only its name. Pass "
                f"the function: load(folder, encoder, output=...)."
            )
        output = recorded if output is None else output
        model = cls(kernel, output=output, device=device, **manifest["parameters"])
        if manifest["objective"]["name"] in OBJECTIVES:
            model.objective = model.objective_ = make_objective(manifest["objective"])
        if manifest["selector"] in SELECTORS:
            model.landmarks = manifest["selector"]
        model._data_story = manifest["data"]
        model.n_samples_, model.p_ = manifest["data"]["n"], manifest["data"]["p"]
        model.landmarks_, model.landmark_ids_ = arrays["landmarks"], manifest["landmark_ids"]
        model.points_, model.reference_ = unflatten_batch("points", arrays), unflatten_batch("reference", arrays)
        choice = manifest["kernel_choice"].split(maxsplit=1)[0].rstrip(":,")
        if choice == "given" and isinstance(kernel, nn.Module):
            raise RunFolderError(
                f"{folder} was fitted with a kernel and load was given a network: {manifest['kernel']}. Pass a kernel "
                f"with those settings, such as EmpiricalNTK(encoder, heads=...)."
            )
        model._set_kernel(model.points_, choice)
        model.kernel_choice_ = manifest["kernel_choice"]
        if model.base_kernel_.describe() != manifest["kernel"]:
            raise RunFolderError(
                f"the kernel given to load is not that of {folder}: {model.base_kernel_.describe()} against "
                f"{manifest['kernel']}. Pass the encoder with the weights of the run."
            )
        model._prepare()
        model._require_points(arrays["K_mm"], folder)
        model.solution_ = Solution.from_dict(manifest["solution"], arrays["theta0"], arrays["theta"])
        extra = manifest["moments"]
        model.data_ = extra and Moments(
            model.n_samples_, arrays["M"], arrays["K_mm"], extra["trace"], arrays.get("KX"), extra["XX"]
        )
        return model

    def _manifest(self) -> dict[str, Any]:
        skipped = {"kernel", "objective", "landmarks", "augment", "device"}
        parameters = {key: value for key, value in self.get_params(deep=False).items() if key not in skipped}
        parameters["memory_budget"] = self._budget.bytes
        parameters["output"] = describe_output(self.output)
        moments = self.moments_
        return {
            "versions": versions(),
            "parameters": parameters,
            "selector": self.landmarks if isinstance(self.landmarks, str) else repr(self.landmarks),
            "objective": self.objective_.describe(),
            "kernel": self.base_kernel_.describe(),
            "kernel_choice": self.kernel_choice_,
            "data": self._describe_data(),
            "landmark_ids": self.landmark_ids_,
            "moments": None if moments is None else {"trace": moments.trace, "XX": moments.XX},
            "solution": self.solution_.to_dict(),
        }

    def _describe_data(self) -> dict[str, Any]:
        """Return the stream's settings and fingerprint: its own, or as the run folder told them."""
        if not hasattr(self, "stream_"):
            return self._data_story
        return {**self.stream_.describe(), "fingerprint": self.stream_.fingerprint()}

    def _stream(self, X: Any) -> ViewStream:
        """Return the stream of views, made from plain data if need be, with enough views for the objective."""
        needed = self.objective_.views
        if not isinstance(X, ViewStream):
            if needed > 1 and self.augment is None:
                raise InvalidInputError(
                    f"objective '{self.objective_.name}' compares {needed} views of a sample and none were given. "
                    f"Pass augment=..., such as GaussianNoise(0.1), or fit a ViewStream."
                )
            X = self._within_budget(ViewStream(X, self.augment or Identity(), seed=self.seed))
        if X.p < needed:
            raise InvalidInputError(
                f"objective '{self.objective_.name}' needs {needed} views of a sample, the stream makes {X.p}."
            )
        return X

    def _within_budget(self, stream: ViewStream) -> ViewStream:
        """Return the stream in batches that the budget holds: the samples, their views, and the stack of them."""
        each = (2 * stream.p + 1) * batches.sample_bytes(stream.plain(torch.arange(1)))
        most = self._budget.rows(each, what="a sample and its views", share=1 / 4, most=stream.batch_size)
        return stream.with_batch_size(most)

    def _require_sizes(self, ids: Sequence[Any] | None) -> None:
        n = self.n_samples_
        require_range(self.m, "m", low=1, high=n)
        require_range(self.h, "h", low=1, high=self.m * self.p_)
        require_range(self.reference, "reference", low=2)
        require_range(self.candidates or n, "candidates", low=self.m)
        if ids is not None and len(ids) != n:
            raise InvalidInputError(f"{len(ids)} row ids were given for {n} samples: there must be one for each.")
        moments = isinstance(self.objective_, MomentObjective)
        inputs = isinstance(self.objective_, MomentObjective) and self.objective_.needs_inputs
        d = input_size(self.stream_.plain(torch.arange(1))) if inputs else 0
        samples_within(self._budget, p=self.p_, q=self.m * self.p_, d=d, sums=moments)

    def _set_kernel(self, samples: Batch, choice: str = "auto") -> None:
        """Set the base kernel, exact or sketched for an encoder, and the transformed one."""
        self.base_kernel_: Kernel
        if isinstance(self.kernel, nn.Module):
            self.base_kernel_, self.kernel_choice_ = tangent_kernel(
                FrozenEncoder(self.kernel, output=self.output, device=self.device),
                samples,
                self.m * self.p_,
                kernel=choice,
                memory_budget=self.memory_budget,
                heads=self.heads,
                parameters=self.parameters,
            )
        elif (self.output, self.parameters, self.heads, self.device) != (None, "*", 1, None):
            raise InvalidInputError(
                f"output, parameters, heads and device belong to an encoder, and the kernel is a "
                f"{type(self.kernel).__name__}. Give them where that is made, such as EmpiricalNTK(encoder, heads=...)."
            )
        elif isinstance(self.kernel, Kernel):
            self.base_kernel_, self.kernel_choice_ = self.kernel, "given"
        else:
            raise InvalidInputError(f"kernel must be a torch module or a Kernel, got {type(self.kernel).__name__}.")
        self.kernel_ = self._transformed(self.base_kernel_, self.reference_)

    def _transformed(self, base: Kernel, reference: Batch) -> Kernel:
        kernel = Centred(base, reference) if self.centre else base
        return Cosine(kernel) if self.cosine else kernel

    def _select(self, pool: Tensor, draw: torch.Generator) -> Tensor:
        """Return the landmarks' places in the pool; a sketched kernel runs the encoder once, not once per pass."""
        kernel, read = self.kernel_, self.stream_.plain
        raw = kept = batches.sample_bytes(read(pool[:1]))
        if isinstance(self.base_kernel_, SketchedNTK):
            sketch = self.base_kernel_
            kernel = self._transformed(Linear(memory_budget=self._budget), sketch.features(self.reference_))
            read, kept = lambda indices: sketch.features(self.stream_.plain(indices)), sketch.bytes_per_feature
        with open_pool(read, pool, self._budget, raw=raw, kept=kept) as candidates:
            return select(
                candidates,
                self.m,
                kernel=kernel,
                method=self.landmarks,
                generator=draw,
                memory_budget=self._budget,
            )

    def _prepare(self) -> None:
        """Prepare the landmark points and take their Gram matrix."""
        self.prepared_ = self.kernel_.prepare(self.points_)
        K = self.kernel_.rows(self.points_, self.prepared_).K
        # Below the rounding of the kernel's own type an eigenvalue is noise, whatever the type it is stored in.
        self._rcond = max(1e-10, 32 * torch.finfo(K.dtype).eps)
        K = K.to("cpu", torch.float64)
        self.K_mm_ = (K + K.T) / 2

    def _require_points(self, stored: Tensor, folder: str | Path) -> None:
        """Raise unless the kernel has the values of the run at the landmark points: weights alone do not fix it."""
        gap = float((self.K_mm_ - stored).abs().max() / stored.abs().max())
        if not gap <= 1e-2:  # other hardware rounds otherwise, and may flip a few ReLUs
            raise RunFolderError(
                f"the kernel given to load has the weights and settings of {folder}, but at its landmark points it "
                f"differs by {gap:.1e} relative: the forward pass is another one. Pass the encoder of the run."
            )

    def _require_data(self) -> None:
        """Raise unless the pass kept what the objective needs."""
        kept, wanted = type(self.data_).__name__, self.objective_
        lacking = ""
        if isinstance(wanted, MomentObjective) != isinstance(self.data_, Moments):
            lacking = "moments" if isinstance(wanted, MomentObjective) else "rows"
        elif isinstance(self.data_, Moments) and isinstance(wanted, MomentObjective):
            lacking = "inputs" if wanted.needs_inputs and self.data_.KX is None else lacking
            lacking = "traces" if wanted.needs_trace and self.data_.trace is None else lacking
        if lacking:
            raise InvalidInputError(
                f"objective '{wanted.name}' needs {lacking}, and the pass kept {kept} without: fit with it first, and "
                f"refit the others."
            )

    def _solve(self) -> None:
        """Take the step from the start."""
        theta0 = torch.nn.functional.pad(self._start(), (0, 0, 0, 1))
        self.solution_ = solve(
            self.objective_,
            self.data_,
            theta0,
            damping=self.damping,
            steps=self.steps,
            tol=self.tol,
        )

    def _start(self) -> Tensor:
        if self.init == "pca":
            return principal_component_init(self.K_mm_, self.h, rcond=self._rcond)
        if self.init == "kaiming":
            return kaiming_init(len(self.K_mm_), self.h, generator=torch.Generator().manual_seed(self.seed))
        raise InvalidInputError(f"init={self.init!r} is unknown: choose 'pca' or 'kaiming'.")

    def _pass(self, workdir: str | Path | None) -> Moments | RowStore:
        """Run the one pass over the data."""
        common = {"memory_budget": self.memory_budget, "progress": self.progress}
        if isinstance(self.objective_, MomentObjective):
            return collect_moments(
                self.stream_,
                self.kernel_,
                self.prepared_,
                self.K_mm_,
                inputs=self.objective_.needs_inputs,
                trace=self.objective_.needs_trace,
                shards=None if workdir is None else Path(workdir) / "moments",
                **common,  # type: ignore[arg-type]
            )
        if workdir is None:
            self._rows_folder = tempfile.TemporaryDirectory(prefix="krepes-rows-")
            workdir = self._rows_folder.name
        return store_rows(self.stream_, self.kernel_, self.prepared_, self.K_mm_, Path(workdir) / "rows", **common)  # type: ignore[arg-type]

    @property
    def _budget(self) -> Budget:
        return Budget.of(self.memory_budget)

    def _solution(self) -> Solution:
        if not hasattr(self, "solution_"):
            raise NotFittedError("this Krepes is not fitted: call fit on data or views first, or load a run folder.")
        return self.solution_


def _plain(value: Any) -> Any:
    """Return a row id as a plain value that JSON can hold."""
    return value.item() if isinstance(value, (np.generic, Tensor)) else value
