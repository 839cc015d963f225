"""A fitted model as data: arrays and a manifest of plain JSON values in a run folder, and back.

A run folder names no code. The encoder's weights are not part of it either: their fingerprint is in the kernel's
description, and the kernel's values at the landmark points must be those of the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from krepes import batches
from krepes._describe import Description
from krepes.batches import Batch
from krepes.budget import Budget
from krepes.data.tabular import TabularEncoder
from krepes.encoders.outputs import Output
from krepes.engine.init import ENCODER
from krepes.engine.moments import Moments
from krepes.engine.residual import residual_gram
from krepes.engine.solution import Solution
from krepes.errors import RunFolderError
from krepes.kernels.auto import KernelChoice
from krepes.kernels.base import Kernel
from krepes.model.readable import readable, require_arrays, require_manifest
from krepes.model.surrogate import Surrogate
from krepes.runs.store import flatten_batch, read_run, unflatten_batch, versions, write_run
from krepes.views.holding import SHARE

FORWARD = 1e-2
"""How far kernel values may be from those of the run: other hardware rounds otherwise, and may flip a few ReLUs."""


@dataclass(frozen=True, eq=False)
class StoredModel:
    """What a run folder holds of a model.

    Attributes:
        parameters: Arguments of the constructor that are plain values.
        selector: Describes how landmarks were chosen.
        objective: Describes the loss.
        kernel: Describes the kernel before its transforms.
        choice: Which kernel was taken, and why.
        data: Describes the stream, with its fingerprint.
        encoding: How tables become numbers, as `krepes.data.TabularEncoder.to_dict` says, or ``None``.
        landmarks: Indices, ``(m,)``.
        landmark_ids: The user's row ids of the landmarks.
        points: Landmark points, ``(q, ...)``.
        reference: Reference samples, ``(r, ...)``.
        K_mm: Gram matrix of the points, ``(q, q)``.
        solution: The solve, with its coefficients.
        moments: Second moments, or ``None`` for a row objective, whose rows stay where they are.
        processes: How many shared the pass.
    """

    parameters: dict[str, Any]
    selector: Description
    objective: Description
    kernel: Description
    choice: KernelChoice
    data: Description
    encoding: dict[str, Any] | None
    landmarks: Tensor
    landmark_ids: list[Any]
    points: Batch
    reference: Batch
    K_mm: Tensor
    solution: Solution
    moments: Moments | None
    processes: int = 1

    @classmethod
    def of(cls, model: Surrogate, *, parameters: dict[str, Any], selector: Description) -> StoredModel:
        """Return what is to be stored of a fitted model, with its constructor's arguments and its selector."""
        moments = model.moments_
        return cls(
            parameters=parameters,
            selector=selector,
            objective=model.objective_.describe(),
            kernel=model.base_kernel_.describe(),
            choice=model.kernel_choice_,
            data=model.describe_data(),
            encoding=None if model.encoding_ is None else model.encoding_.to_dict(),
            landmarks=model.landmarks_,
            landmark_ids=model.landmark_ids_,
            points=model.points_,
            reference=model.reference_,
            K_mm=model.K_mm_,
            solution=model.solution_,
            moments=moments,
            processes=model.processes_,
        )

    def restore(self, model: Surrogate, folder: str | Path) -> None:
        """Make of a model that was only constructed what it was when it was stored; another kernel is refused."""
        model.encoding_ = None if self.encoding is None else TabularEncoder.from_dict(self.encoding)
        model.stored_data_ = self.data
        model.n_samples_, model.p_, model.m_ = self.data["n"], self.data["p"], len(self.landmarks)
        model.landmarks_, model.landmark_ids_ = self.landmarks, self.landmark_ids
        model.points_, model.reference_ = self.points, self.reference
        model.set_base(model.points_, self.choice.kind)
        model.kernel_ = model.transformed(model.base_kernel_, model.reference_)
        model.kernel_choice_ = self.choice
        self.require_kernel(model.base_kernel_.describe(), folder)
        model.set_points()
        self.require_points(model.K_mm_, folder)
        model.solution_, model.data_, model.processes_ = self.solution, self.moments, self.processes

    def write(self, folder: str | Path, files: Mapping[str, bytes] | None = None, rows: Path | None = None) -> None:
        """Write the run folder; see `krepes.runs.store`.

        Args:
            folder: Where to; an earlier run there is replaced.
            files: Further files by name to keep beside it.
            rows: A finished row store to move into it.
        """
        arrays = {
            "landmarks": self.landmarks,
            "theta0": self.solution.theta0,
            "theta": self.solution.theta,
            "K_mm": self.K_mm,
            **flatten_batch("points", self.points),
            **flatten_batch("reference", self.reference),
        }
        if self.moments is not None:
            arrays["M"] = self.moments.M
            arrays |= {"KX": self.moments.KX} if self.moments.KX is not None else {}
        write_run(folder, arrays, self._manifest(), files, rows)

    def _manifest(self) -> dict[str, Any]:
        plain = ("parameters", "selector", "objective", "kernel", "data", "encoding", "landmark_ids")
        moments = self.moments
        return {
            "versions": versions(),
            **{name: getattr(self, name) for name in plain},
            "kernel_choice": asdict(self.choice),
            "processes": self.processes,
            "moments": None if moments is None else {"n": moments.n, "trace": moments.trace, "XX": moments.XX},
            "solution": self.solution.to_dict(),
        }

    @classmethod
    def read(cls, folder: str | Path) -> StoredModel:
        """Read what `write` wrote.

        Args:
            folder: A run folder.

        Returns:
            The stored model; a folder that holds none of this version is refused.
        """
        arrays, manifest = read_run(folder, _stays)
        require_manifest(manifest, folder)
        with readable(folder):
            points, extra = unflatten_batch("points", arrays), manifest["moments"]
            require_arrays(arrays, manifest, batches.count(points), folder)
            gram, solution = arrays["K_mm"], Solution.from_dict(manifest["solution"], arrays["theta0"], arrays["theta"])
            if manifest["parameters"].get("init") == ENCODER:
                gram = residual_gram(gram, solution.theta.shape[1])
            return cls(
                parameters=manifest["parameters"],
                selector=manifest["selector"],
                objective=manifest["objective"],
                kernel=manifest["kernel"],
                choice=KernelChoice(**manifest["kernel_choice"]),
                data=manifest["data"],
                encoding=manifest["encoding"],
                landmarks=arrays["landmarks"],
                landmark_ids=manifest["landmark_ids"],
                points=points,
                reference=unflatten_batch("reference", arrays),
                K_mm=arrays["K_mm"],
                solution=solution,
                moments=extra and Moments(M=arrays["M"], K=gram, KX=arrays.get("KX"), **extra),
                processes=int(manifest.get("processes", 1)),
            )

    def output_or(self, given: Output, folder: str | Path) -> Output:
        """Return where the embedding is in the encoder's result: as given, else as the run was told.

        Args:
            given: By the caller, or ``None``.
            folder: The run, for the message.

        Returns:
            What the constructor takes.

        Raises:
            RunFolderError: If the run was told by a function, of which it holds only the name.
        """
        recorded = self.parameters.get("output")
        if given is None and isinstance(recorded, dict):
            raise RunFolderError(
                f"{folder} was fitted with output={recorded.get('function')}, a function, and holds only its name. "
                f"Pass the function: load(folder, encoder, output=...)."
            )
        return recorded if given is None else given

    def require_given(self, kernel: nn.Module | Kernel, folder: str | Path) -> None:
        """Raise `RunFolderError` if a bare network is given for a run that was fitted with a kernel."""
        if self.choice.kind == "given" and isinstance(kernel, nn.Module):
            raise RunFolderError(
                f"{folder} was fitted with a kernel and load was given a network: {self.kernel}. Pass a kernel with "
                f"those settings, such as EmpiricalNTK(encoder, heads=...)."
            )

    def require_kernel(self, found: Description, folder: str | Path) -> None:
        """Raise `RunFolderError` unless the kernel's description is that of the run."""
        if found != self.kernel:
            raise RunFolderError(
                f"the kernel given to load is not that of {folder}: {found} against {self.kernel}. Pass the encoder "
                f"with the weights of the run."
            )

    def require_points(self, K_mm: Tensor, folder: str | Path) -> None:
        """Raise `RunFolderError` unless the kernel has the values of the run at the landmark points, ``(q, q)``."""
        gap = float((K_mm - self.K_mm).abs().max() / self.K_mm.abs().max())
        if not gap <= FORWARD:
            raise RunFolderError(
                f"the kernel given to load has the weights and settings of {folder}, but at its landmark points it "
                f"differs by {gap:.1e} relative: the forward pass is another one. Pass the encoder of the run."
            )


def _stays(manifest: Mapping[str, Any], name: str, size: int) -> bool:
    """Return whether samples stay in the file: those of more than a part of the budget, as while it was fitted."""
    samples = name.startswith(("points", "reference"))
    parameters = manifest.get("parameters")
    budget = parameters.get("memory_budget") if isinstance(parameters, dict) else None  # refused later, by name
    return samples and isinstance(budget, int) and budget > 0 and not Budget(budget).fits(size, share=SHARE)
