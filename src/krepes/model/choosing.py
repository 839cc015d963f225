r"""Where a fit looks at plain samples: the reference of the kernel, and the candidates for landmarks.

A selector asks about each candidate several times. Where the network is dear, candidates are measured in the features
of a sketch, each made once; the reference is among the candidates, so its look serves both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from krepes import batches
from krepes.batches import Batch
from krepes.budget import Budget
from krepes.engine.passes import require_room
from krepes.engine.phases import KERNEL, REFERENCE, SELECTION, Phases
from krepes.kernels.auto import look_once, sketch_to_choose_by
from krepes.kernels.base import Kernel, MeanFeature
from krepes.kernels.classic import Linear
from krepes.kernels.entk import EmpiricalNTK
from krepes.kernels.sketch import SketchedNTK
from krepes.landmarks import LandmarkSelector, make_selector, select
from krepes.landmarks.pool import open_pool
from krepes.model.intake import width_explained
from krepes.model.measuring import led, shared_mean
from krepes.model.surrogate import Surrogate
from krepes.processes import current
from krepes.views.holding import held


@dataclass(frozen=True)
class Candidates:
    """The candidates of a fit, and how they are measured.

    Attributes:
        pool: Places of the candidates among the samples, ``(c,)``, sorted.
        reference: Places of the reference, ``(r,)``, sorted.
        selector: Chooses.
        m: How many.
        sketch: Measures candidates by features that are made once; ``None`` for the kernel itself.
    """

    pool: Tensor
    reference: Tensor
    selector: LandmarkSelector
    m: int
    sketch: SketchedNTK | None

    @classmethod
    def of(cls, model: Surrogate, method: Any, pool: Tensor, reference: Tensor) -> Candidates:
        """Return the candidates of a model whose base kernel is known.

        Args:
            model: The model.
            method: Its selector, or the name of one.
            pool: Places of the candidates.
            reference: Places of the reference.

        Returns:
            The candidates.
        """
        selector, base = make_selector(method, memory_budget=model.memory_budget), model.base_kernel_
        sketch = None
        if selector.measures and model.m_ < len(pool):
            if isinstance(base, SketchedNTK):
                sketch = base
            elif isinstance(base, EmpiricalNTK):
                sketch = sketch_to_choose_by(base, model.reference_, model.m_, model.q)
        return cls(pool, reference, selector, model.m_, sketch)

    def looks(self, centred: bool) -> int | None:
        """Return how many samples go through the encoder for the choice, or ``None`` where that depends on the data.

        Args:
            centred: Whether the reference was looked at before.

        Returns:
            Candidates that were not, or none where nothing is measured.
        """
        if not self.selector.measures or self.m >= len(self.pool):
            return 0
        if self.sketch is None:
            return None
        return len(self.pool) - (int(torch.isin(self.pool, self.reference).sum()) if centred else 0)

    def look(self, model: Surrogate) -> tuple[MeanFeature | None, Tensor | None]:
        """Return the mean feature of the reference and its features in the sketch, as far as they are wanted."""
        if not model.transforms_[0] or self.sketch is None:
            return None, None
        base, sketch, X = model.base_kernel_, self.sketch, model.reference_
        assert isinstance(base, (EmpiricalNTK, SketchedNTK))
        if not isinstance(base, SketchedNTK) or not current().talking:
            return look_once(base, sketch, X)
        places = torch.arange(len(self.reference))
        features = current().rows(places, lambda part: sketch.features(batches.take(X, part)))
        return base.mean_of([(torch.full((len(places),), 1 / len(places), dtype=torch.float64), features)]), features

    def choose(self, model: Surrogate, seen: Tensor | None, draw: torch.Generator) -> Tensor:
        """Return the landmarks.

        Args:
            model: The model, whose kernel is known.
            seen: Features of the reference, ``(r, q)``, where it was looked at.
            draw: Decides.

        Returns:
            Places among the samples, ``(m,)``, sorted: those that the first process chose.
        """
        if self.m >= len(self.pool):
            return self.pool
        budget = Budget.of(model.memory_budget)
        raw = kept = batches.sample_bytes(model.stream_.plain(self.pool[:1]))
        kernel: Kernel = model.kernel_
        sketch = self.sketch

        def read(indices: Tensor) -> Batch:
            if sketch is None:
                return model.stream_.plain(indices)
            return current().rows(indices, lambda part: self._features(model, sketch, seen, part))

        if sketch is not None:
            kernel = model.transformed(Linear(memory_budget=budget), model.reference_ if seen is None else seen)
            kept = sketch.bytes_per_feature

        def choose(kernel: Kernel) -> Tensor:
            with open_pool(read, self.pool, budget, raw=raw, kept=kept) as X:
                return self.pool[select(X, self.m, kernel=kernel, method=self.selector, generator=draw)]

        # Sketched features are made by all processes already; what is left is little.
        return current().share(choose(kernel)) if sketch is not None else led(kernel, current(), choose)

    def _features(self, model: Surrogate, sketch: SketchedNTK, seen: Tensor | None, indices: Tensor) -> Tensor:
        """Return the features ``(b, q)`` of the samples ``indices`` ``(b,)``, made now unless they were seen."""
        if seen is None:
            return sketch.features(model.stream_.plain(indices))
        place = torch.searchsorted(self.reference, indices).clamp_max(len(self.reference) - 1)
        old = self.reference[place] == indices
        features = seen[place.to(seen.device)]
        if not bool(old.all()):
            new = ~old
            features[new.to(seen.device)] = sketch.features(model.stream_.plain(indices[new]))
        return features


def look_at_samples(model: Surrogate, phases: Phases, given: Tensor | None) -> None:
    """Set reference, kernel and landmarks of a model: all that is learned from samples without their views.

    Args:
        model: Its data are known.
        phases: Where the work is noted.
        given: The landmarks that the user named, or ``None`` to choose them.
    """
    draw = torch.Generator().manual_seed(model.seed)
    order = torch.randperm(model.n_samples_, generator=draw)
    reference, pool = (order[:size].sort().values for size in (model.reference, model.candidates))
    if isinstance(model.kernel, (EmpiricalNTK, SketchedNTK)):
        phases.encoder = model.kernel.tangent.encoder
    with phases.open(KERNEL), width_explained(model.kernel, model.encoding_):
        model.reference_ = held(model.stream_.plain, reference, model._budget)
        model.set_base(model.reference_, model.kernel_kind)
        candidates = None if given is not None else Candidates.of(model, model.landmarks, pool, reference)
        phases.encoder = model.encoder_
    if beside := model.require_start():
        require_room(model.objective_, model.stream_, model.m_, model._budget, beside=beside)
    centred, counted = model.transforms_[0], phases.encoder is not None
    with phases.open(REFERENCE, len(reference) if centred and counted else None):
        mean, seen = (None, None) if candidates is None else candidates.look(model)
        if centred and mean is None and isinstance(model.base_kernel_, EmpiricalNTK):
            mean = shared_mean(model.base_kernel_, current(), model.reference_)
        model.kernel_ = model.transformed(model.base_kernel_, model.reference_, mean)
    if candidates is None:
        assert given is not None
        model.landmarks_ = given
        return
    with phases.open(SELECTION, candidates.looks(centred) if counted else None):
        model.landmarks_ = candidates.choose(model, seen, draw)
