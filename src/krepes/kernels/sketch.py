r"""Explicit tangent features of dimension q whose inner products are the tangent kernel in expectation.

A gradient ``Σ_t d_t ⊗ a_t`` is hashed without being written out: entry ``(o, i)`` goes to bucket ``h(o) + h'(i) mod q``
with sign ``s(o) s'(i)``, and such a tensor sketch is a circular convolution of two count sketches,

    sketch(Σ_t d_t ⊗ a_t) = F⁻¹( Σ_t F(count(d_t)) · F(count'(a_t)) ).

Where the gradient is small and tokens are many, writing it out and hashing it directly is cheaper and gives the same
numbers. Each group of parameters has hashes of its own and the sketches add up: ``E<φ̂(x), φ̂(x')> = k(x, x')``, with
a relative error that falls as ``q^{-1/2}``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from krepes import batches
from krepes._checks import require_range
from krepes._describe import Description, described
from krepes.batches import Batch
from krepes.budget import DEFAULT_BUDGET, Budget, MemoryBudget
from krepes.encoders.frozen import FrozenEncoder
from krepes.encoders.outputs import Output
from krepes.kernels.base import Kernel, MeanFeature, Rows
from krepes.kernels.entk import chunk_size, embedding
from krepes.kernels.forms import F, Form, Lookup, Outer, take
from krepes.kernels.memory import seen
from krepes.kernels.patches import Patches
from krepes.kernels.tangent import ParameterRule, Tangent
from krepes.linalg import without_autocast

SCATTER, TRANSFORM = 60.0, 17.0
"""Cost of hashing one entry, and of one entry (times log2 q) of a Fourier transform, in multiply-adds of a product."""


@dataclass(frozen=True)
class Hash:
    """A bucket in ``range(q)`` and a sign for each of ``size`` entries."""

    bucket: Tensor
    sign: Tensor

    @classmethod
    def draw(cls, size: int, q: int, generator: torch.Generator, like: Tensor) -> Hash:
        """Return independent uniform buckets and signs on the device of ``like``."""
        bucket = torch.randint(0, q, (size,), generator=generator)
        sign = 2 * torch.randint(0, 2, (size,), generator=generator) - 1
        return cls(bucket.to(like.device), sign.to(like.device, like.dtype))

    def count(self, x: Tensor, q: int) -> Tensor:
        """Return the count sketch ``(..., q)`` of ``x`` ``(..., size)``."""
        out = x.new_zeros(*x.shape[:-1], q)
        return out.scatter_add_(-1, self.bucket.expand(x.shape), x * self.sign)


class SketchedNTK(Kernel):
    """The tangent kernel through explicit random features, for many landmarks or convolutional encoders.

    Args:
        encoder: As for `EmpiricalNTK`; or the tangent features of one, which both kernels may then share.
        q: Number of features.
        heads: As for `EmpiricalNTK`.
        seed: Seed of the heads; with ``sketch_seed`` it fixes the kernel.
        sketch_seed: Seed of the hashes.
        parameters: As for `EmpiricalNTK`.
        include_frozen: As for `EmpiricalNTK`.
        output: As for `EmpiricalNTK`.
        memory_budget: For activations and transients: bytes, or text such as ``"2G"``. Features of prepared samples,
            ``4 q`` bytes each, are kept beside it.
    """

    def __init__(
        self,
        encoder: nn.Module | FrozenEncoder | Tangent,
        *,
        q: int = 4096,
        heads: int = 1,
        seed: int = 0,
        sketch_seed: int = 0,
        parameters: str | Sequence[str] = "*",
        include_frozen: bool = True,
        output: Output = None,
        memory_budget: MemoryBudget = DEFAULT_BUDGET,
    ) -> None:
        require_range(q, "q", low=2)
        require_range(heads, "heads", low=1)
        self.q, self.sketch_seed, self.budget = q, sketch_seed, Budget.of(memory_budget)
        if not isinstance(encoder, Tangent):
            encoder = Tangent(
                encoder, heads=heads, seed=seed, parameters=parameters, include_frozen=include_frozen, output=output
            )
        self.tangent = encoder
        self._hashes: dict[int, tuple[Hash, Hash]] = {}

    @without_autocast()
    def features(self, X: Batch) -> Tensor:
        """Return ``φ̂(x)``, ``(n, q)``, for samples ``X`` ``(n, ...)``."""
        return torch.cat([phi for _, phi in self.stream(X)])

    def stream(self, X: Batch) -> Iterator[tuple[slice, Tensor]]:
        """Yield ``(slice, φ̂)`` for as many samples at a time as the memory budget allows.

        Args:
            X: Samples, ``(n, ...)``.

        Yields:
            The samples' places and their features, ``(b, q)``.
        """
        yield from ((rows, phi) for rows, phi, _ in self._seen(X))

    def _seen(self, X: Batch) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield places, features and embeddings."""
        self.tangent.probe(X)
        size = chunk_size(self.tangent, self.budget, columns=self.q)
        for rows, samples in batches.chunks(X, size):
            yield rows, *seen(lambda: self._name, samples, self._look)

    def _look(self, X: Batch) -> tuple[Tensor, Tensor]:
        """Return features and embeddings of as many samples as fit."""
        forms = self.tangent.forms(X)
        return self.sketched(forms), embedding(forms)

    @cached_property
    def _name(self) -> str:
        """A text that differs where features would; the encoder's weights are looked at once."""
        return json.dumps(self.describe())

    def prepare(self, Y: Batch) -> Tensor:
        """Return the features of ``Y``, ``(m, q)``."""
        return self.features(Y)

    @without_autocast()
    def enter(
        self, Y: Batch, *, gram: bool = False, diagonal: bool = False, mean: MeanFeature | None = None
    ) -> tuple[Tensor, Rows]:
        """Return the features of ``Y`` ``(m, ...)`` and its rows, from one pass; see `Kernel.enter`."""
        parts = [(phi, Z) for _, phi, Z in self._seen(Y)]
        phi, Z = (torch.cat(column) for column in zip(*parts, strict=True))
        return phi, self._products(phi, phi if gram else phi[:0], Z, diagonal, mean)

    @without_autocast()
    def rows(self, X: Batch, prepared: Tensor, *, diagonal: bool = False, mean: MeanFeature | None = None) -> Rows:
        """Return inner products of features; see `Kernel.rows`."""
        parts = [self._products(phi, prepared, Z, diagonal, mean) for _, phi, Z in self._seen(X)]
        return Rows(
            torch.cat([part.K for part in parts]),
            torch.cat([part.diagonal for part in parts if part.diagonal is not None]) if diagonal else None,
            torch.cat([part.mean for part in parts if part.mean is not None]) if mean is not None else None,
            torch.cat([part.embedding for part in parts if part.embedding is not None]),
        )

    def _products(self, phi: Tensor, prepared: Tensor, Z: Tensor, diagonal: bool, mean: MeanFeature | None) -> Rows:
        """Return the rows of features ``(n, q)`` of samples with the embeddings ``Z``."""
        square = phi.square().sum(1) if diagonal else None
        return Rows(phi @ prepared.T, square, phi @ mean.content if mean is not None else None, Z)

    @without_autocast()
    def mean_feature(self, X: Batch, weights: Tensor | None = None) -> MeanFeature:
        """Return ``Σ w_i φ̂(x_i)``, by default the mean, as one vector ``(q,)``."""
        n = batches.count(X)
        w = torch.full((n,), 1.0 / n, dtype=torch.float64) if weights is None else weights.double()
        return self.mean_of((w[rows], phi) for rows, phi in self.stream(X))

    def mean_of(self, weighted: Iterable[tuple[Tensor, Tensor]]) -> MeanFeature:
        """Return ``Σ w_i φ̂(x_i)`` from pieces of weights ``(b,)`` and features ``(b, q)``."""
        total = sum(w.to(phi.device) @ phi.double() for w, phi in weighted)
        assert isinstance(total, Tensor)
        return MeanFeature(content=total.to(self.tangent.dtype), square=float(total.square().sum()))

    @property
    def bytes_per_feature(self) -> int:
        """Bytes that ``φ̂(x)`` of one sample takes."""
        return self.q * self.tangent.dtype.itemsize

    def coverage(self) -> list[ParameterRule]:
        """Return each parameter with the rule that served it; known after the first samples."""
        return self.tangent.coverage()

    def describe(self) -> Description:
        """Return the settings that fix the kernel, with a fingerprint of the encoder's weights."""
        return described("sketch", {"q": self.q, "sketch_seed": self.sketch_seed, **self.tangent.settings()})

    def sketched(self, forms: list[Form]) -> Tensor:
        """Return the summed sketch of all groups, ``(n, q)``: the convolutions share one inverse transform."""
        direct = torch.zeros(forms[0].n, self.q, dtype=self.tangent.dtype, device=self.tangent.device)
        transformed: Tensor | None = None
        for i, form in enumerate(forms):
            left, right = self._hash(i, form)
            if isinstance(form, Lookup):
                direct += _lookup(form, left, right, self.q)
            elif isinstance(form, (Outer, Patches)) and by_transform(form, self.q):
                pieces = self._pieces(form, transformed=True)
                part = torch.cat([_convolution(_outer(one), left, right, self.q) for one in pieces])
                transformed = part if transformed is None else transformed + part
            else:
                others = self._pieces(form, transformed=False)
                direct += torch.cat([_written_out(one, left, right, self.q) for one in others])
        if transformed is not None:
            direct += torch.fft.irfft(transformed, n=self.q)
        return direct

    def _pieces(self, form: F, *, transformed: bool) -> Iterator[F]:
        """Yield a group's gradients of as many samples as an eighth of the budget holds while they are sketched."""
        _, written, work = form.costs()
        # Hashed tokens of both sides, their transforms and the product of these; or the gradient, its signs and sum.
        numbers = form.transient() - written + (6 * self.q * work / max(written, 1.0) if transformed else 3 * written)
        size = max(1, int(self.budget.bytes / 8 // max(1.0, numbers * self.tangent.dtype.itemsize)))
        return (take(form, slice(start, start + size)) for start in range(0, form.n, size))

    def _hash(self, i: int, form: Form) -> tuple[Hash, Hash]:
        """Return the hashes of group ``i`` for output and input entries, drawn at first use."""
        if i not in self._hashes:
            draw = torch.Generator().manual_seed(1_000_003 * self.sketch_seed + i)
            like = getattr(form, form.fields[-1])
            left, right = hash_sizes(form)
            self._hashes[i] = Hash.draw(left, self.q, draw, like), Hash.draw(right, self.q, draw, like)
        return self._hashes[i]


def hash_sizes(form: Form) -> tuple[int, int]:
    """Return how many output and input entries a group's gradient has: their product is its size ``P``."""
    if isinstance(form, Outer):
        return form.a.shape[2] * form.d.shape[3] + form.ahead, form.a.shape[3] + form.bias
    if isinstance(form, Patches):
        r, O, C = form.d.shape[2], form.d.shape[3], form.x.shape[2]
        return r * O, C // form.window.groups * math.prod(form.window.kernel) + form.bias
    if isinstance(form, Lookup):
        return form.V, form.d.shape[2]
    return form.explicit().shape[1], 1


def by_transform(form: Outer | Patches, q: int) -> bool:
    """Return whether Fourier transforms of every token cost less than writing the gradient out."""
    return sketch_cost(form, q)[0] < sketch_cost(form, q)[1]


def sketch_cost(form: Form, q: int) -> tuple[float, float]:
    """Return the multiply-adds per sample by transforms, and written out."""
    left, right = hash_sizes(form)
    writing = form.costs()[2]
    tokens = writing / max(form.costs()[1], 1.0)
    return tokens * (2 * TRANSFORM * q * math.log2(q) + SCATTER * (left + right)), writing + SCATTER * left * right


def _outer(form: Outer | Patches) -> Outer:
    return form.outer() if isinstance(form, Patches) else form


def _convolution(form: Outer, left: Hash, right: Hash, q: int) -> Tensor:
    """Return the transform of the tensor sketch, ``(n, q/2 + 1)``, summed over tokens and channel groups."""
    n, T, s, _ = form.a.shape
    a = nn.functional.pad(form.a, (0, 1), value=1.0) if form.bias else form.a
    O = form.d.shape[3]
    total = torch.zeros(n, q // 2 + 1, dtype=torch.complex64 if a.dtype == torch.float32 else torch.complex128)
    total = total.to(a.device)
    for group in range(s):
        places = slice(form.ahead + group * O, form.ahead + (group + 1) * O)
        outputs = Hash(left.bucket[places], left.sign[places])
        d_hat = torch.fft.rfft(outputs.count(form.d[:, :, group], q))
        a_hat = torch.fft.rfft(right.count(a[:, :, group], q))
        total += (d_hat * a_hat).sum(1)
    return total


def _written_out(form: Form, left: Hash, right: Hash, q: int) -> Tensor:
    """Return the same sketch from the written-out gradient, ``(n, q)``."""
    bucket = (left.bucket[:, None] + right.bucket[None, :]).remainder(q).reshape(-1)
    sign = (left.sign[:, None] * right.sign[None, :]).reshape(-1)
    return Hash(bucket, sign).count(form.explicit(), q)


def _lookup(form: Lookup, left: Hash, right: Hash, q: int) -> Tensor:
    """Return the sketch of embedding gradients, ``(n, q)``: every token's row is hashed to where it belongs."""
    bucket = (left.bucket[form.ids].unsqueeze(2) + right.bucket).remainder(q).flatten(1)
    values = (left.sign[form.ids].unsqueeze(2) * right.sign * form.d).flatten(1)
    return values.new_zeros(form.n, q).scatter_add_(1, bucket, values)
