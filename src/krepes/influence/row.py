r"""How a sample moves ``s = <v, ∇L(Θ*; w)>`` where the loss needs the rows: autodiff in weights inside a batch.

A batch of ``b`` samples with weights ``w`` has the loss ``ℓ(Z, w)``, equal to ``b`` times the unweighted one at
``w = 1``. A weight counts how often a sample is present: for BYOL and for explicit triplets ``ℓ = Σ_i w_i ℓ_i``, for
SimCLR a sample is present ``w_i`` times as an anchor and as many times among everyone's negatives,

    ℓ(Z, w) = ½ Σ_i w_i ( -ℓ_i,pair(i) + log Σ_{j≠i} w_j exp ℓ_ij ),

over both views, inside the fixed batches of the loss. Then ``ds/dw_i = d/dε ∂ℓ/∂w_i (Z + ε K̄ v, w)``.
BYOL's targets and predictor stand still, as they do in the fit.
"""

from __future__ import annotations

from functools import singledispatch

import torch
from torch import Tensor

from krepes import _autodiff
from krepes.errors import InvalidInputError
from krepes.objectives.byol import PredictedDirection
from krepes.objectives.simclr import NTXent
from krepes.objectives.streaming import BatchLoss, unit_rows
from krepes.objectives.triplets import Triplets


def row_sensitivity(loss: BatchLoss, Kbar: Tensor, theta: Tensor, V: Tensor) -> Tensor:
    """Return ``ds/dw_i`` of the samples of a batch for every outcome.

    Args:
        loss: Of this batch.
        Kbar: Augmented rows, ``(p, b, q + 1)``.
        theta: ``Θ*``, ``(q + 1, h)``.
        V: Adjoints, ``(O, q + 1, h)``.

    Returns:
        ``(b, O)``.
    """
    ones = Kbar.new_ones(Kbar.shape[1])

    def by_weight(Z: Tensor) -> Tensor:
        return _autodiff.gradient(lambda w: weighted_value(loss, Z, w), ones)

    Z = Kbar @ theta
    return torch.stack([_autodiff.jvp(by_weight, Z, Kbar @ v)[1] for v in V], dim=1)


@singledispatch
def weighted_value(loss: BatchLoss, Z: Tensor, w: Tensor) -> Tensor:
    """Return ``ℓ(Z, w)``, a scalar.

    Args:
        loss: Of a batch.
        Z: Its embeddings, ``(p, b, h)``.
        w: Weights of its samples, ``(b,)``.

    Raises:
        InvalidInputError: If the loss says nothing about weights.
    """
    raise InvalidInputError(
        f"the influence of a sample on {type(loss).__name__} is not defined: nothing says how a sample's weight enters "
        f"it. Register how with `krepes.influence.row.weighted_value.register`."
    )


@weighted_value.register
def _(loss: PredictedDirection, Z: Tensor, w: Tensor) -> Tensor:
    U, _ = unit_rows(Z @ loss.W)
    return (w * (U - loss.T).square().sum((0, 2))).sum()


@weighted_value.register
def _(loss: NTXent, Z: Tensor, w: Tensor) -> Tensor:
    U, _ = unit_rows(Z.flatten(0, 1))
    w = w.repeat(2)
    logits = U @ U.T / loss.tau
    itself = torch.eye(len(U), dtype=torch.bool, device=U.device)
    others = (logits + w.log()).masked_fill(itself, -torch.inf)
    positives = logits.diagonal(len(U) // 2).repeat(2)
    return (w * (others.logsumexp(1) - positives)).sum() / 2


@weighted_value.register
def _(loss: Triplets, Z: Tensor, w: Tensor) -> Tensor:
    if loss.negative != 2:
        raise InvalidInputError(
            "the influence of a sample on triplets whose negatives are drawn inside a batch is not defined: it is then "
            "part of two triplets. Use a stream of three views (x, x+, x-)."
        )
    s = (Z[0] * Z[2]).sum(1)
    return (w * (s.square() - 2 * (Z[0] * Z[1]).sum(1))).sum()
