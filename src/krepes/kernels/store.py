"""The prepared side of a tangent kernel: captured once, kept in memory or on disk, contracted with many rows.

A group is kept by its factors or as written-out gradients, whichever makes a row cheaper. Columns that vanish on every
prepared sample cannot contribute and are dropped: dead units, unlit pixels, queries and keys of one-token attention.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from krepes.budget import Budget
from krepes.kernels.forms import Form, Outer, Vector, take, written_out
from krepes.kernels.products import inner, square_lengths

WORTH_DROPPING = 0.9
"""Columns are dropped when no more than this share of them is kept: a gather costs a copy of the row side."""


@dataclass(frozen=True)
class Contraction:
    """What one group adds to a batch: ``|G|²`` and ``<G, v>`` ``(n,)``, and ``K`` ``(n, m)`` where it is in float64."""

    K: Tensor | None
    square: Tensor | None
    dot: Tensor | None


@dataclass(frozen=True)
class Side:
    """One group's gradients at the prepared samples.

    Attributes:
        form: The factors, or ``None`` where the gradients are written out or all zero.
        G: The written-out gradients ``(m, P)``, or ``None``.
        columns: For each field of the form, the columns kept, or ``None`` for all.
    """

    form: Form | None = None
    G: Tensor | None = None
    columns: tuple[Tensor | None, Tensor | None] = (None, None)

    def contract(
        self, form: Form, K: Tensor, *, square: bool, v: Tensor | None, budget: Budget, dtype: torch.dtype | None
    ) -> Contraction:
        """Contract the rows of a batch with this side.

        Args:
            form: The group's gradients at ``n`` rows.
            K: The group's part of the kernel rows is added to it, ``(n, m)``.
            square: Whether ``|G|²`` is wanted.
            v: A gradient ``(P,)`` to take the inner product with, or ``None``.
            budget: An eighth of it is what written-out gradients of the rows may take at a time.
            dtype: Type to multiply in, or ``None`` for that of the gradients.

        Returns:
            The group's contribution, without the part that was added.
        """
        if self.G is not None:
            found = self._explicit(form, self.G, square, v, budget, dtype)
            if found.K is not None and found.K.dtype == K.dtype:
                K += found.K
                found = replace(found, K=None)
            return found
        rest = None
        if self.form is not None:
            rest = _select(_cast(form, dtype), self.columns).add_gram(_beside(self.form, form), K)
        return Contraction(rest, squares(form, budget) if square else None, form.dot(v) if v is not None else None)

    def gram(self, dtype: torch.dtype | None) -> Tensor | None:
        """Return the Gram matrix of the prepared samples, ``(m, m)``, or ``None`` where all gradients vanish."""
        if self.G is not None:
            return inner(self.G, self.G, dtype=dtype)
        return None if self.form is None else _cast(self.form, dtype).gram(self.form)

    def _explicit(
        self, form: Form, G: Tensor, square: bool, v: Tensor | None, budget: Budget, dtype: torch.dtype | None
    ) -> Contraction:
        """Write the rows' gradients out once, a few rows at a time, for all three results."""
        parts = []
        for _, rows in written_out(form, budget):
            parts.append(
                Contraction(
                    inner(rows, G, dtype=dtype),
                    square_lengths(rows) if square else None,
                    inner(rows, v.to(rows.dtype).unsqueeze(0)).squeeze(1) if v is not None else None,
                )
            )
        return Contraction(
            torch.cat([part.K for part in parts if part.K is not None]),
            torch.cat([part.square for part in parts if part.square is not None]) if square else None,
            torch.cat([part.dot for part in parts if part.dot is not None]) if v is not None else None,
        )


@dataclass(frozen=True)
class Measures:
    """``|G|²`` and ``<G, v>`` of one group at some samples, ``(n,)`` each, where they were asked for."""

    square: Tensor | None
    dot: Tensor | None


class Prepared:
    """The prepared samples of a tangent kernel.

    Args:
        m: Number of samples that will be added.
        budget: Half of it is what the sides may take in memory; beyond that they go to a temporary folder on disk.
        dtype: Type the contraction multiplies in, or ``None``.
    """

    def __init__(self, m: int, budget: Budget, dtype: torch.dtype | None) -> None:
        self.m, self.budget, self.dtype = m, budget, dtype
        self.sides: list[Side] = []
        self.folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def spilled(self) -> bool:
        """Whether the sides are on disk."""
        return self.folder is not None

    def add(self, forms: list[Form], rows: slice) -> None:
        """Put the gradients of the samples ``rows`` in their places; the first call decides routes and storage."""
        if not self.sides:
            self._allocate(forms)
        for form, side in zip(forms, self.sides, strict=True):
            if side.G is not None:
                for part, G in written_out(form, self.budget):
                    side.G[rows][part] = G
            elif side.form is not None:
                for name in form.fields:
                    getattr(side.form, name)[rows] = getattr(form, name)

    def measure(self, form: Form, i: int, rows: slice, *, square: bool, v: Tensor | None) -> Measures:
        """Return ``|G|²`` and ``<G, v>`` of samples that were added; gradients that are written out are read back.

        Args:
            form: Group ``i``'s gradients at the samples ``rows``.
            i: The group.
            rows: The samples.
            square: Whether ``|G|²`` is wanted.
            v: A gradient ``(P,)`` to take the inner product with, or ``None``.

        Returns:
            Both.
        """
        G = self.sides[i].G
        if G is None:
            return Measures(squares(form, self.budget) if square else None, form.dot(v) if v is not None else None)
        G = G[rows].to(getattr(form, form.fields[-1]).device)
        step = self.budget.rows(12 * G.shape[1], what="the written-out gradient of a sample", share=1 / 8)
        parts = G.split(step)
        return Measures(
            torch.cat([square_lengths(part) for part in parts]) if square else None,
            torch.cat([inner(part, v.to(part.dtype).unsqueeze(0)).squeeze(1) for part in parts])
            if v is not None
            else None,
        )

    def gram(self, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return the kernel of the prepared samples among themselves, ``(m, m)``, without looking at them again."""
        K = torch.zeros(self.m, self.m, dtype=dtype, device=device)
        exact = torch.zeros(self.m, self.m, dtype=torch.float64, device=device)
        for side in self.sides:
            part = side.gram(self.dtype)
            if part is not None:
                target = exact if part.dtype == torch.float64 != dtype else K
                target += part.to(device)
        return (exact + K).to(dtype)

    def finish(self) -> None:
        """Drop what vanishes on every sample."""
        if not self.spilled:
            self.sides = [compact(side, self.dtype) for side in self.sides]

    def size(self, forms: list[Form]) -> int:
        """Return the bytes that the sides take, wherever they are kept."""
        return sum(_bytes(form, form.route(self.m)) for form in forms) * self.m

    def repeat(self, k: int) -> None:
        """Put the first ``k`` samples in all other places too: a side of full size at the price of a few samples."""
        for side in self.sides:
            fields = [side.G] if side.form is None else [getattr(side.form, name) for name in side.form.fields]
            for field in fields:
                if field is not None:
                    for start in range(k, self.m, k):
                        field[start : start + k] = field[: min(k, self.m - start)]

    def _allocate(self, forms: list[Form]) -> None:
        routes = [form.route(self.m) for form in forms]
        if not self.budget.fits(self.size(forms), share=1 / 2):
            self.folder = tempfile.TemporaryDirectory(prefix="krepes-")
        for i, (form, route) in enumerate(zip(forms, routes, strict=True)):
            if route == "explicit":
                P = take(form, slice(0, 1)).explicit().shape[1]
                like = getattr(form, form.fields[-1])
                self.sides.append(Side(G=self._empty((self.m, P), like, f"{i}-G")))
            else:
                fields = {name: getattr(form, name) for name in form.fields}
                empty = {k: self._empty((self.m, *x.shape[1:]), x, f"{i}-{k}") for k, x in fields.items()}
                self.sides.append(Side(form=replace(form, **empty)))  # type: ignore[type-var]

    def _empty(self, shape: tuple[int, ...], like: Tensor, name: str) -> Tensor:
        if self.folder is None:
            return torch.empty(shape, dtype=like.dtype, device=like.device)
        size = int(torch.Size(shape).numel())
        path = str(Path(self.folder.name) / name)
        return torch.from_file(path, shared=True, size=size, dtype=like.dtype).reshape(shape)


def apart(form: Form) -> list[Form]:
    """Return forms whose Gram matrices sum to that of one: a bias apart from its weight needs no copy of both."""
    if not isinstance(form, Outer) or form.a.shape[1] == 1:
        return [form]
    weight = replace(form, bias=False, ahead=0)
    return [weight, Vector(form.d.sum(1).flatten(1))] if form.bias else [weight]


def _beside(form: Form, other: Form) -> Form:
    """Return the form on the device of another: a side that was spilled to disk is read through the CPU."""
    device = getattr(other, other.fields[-1]).device
    if getattr(form, form.fields[-1]).device == device:
        return form
    return replace(form, **{name: getattr(form, name).to(device) for name in form.fields})  # type: ignore[type-var]


def squares(form: Form, budget: Budget) -> Tensor:
    """Return ``|G_i|²``, ``(n,)``, a few samples at a time: what is written out takes an eighth of the budget."""
    step = budget.rows(8 * form.squaring(), what="the written-out gradient of a sample", share=1 / 8)  # float64
    return torch.cat([take(form, slice(i, i + step)).square() for i in range(0, form.n, step)])


def _bytes(form: Form, route: str) -> int:
    """Return the bytes one prepared sample of a group takes."""
    if route == "explicit":
        return int(form.costs()[1]) * int(getattr(form, form.fields[-1]).element_size())
    return sum(getattr(form, name)[0].numel() * getattr(form, name).element_size() for name in form.fields)


def compact(side: Side, dtype: torch.dtype | None) -> Side:
    """Return the side without the columns of an outer product that are zero at every sample."""
    if not isinstance(side.form, Outer):
        return side
    columns = (_kept(side.form.a), _kept(side.form.d))
    if columns[1] is not None and not len(columns[1]):
        return Side()
    return Side(form=_cast(_select(side.form, columns), dtype), columns=columns)


def _kept(x: Tensor) -> Tensor | None:
    """Return the last-axis columns of ``(m, T, s, I)`` that are not all zero, or ``None`` where most are kept."""
    kept = (x != 0).flatten(0, 2).any(0).nonzero().squeeze(1)
    return kept if len(kept) <= WORTH_DROPPING * x.shape[-1] else None


def _select(form: Form, columns: tuple[Tensor | None, Tensor | None]) -> Form:
    if not isinstance(form, Outer) or columns == (None, None):
        return form
    a, d = (x if keep is None else x.index_select(3, keep) for x, keep in zip((form.a, form.d), columns, strict=True))
    return replace(form, a=a, d=d)


def _cast(form: Form, dtype: torch.dtype | None) -> Form:
    return form if dtype is None or not hasattr(form, "dtype") else replace(form, dtype=dtype)  # type: ignore[type-var]
