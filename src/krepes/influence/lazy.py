r"""Lazy replay: gradient steps of the encoder linearised at itself, in the span of the landmarks.

    f(x) = e(x) + Aᵀ k_x,      A ← A - η R Rᵀ dL/dA,      R Rᵀ = pseudo-inverse of K_mm,      A = 0 at the start.

With ``φ_x = Rᵀ k_x`` and ``A = R B`` this is plain gradient descent in ``B``. A loss of second moments closes over
those of the rows ``x̄ = [φ_x ; e(x) ; 1]`` with coefficients ``Θ = [B ; I ; 0]``: one pass over any n, ``T`` steps whose
cost does not depend on n, carried back to ``G = ∂o/∂M`` and streamed as ``x̄_iᵀ G x̄_i``. The kernel is raw: centring
and cosine belong to similarities, not to a linearisation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from torch import Tensor

from krepes.encoders.losses import LOSSES, Loss, cosine_distance, weighted
from krepes.encoders.pretrain import BYOL
from krepes.encoders.training import mix
from krepes.engine.moments import Moments
from krepes.engine.residual import NEAR, moved
from krepes.errors import InvalidInputError
from krepes.influence.linearised import Linearised, coefficients
from krepes.influence.reverse import State
from krepes.influence.stepsize import RISE
from krepes.objectives import BarlowTwins, MomentObjective, SpectralContrastive, VICReg
from krepes.processes import current
from krepes.views import ViewStream

LazyLoss = Callable[[Tensor, Tensor, Tensor], Tensor]
LAZY: dict[str, MomentObjective] = {
    "barlow_twins": BarlowTwins(eps=1e-5),
    "spectral": SpectralContrastive(),
    "vicreg": VICReg(inv_reduction="nh", var_halved=True),
}
"""The training losses of `krepes.encoders.losses` that are functions of second moments."""


@dataclass(frozen=True)
class LazySteps:
    """``T`` steps of ``B`` on the moments, which take the place of row weights: ``w`` is ``M``, flat.

    Attributes:
        objective: A loss of second moments.
        moments: Of the rows.
        d: Embedding dimension.
        eta: Step size.
        T: How many.
    """

    objective: MomentObjective
    moments: Moments
    d: int
    eta: float
    T: int

    @property
    def n(self) -> int:
        """Numbers in the moments."""
        return self.moments.M.numel()

    def start(self) -> State:
        """Return ``B = 0``, ``(r, d)``."""
        return {"B": torch.zeros(self.moments.q - self.d, self.d, dtype=torch.float64)}

    def loss_at(self, state: State) -> float:
        """Return the loss at a state."""
        return float(self.objective.value(self.moments, coefficients(state["B"])))

    def moved(self, state: State) -> float:
        """Return the size of ``Bᵀφ`` as a part of that of ``e``, both centred, root mean squares."""
        return moved(self.moments, state["B"])

    def __call__(self, t: int, state: State, w: Tensor, *, graph: bool = False) -> State:
        """Return ``B`` after a step with the moments ``w``, flat."""
        seen = replace(self.moments, M=w.reshape(self.moments.M.shape))
        with torch.set_grad_enabled(graph):
            g = self.objective.gradient(seen, coefficients(state["B"]))
            return {"B": state["B"] - self.eta * g[: len(state["B"])]}


@dataclass(frozen=True)
class LazyRowSteps:
    """``T`` steps of ``B`` on batches of rows, for a loss that no moments can hold; ``w`` are row weights.

    Attributes:
        loss: ``(Z, Z_0, w)``, as `lazy_loss` makes it.
        batches: Samples ``(b,)`` and rows ``(2, b, r + d + 1)`` of each step.
        d: Embedding dimension.
        eta: Step size.
        n: Samples.
    """

    loss: LazyLoss
    batches: tuple[tuple[Tensor, Tensor], ...] = field(repr=False)
    d: int
    eta: float
    n: int

    @property
    def T(self) -> int:
        """Number of steps."""
        return len(self.batches)

    def start(self) -> State:
        """Return ``B = 0``, ``(r, d)``."""
        width = self.batches[0][1].shape[2]
        return {"B": torch.zeros(width - self.d - 1, self.d, dtype=torch.float64)}

    def loss_at(self, state: State) -> float:
        """Return the loss of the first batch at a state."""
        return float(self.value(0, state["B"], torch.ones(self.n, dtype=torch.float64)))

    def moved(self, state: State) -> float:
        """Return the size of ``Bᵀφ`` as a part of that of ``e``, both centred, root mean squares over the batch."""
        rows = self.batches[0][1][0]
        rows, r = rows - rows.mean(0), len(state["B"])
        return float((rows[:, :r] @ state["B"]).norm() / rows[:, r:].norm())

    def value(self, t: int, B: Tensor, w: Tensor) -> Tensor:
        """Return the loss of a batch."""
        chosen, rows = self.batches[t]
        return self.loss(rows @ coefficients(B), rows @ coefficients(torch.zeros_like(B)), w[chosen])

    def __call__(self, t: int, state: State, w: Tensor, *, graph: bool = False) -> State:
        """Return ``B`` after step ``t`` with row weights ``w`` ``(n,)``."""
        with torch.enable_grad():
            B = state["B"] if graph else state["B"].detach().requires_grad_()
            (g,) = torch.autograd.grad(self.value(t, B, w), B, create_graph=graph)
        return {"B": state["B"] - self.eta * g}


S = TypeVar("S", LazySteps, LazyRowSteps)


def falling_eta(steps: S, *, smallest: float = 1e-6, doublings: int = 40) -> tuple[S, list[float]]:
    """Return the steps with the largest ``η`` at which the loss falls at every one and the embeddings stay near.

    Sizes are doubled from below, until the loss rises once or the embeddings move by more than `NEAR` of their size:
    a scale-free loss falls again for steps that leave the encoder far behind. On batches of rows the loss of the first
    may rise by a fiftieth in a step, for the others have other rows and views; at the end it is not above the start.

    Args:
        steps: Of any step size.
        smallest: Where to begin, as a part of what would move the embeddings by their own size in the first step.
        doublings: Where to end.

    Returns:
        The steps, and the loss before and after each.

    Raises:
        InvalidInputError: If the loss falls not even at the smallest.
    """
    eta = smallest / max(steps.moved(_stepped(replace(steps, eta=1.0), 1)[0]), 1e-30)
    best: tuple[S, list[float]] | None = None
    for _ in range(doublings):
        trial = replace(steps, eta=eta)
        last, losses = _stepped(trial, steps.T)
        if not _falls(losses, RISE - 1 if isinstance(steps, LazyRowSteps) else 0.0) or not steps.moved(last) <= NEAR:
            break
        best, eta = (trial, losses), 2 * eta
    if best is None:
        raise InvalidInputError(
            f"the linearised loss does not fall, even at a step size of {eta:.3g}: the encoder does not fit it. Pass "
            f"the loss the encoder was trained with."
        )
    return best


def _falls(losses: list[float], most: float) -> bool:
    """Tell whether losses end below their start and none rises by more than a part ``most`` of the one before it."""
    steps = zip(losses, losses[1:], strict=False)
    return losses[-1] < losses[0] and all(after < before + most * abs(before) for before, after in steps)


def _stepped(steps: LazySteps | LazyRowSteps, count: int) -> tuple[State, list[float]]:
    """Return the state after ``count`` steps, and the loss before the first and after each: of rows, on one batch."""
    state = steps.start()
    w = steps.moments.M.reshape(-1) if isinstance(steps, LazySteps) else torch.ones(steps.n, dtype=torch.float64)
    losses = [steps.loss_at(state)]
    for t in range(count):
        state = steps(t, state, w)
        losses.append(steps.loss_at(state))
    return state, losses


def lazy_batches(
    linearised: Linearised, stream: ViewStream, steps: int, *, size: int = 256, seed: int = 0
) -> tuple[tuple[Tensor, Tensor], ...]:
    """Return samples ``(b,)`` and rows ``(2, b, r + d + 1)`` of each step: all samples, or ``size`` drawn ones.

    Of several processes each makes the rows of some samples.
    """
    found = []
    for t in range(steps):
        draw = torch.Generator().manual_seed(mix(seed, 2, t))
        chosen = torch.randperm(stream.n, generator=draw)[:size].sort().values
        views = stream.with_seed(mix(seed, 3, t))
        found.append((chosen, _rows_together(linearised, views, chosen)))
    return tuple(found)


def _rows_together(linearised: Linearised, views: ViewStream, chosen: Tensor) -> Tensor:
    """Return rows ``(2, b, r + d + 1)`` of the samples ``chosen`` ``(b,)``, each process making some."""
    rows = current().rows(chosen, lambda part: linearised.pair(views.views_of(part)).transpose(0, 1))
    return rows.transpose(0, 1).contiguous()


def lazy_loss(loss: str | Loss) -> LazyLoss:
    """Return a loss of two embeddings, row weights and the embeddings before the first step.

    Args:
        loss: A name, or a function ``(Z_a, Z_b, w)``. BYOL's target is the encoder as it is.

    Returns:
        ``(Z, Z_0, w) -> scalar`` for embeddings ``(2, b, d)``.

    Raises:
        InvalidInputError: If the name is unknown.
    """
    if loss == BYOL:
        return lambda Z, Z_0, w: cosine_distance(Z[0], Z_0[1], w) + cosine_distance(Z[1], Z_0[0], w)
    if isinstance(loss, str) and loss not in LOSSES:
        raise InvalidInputError(f"loss={loss!r} is unknown. Pass one of {', '.join([*LOSSES, BYOL])}, or a function.")
    compare = weighted(LOSSES[loss] if isinstance(loss, str) else loss)
    return lambda Z, Z_0, w: compare(Z[0], Z[1], w)


def scores(G: Tensor, moments: Moments, rows: Tensor) -> Tensor:
    """Return what weighting each row up does to each outcome, along ``e_i - w``.

    Args:
        G: ``∂o/∂M``, ``(O, p, p, Q, Q)``.
        moments: ``M``, at which it was taken.
        rows: ``x̄``, ``(p, b, Q)``.

    Returns:
        ``(b, O)``: ``Σ_uv x̄_uᵀ G_uv x̄_v - <G, M>``.
    """
    whole = (G * moments.M).flatten(1).sum(1)
    p, rows = len(rows), rows.to(torch.float64)
    found = [sum(((rows[u] @ g[u, v]) * rows[v]).sum(1) for u in range(p) for v in range(p)) for g in G]
    return torch.stack([torch.as_tensor(one) for one in found], dim=1) - whole
