"""A plain function as an augmentation, its random numbers as replayable as those of any other."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from krepes import batches
from krepes.batches import Batch
from krepes.errors import InvalidInputError
from krepes.views.base import Augmentation
from krepes.views.noise import Noise


@dataclass(frozen=True)
class FunctionAugmentation(Augmentation):
    """Views by a function of samples.

    The function gets one sample at a time, as a batch of one ``(1, ...)``, with torch's random numbers seeded by the
    stream's seed, the sample and the view: whatever the batches, a pass replays the same views. It must take random
    numbers from torch (or from its second argument) and from nowhere else; one that does not repeat is refused.

    Attributes:
        function: ``f(X)``, or ``f(X, generator)`` for a `torch.Generator`, or ``f(X, noise)`` for the sample's `Noise`.

    Example:
        >>> blur = FunctionAugmentation(lambda X: X + 0.1 * torch.randn_like(X))
        >>> noise = Noise(torch.tensor([7, 2]), view=0, seed=0)
        >>> alone = Noise(torch.tensor([2]), view=0, seed=0)
        >>> bool((blur(torch.zeros(2, 3), noise)[1:] == blur(torch.zeros(1, 3), alone)).all())
        True
    """

    function: Callable[..., Any]

    def __call__(self, X: Batch, noise: Noise) -> Batch:
        """Return the view of each sample of ``X`` ``(b, ...)``."""
        device = next((x.device for x in pytree.tree_leaves(X) if isinstance(x, Tensor)), torch.device("cpu"))
        call = self._caller(device)
        cuda = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices=cuda):
            # Tokens without the padding of their batch, so that a view depends on its sample alone.
            alone = [batches.trimmed(batches.take(X, slice(i, i + 1))) for i in range(len(noise.indices))]
            views = [call(sample, _of_sample(noise, i)) for i, sample in enumerate(alone)]
            again = call(alone[0], _of_sample(noise, 0))
        self._require_repeated(views[0], again)
        return batches.concatenate(views)

    def _caller(self, device: torch.device) -> Callable[[Batch, Noise], Batch]:
        """Return the function as one of a sample and its noise, by the name of its second argument."""
        second = _second_argument(self.function)

        def call(X: Batch, noise: Noise) -> Batch:
            seed = _seed(noise)
            torch.default_generator.manual_seed(seed)
            if device.type == "cuda":
                with torch.cuda.device(device):
                    torch.cuda.manual_seed(seed)
            if second is None:
                return self.function(X)
            if second == "generator":
                return self.function(X, generator=torch.Generator(device).manual_seed(seed))
            return self.function(X, noise)

        return call

    def _require_repeated(self, view: Batch, again: Batch) -> None:
        leaves, name = pytree.tree_leaves(view), self.describe()["function"]
        if not leaves or not all(isinstance(leaf, Tensor) for leaf in leaves):
            found = sorted({type(leaf).__name__ for leaf in leaves})
            raise InvalidInputError(
                f"{name} must return samples as tensors (1, ...), it returned {found or 'nothing'}."
            )
        if not all(torch.equal(a, b) for a, b in zip(leaves, pytree.tree_leaves(again), strict=True)):
            raise InvalidInputError(
                f"{name} made two different views of the same sample with the same seed: it "
                f"draws random numbers that are not torch's, or keeps a state. Draw them by torch, such as torch.rand, "
                f"or from a second argument named 'generator'."
            )


def _of_sample(noise: Noise, i: int) -> Noise:
    return replace(noise, indices=noise.indices[i : i + 1])


def _seed(noise: Noise) -> int:
    """Return the seed of one view of one sample."""
    address = (noise.seed, noise.view, noise.path, int(noise.indices[0]))
    return int.from_bytes(hashlib.sha256(repr(address).encode()).digest()[:8], "big") >> 1


def _second_argument(function: Callable[..., Any]) -> str | None:
    """Return the name of the second argument that a function wants, if any."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some functions written in C have no signature
        return None
    if any(parameter.name == "generator" for parameter in parameters[1:]):
        return "generator"
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [p.name for p in parameters if p.kind in positional and p.default is p.empty]
    return needed[1] if len(needed) > 1 else None
