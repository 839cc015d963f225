"""Which rule serves which parameter, and where each call has its samples: what agrees with autograd on three."""

from __future__ import annotations

import torch
from torch import Tensor

from krepes.kernels.capture import Call
from krepes.kernels.derived import pull, push
from krepes.kernels.groups import Group, Pass, Use, gradient_form, group_parameters
from krepes.kernels.layers import BatchLayout

PROBE = 3
"""Samples of the first check: few, and a number that token counts seldom equal."""

Gradients = dict[str, Tensor | None]
"""By parameter, as autograd gives them; ``None`` where the output does not depend on it."""


def settle(calls: list[Call], c: Tensor, expected: Gradients, idle: set[str]) -> tuple[list[Group], list[BatchLayout]]:
    """Return the groups that agree with autograd, and each call's layout: the first one that does.

    Args:
        calls: What was captured on three samples, with one head.
        c: Weights of the samples, ``(3,)``.
        expected: The gradient of the weighted sum of the head's outputs.
        idle: Parameters that the output does not depend on.

    Returns:
        The groups and the layouts. Parameters in no group are served by no rule.
    """
    options = [call.site.rule.layouts(call.site, PROBE) for call in calls]
    choice, left = [0] * len(calls), set(idle)
    while True:
        used_up = [call for call, k, option in zip(calls, choice, options, strict=True) if k >= len(option)]
        left |= {name for call in used_up for name in call.names}
        layouts = [
            option[k] if k < len(option) else BatchLayout(0, "whole") for k, option in zip(choice, options, strict=True)
        ]
        seen = Pass(calls, layouts, PROBE, 1)
        groups = group_parameters(seen, left)
        wrong = [group for group in groups if not _agrees(group, seen, c, expected)]
        partly = set() if wrong else _partly_served(groups, seen, expected)
        left |= partly
        if not wrong and not partly:
            return groups, layouts
        for i in {i for group in wrong for i in group.calls}:
            choice[i] += 1


def _agrees(group: Group, seen: Pass, c: Tensor, expected: Gradients) -> bool:
    """Return whether the group's gradients, summed with weights ``c``, are autograd's."""
    references = _references(group, seen, expected)
    shapes = [reference.shape for reference in references]
    flat = gradient_form(group, seen).weighted_sum(c).unsqueeze(0)
    scale = max((float(g.abs().max()) for g in expected.values() if g is not None), default=0.0)
    tolerance = 1e-3 if c.dtype != torch.float64 else 1e-6  # some networks do parts of float64 passes in float32
    for part, reference in zip(_split(group, seen, flat, shapes), references, strict=True):
        gap = float((part[0] - reference).abs().max())
        if gap > tolerance * (float(reference.abs().max()) + 1e-3 * scale):
            return False
    return True


def _references(group: Group, seen: Pass, expected: Gradients) -> list[Tensor]:
    """Return autograd's gradients in what the group's form is the gradient of: parameters, or their parts."""
    if group.mixed:
        return [gradient for name in group.mixed if (gradient := expected[name]) is not None]
    references = []
    for use, name in _first_uses(group):
        gradient = expected[name]
        assert gradient is not None
        references.append(push(seen.value(use), seen.derived(use).leaves[name], gradient))
    return references


def _first_uses(group: Group) -> list[tuple[Use, str]]:
    """Return the values of the group's first call, with the names of their parameters."""
    pairs = (("weight", group.weight), ("bias", group.bias))
    return [(Use(group.calls[0], role), name) for role, name in pairs if name is not None]


def _split(group: Group, seen: Pass, flat: Tensor, shapes: list[torch.Size]) -> list[Tensor]:
    """Split a group's flat gradient ``(1, P)`` into those of its parameters."""
    rules = {seen.calls[i].site.rule.name for i in group.calls}
    rule = seen.calls[group.calls[0]].site.rule
    if group.mixed or len(rules) > 1:
        sizes = [shape.numel() for shape in shapes]
        return [part.reshape(1, *shape) for part, shape in zip(flat.split(sizes, dim=1), shapes, strict=True)]
    by_role = iter(shapes)
    weight = next(by_role) if group.weight is not None else None
    bias = next(by_role) if group.bias is not None else None
    return rule.split(flat, weight, bias)


def _partly_served(groups: list[Group], seen: Pass, expected: Gradients) -> set[str]:
    """Return the parameters of which autograd has gradients outside the parts that groups serve."""
    outside: dict[str, Tensor] = {}
    for group in groups:
        for use, name in _first_uses(group):
            gradient, made = expected[name], seen.derived(use)
            assert gradient is not None
            value, leaf = seen.value(use), made.leaves[name]
            if value.is_leaf:
                continue
            inside = pull(value, [leaf], push(value, leaf, gradient).unsqueeze(0))[0][0]
            outside[name] = outside.get(name, gradient) - inside
    return {name for name, rest in outside.items() if bool(rest.any())}
