"""The rule of normalisations, one for all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from krepes.kernels.forms import Form, Vector
from krepes.kernels.layers import BatchLayout, Rule, Site


class NormRule(Rule):
    """Normalisations ``weight · x̂ + bias``: the gradient is the sum of ``d · x̂`` and of ``d`` over tokens."""

    def __init__(self, name: str, bind: Callable[..., tuple[Tensor, Tensor | None, Tensor | None, Any]]) -> None:
        self.name = name
        self._bind = bind

    def bind(self, *args: Any, **kwargs: Any) -> Site:
        """Return the call's parts; the function that normalises without the parameters is kept in the settings."""
        x, weight, bias, normalise = self._bind(*args, **kwargs)
        per_channel = self.name != "layer_norm" and self.name != "rms_norm"
        return Site(self, x, weight, bias, {"normalise": normalise, "per_channel": per_channel})

    def with_result(self, site: Site, out: Tensor) -> Site:
        """Return the site of a layer norm with the statistics that its graph keeps: x̂ again in a sixth of the time."""
        node = out.grad_fn
        if self.name != "layer_norm" or type(node).__name__ != "NativeLayerNormBackward0":
            return site
        mean, inverse = node._saved_result1, node._saved_result2  # type: ignore[union-attr]
        return replace(site, settings={**site.settings, "normalise": lambda x: (x - mean).mul_(inverse)})

    def lead(self, site: Site) -> torch.Size:
        """Return the axes over which the parameters are shared."""
        if site.settings["per_channel"]:
            return torch.Size([site.x.shape[0], *site.x.shape[2:]])
        return site.x.shape[: site.x.ndim - self._features(site)]

    def _features(self, site: Site) -> int:
        parameter = site.weight if site.weight is not None else site.bias
        assert parameter is not None
        return parameter.ndim

    def form(self, site: Site, d: list[Tensor], n: int, layout: BatchLayout, *, weight: bool, bias: bool) -> Form:
        """Return the written-out gradient: one or two numbers per channel and head."""
        x_hat = site.settings["normalise"](site.x)
        x_hat = x_hat.movedim(1, -1) if site.settings["per_channel"] else x_hat
        pieces: list[Tensor] = []
        for part in d:
            part = part.movedim(1, -1) if site.settings["per_channel"] else part
            if weight:
                products = x_hat.mul_(part) if len(d) == 1 else part * x_hat  # in place, where nobody else asks for x̂
                pieces.append(layout.tokens(products, n, self._features(site)).sum(1).flatten(1))
            if bias:
                pieces.append(layout.tokens(part, n, self._features(site)).sum(1).flatten(1))
        return Vector(torch.cat(pieces, dim=1))


def _layer_norm(input: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    return input, weight, bias, lambda x: F.layer_norm(x, normalized_shape, eps=eps)


def _rms_norm(input: Tensor, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    return input, weight, None, lambda x: F.rms_norm(x, normalized_shape, eps=eps)


def _group_norm(input: Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    return input, weight, bias, lambda x: F.group_norm(x, num_groups, eps=eps)


def _batch_norm(
    input: Tensor,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    return input, weight, bias, lambda x: F.batch_norm(x, running_mean, running_var, eps=eps)


def _instance_norm(
    input: Tensor,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    return (
        input,
        weight,
        bias,
        lambda x: F.instance_norm(x, running_mean, running_var, use_input_stats=use_input_stats, eps=eps),
    )


NORM_RULES: dict[Any, Rule] = {
    F.layer_norm: NormRule("layer_norm", _layer_norm),
    F.rms_norm: NormRule("rms_norm", _rms_norm),
    F.group_norm: NormRule("group_norm", _group_norm),
    F.batch_norm: NormRule("batch_norm", _batch_norm),
    F.instance_norm: NormRule("instance_norm", _instance_norm),
}
"""The rule of each function that normalises."""
