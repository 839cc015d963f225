"""Label-free model selection: criteria side by side, an alarm for collapsed encoders, and what each would pick.

Three criteria look at the kernel model (`krepes.audit.spectrum`), two at its encoder:

- RankMe of the encoder's centred embeddings of un-augmented samples: how many dimensions they fill.
- Retrieval: how often the embedding of one view of a sample is nearest to that of its other view, among the views of
  many samples. It asks for what pre-training wants: views together and samples apart.

An encoder that fell to a point can still fill its dimensions, with what is left of its numbers, so none of the criteria
is asked about one that the alarm has named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils import _pytree as pytree

from krepes._checks import require_finite
from krepes.audit.spectrum import rankme, spectrum_of
from krepes.batches import Batch
from krepes.encoders.frozen import FrozenEncoder
from krepes.errors import InvalidInputError
from krepes.model import Krepes
from krepes.views import ViewStream
from krepes.views.source import evenly_spaced

CRITERIA = {
    "entropy": "entropy of AᵀA",
    "entropy_kernel": "entropy of AᵀKA",
    "rankme": "RankMe of the kernel model",
    "encoder_rankme": "RankMe of the encoder",
    "retrieval": "retrieval of the other view",
}
"""Columns of the curve and what they are; larger is better for each. The paper's is the first."""
RECOMMENDED = "retrieval"
"""Chosen on one data set and confirmed on others by ``krepes reproduce spectral``."""
OF_ENCODER = ("encoder_rankme", "retrieval")
LEAST_SPREAD, LEAST_RANKME = 0.05, 3.0
"""Limits of the alarm: the deviation of the embeddings as a part of their size, and the dimensions that they fill."""
OFFSET, RESOLUTION = 5.0, 8 * torch.finfo(torch.float32).eps
"""A dimension is a mere offset if it hardly varies and is so many times the median size; what is left when offsets are
taken out must vary by more than the rounding of float32 numbers of the whole size."""
RANKED, RETRIEVED, DRAWS, CHUNK = 2000, 1000, 4, 64
"""Samples that RankMe and retrieval look at, at most; draws of views for retrieval; samples embedded at once."""


@dataclass(frozen=True)
class Selection:
    """The curve over a grid of values and its winner.

    Attributes:
        by: The criterion that chose.
        winner: The value with the largest criterion among encoders that did not collapse; ``None`` if there is none.
        winners: The winner of each criterion.
        curve: One row per value: ``value``, the columns of `CRITERIA` as far as they are known, ``spread`` and
            ``collapsed``, which says why an encoder is never picked.
    """

    by: str
    winner: Any
    winners: dict[str, Any]
    curve: pd.DataFrame


def view_retrieval(first: Tensor, second: Tensor) -> float:
    """Return how often the view of a sample finds its other view, by the cosine of centred embeddings.

    Args:
        first: Embeddings of one view of each sample, ``(n, d)``.
        second: Of the other view, ``(n, d)``.

    Returns:
        The share of views, of both kinds, that are nearer to the other view of their own sample than to that of any
        other sample; a tie is a miss.

    Example:
        >>> view_retrieval(torch.eye(4), torch.eye(4)[[0, 1, 3, 2]])
        0.5
    """
    require_finite(first, "first")
    require_finite(second, "second")
    both = torch.stack([first, second]).double()
    U, V = F.normalize(both - both.mean(1, keepdim=True), dim=2)
    C = U @ V.T
    own = C.diagonal().clone()
    C.fill_diagonal_(-torch.inf)
    return float(torch.stack([own > C.amax(1), own > C.amax(0)]).double().mean())


def encoder_criteria(encoder: FrozenEncoder, stream: ViewStream) -> dict[str, Any]:
    """Return what can be said of an encoder without labels.

    Args:
        encoder: Frozen.
        stream: Views of its training samples. Encoders are comparable if they are asked about the same views.

    Returns:
        ``encoder_rankme`` of centred embeddings of un-augmented samples; ``retrieval`` of one view by the other, not a
        number if there is one view; ``spread``, see `spread_of`; and ``collapsed``, what the alarm says.
    """
    Z = _embedded(encoder, stream, RANKED)[0]
    spread, filled, retrieval = spread_of(Z), _centred_rankme(Z), float("nan")
    if stream.p > 1:
        drawn = [stream.with_seed(stream.seed + draw) for draw in range(DRAWS)]
        retrieval = sum(view_retrieval(*_embedded(encoder, other, RETRIEVED, views=2)) for other in drawn) / DRAWS
    found = {"encoder_rankme": filled, "retrieval": retrieval, "spread": spread}
    return {**found, "collapsed": alarm(spread, filled, Z.shape[1])}


def spread_of(Z: Tensor) -> float:
    r"""Return the mean deviation of embeddings as a part of their size, large constants in a few dimensions left out.

        mean_j std_j / sqrt(mean_j s_j²),      s_j² = mean_i Z_ij²,      j over all dimensions but offsets

    A bias moves all embeddings alike and takes nothing from them. In all dimensions it looks like a collapse to that
    point, so a dimension counts as an offset only beside others: far above the median size, and hardly varying itself.
    Fewer than half of the dimensions can be.

    Args:
        Z: Embeddings, ``(n, d)``.

    Returns:
        The spread; zero for embeddings that are all zero.

    Example:
        >>> Z = torch.randn(100, 8, generator=torch.Generator().manual_seed(0))
        >>> moved = Z.clone()
        >>> moved[:, 3] += 1000
        >>> spread_of(Z) > 0.9, spread_of(moved) > 0.9, spread_of(Z + 1000) < 0.01
        (True, True, True)
    """
    Z = Z.double()
    deviation, size = Z.std(0), Z.square().mean(0).sqrt()
    whole = float(size.square().mean().sqrt())
    if whole == 0:
        return 0.0
    kept = (size <= OFFSET * size[size > 0].median()) | (deviation >= LEAST_SPREAD * size)
    rest = float(size[kept].square().mean().sqrt())
    if float(deviation[kept].mean()) <= RESOLUTION * whole:
        return float(deviation.mean()) / whole
    return float(deviation[kept].mean()) / rest


def _centred_rankme(Z: Tensor) -> float:
    """Return RankMe of centred embeddings; of embeddings that are all alike, one: they fill a point."""
    centred = Z - Z.mean(0)
    return rankme(centred) if bool(centred.any()) else 1.0


def _embedded(encoder: FrozenEncoder, stream: ViewStream, most: int, views: int = 0) -> list[Tensor]:
    """Return embeddings ``(n, d)`` of at most so many samples, un-augmented or of each of their first views."""
    pieces = []
    for rows in evenly_spaced(stream.n, most).split(CHUNK):
        batches = [stream.plain(rows)] if views == 0 else _each(stream.views_of(rows), views)
        pieces.append([encoder.encode(batch) for batch in batches])
    return [torch.cat(parts) for parts in zip(*pieces, strict=True)]


def _each(batch: Batch, views: int) -> list[Batch]:
    return [pytree.tree_map(lambda leaf, u=u: leaf[u], batch) for u in range(views)]


def alarm(spread: float, filled: float, d: int) -> str:
    """Return why an encoder counts as collapsed, or the empty text.

    Args:
        spread: Mean deviation of its embeddings as a part of their size, by `spread_of`.
        filled: Dimensions that they fill, by RankMe.
        d: Dimensions that they have; of few, fewer need to be filled.

    Returns:
        A few words with the figure and its limit.

    Example:
        >>> alarm(0.01, 20.0, 64)
        'spread 0.01, below 0.05'
    """
    least = min(LEAST_RANKME, 1 + (d - 1) / 4)
    if spread < LEAST_SPREAD:
        return f"spread {spread:.2g}, below {LEAST_SPREAD:g}"
    return f"{filled:.2g} of {d} dimensions, below {least:g}" if filled < least else ""


def choose(curve: pd.DataFrame, by: str) -> Selection:
    """Return what every criterion picks; collapsed encoders are never picked.

    Args:
        curve: One row per value, as in `Selection`.
        by: The criterion that chooses.

    Returns:
        The selection.

    Raises:
        InvalidInputError: If the criterion is unknown, or was measured for none of the encoders that are alive.
    """
    require_criterion(by)
    alive = curve if "collapsed" not in curve else curve[curve["collapsed"] == ""]
    known = [name for name in CRITERIA if name in curve]
    winners = {name: _largest(alive, name) for name in known}
    if len(alive) and winners.get(by) is None:
        raise InvalidInputError(
            f"by={by!r} is not known of these models, which have {', '.join(_measured(curve))}. Choose one of them."
        )
    return Selection(by, winners.get(by), winners, curve)


def require_criterion(by: str, asked_by: str = "by") -> None:
    """Refuse a criterion that there is not, by the argument or flag that named it."""
    if by not in CRITERIA:
        raise InvalidInputError(f"{asked_by}={by!r} must be one of {', '.join(CRITERIA)}.")


def _largest(alive: pd.DataFrame, name: str) -> Any:
    found = alive[alive[name].notna()]
    return None if found.empty else found["value"].tolist()[int(found[name].to_numpy().argmax())]


def _measured(curve: pd.DataFrame) -> list[str]:
    return [name for name in CRITERIA if name in curve and curve[name].notna().any()]


def select_by_spectrum(models: Mapping[Any, Krepes], X: Batch | None = None, *, by: str = "entropy") -> Selection:
    """Choose among fitted models without labels.

    Args:
        models: A fitted model for each value of the hyper-parameter, in the order of the curve.
        X: Samples, ``(t, ...)``, whose embeddings RankMe judges; by default all training views, from their moments.
        by: The criterion that chooses, one of `CRITERIA`; the paper's is ``"entropy"``.

    Returns:
        The winner and the curve. Models of an encoder have the criteria of the encoder too.

    Raises:
        InvalidInputError: If there is no model, or ``by`` is unknown.
    """
    require_criterion(by)
    if not models:
        raise InvalidInputError("there must be at least one model, got 0.")
    rows = []
    for value, model in models.items():
        row: dict[str, Any] = {"value": value, **spectrum_of(model, X), "collapsed": ""}
        if model.encoder_ is not None and hasattr(model, "stream_"):
            row |= encoder_criteria(model.encoder_, model.stream_)
        rows.append(row)
    return choose(pd.DataFrame(rows), by)
