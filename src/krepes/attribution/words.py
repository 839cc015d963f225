r"""On which words do two texts agree? The part of their kernel that the encoder's table of tokens gives, by token.

The gradient in the table is a sum over tokens, :math:`G_x = \sum_t e_{id_t} \otimes d_t`, hence so is its part of the
kernel. With :math:`\bar G` the mean over the reference where the model's kernel is centred, and zero where it is not,

    part of token t of x with y:    <d_t, (G_y - Ḡ)[id_t]>        Σ_t parts = <G_x, G_y - Ḡ>, exactly

A token that y does not have can only take away; one that all texts have alike gives nothing; a rarer one that both have
is what they agree on. Layers behind the table and the head have their own part of the kernel, which belongs to no word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from krepes import batches
from krepes.batches import Batch
from krepes.data.marks import MarkedText, marked
from krepes.data.tokenizer import Tokenizer, Tokens
from krepes.data.tokens import IDS
from krepes.errors import InvalidInputError
from krepes.kernels.entk import EmpiricalNTK
from krepes.kernels.forms import Lookup
from krepes.kernels.sketch import SketchedNTK
from krepes.kernels.tangent import Tangent
from krepes.kernels.transforms import Cosine
from krepes.model import Krepes

PIECE = 64
"""Texts that go through the encoder at a time."""


class NoTokenTableError(InvalidInputError):
    """The encoder has no table of tokens that its kernel sees, so the kernel has no parts by word."""


@dataclass(frozen=True, eq=False)
class TokenParts:
    """Parts of the kernel of one pair of texts.

    Attributes:
        first: Of each token of the one, ``(length,)``, float64.
        second: Of each token of the other, ``(length,)``.
    """

    first: Tensor
    second: Tensor


@dataclass(frozen=True, eq=False)
class Agreements:
    """Texts with the words marked on which they agree.

    Attributes:
        samples: Each sample, marked by all others that it resembles, which are those of a positive kernel.
        others: Of each pair the other text, marked by its sample.
        shares: Of each pair, the part of its kernel, before it is normalised, that the table of tokens gives.
        note: Why nothing is marked; empty if something may be.
    """

    samples: tuple[MarkedText, ...]
    others: tuple[MarkedText, ...]
    shares: tuple[float, ...]
    note: str = ""


class TokenTable:
    """The gradients of texts in the table of tokens of a model's encoder.

    Args:
        model: A fitted model of an encoder of texts.

    Raises:
        NoTokenTableError: If the kernel sees no such table.
    """

    def __init__(self, model: Krepes) -> None:
        self.model = model
        if not isinstance(model.base_kernel_, (EmpiricalNTK, SketchedNTK)):
            raise NoTokenTableError("no words are marked: the kernel has no encoder, hence no table of tokens.")
        self.tangent: Tangent = model.base_kernel_.tangent
        self.place = self._find()

    def _find(self) -> int:
        """Return which group of the tangent's parameters is looked up by the numbers of tokens."""
        X = batches.take(self.model.reference_, slice(0, 3))
        if isinstance(X, dict) and IDS in X:
            for place, form in enumerate(self.tangent.forms(X)):
                if isinstance(form, Lookup) and torch.equal(form.ids.cpu(), X[IDS].cpu()):
                    return place
        raise NoTokenTableError(
            "no words are marked: the kernel sees no table in which the encoder looks tokens up (it has none, or "
            "parameters= leaves it out)."
        )

    def lookup(self, X: Batch) -> Lookup:
        """Return the gradients of texts in the table: ids ``(n, length)`` and what is added to their rows."""
        found = [self.tangent.forms(part)[self.place] for _, part in batches.chunks(X, PIECE)]
        assert all(isinstance(form, Lookup) for form in found)
        joined = [form for form in found if isinstance(form, Lookup)]
        ids, d = (torch.cat([getattr(form, name) for form in joined]).cpu() for name in ("ids", "d"))
        return Lookup(ids, d.double(), joined[0].V)

    @cached_property
    def mean(self) -> Tensor | None:
        """The mean gradient of the reference, ``(V, E)``, float64, where the kernel is centred."""
        if not self.model.transforms_[0]:
            return None
        total: Tensor | None = None
        n = batches.count(self.model.reference_)
        for _, part in batches.chunks(self.model.reference_, PIECE):
            form = self.lookup(part)
            total = torch.zeros(form.V, form.d.shape[2], dtype=torch.float64) if total is None else total
            total.index_add_(0, form.ids.flatten(), form.d.flatten(0, 1) / n)
        return total

    def parts(self, X: Lookup, i: int, Y: Lookup, j: int) -> TokenParts:
        """Return the parts of the kernel of text ``i`` of one batch and ``j`` of another, by token."""
        same = X.ids[i][:, None] == Y.ids[j][None]
        products = (X.d[i] @ Y.d[j].T) * same
        first, second = products.sum(1), products.sum(0)
        if self.mean is not None:
            first = first - (X.d[i] * self.mean[X.ids[i]]).sum(1)
            second = second - (Y.d[j] * self.mean[Y.ids[j]]).sum(1)
        return TokenParts(first, second)

    def offset(self, Y: Lookup, j: int) -> float:
        """Return ``<Ḡ, G_y - Ḡ>`` for text ``j``: what a centred kernel takes off for all texts alike."""
        if self.mean is None:
            return 0.0
        return float((Y.d[j] * self.mean[Y.ids[j]]).sum() - self.mean.square().sum())

    def kernel(self, X: Batch, Y: Batch) -> Tensor:
        """Return the kernel of texts, centred as the model's and not normalised, ``(n, m)``, float64."""
        kernel = self.model.kernel_
        return (kernel.kernel if isinstance(kernel, Cosine) else kernel)(X, Y).to("cpu", torch.float64)


def agreements(
    model: Krepes,
    tokenizer: Tokenizer,
    samples: tuple[Batch, Sequence[str]],
    others: tuple[Batch, Sequence[str]],
    pairs: Sequence[tuple[int, int]],
) -> Agreements:
    """Return texts with the words marked on which they agree.

    Args:
        model: A fitted model of an encoder of texts.
        tokenizer: That made the tokens: it knows where they stand.
        samples: Tokens ``(n, length)`` and the texts they were made of.
        others: The same of the texts to compare with, such as landmarks.
        pairs: Which of the samples with which of the others.

    Returns:
        The texts; where the encoder has no table of tokens, without marks and with the reason.
    """
    try:
        table = TokenTable(model)
    except NoTokenTableError as error:
        plain = [
            tuple(MarkedText.of(text) for text in texts) for texts in (samples[1], [others[1][j] for _, j in pairs])
        ]
        return Agreements(plain[0], plain[1], tuple(float("nan") for _ in pairs), str(error))
    X, Y, K = table.lookup(samples[0]), table.lookup(others[0]), table.kernel(samples[0], others[0])
    tokens = [tokenizer.tokens(text) for text in samples[1]]
    told = {j: tokenizer.tokens(others[1][j]) for _, j in pairs}
    parts = [table.parts(X, i, Y, j) for i, j in pairs]
    both = [(_has(tokens[i], told[j]), _has(told[j], tokens[i])) for i, j in pairs]
    strongest, total = [0.0] * len(tokens), [[0.0] * len(those.ids) for those in tokens]
    agree = [[False] * len(those.ids) for those in tokens]
    for (i, j), part, (first, second) in zip(pairs, parts, both, strict=True):
        shared = [value for value, has in zip(part.second.tolist(), second, strict=False) if has]
        strongest[i] = max([strongest[i], *shared])
        if K[i, j] > 0:
            total[i] = [a + b for a, b in zip(total[i], part.first.tolist(), strict=False)]
            agree[i] = [a or b for a, b in zip(agree[i], first, strict=True)]
    one = [marked(text, tokens[i].spans, total[i], agree[i]) for i, text in enumerate(samples[1])]
    other = [
        marked(others[1][j], told[j].spans, part.second.tolist(), second, strongest[i])
        for (i, j), part, (_, second) in zip(pairs, parts, both, strict=True)
    ]
    given = [float(part.first.sum()) - table.offset(Y, j) for (_, j), part in zip(pairs, parts, strict=True)]
    shares = [g / float(K[i, j]) if K[i, j] else float("nan") for (i, j), g in zip(pairs, given, strict=True)]
    return Agreements(tuple(one), tuple(other), tuple(shares))


def _has(tokens: Tokens, other: Tokens) -> list[bool]:
    """Return for each token whether another text has the same piece: an equal number may be a chance of the hash."""
    known = set(other.pieces)
    return [piece in known for piece in tokens.pieces]
