r"""A training step as a differentiable function of the whole state and of row weights.

    (θ, s)_{t+1} = step_t((θ, s)_t ; w)

The state holds trained parameters, statistics of batch norms, BYOL's target and the optimiser's moments, one tensor
for each name. Samples, views and dropout of a step are functions of its number, so any step can be made again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

from krepes import _autodiff
from krepes.batches import Batch
from krepes.encoders.bilinear import BilinearConvolutions
from krepes.encoders.losses import weighted
from krepes.encoders.twins import Bootstrap, Twins
from krepes.encoders.weighted_norm import WeightedBatchNorm

TINY = 1e-24
"""Under the root of AdamW, so that it can be differentiated at zero."""
State = dict[str, Tensor]
Views = Callable[[int], tuple[Tensor, Batch]]
"""From the number of a step to the samples ``(b,)`` of its batch and their views ``(p, b, ...)``."""


class Rule(Protocol):
    """How a gradient becomes a step: `start` gives the optimiser's state, `update` the next one."""

    def start(self, parameters: State) -> State:
        """Return the optimiser's state before the first step, by names that no parameter has."""

    def update(self, t: int, parameters: State, gradient: State, state: State) -> tuple[State, State]:
        """Return the parameters and the optimiser's state after step ``t``."""


@dataclass(frozen=True)
class SGD:
    """``θ ← θ - lr g``."""

    lr: float

    def start(self, parameters: State) -> State:
        """Return no state."""
        return {}

    def update(self, t: int, parameters: State, gradient: State, state: State) -> tuple[State, State]:
        """Return the parameters after step ``t``, and no state."""
        return {name: theta - self.lr * gradient[name] for name, theta in parameters.items()}, {}


@dataclass(frozen=True)
class AdamW:
    """The rule of `torch.optim.AdamW`, with a root that can be differentiated at zero.

    Attributes:
        lr: Learning rate of each step.
        weight_decay: Decoupled, times the learning rate.
    """

    lr: Callable[[int], float]
    weight_decay: float
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def start(self, parameters: State) -> State:
        """Return first and second moments of zero."""
        return {f"{kind}/{name}": torch.zeros_like(x) for kind in ("first", "second") for name, x in parameters.items()}

    def update(self, t: int, parameters: State, gradient: State, state: State) -> tuple[State, State]:
        """Return the parameters and both moments after step ``t``."""
        after: State = {}
        moments: State = {}
        for name, theta in parameters.items():
            held = theta, state[f"first/{name}"], state[f"second/{name}"], gradient[name]
            after[name], first, second = _AdamWStep.apply(*held, t, self)  # type: ignore[no-untyped-call]
            moments |= {f"first/{name}": first, f"second/{name}": second}
        return after, moments


class _AdamWStep(torch.autograd.Function):
    """One step of one tensor, ``(θ, m, v, g) -> (θ, m, v)``, and its derivative in a few passes over the entries.

    Autograd's own derivative takes three times as many, nearly half of what carrying a cotangent back then costs.
    """

    @staticmethod
    def forward(
        ctx: Any, theta: Tensor, first: Tensor, second: Tensor, g: Tensor, t: int, rule: AdamW
    ) -> tuple[Tensor, Tensor, Tensor]:
        (b1, b2), lr = rule.betas, rule.lr(t)
        ctx.rule, ctx.kept = rule, 1 - lr * rule.weight_decay
        first = b1 * first + (1 - b1) * g
        second = b2 * second + (1 - b2) * g * g
        root, rate = (second + TINY).sqrt(), lr / (1 - b1 ** (t + 1))
        unbiased = (1 - b2 ** (t + 1)) ** 0.5
        size = root / unbiased + rule.eps
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(g, -rate / size, rate * first / (2 * unbiased * root * size * size))
        return theta * ctx.kept - rate * first / size, first, second

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_theta: Tensor, of_first: Tensor, of_second: Tensor) -> tuple[Tensor | None, ...]:
        g, by_first, by_second = ctx.saved_tensors
        b1, b2 = ctx.rule.betas
        of_first = torch.addcmul(of_first, by_first, of_theta)
        of_second = torch.addcmul(of_second, by_second, of_theta)
        of_g = torch.addcmul((1 - b1) * of_first, g, of_second, value=2 * (1 - b2))
        return ctx.kept * of_theta, b1 * of_first, b2 * of_second, of_g, None, None


@dataclass(frozen=True)
class Steps:
    """``T`` training steps of ``twins`` on ``n`` samples.

    Attributes:
        twins: Networks and loss; batch norms have batch statistics where the module is in training mode.
        views: The batch of each step.
        rule: The optimiser.
        T: How many.
        n: Samples, each with a weight.
        seed: Of dropout in each step.
        tau: How much BYOL's target keeps in each step.
    """

    twins: Twins
    views: Views
    rule: Rule
    T: int
    n: int
    seed: Callable[[int], int] = field(default=lambda t: t)
    tau: Callable[[int], float] = field(default=lambda t: 1.0)

    def start(self) -> State:
        """Return the state before the first step, a copy."""
        held = {name: x.detach().clone() for name, x in self._tensors().items()}
        return held | self.rule.start({name: held[name] for name in self._trained()})

    def loss(self, t: int, state: State, w: Tensor) -> Tensor:
        """Return the loss of the batch of step ``t`` with weights ``w`` ``(n,)``, a scalar."""
        return self._value(t, {name: state[name] for name in self._tensors()}, w)[0]

    def __call__(self, t: int, state: State, w: Tensor, *, graph: bool = False) -> State:
        """Return the state after step ``t``.

        Args:
            t: Number of the step, from zero.
            state: Before it.
            w: Row weights, ``(n,)``.
            graph: Keep what a derivative in ``state`` and ``w`` needs.

        Returns:
            The state after it.
        """
        trained = self._trained()
        with torch.enable_grad():
            # Aliases: a gradient in them goes through the trained networks alone, never through BYOL's target.
            theta = {name: state[name].view_as(state[name]) if graph else state[name].detach() for name in trained}
            theta = theta if graph else {name: x.requires_grad_() for name, x in theta.items()}
            held = {name: state[name] for name in self._tensors()} | theta
            value, after = self._value(t, held, w)
            found = torch.autograd.grad(value, list(theta.values()), create_graph=graph, allow_unused=True)
        with torch.set_grad_enabled(graph):
            pairs = zip(theta.items(), found, strict=True)
            gradient = {name: torch.zeros_like(x) if g is None else g for (name, x), g in pairs}
            optimiser = {name: x for name, x in state.items() if name not in held}
            stepped, moments = self.rule.update(t, {name: state[name] for name in trained}, gradient, optimiser)
            return after | stepped | self._target(t, state, stepped) | moments

    def _value(self, t: int, held: State, w: Tensor) -> tuple[Tensor, State]:
        """Return the loss, and parameters and buffers after the forward pass."""
        indices, views = self.views(t)
        x_a, x_b = (pytree.tree_map(lambda leaf, u=u: leaf[u], views) for u in range(2))
        # Whole numbers, such as a count of batches, are counted in place.
        held = {name: x if x.is_floating_point() else x.clone() for name, x in held.items()}
        chosen = w[indices.to(w.device)]
        # Fused attention has no second derivative, so attention is computed by plain operations.
        with (
            sdpa_kernel(SDPBackend.MATH),
            torch.random.fork_rng(),
            BilinearConvolutions(),
            WeightedBatchNorm(chosen) as mode,
        ):
            torch.manual_seed(self.seed(t))
            value, _ = _autodiff.with_parameters(self.twins, held)(x_a, x_b, chosen)
        return value, {name: mode.after(x) for name, x in held.items()}

    def _target(self, t: int, state: State, stepped: State) -> State:
        """Return the target's parameters after the trained ones have been ``stepped``."""
        if not isinstance(self.twins, Bootstrap):
            return {}
        keep = self.tau(t)
        names = {f"target.0.{name}": f"encoder.{name}" for name, _ in self.twins.encoder.named_parameters()}
        names |= {f"target.1.{name}": f"projector.{name}" for name, _ in self.twins.projector.named_parameters()}
        return {xi: keep * state[xi] + (1 - keep) * stepped.get(name, state[name]) for xi, name in names.items()}

    def _tensors(self) -> State:
        return dict(self.twins.named_parameters()) | dict(self.twins.named_buffers())

    def _trained(self) -> list[str]:
        return [name for name, parameter in self.twins.named_parameters() if parameter.requires_grad]

    def __post_init__(self) -> None:
        """Refuse a loss without row weights."""
        weighted(self.twins.compare)
