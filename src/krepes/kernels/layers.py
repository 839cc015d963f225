r"""One rule per layer function: from the layer's input and the gradient of its output to a gradient `Form`.

Rules attach to functions (``F.linear``), not to module classes, so a layer written by hand, a weight used twice or tied
to another layer, and a projection inside ``nn.MultiheadAttention`` are all seen by the same rule.

A rule brings a call into *channels-last* order ``(*lead, features)``; a `BatchLayout` then says which part of ``lead``
counts samples, for a network may fold tokens or frames into the batch or put the batch second.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from krepes.kernels.forms import Form, Lookup, Outer, Vector


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

    def fits(self, lead: torch.Size, n: int) -> bool:
        """Return whether the leading axes hold ``n`` samples so."""
        size = lead[self.axis] if self.axis < len(lead) else 0
        return size == n if self.kind == "whole" else size > 0 and size % n == 0


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

    def with_result(self, site: Site, out: Tensor) -> Site:
        """Return the site with what is worth keeping of the call's result and its graph: by default nothing."""
        return site

    @abstractmethod
    def lead(self, site: Site) -> torch.Size:
        """Return the leading axes among which the samples are."""

    def layouts(self, site: Site, n: int) -> list[BatchLayout]:
        """Return the layouts that could hold ``n`` samples, likeliest first."""
        return layouts(self.lead(site), n)

    @abstractmethod
    def form(self, site: Site, d: list[Tensor], n: int, layout: BatchLayout, *, weight: bool, bias: bool) -> Form:
        """Return the gradient form of the chosen parameters from one output gradient per head."""

    def value(self, site: Site, value: Tensor, n: int, layout: BatchLayout) -> Tensor:
        """Return the value, made of parameters, in which the form is the gradient at each of ``n`` samples."""
        return value

    def split(self, g: Tensor, weight: torch.Size | None, bias: torch.Size | None) -> list[Tensor]:
        """Split flat gradients of one head, ``(n, P)``, into those of the group's weight and bias, ``(n, *shape)``."""
        shapes = [shape for shape in (weight, bias) if shape is not None]
        parts = g.split([shape.numel() for shape in shapes], dim=1)
        return [part.reshape(-1, *shape) for part, shape in zip(parts, shapes, strict=True)]


def _heads(d: list[Tensor], n: int, layout: BatchLayout) -> Tensor:
    """Return ``(n, T, r O)`` of ``r`` output gradients ``(*lead, O)``."""
    tokens = [layout.tokens(part, n, 1) for part in d]
    return tokens[0] if len(tokens) == 1 else torch.cat(tokens, dim=-1)


class Affine(Rule):
    """Shared by linear layers and convolutions: ``[weight, bias]`` are the columns of one outer product."""

    def split(self, g: Tensor, weight: torch.Size | None, bias: torch.Size | None) -> list[Tensor]:
        """Split the columns of the outer product: the last one is the bias."""
        if weight is None or bias is None:
            return super().split(g, weight, bias)
        G = g.reshape(len(g), weight[0], -1)
        return [G[..., :-1].reshape(-1, *weight), G[..., -1]]


class LinearRule(Affine):
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


class ValuesRule(LinearRule):
    """`attention.values_of`: of a packed projection's outputs the first two thirds have no gradient."""

    def form(self, site: Site, d: list[Tensor], n: int, layout: BatchLayout, *, weight: bool, bias: bool) -> Form:
        """Return the linear layer's form, with the outputs in front that are not there."""
        found = super().form(site, d, n, layout, weight=weight, bias=bias)
        if isinstance(found, Outer):
            return replace(found, ahead=2 * found.d.shape[3])
        return Vector(torch.nn.functional.pad(found.explicit(), (2 * found.explicit().shape[1], 0)))


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
