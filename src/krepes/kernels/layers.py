r"""One rule per layer function: from the layer's input and the gradient of its output to a gradient `Form`.

Rules attach to functions (``F.linear``), not to module classes, so a layer written by hand, a weight used twice or tied
to another layer, and a projection inside ``nn.MultiheadAttention`` are all seen by the same rule.

A rule brings a call into *channels-last* order ``(*lead, features)``; a `BatchLayout` then says which part of ``lead``
counts samples, for a network may fold tokens or frames into the batch or put the batch second.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from krepes.kernels.forms import Form, Lookup, Outer, Vector
from krepes.kernels.patches import Patches, Window


@dataclass(frozen=True)
class BatchLayout:
    """Where the samples are among the leading axes: a whole axis, or folded into it before or behind the tokens."""

    axis: int
    kind: str

    def tokens(self, x: Tensor, n: int, features: int) -> Tensor:
        """Return ``(n, T, *features)`` of ``x`` ``(*lead, *features)`` whose last ``features`` axes are kept."""
        kept = x.shape[x.ndim - features :]
        x = x.movedim(self.axis, 0)
        if self.kind == "minor":
            x = x.unflatten(0, (-1, n)).transpose(0, 1)
        return x.reshape(n, -1, *kept)


def layouts(lead: torch.Size, n: int) -> list[BatchLayout]:
    """Return the layouts that could hold ``n`` samples in the leading axes ``lead``, likeliest first."""
    whole = [BatchLayout(axis, "whole") for axis, size in enumerate(lead) if size == n]
    folded = [BatchLayout(0, kind) for kind in ("major", "minor")] if lead and lead[0] > n and lead[0] % n == 0 else []
    return whole + folded


@dataclass(frozen=True)
class Site:
    """One call of a layer function: its rule, its input, its parameters, its other settings."""

    rule: Rule
    x: Tensor
    weight: Tensor | None
    bias: Tensor | None
    settings: dict[str, Any]


class Rule(ABC):
    """How one layer function turns captured tensors into a gradient form."""

    name: str

    @abstractmethod
    def bind(self, *args: Any, **kwargs: Any) -> Site:
        """Return the call's parts, by the function's own signature."""

    @abstractmethod
    def lead(self, site: Site) -> torch.Size:
        """Return the leading axes among which the samples are."""

    def layouts(self, site: Site, n: int) -> list[BatchLayout]:
        """Return the layouts that could hold ``n`` samples, likeliest first."""
        return layouts(self.lead(site), n)

    @abstractmethod
    def form(self, site: Site, d: list[Tensor], n: int, layout: BatchLayout, *, weight: bool, bias: bool) -> Form:
        """Return the gradient form of the chosen parameters from one output gradient per head."""

    def split(self, g: Tensor, weight: torch.Size | None, bias: torch.Size | None) -> list[Tensor]:
        """Split a flat gradient of one head, ``(P,)``, into those of the group's weight and bias."""
        shapes = [shape for shape in (weight, bias) if shape is not None]
        parts = g.split([shape.numel() for shape in shapes])
        return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def _heads(d: list[Tensor], n: int, layout: BatchLayout) -> Tensor:
    """Return ``(n, T, r O)`` of ``r`` output gradients ``(*lead, O)``."""
    tokens = [layout.tokens(part, n, 1) for part in d]
    return tokens[0] if len(tokens) == 1 else torch.cat(tokens, dim=-1)


class _Affine(Rule):
    """Shared by linear layers and convolutions: ``[weight, bias]`` are the columns of one outer product."""

    def split(self, g: Tensor, weight: torch.Size | None, bias: torch.Size | None) -> list[Tensor]:
        """Split the columns of the outer product: the last one is the bias."""
        if weight is None or bias is None:
            return super().split(g, weight, bias)
        G = g.reshape(weight[0], -1)
        return [G[:, :-1].reshape(weight), G[:, -1]]


class LinearRule(_Affine):
    """``F.linear``: tokens are all leading axes but the sample axis."""

    name = "linear"

    def bind(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Site:
        """Return the call's parts."""
        return Site(self, input, weight, bias, {})

    def lead(self, site: Site) -> torch.Size:
        """Return all axes but the last."""
        return site.x.shape[:-1]

    def form(self, site: Site, d: list[Tensor], n: int, layout: BatchLayout, *, weight: bool, bias: bool) -> Form:
        """Return an outer product over tokens, or the summed output gradient for a bias alone."""
        D = _heads(d, n, layout)
        if not weight:
            return Vector(D.sum(1))
        return Outer(layout.tokens(site.x, n, 1).unsqueeze(2), D.unsqueeze(2), bias=bias)


class ConvRule(_Affine):
    """``F.conv1d``, ``F.conv2d``, ``F.conv3d`` with stride, padding, dilation and groups."""

    def __init__(self, axes: int) -> None:
        self.axes = axes
        self.name = f"conv{axes}d"

    def bind(
        self,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Site:
        """Return the call's parts; ``padding="same"`` is done here, for it can be unequal on the two sides."""
        kernel, gap = tuple(weight.shape[2:]), self._tuple(dilation)
        if padding == "same":
            total = [g * (k - 1) for k, g in zip(kernel, gap, strict=True)]
            input = F.pad(input, [side for t in reversed(total) for side in (t // 2, t - t // 2)])
        around = self._tuple(0 if isinstance(padding, str) else padding)
        window = Window(kernel, self._tuple(stride), around, gap, groups)
        return Site(self, input, weight, bias, {"window": window})

    def _tuple(self, value: Any) -> tuple[int, ...]:
        values = (value,) if isinstance(value, int) else tuple(int(v) for v in value)
        return values * self.axes if len(values) == 1 else values

    def lead(self, site: Site) -> torch.Size:
        """Return the picture axis."""
        return site.x.shape[:1] if site.x.ndim == self.axes + 2 else torch.Size([])

    def form(self, site: Site, d: list[Tensor], n: int, layout: BatchLayout, *, weight: bool, bias: bool) -> Form:
        """Return patches, or the summed output gradient for a bias alone."""
        D = torch.stack([layout.tokens(part, n, self.axes + 1) for part in d], dim=2)  # (n, f, r, O, *out)
        if not weight:
            return Vector(D.flatten(4).sum((1, 4)).flatten(1))
        return Patches(layout.tokens(site.x, n, self.axes + 1), D, site.settings["window"], bias=bias)


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
                pieces.append(layout.tokens(part * x_hat, n, self._features(site)).sum(1).flatten(1))
            if bias:
                pieces.append(layout.tokens(part, n, self._features(site)).sum(1).flatten(1))
        return Vector(torch.cat(pieces, dim=1))


class EmbeddingRule(Rule):
    """``F.embedding``: rows at ``padding_idx`` take no gradient."""

    name = "embedding"

    def bind(
        self,
        input: Tensor,
        weight: Tensor,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Site:
        """Return the call's parts; options that rewrite the table or look at the batch are left to the fallback."""
        if max_norm is not None or scale_grad_by_freq:
            raise TypeError("no rule for embeddings with max_norm or scale_grad_by_freq")
        if padding_idx is not None and padding_idx < 0:
            padding_idx += weight.shape[0]
        return Site(self, input, weight, None, {"padding": padding_idx})

    def lead(self, site: Site) -> torch.Size:
        """Return all axes of the indices."""
        return site.x.shape

    def form(self, site: Site, d: list[Tensor], n: int, layout: BatchLayout, *, weight: bool, bias: bool) -> Form:
        """Return the rows touched and what is added to them."""
        assert site.weight is not None
        ids, D = layout.tokens(site.x, n, 0), _heads(d, n, layout)
        if site.settings["padding"] is not None:
            D = D * (ids != site.settings["padding"]).unsqueeze(2)
        return Lookup(ids, D, V=site.weight.shape[0])


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


LAYER_RULES: dict[Any, Rule] = {
    F.linear: LinearRule(),
    F.conv1d: ConvRule(1),
    F.conv2d: ConvRule(2),
    F.conv3d: ConvRule(3),
    F.layer_norm: NormRule("layer_norm", _layer_norm),
    F.rms_norm: NormRule("rms_norm", _rms_norm),
    F.group_norm: NormRule("group_norm", _group_norm),
    F.batch_norm: NormRule("batch_norm", _batch_norm),
    F.instance_norm: NormRule("instance_norm", _instance_norm),
    F.embedding: EmbeddingRule(),
}
"""The rule that serves each layer function; a new layer enters here."""
