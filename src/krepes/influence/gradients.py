r"""Fair baselines from exact gradients: the dot product, and TRAK with its ridge swept.

    g_i = ∂/∂w_i ∇_θ L(θ ; w)  (n, P),      dot = -g_i · ∇o,
    TRAK = -g_iᵀ (GᵀG + ridge)⁻¹ ∇o = -[(GGᵀ + ridge)⁻¹ G ∇o]_i

``g_i`` is what the row adds to the gradient of the weighted loss of its batch, statistics of it included, averaged over
draws of the views; nothing is projected. The loss sees the embedding, or the projection by the trained heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from krepes.encoders.functional import State, Steps
from krepes.influence.reverse import Measure, ones_like_state

RIDGES = (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0)


@dataclass(frozen=True)
class Gradients:
    """What both baselines are made of.

    Attributes:
        gram: ``G Gᵀ``, ``(n, n)``, float64.
        along: ``G ∇o``, ``(n, O)``, float64.
    """

    gram: Tensor = field(repr=False)
    along: Tensor = field(repr=False)

    def dot(self) -> Tensor:
        """Return the dot product's scores, ``(n, O)``."""
        return -self.along

    def trak(self, ridge: float) -> Tensor:
        """Return TRAK's scores, ``(n, O)``, with a ``ridge`` relative to the mean squared size of a gradient."""
        S = self.gram.clone()
        S.diagonal().add_(ridge * float(self.gram.diagonal().mean()))
        return -torch.linalg.solve(S, self.along)


def row_gradients(steps: Steps, state: State, measure: Measure, draws: Sequence[int]) -> Gradients:
    """Return the gradients of rows and outcomes at a state.

    Args:
        steps: Gives the loss of a batch; the batches of ``draws`` are averaged, and should hold all rows alike.
        state: Parameters and buffers of the trained networks.
        measure: The outcomes of a state.
        draws: Numbers of steps whose batches and views are used.

    Returns:
        Their products.
    """
    names = [name for name, parameter in steps.twins.named_parameters() if parameter.requires_grad]
    theta = {name: state[name].detach().requires_grad_() for name in names}
    with torch.enable_grad():
        values = measure(state | theta)
        of_outcomes = torch.stack([_flat(value, theta) for value in values])
    G = of_outcomes.new_zeros(steps.n, of_outcomes.shape[1])
    for t in draws:  # one at a time: they are the largest thing here
        chosen, rows = _of_rows(steps, t, state, names)
        G.index_add_(0, chosen, rows, alpha=1 / len(draws))
    return Gradients((G @ G.T).double(), (G @ of_outcomes.T).double())


def _of_rows(steps: Steps, t: int, state: State, names: list[str]) -> tuple[Tensor, Tensor]:
    """Return the rows ``(b,)`` of a batch and their ``∂/∂w ∇L``, ``(b, P)``.

    The gradient, paired with a direction, is differentiated twice.
    """
    theta = {name: state[name].detach().requires_grad_() for name in names}
    w = ones_like_state(theta, steps.n).requires_grad_()
    with torch.enable_grad():
        value = steps.loss(t, state | theta, w)
        g = torch.autograd.grad(value, list(theta.values()), create_graph=True, allow_unused=True)
        used = [(part, torch.zeros_like(part, requires_grad=True)) for part in g if part is not None]
        paired = sum(((part * u).sum() for part, u in used), value.new_zeros(()))
        (by_row,) = torch.autograd.grad(paired, w, create_graph=True)
    chosen = steps.views(t)[0]
    directions = [u for _, u in used]
    # One row at a time: a batch of rows of a convolutional encoder leaves the cache, and takes four times as long.
    found = [torch.autograd.grad(by_row[row], directions, retain_graph=True) for row in chosen]
    parts = iter([torch.stack(part).flatten(1) for part in zip(*found, strict=True)])
    rows = [
        next(parts) if part is not None else w.new_zeros(len(chosen), x.numel())
        for part, x in zip(g, theta.values(), strict=True)
    ]
    return chosen, torch.cat(rows, dim=1)


def _flat(value: Tensor, theta: State) -> Tensor:
    parts = torch.autograd.grad(value, list(theta.values()), retain_graph=True, allow_unused=True)
    pairs = zip(parts, theta.values(), strict=True)
    return torch.cat([(torch.zeros_like(x) if part is None else part).flatten() for part, x in pairs])
