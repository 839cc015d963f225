r"""Per-sample gradients of one group of parameters, ``(n, P)``, in forms that are cheaper than an ``n x P`` array.

    Vector   g_i                                   small gradients: biases, norms, the head, free parameters
    Outer    G_i = Σ_t d_it ⊗ [a_it ; 1]           linear layers, over T tokens (or pixels)
    Lookup   G_i[v] = Σ_{t: id_it = v} d_it        embeddings

Two routes lead to the Gram matrix ``<G_i, G'_j>``: *explicit*, a product of the written-out gradients, and *factors*,

    <G_i, G'_j> = Σ_{t,s} ([a_it ; 1]·[a'_js ; 1]) (d_it·d'_js),

which for one token is the product of two small Gram matrices. `Form.route` picks the cheaper one. Several heads need no
rule of their own: their output gradients stand side by side in ``d``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

import torch
from torch import Tensor

from krepes.budget import Budget
from krepes.kernels.products import INNER_BLOCK, inner, matmul, square_lengths

TILE = 1 << 20
"""Entries of one tile of token pairs: small enough to stay in cache."""
ELEMENTWISE = 8.0
"""Cost of one entry of a pair tile (two memory-bound operations) in multiply-adds of a matrix product."""
MOVING = 48.0
"""Cost of writing one entry of a gradient out and of reading it again, beside its multiply-adds, in the same unit."""

F = TypeVar("F", bound="Form")


class Form(ABC):
    """Per-sample gradients of ``n`` samples; a frozen dataclass whose ``fields`` are tensors with a sample axis."""

    fields: ClassVar[tuple[str, ...]]

    @property
    def n(self) -> int:
        """Number of samples."""
        return int(getattr(self, self.fields[0]).shape[0])

    @abstractmethod
    def explicit(self) -> Tensor:
        """Return the gradients written out, ``(n, P)``."""

    @abstractmethod
    def gram(self, other: Form) -> Tensor:
        """Return ``<G_i, G'_j>``, ``(n, m)``, by factors."""

    @abstractmethod
    def costs(self) -> tuple[float, float, float]:
        """Return multiply-adds: per pair by factors, per pair explicitly, and for writing out one sample's gradient."""

    def add_gram(self, other: Form, K: Tensor) -> Tensor | None:
        """Add ``<G_i, G'_j>`` by factors to ``K`` ``(n, m)``; what was summed in another type is returned instead."""
        part = self.gram(other)
        if part.dtype != K.dtype:
            return part
        K += part
        return None

    def route(self, m: int) -> str:
        """Return ``"factors"`` or ``"explicit"``, whichever costs less per row against ``m`` prepared samples."""
        pair_by_factors, pair_explicit, writing = self.costs()
        moving = MOVING * pair_explicit
        return "factors" if pair_by_factors <= pair_explicit + (writing + moving) / max(m, 1) else "explicit"

    def transient(self) -> int:
        """Return how many numbers a sample needs for a moment while its gradient is written out."""
        return int(self.costs()[1])

    def squaring(self) -> int:
        """Return how many numbers a sample needs for a moment while `square` looks at it."""
        return self.transient()

    def square(self) -> Tensor:
        """Return ``|G_i|²``, ``(n,)``, float64."""
        return square_lengths(self.explicit())

    def weighted_sum(self, w: Tensor) -> Tensor:
        """Return ``Σ w_i G_i``, ``(P,)``, float64."""
        return w.double() @ self.explicit().double()

    def dot(self, v: Tensor) -> Tensor:
        """Return ``<G_i, v>``, ``(n,)``, for ``v`` ``(P,)``."""
        G = self.explicit()
        return inner(G, v.to(G.dtype).unsqueeze(0)).squeeze(1)


def take(form: F, rows: slice | Tensor) -> F:
    """Return the form of the chosen samples; a kernel asks for hundreds, and `dataclasses.replace` is slow."""
    part = object.__new__(type(form))
    part.__dict__.update(form.__dict__, **{name: getattr(form, name)[rows] for name in form.fields})
    return part


def concatenate(forms: list[F]) -> F:
    """Return one form over all samples."""
    joined = {name: torch.cat([getattr(form, name) for form in forms]) for name in forms[0].fields}
    return replace(forms[0], **joined)  # type: ignore[type-var]


def written_out(form: Form, budget: Budget) -> Iterator[tuple[slice, Tensor]]:
    """Yield the written-out gradients of a few samples at a time.

    Args:
        form: The gradients.
        budget: An eighth of it is what they may take.

    Yields:
        The samples, and their gradients ``(b, P)``.
    """
    each = form.transient() * getattr(form, form.fields[-1]).element_size()
    step = budget.rows(each, what="the written-out gradient of a sample", share=1 / 8)
    for start in range(0, form.n, step):
        rows = slice(start, start + step)
        yield rows, take(form, rows).explicit()


@dataclass(frozen=True)
class Vector(Form):
    """Gradients small enough to be written out: ``g`` ``(n, P)``."""

    g: Tensor
    fields: ClassVar[tuple[str, ...]] = ("g",)

    def explicit(self) -> Tensor:
        """Return ``g``."""
        return self.g

    def gram(self, other: Form) -> Tensor:
        """Return ``g g'ᵀ``, ``(n, m)``."""
        return inner(self.g, other.explicit())

    def add_gram(self, other: Form, K: Tensor) -> Tensor | None:
        """Add ``g g'ᵀ`` to ``K`` ``(n, m)`` in the product itself where it is short."""
        if self.g.shape[1] > INNER_BLOCK or self.g.dtype != K.dtype:
            return super().add_gram(other, K)
        K.addmm_(self.g, other.explicit().to(K.device).T)
        return None

    def costs(self) -> tuple[float, float, float]:
        """Return the same cost for both routes, so that nothing is ever copied."""
        return float(self.g.shape[1]), float(self.g.shape[1]), 0.0


@dataclass(frozen=True)
class Outer(Form):
    """``G_i = Σ_t d_it ⊗ [a_it ; 1]`` for each of ``s`` channel groups.

    Attributes:
        a: Layer inputs, ``(n, T, s, I)``.
        d: Gradients of the layer outputs, ``(n, T, s, O)``; heads side by side in ``O``.
        bias: Whether the bias is part of the group: a constant 1 behind each ``a``.
        dtype: Type to multiply in, or ``None`` for that of ``a``.
        ahead: Outputs in front of those in ``d`` whose gradient vanishes at every sample, for a single channel group.
    """

    a: Tensor
    d: Tensor
    bias: bool
    dtype: torch.dtype | None = None
    ahead: int = 0
    fields: ClassVar[tuple[str, ...]] = ("a", "d")

    def explicit(self) -> Tensor:
        """Return ``(n, s · O · (I + bias))``: the products of weights, and beside them the sums for the bias."""
        beside = self.bias and self.a.shape[1] < self.d.shape[3]  # ones beside the inputs, where these are fewer
        a = torch.nn.functional.pad(self.a, (0, 1), value=1.0) if beside else self.a
        G = torch.einsum("ntso,ntsi->nsoi", self.d, a)
        G = torch.cat([G, self.d.sum(1).unsqueeze(3)], dim=3) if self.bias and not beside else G
        return (torch.nn.functional.pad(G, (0, 0, self.ahead, 0)) if self.ahead else G).reshape(self.n, -1)

    def gram(self, other: Form) -> Tensor:
        """Return the sum over token pairs of the products of two small Grams, ``(n, m)``."""
        assert isinstance(other, Outer)
        (n, T, s, _), m, T_other = self.a.shape, other.n, other.a.shape[1]
        if T == T_other == s == 1:
            return self._pairs(other, 0).mul_(matmul(self.d[:, 0, 0], other.d[:, 0, 0].T, self.dtype))
        K = torch.empty(n, m, dtype=self.a.dtype, device=self.a.device)
        step_m = max(1, min(m, 64))
        step_n = max(1, min(n, TILE // (T * T_other * step_m)))
        for i in range(0, n, step_n):
            rows = take(self, slice(i, i + step_n))
            for j in range(0, m, step_m):
                columns = take(other, slice(j, j + step_m))
                K[i : i + step_n, j : j + step_m] = rows._tile(columns)
        return K

    def add_gram(self, other: Form, K: Tensor) -> Tensor | None:
        """Add the products of the two small Grams to ``K`` ``(n, m)`` as they are made, for one token."""
        assert isinstance(other, Outer)
        if not (self.a.shape[1] == other.a.shape[1] == self.a.shape[2] == 1) or self.a.dtype != K.dtype:
            return super().add_gram(other, K)
        K.addcmul_(self._pairs(other, 0), matmul(self.d[:, 0, 0], other.d[:, 0, 0].T, self.dtype))
        return None

    def _pairs(self, other: Outer, group: int) -> Tensor:
        """Return ``[a;1]·[a';1]`` between all tokens of one channel group, ``(n T, m T')``."""
        products = matmul(self.a[:, :, group].flatten(0, 1), other.a[:, :, group].flatten(0, 1).T, self.dtype)
        return products.add_(1.0) if self.bias else products

    def _tile(self, other: Outer) -> Tensor:
        """Return the Gram of a tile, all its token pairs at once."""
        total: Tensor | None = None
        for group in range(self.a.shape[2]):
            d = matmul(self.d[:, :, group].flatten(0, 1), other.d[:, :, group].flatten(0, 1).T, self.dtype)
            products = self._pairs(other, group).mul_(d)
            total = products if total is None else total.add_(products)
        assert total is not None
        return total.reshape(self.n, self.a.shape[1], other.n, -1).sum((1, 3))

    def costs(self) -> tuple[float, float, float]:
        """Return ``T² s (I + O + elementwise)``, ``s I O`` and ``T s I O``."""
        (_, T, s, I), O = self.a.shape, self.d.shape[3]
        elementwise = ELEMENTWISE if T * s > 1 else 0.0
        written = s * I * (O + self.ahead)
        return T * T * s * (I + O + elementwise), float(written), float(T * written)

    @property
    def _squared_by_tokens(self) -> bool:
        (_, T, _, I), O = self.a.shape, self.d.shape[3]
        return T * (I + O) <= I * O

    def squaring(self) -> int:
        """Return the numbers of the T x T products in float64, or of the written-out gradient."""
        (_, T, s, I), O = self.a.shape, self.d.shape[3]
        return s * (T * (I + O) + 3 * T * T) if self._squared_by_tokens else self.transient()

    def square(self) -> Tensor:
        """Return ``|G_i|²`` by the cheaper of the T x T products and the written-out gradient."""
        if not self._squared_by_tokens:
            return super().square()
        one = 1.0 if self.bias else 0.0
        if self.a.shape[1] == 1:
            return ((square_lengths(self.a) + one) * square_lengths(self.d)).sum((1, 2))
        a, d = self.a.double(), self.d.double()
        products = torch.einsum("ntsi,nusi->nstu", a, a) + one
        return (products * torch.einsum("ntso,nuso->nstu", d, d)).sum((1, 2, 3))

    def weighted_sum(self, w: Tensor) -> Tensor:
        """Return ``Σ w_i G_i`` as one product per channel group."""
        a = torch.nn.functional.pad(self.a, (0, 1), value=1.0) if self.bias else self.a
        d = self.d * w.to(self.d.dtype)[:, None, None, None]
        G = torch.einsum("ntso,ntsi->soi", d, a)
        return torch.nn.functional.pad(G, (0, 0, self.ahead, 0)).reshape(-1).double()

    def dot(self, v: Tensor) -> Tensor:
        """Return ``Σ_t d_itᵀ V [a_it ; 1]``: one more pass through the layer, not through the gradient."""
        s, O, I = self.a.shape[2], self.d.shape[3], self.a.shape[3]
        V = v.to(self.a.dtype).reshape(s, self.ahead + O, I + self.bias)[:, self.ahead :]
        if s == 1:
            image = torch.nn.functional.linear(self.a, V[0, :, :I], V[0, :, I] if self.bias else None)
            return (image * self.d).sum((1, 2, 3))
        image = torch.einsum("ntsi,soi->ntso", self.a, V[..., :I])
        if self.bias:
            image = image + V[..., I]
        return (image * self.d).sum((1, 2, 3))


@dataclass(frozen=True)
class Lookup(Form):
    """Embedding gradients: ``d`` ``(n, T, E)`` added to the rows ``ids`` ``(n, T)`` of a table of ``V`` rows."""

    ids: Tensor
    d: Tensor
    V: int
    fields: ClassVar[tuple[str, ...]] = ("ids", "d")

    def explicit(self) -> Tensor:
        """Return ``(n, V · E)``."""
        n, _, E = self.d.shape
        G = torch.zeros(n, self.V, E, dtype=self.d.dtype, device=self.d.device)
        return G.scatter_add_(1, self.ids.unsqueeze(2).expand_as(self.d), self.d).reshape(n, -1)

    def gram(self, other: Form) -> Tensor:
        """Return the sum of ``d·d'`` over the pairs of tokens that are the same word, ``(n, m)``."""
        assert isinstance(other, Lookup)
        (n, T), m = self.ids.shape, other.n
        K = torch.empty(n, m, dtype=self.d.dtype, device=self.d.device)
        step = max(1, TILE // (T * m * other.ids.shape[1]))
        for i in range(0, n, step):
            rows = slice(i, i + step)
            products = self.d[rows].flatten(0, 1) @ other.d.flatten(0, 1).T
            same = self.ids[rows].reshape(-1, 1) == other.ids.reshape(1, -1)
            K[rows] = (products * same).reshape(-1, T, m, other.ids.shape[1]).sum((1, 3))
        return K

    def costs(self) -> tuple[float, float, float]:
        """Return ``T² (E + elementwise)``, ``V E`` and ``T E``."""
        T, E = self.d.shape[1:]
        return T * T * (E + ELEMENTWISE), float(self.V * E), float(T * E)
