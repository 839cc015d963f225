r"""The exact empirical neural tangent kernel of any PyTorch encoder, in bounded memory.

    k(x, x') = <φ(x), φ(x')>,      φ(x) = gradient of r random scalar heads in all parameters (see `tangent`)

No gradient of size P is formed where a cheaper exact form exists: one forward and one backward for a whole batch give
each layer's input and output gradient, and each layer is contracted by the cheapest exact route (see `forms`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from krepes import batches
from krepes._checks import require_range
from krepes._describe import Description, described
from krepes.batches import Batch
from krepes.budget import DEFAULT_BUDGET, Budget, MemoryBudget
from krepes.encoders.frozen import FrozenEncoder
from krepes.encoders.outputs import Output
from krepes.kernels.base import Kernel, MeanFeature, Rows
from krepes.kernels.forms import Form, Vector, take
from krepes.kernels.products import inner
from krepes.kernels.store import Prepared, Side, apart, compact, squares
from krepes.kernels.tangent import ParameterRule, Tangent
from krepes.linalg import without_autocast

LARGEST_CHUNK = 512
LARGEST_SHARE = 256 << 20
"""Bytes of activations that a chunk may take at most: larger chunks leave the cache and gain nothing."""

SHORT = 4096
"""Numbers of a written-out gradient, such as that of a bias, up to which it is put beside others for one product."""


class EmpiricalNTK(Kernel):
    """The exact tangent kernel of an encoder with random scalar heads.

    Args:
        encoder: Any module returning embeddings ``(n, d, ...)``; it is left as it was after each call.
        heads: Number of random heads that are averaged.
        seed: Seed of the heads, recorded in `describe`.
        parameters: ``"*"`` for all, ``"last"`` for the last layer, or glob patterns of parameter names.
        include_frozen: Whether parameters with ``requires_grad=False`` count.
        output: Where the embedding is in what the encoder returns: a position, a key or dotted path, or a function.
        memory_budget: For prepared samples, activations and transients together: bytes, or text such as ``"2G"``.
            Prepared samples beyond half of it are spilled to disk. The result itself is not counted.
        contraction: Type to multiply in, such as ``torch.bfloat16`` (about 2e-3 relative error); ``None`` is exact.

    Example:
        >>> encoder = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        >>> K = EmpiricalNTK(encoder)(torch.eye(4), torch.eye(4))
        >>> K.shape, bool(torch.linalg.eigvalsh(K.double()).min() > 0)
        (torch.Size([4, 4]), True)
    """

    def __init__(
        self,
        encoder: nn.Module | FrozenEncoder,
        *,
        heads: int = 1,
        seed: int = 0,
        parameters: str | Sequence[str] = "*",
        include_frozen: bool = True,
        output: Output = None,
        memory_budget: MemoryBudget = DEFAULT_BUDGET,
        contraction: torch.dtype | None = None,
    ) -> None:
        require_range(heads, "heads", low=1)
        self._converted: tuple[MeanFeature, list[Tensor]] | None = None
        self.budget, self.contraction = Budget.of(memory_budget), contraction
        self.tangent = Tangent(
            encoder, heads=heads, seed=seed, parameters=parameters, include_frozen=include_frozen, output=output
        )

    @without_autocast()
    def __call__(self, X: Batch, Y: Batch) -> Tensor:
        """Return ``K``, ``(n, m)``; both sides go through the network together where they fit into one chunk."""
        n, m = batches.count(X), batches.count(Y)
        self.tangent.probe(X)
        # No prepared side is held beside, so its half of the budget is free for activations.
        fits = n + m <= chunk_size(self.tangent, self.budget, columns=m, share=1 / 2, largest=None)
        together = _together(X, Y) if fits else None
        if together is None:
            return super().__call__(X, Y)
        K = torch.zeros(n, m, dtype=self.tangent.dtype, device=self.tangent.device)
        exact = torch.zeros(n, m, dtype=torch.float64, device=self.tangent.device)
        for form in _joined([piece for whole in self.tangent.forms(together) for piece in apart(whole)]):
            part = self._across(form, n, K)
            if part is not None:  # sums over long inner dimensions
                exact.add_(part)
        return (exact + K).to(K.dtype)

    def _across(self, form: Form, n: int, K: Tensor) -> Tensor | None:
        """Add a group's ``<G_i, G_j>`` of the first ``n`` samples and the others to ``K``, or return it in float64."""
        m = form.n - n
        written = form.n * form.transient() * getattr(form, form.fields[-1]).element_size()
        by_factors = form.route(m) == "factors"
        if not by_factors and self.budget.fits(written, share=1 / 8):
            G = form.explicit()
            part = inner(G[:n], G[n:], dtype=self.contraction)
            if part.dtype != K.dtype:
                return part
            K += part
            return None
        rows, others = take(form, slice(0, n)), take(form, slice(n, n + m))
        if by_factors:
            side = compact(Side(form=others), self.contraction)
        else:
            prepared = Prepared(m, self.budget, self.contraction)
            prepared.add([others], slice(0, m))
            side = prepared.sides[0]
        return side.contract(rows, K, square=False, v=None, budget=self.budget, dtype=self.contraction).K

    @without_autocast()
    def prepare(self, Y: Batch) -> Prepared:
        """Return the captured gradients of ``Y`` ``(m, ...)``, in memory or spilled to disk."""
        return self.enter(Y)[0]

    @without_autocast()
    def enter(
        self, Y: Batch, *, gram: bool = False, diagonal: bool = False, mean: MeanFeature | None = None
    ) -> tuple[Prepared, Rows]:
        """Return the captured gradients of ``Y`` ``(m, ...)`` and its rows, from one pass; see `Kernel.enter`."""
        m, dtype, device = batches.count(Y), self.tangent.dtype, self.tangent.device
        prepared = Prepared(m, self.budget, self.contraction)
        squares = torch.zeros(m, dtype=torch.float64, device=device)
        dots = torch.zeros(m, dtype=torch.float64, device=device)
        embeddings = []
        for rows, forms in self.chunks(Y, m=1):
            prepared.add(forms, rows)
            embeddings.append(embedding(forms))
            for i, form in enumerate(forms):
                v = mean.content[i] if mean is not None else None
                found = prepared.measure(form, i, rows, square=diagonal, v=v)
                squares[rows] += found.square if found.square is not None else 0.0
                dots[rows] += found.dot if found.dot is not None else 0.0
        prepared.finish()
        return prepared, Rows(
            K=prepared.gram(dtype, device) if gram else torch.empty(m, 0, dtype=dtype, device=device),
            diagonal=squares.to(dtype) if diagonal else None,
            mean=dots.to(dtype) if mean is not None else None,
            embedding=torch.cat(embeddings),
        )

    @without_autocast()
    def rows(self, X: Batch, prepared: Prepared, *, diagonal: bool = False, mean: MeanFeature | None = None) -> Rows:
        """Return kernel rows, and the diagonal and mean products if asked for, from one pass through the network.

        Args:
            X: Samples, ``(n, ...)``.
            prepared: What `prepare` returned for the ``m`` samples of the other side.
            diagonal: Whether ``k(x, x)`` is wanted.
            mean: A mean feature of this kernel to take the inner product with, or ``None``.

        Returns:
            The rows, in the encoder's floating-point type.
        """
        n, dtype, device = batches.count(X), self.tangent.dtype, self.tangent.device
        K = torch.zeros(n, prepared.m, dtype=dtype, device=device)
        squares = torch.zeros(n, dtype=torch.float64, device=device)
        dots = torch.zeros(n, dtype=torch.float64, device=device)
        embeddings = []
        along = self._along(mean)
        for rows, forms in self.chunks(X, m=prepared.m):
            embeddings.append(embedding(forms))
            exact = None  # sums over long inner dimensions arrive in float64 and stay there until the end
            for i, (form, side) in enumerate(zip(forms, prepared.sides, strict=True)):
                v = None if along is None else along[i]
                part = side.contract(form, K[rows], square=diagonal, v=v, budget=self.budget, dtype=self.contraction)
                if part.K is not None:
                    exact = part.K if exact is None else exact.add_(part.K)
                squares[rows] += part.square if part.square is not None else 0.0
                dots[rows] += part.dot if part.dot is not None else 0.0
            if exact is not None:
                K[rows] = (exact + K[rows]).to(dtype)
        return Rows(
            K,
            squares.to(dtype) if diagonal else None,
            dots.to(dtype) if mean is not None else None,
            torch.cat(embeddings),
        )

    @without_autocast()
    def diagonal(self, X: Batch) -> Tensor:
        """Return ``k(x, x)``, ``(n,)``."""
        parts = [torch.stack([squares(form, self.budget) for form in forms]).sum(0) for _, forms in self.chunks(X, m=1)]
        return torch.cat(parts).to(self.tangent.dtype)

    @without_autocast()
    def mean_feature(
        self, X: Batch, weights: Tensor | None = None, *, beside: Callable[[list[Form]], None] | None = None
    ) -> MeanFeature:
        """Return ``φ̄ = Σ w_i φ_{x_i}`` as one gradient: an inner product with it costs one more forward pass.

        Args:
            X: Samples, ``(n, ...)``.
            weights: ``(n,)``, or ``None`` for the mean.
            beside: Is shown the gradients of each chunk, for whatever else is wanted of the same samples.

        Returns:
            The mean feature.
        """
        n = batches.count(X)
        w = torch.full((n,), 1.0 / n, dtype=torch.float64) if weights is None else weights.double()
        w = w.to(self.tangent.device)
        sums: list[Tensor] = []
        for rows, forms in self.chunks(X, m=1):
            parts = [form.weighted_sum(w[rows]) for form in forms]
            sums = parts if not sums else [a + b for a, b in zip(sums, parts, strict=True)]
            if beside is not None:
                beside(forms)
        return MeanFeature(content=sums, square=float(sum(v.square().sum() for v in sums)))

    def _along(self, mean: MeanFeature | None) -> list[Tensor] | None:
        """Return a mean feature in the encoder's type, converted once however many batches ask for it."""
        if mean is None:
            return None
        if self._converted is None or self._converted[0] is not mean:
            self._converted = (mean, [v.to(self.tangent.dtype) for v in mean.content])
        return self._converted[1]

    def coverage(self) -> list[ParameterRule]:
        """Return each parameter with the rule that served it; known after the first samples."""
        return self.tangent.coverage()

    def describe(self) -> Description:
        """Return the settings that fix the kernel, with a fingerprint of the encoder's weights."""
        return described("entk", {"contraction": self.contraction, **self.tangent.settings()})

    def chunks(self, X: Batch, *, m: int) -> Iterator[tuple[slice, list[Form]]]:
        """Yield ``(slice, forms)`` of as many samples at a time as the memory budget allows against ``m`` columns."""
        self.tangent.probe(X)
        size, n = chunk_size(self.tangent, self.budget, columns=m), batches.count(X)
        even = -(-n // -(-n // size)) if n else size  # not a last chunk of one, which costs as much as one of a few
        for rows, samples in batches.chunks(X, even):
            yield rows, self.tangent.forms(samples)


def _together(X: Batch, Y: Batch) -> Batch | None:
    """Return two small batches as one, or ``None`` if their samples differ in shape or type."""
    if max(batches.count(X), batches.count(Y)) > LARGEST_CHUNK:
        return None
    pieces = [batches.take(piece, slice(None)) for piece in (X, Y)]
    kinds = [pytree.tree_map(lambda x: (x.shape[1:], x.dtype, x.device), piece) for piece in pieces]
    return batches.concatenate(pieces) if kinds[0] == kinds[1] else None


def _joined(forms: list[Form]) -> list[Form]:
    """Return forms of the same Gram matrix, all short vectors as one: one product in float64 instead of dozens."""
    short = [form.g for form in forms if isinstance(form, Vector) and form.g.shape[1] <= SHORT]
    rest = [form for form in forms if not isinstance(form, Vector) or form.g.shape[1] > SHORT]
    return [*rest, Vector(torch.cat(short, dim=1).double())] if short else rest


def embedding(forms: list[Form]) -> Tensor:
    """Return the embeddings ``(n, d)``: the gradient in the head's weights, which come last with its bias."""
    return forms[-1].explicit()[:, :-1]


def chunk_size(
    tangent: Tangent, budget: Budget, *, columns: int, share: float = 1 / 4, largest: int | None = LARGEST_SHARE
) -> int:
    """Return how many samples go through the encoder at a time.

    Args:
        tangent: The features.
        budget: What may be used.
        columns: Kernel values a sample.
        share: Part of the budget for activations.
        largest: Bytes of activations beyond which more samples at a time are not wanted, or ``None``.

    Returns:
        At least 1, at most what is useful.
    """
    each = tangent.bytes_per_sample + 4 * columns * tangent.cotangents.element_size()
    useful = LARGEST_CHUNK if largest is None else min(LARGEST_CHUNK, int(largest // each))
    return budget.rows(each, what=f"a sample inside {type(tangent.encoder).__name__}", share=share, most=useful)
