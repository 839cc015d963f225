r"""Feature Alignment Gap: which original columns do a sample and the landmarks that attract it have in common?

    Ψ_S(x_t; ξ) = Σ_{l in S} w_tl v_ξ(x_t, z_l),         w_tl = |IS_tl|
    AG_ξ        = mean over t of  Ψ_top(x_t; ξ) - mean over random sets of Ψ_rand(x_t; ξ)

``raw`` is the paper's; it is positive almost by construction, for the top landmarks also have the larger weights.
``normalised`` lets the weights of each set sum to one and compares weighted mean agreements. Either is judged against
the same gap of shuffled columns, see `krepes.audit.shuffles`.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
import torch
from torch import Tensor

from krepes._checks import require_finite, require_range
from krepes.attribution import Attribution, Top, attribute_stream
from krepes.audit.features import FeatureSpace, agreement
from krepes.audit.intervals import RunningMean
from krepes.audit.permutation import holm
from krepes.audit.shuffles import MOST_SAMPLES, ShuffledGaps, enough_draws
from krepes.batches import Batch
from krepes.budget import DEFAULT_BUDGET, Budget, MemoryBudget
from krepes.errors import InvalidInputError
from krepes.model import Krepes
from krepes.views.source import as_source

VARIANTS = ("raw", "normalised")
NULL = ("null", "null_low", "null_high", "p", "p_corrected")
TOGETHER = ("low_corrected", "high_corrected")
COLUMNS = ("variant", "column", "estimate", "low", "high", *TOGETHER, *NULL, "n", "note")


@dataclass(frozen=True)
class Alignment:
    """The Alignment Gap of every column.

    Attributes:
        frame: A row per variant and column, see `COLUMNS`. ``low`` and ``high`` are the 95 % interval over samples,
            ``low_corrected`` and ``high_corrected`` that in which the gaps of all columns lie together;
            ``null``, ``null_low`` and ``null_high`` mean, 5 % and 95 % quantile over shuffles of the column, ``p`` the
            share of shuffles that reach the gap and ``p_corrected`` the same by Holm over columns. Where a column has
            no gap, the estimate is NaN and the note says why.
        top: The top landmarks of every test sample, from the same pass; ``None`` if scores were given.
    """

    frame: pd.DataFrame
    top: Top | None = None

    def ranked(self, variant: str = "normalised") -> pd.DataFrame:
        """Return the rows of a variant, largest gap first, undefined columns last."""
        chosen = self.frame[self.frame["variant"] == variant]
        return chosen.sort_values("estimate", ascending=False, kind="stable").reset_index(drop=True)


class AlignmentSum:
    """Adds up the gaps of test samples that arrive in pieces; a visitor of `krepes.attribution.attribute_stream`.

    Random sets are drawn afresh for every sample, in the order of samples: the result does not depend on the pieces.
    """

    def __init__(
        self,
        x: Tensor,
        z: Tensor,
        names: list[str],
        *,
        k: int = 10,
        sets: int = 20,
        draws: int | None = None,
        seed: int = 0,
        memory_budget: MemoryBudget = DEFAULT_BUDGET,
    ) -> None:
        """Prepare the sums.

        Args:
            x: Encoded test rows, ``(t, c)``; see `FeatureSpace.encode`.
            z: Encoded landmark rows, ``(m, c)``.
            names: Names of the ``c`` columns.
            k: Landmarks in a set.
            sets: Random sets a sample.
            draws: Shuffles of every column; by default enough for its p to be corrected for ``c`` columns, 0 for none.
            seed: Seed of the random sets and of the shuffles.
            memory_budget: An eighth of it is what the agreements of some samples may take.
        """
        require_range(k, "k", low=1, high=len(z))
        require_range(sets, "sets", low=20)
        self.x, self.z, self.names, self.k, self.sets = x, z, names, k, sets
        self.budget = Budget.of(memory_budget)
        self._generator = torch.Generator().manual_seed(seed)
        self._gaps = {variant: RunningMean() for variant in VARIANTS}
        draws = enough_draws(len(names)) if draws is None else draws
        # Six copies while the sums are made; every ranking that is compared has some of its own.
        held = self.budget.rows(6 * 8 * len(VARIANTS) * len(z), what="a sample's weights", share=1 / 16)
        self._shuffled = ShuffledGaps(z, draws=draws, seed=seed, held=held) if draws else None

    def __call__(self, rows: slice, attribution: Attribution) -> None:
        """Add the samples ``rows``."""
        self.add(attribution.scores, self.x[rows])

    def add(self, scores: Tensor, x: Tensor) -> None:
        """Add samples.

        Args:
            scores: Signed influence scores, ``(b, m)``.
            x: Their encoded rows, ``(b, c)``.

        Raises:
            InvalidInputError: If scores, rows and landmarks do not fit.
        """
        if scores.shape != (len(x), len(self.z)):
            raise InvalidInputError(
                f"scores {tuple(scores.shape)} do not fit {len(x)} test rows and {len(self.z)} landmark rows."
            )
        require_finite(scores, "scores")
        # Agreements in four versions while they are made and weighed, float64.
        each = 4 * 8 * (1 + self.sets) * self.k * x.shape[1]
        size = self.budget.rows(each, what=f"a sample's agreements in {x.shape[1]} columns", share=1 / 8)
        for start in range(0, len(x), size):
            self._add(scores[start : start + size].cpu(), x[start : start + size])

    def _add(self, scores: Tensor, x: Tensor) -> None:
        (b, m), found = scores.shape, []
        top = scores.topk(self.k, dim=1).indices[:, None]  # (b, 1, k)
        members = torch.cat([top, draw_sets(b, self.sets, self.k, m, generator=self._generator)], dim=1)
        weights = scores.double().gather(1, members.flatten(1)).abs().reshape(members.shape)  # (b, 1 + sets, k)
        v = agreement(x[:, None, None], self.z[members])  # (b, 1 + sets, k, c)
        for variant, total in self._gaps.items():
            w = weights if variant == "raw" else _normalised(weights)
            psi = (w[..., None, :] @ v).squeeze(-2)  # (b, 1 + sets, c)
            total.add(psi[:, 0] - psi[:, 1:].mean(1))
            signed = torch.cat([w[:, :1], -w[:, 1:] / self.sets], dim=1)
            found.append(signed.new_zeros(b, m).scatter_add_(1, members.flatten(1), signed.flatten(1)))
        if self._shuffled is not None:
            # Every stride-th sample of the whole test set, wherever this piece of it begins.
            stride = -(-len(self.x) // MOST_SAMPLES)
            chosen = slice(-(self._gaps["raw"].n - b) % stride, None, stride)
            self._shuffled.add(torch.stack([W[chosen] for W in found], 1), x[chosen])

    def frame(self, space: FeatureSpace) -> pd.DataFrame:
        """Return the gaps with their intervals and nulls, undefined columns with their reason."""
        parts = []
        for i, (variant, total) in enumerate(self._gaps.items()):
            interval, wide = total.interval(), total.interval(max(1, len(self.names)))
            values = {"estimate": interval.estimate, "low": interval.low, "high": interval.high}
            values |= dict(zip(TOGETHER, (wide.low, wide.high), strict=True)) | self._null(i)
            part = pd.DataFrame(values, index=self.names).reindex(list(space.names))
            part["note"] = [space.undefined.get(name, "") for name in space.names]
            parts.append(part.rename_axis("column").reset_index().assign(variant=variant, n=total.n))
        return pd.concat(parts, ignore_index=True)[list(COLUMNS)]

    def _null(self, variant: int) -> dict[str, Tensor]:
        if self._shuffled is None:
            return dict.fromkeys(NULL, torch.full((len(self.names),), torch.nan))
        found = self._shuffled.test(variant)
        return dict(zip(NULL, (found.null, found.low, found.high, found.p, holm(found.p)), strict=True))


def alignment_of(
    scores: Tensor,
    rows: pd.DataFrame,
    landmark_rows: pd.DataFrame,
    space: FeatureSpace,
    *,
    k: int = 10,
    sets: int = 20,
    draws: int | None = None,
    seed: int = 0,
) -> Alignment:
    """Return the Alignment Gap of any score matrix.

    Args:
        scores: ``(t, m)``; the ``k`` largest make the top set, their magnitudes are the weights.
        rows: Original columns of the test samples, ``t`` rows.
        landmark_rows: Original columns of the landmarks, ``m`` rows.
        space: Kinds and ranges of the columns, from training data.
        k: Landmarks in a set.
        sets: Random sets a sample, at least 20.
        draws: Shuffles of every column; by default enough for its p to be corrected for all columns, 0 for none.
        seed: Seed of the random sets and of the shuffles.

    Returns:
        The gaps.
    """
    total = AlignmentSum(
        space.encode(rows), space.encode(landmark_rows), space.defined, k=k, sets=sets, draws=draws, seed=seed
    )
    total.add(scores, total.x)
    return Alignment(total.frame(space))


def alignment_gap(
    model: Krepes,
    X: Batch,
    rows: pd.DataFrame,
    landmark_rows: pd.DataFrame,
    space: FeatureSpace,
    *,
    k: int = 10,
    sets: int = 20,
    draws: int | None = None,
    seed: int = 0,
    memory_budget: MemoryBudget | None = None,
) -> Alignment:
    """Return the Alignment Gap of a model and the top landmarks of every test sample, in one streamed pass.

    Args:
        model: A fitted model.
        X: Un-augmented test samples, ``(t, ...)``.
        rows: Their original columns, ``t`` rows.
        landmark_rows: Original columns of ``model.landmark_ids_``, in that order.
        space: Kinds and ranges of the columns, from training data.
        k: Landmarks in a set, and in the top list.
        sets: Random sets a sample, at least 20.
        draws: Shuffles of every column; by default enough for its p to be corrected for all columns, 0 for none.
        seed: Seed of the random sets and of the shuffles.
        memory_budget: For a piece of the pass; by default the model's.

    Returns:
        The gaps and the top landmarks.

    Raises:
        InvalidInputError: If there is not one row for each sample and each landmark.
    """
    t = as_source(X)[0].n
    if len(rows) != t:
        raise InvalidInputError(f"{len(rows)} rows were given for {t} test samples: there must be one for each.")
    if len(landmark_rows) != len(model.landmark_ids_):
        raise InvalidInputError(
            f"{len(landmark_rows)} landmark rows were given for {len(model.landmark_ids_)} landmarks: pass the rows "
            f"of model.landmark_ids_, in that order."
        )
    budget = Budget.of(model.memory_budget if memory_budget is None else memory_budget)
    total = AlignmentSum(
        space.encode(rows),
        space.encode(landmark_rows),
        space.defined,
        k=k,
        sets=sets,
        draws=draws,
        seed=seed,
        memory_budget=budget,
    )
    top = attribute_stream(model, X, k=k, visitors=[total], memory_budget=budget)
    return Alignment(total.frame(space), top)


def draw_sets(b: int, sets: int, k: int, m: int, *, generator: torch.Generator) -> Tensor:
    """Draw sets of distinct landmarks by Floyd's algorithm, which needs ``k`` numbers a set and not ``m``.

    Args:
        b: Samples.
        sets: Sets a sample.
        k: Members of a set, at most ``m``.
        m: Landmarks.
        generator: Consumed in the order of samples, so that pieces of a pass continue one another.

    Returns:
        Indices, ``(b, sets, k)``; every subset of size ``k`` is equally likely.
    """
    uniform = torch.rand(b, sets, k, generator=generator, dtype=torch.float64)
    chosen = torch.full((b, sets, k), -1)
    for j in range(k):
        largest = m - k + j
        draw = (uniform[..., j] * (largest + 1)).long()
        taken = (chosen[..., :j] == draw[..., None]).any(-1)
        chosen[..., j] = torch.where(taken, largest, draw)
    return chosen


def _normalised(weights: Tensor) -> Tensor:
    """Return weights that sum to one over the last axis; equal ones for a set without any weight."""
    total = weights.sum(-1, keepdim=True)
    return torch.where(total > 0, weights / total, torch.full_like(weights, 1 / weights.shape[-1]))
