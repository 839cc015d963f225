r"""Scores of training rows, and how well their sums predict what retraining does: the linear datamodelling score.

A score ``s_ij`` of row ``i`` for outcome ``j`` predicts the outcome of a half ``S`` by ``Σ_{i in S} s_ij``; its LDS is
the Spearman correlation of prediction and retrained outcome over halves, averaged over outcomes (Park et al. 2023).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor, nn

from krepes import influence as inf
from krepes.attribution import attribute, kernel_similarity, latent_cosine
from krepes.encoders.call import call
from krepes.encoders.frozen import FrozenEncoder
from krepes.model import Krepes
from krepes.reproduce.retraining import MARGIN, PAIR, Study

Scores = dict[str, Tensor]
"""By name of the outcome, ``(n, t)``, float64."""

OURS = "counterfactual influence"
H, DRAWS = 64, 32
PROJECTED, RIDGE = 512, 0.3


def spearman(A: Tensor, B: Tensor) -> Tensor:
    """Return the rank correlation of each column of ``A`` with that of ``B``, ``(halves, t)`` each, as ``(t,)``."""
    ranks = (torch.from_numpy(rankdata(X.numpy(), axis=0)) for X in (A, B))
    a, b = (r - r.mean(0) for r in ranks)
    return (a * b).sum(0) / (a.square().sum(0) * b.square().sum(0)).sqrt().clamp(min=1e-12)


def lds(scores: Tensor, member: Tensor, outcomes: Tensor) -> float:
    """Return the linear datamodelling score.

    Args:
        scores: ``(n, t)``.
        member: Which rows each half holds, ``(halves, n)``.
        outcomes: ``(halves, retrainings, t)``; the mean over retrainings is predicted.

    Returns:
        Between -1 and 1.
    """
    return float(spearman(member @ scores.to(member), outcomes.mean(1)).mean())


def noise_ceiling(outcomes: Tensor) -> float:
    r"""Return the LDS that a perfect prediction would have, from the agreement of retrainings of the same half.

    With :math:`\bar r` the mean correlation of two retrainings, the mean of k has the reliability
    :math:`k \bar r / (1 + (k - 1) \bar r)` (Spearman and Brown), and its root bounds a correlation with it.

    Args:
        outcomes: ``(halves, k, t)``, with k at least two.

    Returns:
        Between 0 and 1; zero where retrainings do not agree at all.
    """
    k = outcomes.shape[1]
    pairs = torch.combinations(torch.arange(k)).tolist()
    r = float(np.mean([float(spearman(outcomes[:, a], outcomes[:, b]).mean()) for a, b in pairs]))
    return float(np.sqrt(max(0.0, k * r / (1 + (k - 1) * r))))


def fit(study: Study, encoder: nn.Module) -> Krepes:
    """Return a model of an encoder, fitted on all copies of the rows; every training row is a landmark."""
    model = Krepes(encoder, h=H, landmarks=range(len(study.X)), seed=study.seed, progress=False)
    return model.fit(study.copies(DRAWS))


def explain(study: Study, encoder: nn.Module) -> dict[str, Scores]:
    """Return the scores of every method that explains one encoder trained on all rows, by name.

    Args:
        study: The samples.
        encoder: What is explained.

    Returns:
        Counterfactual influence and its baselines.
    """
    model = fit(study, encoder)
    Z, Z_test, Z_reference = (FrozenEncoder(encoder).encode(X) for X in (study.X, study.test, study.reference))
    attribution = attribute(model, study.test)
    return {
        OURS: counterfactual(study, model),
        "projected gradients": projected_gradients(study, encoder),
        "influence score IS": _of_samples(attribution.scores),
        "directional": _of_samples(attribution.directional),
        "kernel similarity": _of_samples(kernel_similarity(attribution)),
        "latent cosine": _of_samples(latent_cosine(Z_test, Z, mean=Z_reference.mean(0))),
    }


def counterfactual(study: Study, model: Krepes) -> Scores:
    """Return the influence of every row, the sum over its copies, on both outcomes of the surrogate."""
    reference = inf.rows(model, study.reference)
    centre = reference.Kbar.mean(0)
    K_test, K_reference = inf.rows(model, study.test).Kbar - centre, reference.Kbar - centre
    one = [inf.AugmentedRows(k[None]) for k in K_test]
    groups = {
        c: tuple(inf.AugmentedRows(K_reference[chosen]) for chosen in (study.y_reference == c, study.y_reference != c))
        for c in study.y_test.unique().tolist()
    }
    t = len(one) // 2
    margins = [inf.pull(model, one[i], *groups[c]) for i, c in enumerate(study.y_test[:t].tolist())]
    pairs = [inf.similarity(model, one[i], one[t + i]) for i in range(t)]
    found = torch.from_numpy(inf.influence_of(model, margins + pairs, progress=False).values)
    of_rows = found.unflatten(0, (DRAWS, len(study.X))).sum(0)
    return dict(zip((MARGIN, PAIR), of_rows.split(t, dim=1), strict=True))


def _of_samples(similarity: Tensor) -> Scores:
    """Return scores from similarities ``(2t, n)`` of test samples and rows: a pair has the product of its two."""
    first, second = similarity.T.chunk(2, dim=1)
    return {MARGIN: first, PAIR: first * second}


def projected_gradients(study: Study, encoder: nn.Module) -> Scores:
    r"""Return TRAK-style scores (Park et al. 2023): ``-φ_oᵀ (ΦᵀΦ + ridge)⁻¹ φ_i`` with randomly projected gradients.

    ``φ_o`` is the gradient of the outcome itself, through test and reference samples. ``φ_i`` is that of the row's
    contribution to Barlow Twins on the embedding, averaged over the same draws of the views that our score has.

    Args:
        study: The samples.
        encoder: Trained on all rows.

    Returns:
        The scores.
    """
    n, stream = len(study.X), study.copies(DRAWS)
    views = stream.views_of(torch.arange(stream.n))
    assert isinstance(views, Tensor)
    with torch.no_grad():
        loss = RowLoss.of(call(encoder, views[0]), call(encoder, views[1]))
    parameters = list(encoder.parameters())
    size = sum(parameter.numel() for parameter in parameters)
    J = torch.randn(size, PROJECTED, generator=torch.Generator().manual_seed(study.seed)) / PROJECTED**0.5
    rows = (loss(call(encoder, views[0, i::n]), call(encoder, views[1, i::n])).mean() for i in range(n))
    Phi = _projected(rows, parameters, J)
    return {name: trak(Phi, _projected(values, parameters, J)) for name, values in study.outcomes(encoder).items()}


@dataclass(frozen=True)
class RowLoss:
    """A row's contribution to Barlow Twins where means, deviations and ``G = ∂L/∂C`` ``(d, d)`` are held fixed.

    The gradient of the mean contribution is that of the loss, but for its part through means and deviations.
    """

    means: tuple[Tensor, Tensor]
    scales: tuple[Tensor, Tensor]
    G: Tensor

    @classmethod
    def of(cls, Y_a: Tensor, Y_b: Tensor, *, lam: float = 0.0051) -> RowLoss:
        """Return the contribution around embeddings ``(n, d)`` of two views of all rows."""
        means, scales = (Y_a.mean(0), Y_b.mean(0)), (Y_a.std(0, correction=0), Y_b.std(0, correction=0))
        C = ((Y_a - means[0]) / scales[0]).T @ ((Y_b - means[1]) / scales[1]) / len(Y_a)
        I = torch.eye(len(C)).to(C)
        return cls(means, scales, 2 * (lam + (1 - lam) * I) * (C - I))

    def __call__(self, Y_a: Tensor, Y_b: Tensor) -> Tensor:
        """Return ``z_aᵀ G z_b`` of standardised embeddings ``(b, d)``, ``(b,)``."""
        Z_a, Z_b = ((Y - m) / s for Y, m, s in zip((Y_a, Y_b), self.means, self.scales, strict=True))
        return (Z_a @ self.G * Z_b).sum(1)


def trak(Phi: Tensor, Q: Tensor) -> Tensor:
    """Return ``-Φ (ΦᵀΦ + ridge)⁻¹ Qᵀ``, ``(n, t)``, for features of rows ``(n, k)`` and of outcomes ``(t, k)``."""
    S = Phi.T @ Phi
    S.diagonal().add_(RIDGE * S.diagonal().mean())
    return -Phi @ torch.linalg.solve(S, Q.T)


def _projected(values: Iterable[Tensor], parameters: list[nn.Parameter], J: Tensor) -> Tensor:
    """Return the gradient of each of ``v`` scalars times ``J`` ``(P, k)``, as ``(v, k)``, float64."""
    gradients = (torch.autograd.grad(value, parameters, retain_graph=True) for value in values)
    flat = (torch.cat([part.flatten() for part in gradient]) for gradient in gradients)
    return torch.cat([torch.stack(few) @ J for few in iter(lambda: list(islice(flat, 64)), [])]).double()
