"""Which parameters are served together, and the gradient form of such a group."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from krepes.kernels.capture import Call
from krepes.kernels.forms import Form, Lookup, Outer, Vector
from krepes.kernels.layers import BatchLayout
from krepes.kernels.patches import Patches


@dataclass(frozen=True)
class Group:
    """Parameters served together: a weight, a bias or both, and the calls they take part in."""

    calls: tuple[int, ...]
    weight: str | None
    bias: str | None
    rule: str


def group_parameters(calls: list[Call], loose: set[str]) -> list[Group]:
    """Group the parameters by the calls they take part in, so that a layer's weight and bias go together."""
    uses: dict[str, list[int]] = {}
    role: dict[str, str] = {}
    for i, call in enumerate(calls):
        for name, part in ((call.weight, "weight"), (call.bias, "bias")):
            if name and name not in loose:
                uses.setdefault(name, []).append(i)
                role[name] = part
    by_calls: dict[tuple[int, ...], dict[str, str]] = {}
    for name, indices in uses.items():
        by_calls.setdefault(tuple(indices), {})[role[name]] = name
    return [
        Group(indices, parts.get("weight"), parts.get("bias"), _rule_name(calls, indices))
        for indices, parts in by_calls.items()
    ]


def _rule_name(calls: list[Call], indices: tuple[int, ...]) -> str:
    names = list(dict.fromkeys(calls[i].site.rule.name for i in indices))
    return " + ".join(names) + (f", used {len(indices)} times" if len(indices) > 1 else "")


def gradient_form(group: Group, calls: list[Call], layouts: list[BatchLayout], n: int, heads: int) -> Form:
    """Return the gradients of a group at ``n`` samples.

    Args:
        group: The parameters and the calls they take part in.
        calls: All captured calls.
        layouts: Where each call has its samples.
        n: Number of samples.
        heads: Number of heads that were captured.

    Returns:
        The form of the single call; several calls of one rule side by side along their tokens; or, where one weight
        serves two kinds of layer (a tied embedding), the written-out sum.
    """
    weight, bias = group.weight is not None, group.bias is not None

    def build(i: int, chosen: range) -> Form:
        d = calls[i].output_gradients(heads)
        site = calls[i].site
        return site.rule.form(site, [d[r] for r in chosen], n, layouts[i], weight=weight, bias=bias)

    if len({calls[i].site.rule.name for i in group.calls}) == 1:
        return _join([build(i, range(heads)) for i in group.calls])
    per_head = [[build(i, range(r, r + 1)).explicit() for i in group.calls] for r in range(heads)]
    return Vector(torch.cat([torch.stack(parts).sum(0) for parts in per_head], dim=1))


def _join(forms: list[Form]) -> Form:
    """Return the sum of the gradients of several calls of one rule: their tokens side by side."""
    if len(forms) == 1:
        return forms[0]
    if isinstance(forms[0], Patches):
        forms = [form.outer() for form in forms if isinstance(form, Patches)]
    first = forms[0]
    if isinstance(first, Outer):
        outers = [form for form in forms if isinstance(form, Outer)]
        a, d = torch.cat([form.a for form in outers], dim=1), torch.cat([form.d for form in outers], dim=1)
        return Outer(a, d, bias=first.bias)
    if isinstance(first, Lookup):
        lookups = [form for form in forms if isinstance(form, Lookup)]
        ids, d = torch.cat([form.ids for form in lookups], dim=1), torch.cat([form.d for form in lookups], dim=1)
        return Lookup(ids, d, V=first.V)
    return Vector(torch.stack([form.explicit() for form in forms]).sum(0))
