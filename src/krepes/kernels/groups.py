"""Which parameters are served together, and the gradient form of such a group.

A parameter that layers use as it stands, or by parts of which none overlap (the thirds of a packed projection), is
served in the layers' own forms: gradients in a part are entries of the gradient in the parameter. Parameters that reach
the layers otherwise (weight norm, a tied and transposed weight) are served together with those they are mixed with: the
written-out gradients in the mixed values are pulled back to the parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from krepes.kernels.capture import Call
from krepes.kernels.derived import Derived, pull, related
from krepes.kernels.forms import Form, Lookup, Outer, Vector
from krepes.kernels.layers import BatchLayout
from krepes.kernels.patches import Patches
from krepes.kernels.pullback import Pullback, remember

Role = str
"""``"weight"`` or ``"bias"``."""


@dataclass(frozen=True)
class Use:
    """One value of one call."""

    call: int
    role: Role


@dataclass(frozen=True)
class Group:
    """Parameters served together.

    Attributes:
        calls: The calls they take part in.
        weight: The parameter (or the one whose part it is) that is the calls' weight, or ``None``.
        bias: The parameter that is the calls' bias, or ``None``.
        rule: What served them, in words.
        mixed: Parameters whose gradient is pulled back, where the values are not parts of single parameters.
        uses: The values to pull it back from.
        ways: The ways back from them that are remembered, filled as they are met.
    """

    calls: tuple[int, ...]
    weight: str | None
    bias: str | None
    rule: str
    mixed: tuple[str, ...] = ()
    uses: tuple[Use, ...] = ()
    ways: dict[Use, Pullback | None] = field(default_factory=dict, compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters."""
        return self.mixed or tuple(name for name in (self.weight, self.bias) if name)


@dataclass(frozen=True)
class Pass:
    """The calls of one batch of ``n`` samples, where each has its samples, and the number of heads."""

    calls: list[Call]
    layouts: list[BatchLayout]
    n: int
    heads: int

    def derived(self, use: Use) -> Derived:
        """Return what a value is made of."""
        call = self.calls[use.call]
        found = call.weight if use.role == "weight" else call.bias
        assert found is not None
        return found

    def value(self, use: Use) -> Tensor:
        """Return the value in which the call's form is a gradient, with its graph."""
        site = self.calls[use.call].site
        with torch.enable_grad():
            return site.rule.value(site, self.derived(use).value, self.n, self.layouts[use.call])

    def form(self, i: int, heads: range, *, weight: bool, bias: bool) -> Form:
        """Return the gradient form of one call for some heads."""
        call = self.calls[i]
        d = call.output_gradients(self.heads)
        chosen = [d[r] for r in heads]
        return call.site.rule.form(call.site, chosen, self.n, self.layouts[i], weight=weight, bias=bias)

    def parts(self, i: int, head: int, *, weight: bool, bias: bool) -> list[Tensor]:
        """Return the written-out gradients of one call and head in its values, ``(n, *shape)`` each."""
        flat = self.form(i, range(head, head + 1), weight=weight, bias=bias).explicit()
        shapes = [
            self.value(Use(i, role)).shape if wanted else None for role, wanted in (("weight", weight), ("bias", bias))
        ]
        return self.calls[i].site.rule.split(flat, *shapes)


def group_parameters(seen: Pass, left: set[str]) -> list[Group]:
    """Group the parameters by the calls they take part in, so that a layer's weight and bias go together.

    Args:
        seen: The calls.
        left: Names of parameters that are served otherwise.

    Returns:
        The groups.
    """
    uses: dict[str, list[Use]] = {}
    for i, call in enumerate(seen.calls):
        for role, made in (("weight", call.weight), ("bias", call.bias)):
            for name in made.names if made is not None else ():
                if name not in left:
                    uses.setdefault(name, []).append(Use(i, role))
    by_calls: dict[tuple[int, ...], dict[Role, str]] = {}
    mixed: dict[str, list[Use]] = {}
    for name, found in uses.items():
        parts = _parts(seen, name, found)
        if parts is None:
            mixed[name] = found
            continue
        for part in parts:
            indices = tuple(use.call for use in part)
            by_calls.setdefault(indices, {})[part[0].role] = name
    groups = [
        Group(indices, parts.get("weight"), parts.get("bias"), _rule_name(seen.calls, indices))
        for indices, parts in by_calls.items()
    ]
    return groups + _mixed_groups(seen, mixed)


def _parts(seen: Pass, name: str, uses: list[Use]) -> list[list[Use]] | None:
    """Return the uses sorted by the part of the parameter they see, or ``None`` if the parts overlap or are mixed."""
    parts: list[list[Use]] = []
    for use in uses:
        made, value = seen.derived(use), seen.value(use)
        leaf = made.leaves[name]
        if len(made.names) > 1 or related(value, value, leaf) != "same":
            return None
        relations = [related(seen.value(part[0]), value, leaf) for part in parts]
        same = relations.index("same") if "same" in relations else None
        if "mixed" in relations or (same is not None and parts[same][0].role != use.role):
            return None
        if same is None:
            parts.append([use])
        else:
            parts[same].append(use)
    return parts


def _mixed_groups(seen: Pass, uses: dict[str, list[Use]]) -> list[Group]:
    """Return one group for each set of parameters that values mix with each other."""
    groups: list[Group] = []
    rest = dict(uses)
    while rest:
        names = {next(iter(rest))}
        while True:
            touched = {use for name in names for use in uses[name]}
            grown = names | {name for use in touched for name in seen.derived(use).names if name in uses}
            if grown == names:
                break
            names = grown
        ordered = tuple(sorted(touched, key=lambda use: (use.call, use.role)))
        calls = tuple(dict.fromkeys(use.call for use in ordered))
        rule = f"{_rule_name(seen.calls, calls)}, through a function of the parameter"
        groups.append(Group(calls, None, None, rule, tuple(name for name in uses if name in names), ordered))
        rest = {name: found for name, found in rest.items() if name not in names}
    return groups


def _rule_name(calls: list[Call], indices: tuple[int, ...]) -> str:
    names = list(dict.fromkeys(calls[i].site.rule.name for i in indices))
    return " + ".join(names) + (f", used {len(indices)} times" if len(indices) > 1 else "")


def gradient_form(group: Group, seen: Pass) -> Form:
    """Return the gradients of a group.

    Args:
        group: The parameters and the calls they take part in.
        seen: All captured calls.

    Returns:
        The form of the single call; several calls of one rule side by side along their tokens; or, where one weight
        serves two kinds of layer (a tied embedding), or is a function of parameters, the written-out sum.
    """
    if group.mixed:
        return Vector(torch.cat([_pulled(group, seen, head) for head in range(seen.heads)], dim=1))
    weight, bias = group.weight is not None, group.bias is not None
    if len({seen.calls[i].site.rule.name for i in group.calls}) == 1:
        return _join([seen.form(i, range(seen.heads), weight=weight, bias=bias) for i in group.calls])
    heads = []
    for head in range(seen.heads):
        sums = [
            torch.stack(parts).sum(0)
            for parts in zip(*[seen.parts(i, head, weight=weight, bias=bias) for i in group.calls], strict=True)
        ]
        heads += [part.reshape(seen.n, -1) for part in sums]
    return Vector(torch.cat(heads, dim=1))


def _pulled(group: Group, seen: Pass, head: int) -> Tensor:
    """Return the written-out gradients of one head in the mixed parameters, ``(n, P)``, in the order of their names."""
    sums: dict[str, Tensor] = {}
    for i in group.calls:
        roles = [use.role for use in group.uses if use.call == i]
        parts = seen.parts(i, head, weight="weight" in roles, bias="bias" in roles)
        for role, part in zip(sorted(roles, reverse=True), parts, strict=True):  # the weight comes first
            made = seen.derived(Use(i, role))
            leaves = {name: leaf for name, leaf in made.leaves.items() if name in group.mixed}
            found = _back(group, Use(i, role), seen.value(Use(i, role)), list(leaves.values()), part)
            for name, g in zip(leaves, found, strict=True):
                sums[name] = sums[name] + g if name in sums else g
    return torch.cat([sums[name].reshape(seen.n, -1) for name in group.mixed], dim=1)


def _back(group: Group, use: Use, value: Tensor, leaves: list[Tensor], g: Tensor) -> list[Tensor]:
    """Return gradients ``(n, *value.shape)`` pulled back to the parameters, by a remembered way where there is one."""
    if use not in group.ways:
        group.ways[use] = remember(value, leaves)
    way = group.ways[use]
    return way(g) if way is not None and way.fits(value) else pull(value, leaves, g)


def _join(forms: list[Form]) -> Form:
    """Return the sum of the gradients of several calls of one rule: their tokens side by side."""
    if len(forms) == 1:
        return forms[0]
    if isinstance(forms[0], Patches):
        forms = [form.outer() for form in forms if isinstance(form, Patches)]
    first = forms[0]
    if isinstance(first, Outer):
        outers = [form for form in forms if isinstance(form, Outer)]
        ahead = min(form.ahead for form in outers)
        parts = [torch.nn.functional.pad(form.d, (form.ahead - ahead, 0)) for form in outers]
        a, d = torch.cat([form.a for form in outers], dim=1), torch.cat(parts, dim=1)
        return Outer(a, d, bias=first.bias, ahead=ahead)
    if isinstance(first, Lookup):
        lookups = [form for form in forms if isinstance(form, Lookup)]
        ids, d = torch.cat([form.ids for form in lookups], dim=1), torch.cat([form.d for form in lookups], dim=1)
        return Lookup(ids, d, V=first.V)
    return Vector(torch.stack([form.explicit() for form in forms]).sum(0))
