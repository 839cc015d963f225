"""The p augmented views of every sample, batch by batch: the same ones on every pass."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from krepes import batches
from krepes._checks import require_finite, require_range
from krepes._describe import Description, described, digest, digest_in_pieces
from krepes.batches import Batch
from krepes.errors import InvalidInputError
from krepes.views.base import Augmentation
from krepes.views.noise import Noise
from krepes.views.source import as_source, evenly_spaced, sample_shapes

DEFAULT_BATCH_SIZE = 256
FINGERPRINT_SAMPLES = 1024
AT_ONCE = 2**25
"""Bytes of samples that are read at a time for a fingerprint."""


class ViewStream:
    """Replayable views: view ``u`` of sample ``i`` depends on ``(seed, i, u)`` and on nothing else, bit for bit.

    Iterating yields ``(indices, views)``: ``indices`` ``(b,)`` and ``views`` ``(p, b, ...)``, in the order of the
    source. A source of dicts or tuples yields the same nesting, each leaf ``(p, b, ...)``.

    Args:
        source: A tensor, an array (may be mapped from disk), a dict, tuple or list of them, a map-style Dataset, or a
            DataLoader. Of a Dataset's item ``(sample, label, ...)`` the labels are dropped; of a DataLoader the
            Dataset, the batch size and the collate function are used, shuffling and workers are not.
        augment: What makes the views.
        seed: Other seeds give other views.
        batch_size: Samples in a batch; by default the DataLoader's, else 256. It changes no view.
        p: Views of each sample; by default what ``augment`` wants.

    Raises:
        InvalidInputError: If the source is empty or has no index, or a number is out of range.

    Example:
        >>> from krepes.views import GaussianNoise
        >>> stream = ViewStream(torch.zeros(5, 3), GaussianNoise(0.1), seed=0, batch_size=2)
        >>> [(i.tolist(), tuple(Z.shape)) for i, Z in stream]
        [([0, 1], (2, 2, 3)), ([2, 3], (2, 2, 3)), ([4], (2, 1, 3))]
        >>> bool((stream.views_of(torch.tensor([3])) == list(stream)[1][1][:, 1:]).all())
        True
    """

    def __init__(
        self,
        source: Any,
        augment: Augmentation,
        *,
        seed: int = 0,
        batch_size: int | None = None,
        p: int | None = None,
    ) -> None:
        self.source, loader_batch_size = as_source(source)
        self.augment = augment
        self.seed = seed
        self.batch_size = batch_size if batch_size is not None else loader_batch_size or DEFAULT_BATCH_SIZE
        self.p = p if p is not None else augment.p
        self.n = self.source.n
        require_range(self.batch_size, "batch_size", low=1)
        require_range(self.p, "p", low=1)
        if self.n == 0:
            raise InvalidInputError("the source holds no sample. At least one is required.")

    def __len__(self) -> int:
        """Return the number of batches in a pass."""
        return -(-self.n // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Batch]]:
        """Yield ``(indices (b,), views (p, b, ...))`` over all samples, in order."""
        for start in range(0, self.n, self.batch_size):
            indices = torch.arange(start, min(start + self.batch_size, self.n))
            yield indices, self.views_of(indices)

    def views_of(self, indices: Tensor) -> Batch:
        """Return the views that a pass gives the samples ``indices`` ``(b,)``, as ``(p, b, ...)``."""
        X, i = self._read(indices)
        views = [batches.plain(self.augment(X, Noise(i, view=u, seed=self.seed))) for u in range(self.p)]
        stacked = pytree.tree_map(lambda *leaves: torch.stack(leaves), *batches.padded(views))
        self._require_views(stacked, len(i))
        return stacked

    def plain(self, indices: Tensor) -> Batch:
        """Return the samples ``indices`` ``(b,)`` un-augmented, ``(b, ...)``: resized and normalised, but no noise."""
        return batches.plain(self.augment.plain(self._read(indices)[0]))

    def with_batch_size(self, batch_size: int) -> ViewStream:
        """Return the same views in batches of another size."""
        require_range(batch_size, "batch_size", low=1)
        return self._with(batch_size=batch_size)

    def with_seed(self, seed: int) -> ViewStream:
        """Return other views of the same samples."""
        return self._with(seed=seed)

    def fingerprint(self) -> str:
        """Return a sha256 of what fixes the views: data, augmentation, seed and p, but not the batch size.

        Of the data it reads the number of samples and at most 1024 of them, evenly spaced, first and last included: a
        change in one sample of a larger source may go unseen.

        Returns:
            64 hexadecimal digits.
        """
        settings = {key: value for key, value in self.describe().items() if key not in {"name", "batch_size"}}
        sha = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
        for indices in evenly_spaced(self.n, FINGERPRINT_SAMPLES).split(DEFAULT_BATCH_SIZE):
            for found in self._digests(indices):
                sha.update(found.encode())
        return sha.hexdigest()

    def _digests(self, indices: Tensor) -> Iterator[str]:
        """Yield the hash of each part of the samples ``indices`` ``(b,)``; large samples are read in pieces."""
        first = self.source.take(indices[:1])
        size = max(1, AT_ONCE // max(1, batches.sample_bytes(first)))
        if size >= len(indices):
            yield from map(digest, pytree.tree_leaves(self.source.take(indices)))
            return
        for number, leaf in enumerate(pytree.tree_leaves(first)):
            pieces = (pytree.tree_leaves(self.source.take(part))[number] for part in indices.split(size))
            yield digest_in_pieces((len(indices), *leaf.shape[1:]), (piece.cpu().numpy() for piece in pieces))

    def describe(self) -> Description:
        """Return the settings as plain JSON values, for the manifest of a run."""
        settings = {
            "n": self.n,
            "p": self.p,
            "seed": self.seed,
            "batch_size": self.batch_size,
            "sample": sample_shapes(self.source.take(torch.tensor([0]))),
            "augment": self.augment,
        }
        return described("views", settings)

    def _with(self, **changed: int) -> ViewStream:
        other = copy.copy(self)
        vars(other).update(changed)
        return other

    def _read(self, indices: Tensor) -> tuple[Batch, Tensor]:
        """Return the checked samples, and their indices on the samples' device."""
        indices = torch.as_tensor(indices, dtype=torch.int64).reshape(-1)
        low, high = (int(indices.min()), int(indices.max())) if len(indices) else (0, -1)
        if not 0 <= low <= high < self.n:
            raise InvalidInputError(
                f"{len(indices)} indices between {low} and {high} were asked of a stream of {self.n} samples. "
                f"Pass at least one, each between 0 and {self.n - 1}."
            )
        X = self.source.take(indices.cpu())
        batches.require_usable(X, f"the batch of samples {low} to {high}")
        device = next(leaf.device for leaf in pytree.tree_leaves(X) if isinstance(leaf, Tensor))
        return X, indices.to(device)

    def _require_views(self, views: Batch, b: int) -> None:
        for leaf in pytree.tree_leaves(views):
            require_finite(leaf, f"the views by {type(self.augment).__name__}")
            if leaf.shape[1] != b:
                raise InvalidInputError(
                    f"{type(self.augment).__name__} made {leaf.shape[1]} samples out of {b}. "
                    f"An augmentation must return one sample for each that it gets, in the same order."
                )
