r"""`Krepes`: from views to landmarks, kernel, principal components, one damped Gauss-Newton step.

    f(x) = Aᵀ k_x + γ,      A = A0 + dA,      A0 = principal components,      dA = what the objective adds
    f(x) = e(x) + Aᵀ k_x,   A = dA,           started at the encoder ``e`` itself

``A`` has one row per landmark point, view by view: row ``u m + l`` is view ``u`` of landmark ``l``.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from torch import Tensor, nn

from krepes._checks import require_range
from krepes.budget import DEFAULT_BUDGET, MemoryBudget
from krepes.encoders.outputs import Output, describe_output
from krepes.engine.init import ENCODER, WIDTH
from krepes.engine.passes import collect, require_data, require_room
from krepes.engine.phases import LANDMARKS, PASS, SOLVE, Phases
from krepes.errors import InvalidInputError
from krepes.kernels.base import Kernel
from krepes.landmarks import LandmarkSelector, given_landmarks, recorded_landmarks, selector_record
from krepes.model.choosing import look_at_samples
from krepes.model.intake import Augment, fit_encoding, is_frame, open_stream, plain_id, require_views, row_ids
from krepes.model.persist import StoredModel
from krepes.model.readable import readable
from krepes.model.removal import Removable
from krepes.objectives import OBJECTIVES, Objective, make_objective
from krepes.processes import current
from krepes.views.holding import held_views

AFTER_THE_PASS = frozenset({"objective", "h", "init", "damping", "relative", "steps", "tol"})
NOT_PLAIN = frozenset({"kernel", "objective", "landmarks", "augment", "device"})
"""Arguments that a run folder keeps by their description, if at all."""


class Krepes(Removable, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Explain an encoder by a kernel model of what its self-supervised objective adds to the kernel's own geometry.

    Args:
        kernel: A frozen encoder (its tangent kernel is taken), or any `Kernel`.
        objective: A name of `krepes.objectives.OBJECTIVES`, or an objective.
        m: Number of landmarks; not used where ``landmarks`` names them.
        h: Embedding dimension, at most the rank of the landmark kernel; by default 32. A model that starts at the
            encoder has the encoder's own.
        landmarks: How to choose them: a name of `krepes.landmarks.SELECTORS`, or a selector. Or which they are: indices
            of samples, or ``"all"``.
        candidates: Landmarks are chosen among so many uniformly drawn samples; ``None`` for all.
        augment: Makes the views when `fit` is given plain data: an augmentation, or a function of samples, see
            `krepes.views.FunctionAugmentation`. For a DataFrame the default drops columns and adds noise.
        centre: Centre the kernel at the mean feature of a reference sample. Without it no influence is negative.
        cosine: Normalise the kernel to ``k(x, x) = 1``. Both by default, but not from the encoder: its own is raw.
        reference: Size of the reference sample, drawn uniformly.
        kernel_kind: Of an encoder: ``"exact"``, ``"sketch"``, or ``"auto"`` for the one of lower predicted cost.
        q: Features of a sketch.
        init: ``"pca"`` for principal components, ``"kaiming"`` for noise, ``"encoder"`` for the encoder's embeddings.
        damping: ``"auto"`` for the value of lowest loss after the step, or a number.
        relative: Whether a given ``damping`` is in units of the mean curvature.
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
        kernel_: The kernel with its transforms; ``kernel_choice_`` says which it is and why.
        K_mm_: Gram matrix of the points, ``(q, q)``, float64.
        A0_, dA_, gamma_: Start and what the objective adds, ``(q, h)``; shift, ``(h,)``, which starts at zero.
        moments_: Second moments of the rows, or ``None`` for a row objective.
        encoding_: How the columns of a DataFrame become numbers, or ``None`` for other data.
        solution_: Every step of the solve.
        processes_: How many processes shared the pass.
        work_: What each phase of the fit cost, in samples through the encoder and seconds; not kept in a run folder.

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
        h: int | None = None,
        landmarks: str | LandmarkSelector | Sequence[int] | np.ndarray | Tensor = "rpcholesky",
        candidates: int | None = 10_000,
        augment: Augment | None = None,
        centre: bool | None = None,
        cosine: bool | None = None,
        reference: int = 512,
        kernel_kind: Literal["auto", "exact", "sketch"] = "auto",
        q: int = 4096,
        init: str = "pca",
        damping: float | Literal["auto"] = "auto",
        relative: bool = True,
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
        self.kernel_kind = kernel_kind
        self.q = q
        self.init = init
        self.damping = damping
        self.relative = relative
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
            X: A `ViewStream`, or plain data (tensor, array, Dataset, DataLoader) that ``augment`` makes views of, or a
                DataFrame without its labels, whose columns are encoded by their inferred kinds.
            y: Ignored: labels never reach the fit.
            ids: The user's own row ids, one per sample; by default ``0..n-1``, or the index of a pandas DataFrame.
            workdir: A folder for finished shards of the pass: a killed fit resumes from it. Row objectives keep their
                kernel rows there; without it they go to a temporary folder.

        Returns:
            The fitted model.
        """
        self.__dict__.pop("solution_", None)  # a fit that fails must not leave old coefficients to new landmarks
        self.objective_ = make_objective(self.objective)
        self.encoding_ = fit_encoding(X) if is_frame(X) else None
        self.stream_ = open_stream(
            X, self.objective_, augment=self.augment, encoding=self.encoding_, seed=self.seed, budget=self._budget
        )
        self.n_samples_, self.p_ = self.stream_.n, self.stream_.p
        given = given_landmarks(self.landmarks, self.n_samples_)
        self.m_ = self.m if given is None else len(given)
        names = row_ids(ids, X, self.n_samples_)
        self._require_sizes(chosen=given is None)
        phases = Phases(self.progress)
        look_at_samples(self, phases, given)
        self.landmark_ids_ = [plain_id(names[index]) for index in self.landmarks_.tolist()]
        counted = phases.encoder is not None
        with phases.open(LANDMARKS, self.p_ * self.m_ if counted else None):
            self.points_ = held_views(self.stream_, self.landmarks_, self._budget)
            known = self.set_points(diagonal=getattr(self.objective_, "needs_trace", False))
        with phases.open(PASS, self.p_ * (self.n_samples_ - self.m_)) if counted else nullcontext():
            self.data_ = collect(
                self.objective_,
                self.stream_,
                self.pass_kernel_,
                self.prepared_,
                self.pass_gram_,
                known=known,
                workdir=workdir,
                budget=self._budget,
                progress=self.progress and not counted,
            )
        us = current()
        self.processes_, self.work_ = us.count, phases.spent
        if us.kind == "apart":
            return self  # its part of the pass is kept; solving takes all of them
        with phases.open(SOLVE):
            self.solution_ = self.solved_together(self.damping, self.relative)
        return self

    def refit(self, **changes: Any) -> Krepes:
        """Return a model of another objective on the same landmarks and kernel rows, without another pass.

        Args:
            **changes: Parameters that act after the pass: ``objective``, ``h``, ``init``, ``damping``, ``relative``,
                ``steps``, ``tol``; ``init="encoder"`` needs a pass of its own.

        Returns:
            A new model; this one is left as it is.

        Raises:
            InvalidInputError: If another parameter is named, or the pass did not keep what the objective needs: moments
                and rows do not replace each other, and inputs or traces are kept for an objective that asks for them.
        """
        self._solution()
        early = sorted(set(changes) - AFTER_THE_PASS)
        starts = {self.init, changes.get("init", self.init)}
        early += ["init"] if ENCODER in starts and len(starts) > 1 else []
        if early:
            raise InvalidInputError(f"{early} act before the pass: fit again. A refit takes {sorted(AFTER_THE_PASS)}.")
        model: Krepes = copy.copy(self).set_params(**changes)
        model.objective_ = make_objective(model.objective)
        require_views(model.objective_, self.p_)
        model.require_start()
        require_data(model.objective_, self.data_)
        model.solution_ = model.solved(model.data_, damping=model.damping, relative=model.relative)
        return model

    def transform(self, X: Any) -> Tensor:
        """Return the embeddings of samples, ``(t, h)``; `embed`, but in the container that ``set_output`` asks for."""
        return self.embed(X)

    def save(self, folder: str | Path, *, files: Mapping[str, bytes] | None = None, rows: Path | None = None) -> None:
        """Write a run folder; see `krepes.runs.store`. Kernel rows of a row objective stay in their ``workdir``.

        Args:
            folder: Where to; an earlier run there is replaced.
            files: Further files by name to keep beside it.
            rows: A finished row store to move into it.
        """
        plain = {key: value for key, value in self.get_params(deep=False).items() if key not in NOT_PLAIN}
        plain |= {"memory_budget": self._budget.bytes, "output": describe_output(self.output)}
        StoredModel.of(self, parameters=plain, selector=selector_record(self.landmarks)).write(folder, files, rows)

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
            kernel: The encoder or kernel of the run: weights are not stored, their fingerprint is compared. If they,
                the kernel's settings or its values are not those of the run, `RunFolderError` says so.
            output: Where in the encoder's result the embedding is, if the run was told by a function.
            device: Where the encoder computes; by default where it is.

        Returns:
            A model that transforms and explains; the stream of training data is not part of it.
        """
        stored = StoredModel.read(folder)
        stored.require_given(kernel, folder)
        output = stored.output_or(output, folder)
        with readable(folder):
            model = cls(kernel, **{**stored.parameters, "output": output, "device": device})
            if stored.objective["name"] in OBJECTIVES:
                model.objective = model.objective_ = make_objective(stored.objective)
            model.landmarks = recorded_landmarks(stored.selector, stored.landmarks) or model.landmarks
            stored.restore(model, folder)
        return model

    def _require_sizes(self, *, chosen: bool) -> None:
        require_range(self.m_, "m", low=1, high=self.n_samples_)
        if self.init != ENCODER:
            require_range(self.h or WIDTH, "h", low=1, high=self.m_ * self.p_)
        require_range(self.reference, "reference", low=2)
        if chosen and self.candidates is not None:
            require_range(self.candidates, "candidates", low=self.m_)
        require_room(self.objective_, self.stream_, self.m_, self._budget)
