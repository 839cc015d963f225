r"""Random numbers that are a pure function of (seed, sample index, view, stream, position).

A generator with a state gives a sample other numbers when the batch before it changes. Here every number is a hash of
its address instead, so any sample's noise can be had again, alone, in any order and in any batch, bit for bit:

    key = sha256(seed, view, path, stream)      k_i = mix(key + i γ)      bits_ij = mix(k_i + (j + 1) γ)

with the increment ``γ`` and the finaliser ``mix`` of SplitMix64 (Steele, Lea and Flood 2014).
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor


def _signed(word: int) -> int:
    """Return the 64-bit word as the signed integer of the same bits: torch has no shifts for uint64."""
    return word - 2**64 if word >= 2**63 else word


GAMMA = _signed(0x9E3779B97F4A7C15)
MULTIPLIERS = (_signed(0xBF58476D1CE4E5B9), _signed(0x94D049BB133111EB))
SHIFTS = (30, 27, 31)


def shifted(word: Tensor, bits: int) -> Tensor:
    """Shift right without dragging the sign along."""
    return (word >> bits).bitwise_and_((1 << (64 - bits)) - 1)


def _mix(word: Tensor) -> Tensor:
    """Return SplitMix64's bijective finaliser of an int64 tensor that is not needed afterwards."""
    word.bitwise_xor_(shifted(word, SHIFTS[0])).mul_(MULTIPLIERS[0])
    word.bitwise_xor_(shifted(word, SHIFTS[1])).mul_(MULTIPLIERS[1])
    return word.bitwise_xor_(shifted(word, SHIFTS[2]))


def mixed(keys: Tensor, size: int) -> Tensor:
    """Return 64 random bits for each of ``size`` positions behind each key ``(b, 1)``: ``(b, size)``, int64."""
    return _mix(keys + torch.arange(1, size + 1, device=keys.device) * GAMMA)


@dataclass(frozen=True)
class Noise:
    """The random numbers of one view of one batch of samples.

    Attributes:
        indices: Which samples these are, ``(b,)``, int64: positions in the source, not in the batch.
        view: Which view of them this is, from 0.
        seed: The stream's seed.
        path: Labels that keep apart the parts of a composed augmentation.

    Example:
        >>> noise = Noise(torch.tensor([7, 2]), view=0, seed=0)
        >>> alone = Noise(torch.tensor([2]), view=0, seed=0)
        >>> bool((noise.uniform("mask", 3)[1] == alone.uniform("mask", 3)[0]).all())
        True
    """

    indices: Tensor
    view: int
    seed: int
    path: tuple[str | int, ...] = ()

    def split(self, label: str | int) -> Noise:
        """Return the noise of the part that ``label`` names, independent of this one and of other labels."""
        return replace(self, path=(*self.path, label))

    def bits(self, stream: str, *shape: int) -> Tensor:
        """Return 64 random bits per number, ``(b, *shape)``, int64."""
        address = json.dumps([self.seed, self.view, *self.path, stream]).encode()
        key = int.from_bytes(hashlib.sha256(address).digest()[:8], "big", signed=True)
        size = math.prod(shape)
        k = _mix(self.indices * GAMMA + key)
        return mixed(k[:, None], size).reshape(-1, *shape)

    def uniform(self, stream: str, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return uniform numbers in ``[0, 1)``, ``(b, *shape)``, all the bits that ``dtype`` can hold exactly."""
        digits = 53 if dtype == torch.float64 else 24
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        return shifted(self.bits(stream, *shape), 64 - digits).to(wide).mul_(2.0**-digits).to(dtype)

    def normal(self, stream: str, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return standard normal numbers, ``(b, *shape)``, by the inverse distribution function."""
        digits = 52 if dtype == torch.float64 else 23
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        # One bit fewer than the mantissa holds, so that the half that keeps 0 and 1 out is not rounded away.
        u = shifted(self.bits(stream, *shape), 64 - digits).to(wide).add_(0.5).mul_(2.0**-digits)
        return torch.special.ndtri(u).to(dtype)

    def integers(self, stream: str, high: int, *shape: int) -> Tensor:
        """Return integers uniform in ``0 .. high - 1``, ``(b, *shape)``, int64, for ``high`` below 2**31."""
        return (self.uniform(stream, *shape, dtype=torch.float64) * high).long()
