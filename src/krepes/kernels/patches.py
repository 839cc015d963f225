r"""Gradients of convolutions, held as the input picture and the gradient of the output picture.

A convolution is a linear layer on patches, so its gradient is an `Outer` form whose tokens are output pixels and whose
inputs are the unfolded patches. Unfolding multiplies memory by the kernel size, so it happens only on the way to the
written-out gradient. The route by factors never unfolds: with ``S`` the products of single input pixels,

    patch_t · patch'_s = Σ_k S[pixel(t, k), pixel(s, k)],

one small matrix product and a sum over kernel offsets. Late layers (few pixels, many channels) prefer it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from krepes.kernels.forms import ELEMENTWISE, TILE, Form, Outer, take
from krepes.kernels.products import matmul

MANY_PIXELS = 4
"""Pixels per channel from which shifting pictures is faster than unfolding them (measured on ResNet-18)."""


@dataclass(frozen=True)
class Window:
    """Geometry of a convolution over 1, 2 or 3 spatial axes; each entry is a tuple with one number per axis."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    def unfold(self, x: Tensor) -> Tensor:
        """Return the patches of ``x`` ``(N, C, *size)`` as ``(N, groups, C/groups · kernel, T)``."""
        x = torch.nn.functional.pad(x, [side for p in reversed(self.padding) for side in (p, p)])
        axes = len(self.kernel)
        for axis, (k, step, gap) in enumerate(zip(self.kernel, self.stride, self.dilation, strict=True)):
            x = x.unfold(2 + axis, (k - 1) * gap + 1, step)[..., ::gap]
        N, C = x.shape[:2]
        # Output pixels go last: the copy then runs along whole picture rows.
        x = x.permute(0, 1, *range(2 + axes, 2 + 2 * axes), *range(2, 2 + axes))
        return x.reshape(N, self.groups, C // self.groups * _product(self.kernel), -1)

    def overlap(self, axis: int, offset: int, size_in: int, size_out: int) -> tuple[slice, slice]:
        """Return the output positions, and their input pixels, for which a kernel offset falls inside the picture."""
        step = self.stride[axis]
        shift = offset * self.dilation[axis] - self.padding[axis]  # input = output * step + shift
        first = max(0, -(shift // step))
        last = min(size_out - 1, (size_in - 1 - shift) // step)
        if last < first:
            return slice(0, 0), slice(0, 0)
        return slice(first, last + 1), slice(first * step + shift, last * step + shift + 1, step)


@dataclass(frozen=True)
class Patches(Form):
    """Gradient of a convolution.

    Attributes:
        x: Layer inputs, ``(n, f, C, *size)``: ``f`` pictures per sample, 1 unless frames were folded into the batch.
        d: Gradients of the layer outputs, ``(n, f, r, O, *out)`` with ``r`` heads.
        window: The geometry.
        bias: Whether the bias is part of the group.
        dtype: Type to multiply in, or ``None`` for that of ``x``.
    """

    x: Tensor
    d: Tensor
    window: Window
    bias: bool
    dtype: torch.dtype | None = None
    fields: ClassVar[tuple[str, ...]] = ("x", "d")

    def _channels(self) -> tuple[Tensor, Tensor]:
        """Return patches ``(n, s, I, T)`` and output gradients ``(n, s, r O/s, T)``; frames are tokens too."""
        (n, f, r, O), s = self.d.shape[:4], self.window.groups
        a = self.window.unfold(self.x.flatten(0, 1)).unflatten(0, (n, f))
        a = a[:, 0] if f == 1 else a.permute(0, 2, 3, 1, 4).flatten(3)
        d = self.d.reshape(n, f, r, s, O // s, -1).permute(0, 3, 2, 4, 1, 5)  # (n, s, r, O/s, f, T)
        return a, d.reshape(n, s, r * (O // s), -1)

    def outer(self) -> Outer:
        """Return the same gradients over unfolded patches."""
        a, d = self._channels()
        return Outer(a.permute(0, 3, 1, 2), d.permute(0, 3, 1, 2), bias=self.bias, dtype=self.dtype)

    def explicit(self) -> Tensor:
        """Return ``(n, P)``: one batched product of output gradients and patches, or one per kernel offset."""
        if self._single():
            G, d = self._filtered()
        elif self._by_shifts():
            G, d = self._shifted()
        else:
            a, d = self._channels()
            G = d @ a.transpose(2, 3)
        if self.bias:
            G = torch.cat([G, d.sum(3, keepdim=True)], dim=3)
        return G.flatten(1)

    def _single(self) -> bool:
        """Return whether every channel is convolved alone: its gradient is cheaper written out than held."""
        return 1 < self.window.groups == self.x.shape[2] == self.d.shape[3] and self.x.shape[1] == 1

    def _filtered(self) -> tuple[Tensor, Tensor]:
        """Return the gradient ``(n, C, r O/C, kernel)`` of single channels, and the output gradients side by side.

        The gradient is the picture filtered by the output gradient; all samples and channels are the groups of one
        convolution, whose step and gap have changed places.
        """
        window, (n, _, r, O), C = self.window, self.d.shape[:4], self.x.shape[2]
        d = self.d[:, 0].reshape(n, r, C, O // C, *self.d.shape[4:]).transpose(1, 2)
        filters = d.reshape(n * C * r * (O // C), 1, *self.d.shape[4:])
        convolve = (F.conv1d, F.conv2d, F.conv3d)[len(window.kernel) - 1]
        x = self.x.reshape(1, n * C, *self.x.shape[3:])
        G = convolve(x, filters, None, window.dilation, window.padding, window.stride, n * C)
        G = G[(slice(None), slice(None), *[slice(0, k) for k in window.kernel])]  # a step leaves pixels at the edge
        return G.reshape(n, C, r * (O // C), -1), d.reshape(n, C, r * (O // C), -1)

    def _by_shifts(self) -> bool:
        """Return whether products with shifted pictures beat unfolding: stride one, and many pixels per channel."""
        pixels, channels = _product(self.d.shape[4:]), self.d.shape[3] // self.window.groups
        return set(self.window.stride) == {1} and self.x.shape[1] == 1 and pixels > MANY_PIXELS * channels

    def _shifted(self) -> tuple[Tensor, Tensor]:
        """Return the gradient ``(n, s, r O/s, I)`` without unfolding, and the laid-out output gradients.

        Pictures and output gradients are laid on one padded grid, rows end to end. A kernel offset then is a shift of
        the flat picture, a view without a copy: the zeros around the output gradients cancel what wraps over.
        """
        window, (n, _, r, O), s = self.window, self.d.shape[:4], self.window.groups
        x = torch.nn.functional.pad(self.x[:, 0], [side for p in reversed(window.padding) for side in (p, p)])
        grid, out = x.shape[2:], self.d.shape[4:]
        d = self.d.new_zeros(n, s, r, O // s, *grid)
        inside: tuple[Any, ...] = (..., *[slice(0, size) for size in out])
        d[inside] = self.d[:, 0].reshape(n, r, s, O // s, *out).transpose(1, 2)
        x, d = x.reshape(n, s, x.shape[1] // s, -1), d.reshape(n, s, r * (O // s), -1)
        steps = [_product(grid[axis + 1 :]) for axis in range(len(grid))]
        ranges = [range(0, k * gap, gap) for k, gap in zip(window.kernel, window.dilation, strict=True)]
        shifts = [
            sum(o * step for o, step in zip(offsets, steps, strict=True)) for offsets in itertools.product(*ranges)
        ]
        length = x.shape[3] - shifts[-1]
        d = d[..., :length]
        G = torch.stack([d @ x[..., shift : shift + length].transpose(2, 3) for shift in shifts], dim=-1)
        return G.flatten(3), d

    def transient(self) -> int:
        """Return the gradient's size and that of the unfolded patches."""
        if self._single():
            return super().transient()
        unfolded = self.x.shape[1] * self.x.shape[2] * _product(self.window.kernel) * _product(self.d.shape[4:])
        return super().transient() + 2 * unfolded

    def weighted_sum(self, w: Tensor) -> Tensor:
        """Return ``Σ w_i G_i``, ``(P,)``, float64."""
        if self._single():
            return super().weighted_sum(w)
        return self.outer().weighted_sum(w)

    def dot(self, v: Tensor) -> Tensor:
        """Return ``<G_i, v>``, ``(n,)``."""
        if self._single():
            return super().dot(v)
        return self.outer().dot(v)

    def square(self) -> Tensor:
        """Return ``|G_i|²``, ``(n,)``, float64."""
        if self._single():
            return super().square()
        return self.outer().square()

    def gram(self, other: Form) -> Tensor:
        """Return ``<G_i, G'_j>``, ``(n, m)``, from products of single pixels."""
        assert isinstance(other, Patches)
        if not self._by_pixels():
            return self.outer().gram(other.outer())
        K = torch.empty(self.n, other.n, dtype=self.x.dtype, device=self.x.device)
        pixels = max(_product(self.x.shape[3:]), _product(self.d.shape[4:]))
        step_m = max(1, min(other.n, 64))
        step_n = max(1, min(self.n, TILE // (pixels * pixels * step_m)))
        for i in range(0, self.n, step_n):
            rows = take(self, slice(i, i + step_n))
            for j in range(0, other.n, step_m):
                K[i : i + step_n, j : j + step_m] = rows._tile(take(other, slice(j, j + step_m)))
        return K

    def _by_pixels(self) -> bool:
        return self.window.groups == 1 and self.x.shape[1] == 1

    def _tile(self, other: Patches) -> Tensor:
        """Return the Gram of a tile of samples, all pairs of pixels at once."""
        n, m, size_in, size_out = self.n, other.n, self.x.shape[3:], self.d.shape[4:]
        S = matmul(_pixels(self.x[:, 0]), _pixels(other.x[:, 0]).T, self.dtype)
        S = S.reshape(n, *size_in, m, *size_in)
        D = matmul(_pixels(self.d[:, 0].flatten(1, 2)), _pixels(other.d[:, 0].flatten(1, 2)).T, self.dtype)
        D = D.reshape(n, *size_out, m, *size_out)
        A = torch.full_like(D, 1.0 if self.bias else 0.0)
        for offsets in itertools.product(*[range(k) for k in self.window.kernel]):
            pairs = [self.window.overlap(axis, o, size_in[axis], size_out[axis]) for axis, o in enumerate(offsets)]
            out, inp = tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)
            A[(slice(None), *out, slice(None), *out)] += S[(slice(None), *inp, slice(None), *inp)]
        return (A * D).reshape(n, _product(size_out), m, -1).sum((1, 3))

    def costs(self) -> tuple[float, float, float]:
        """Return the cost of pixel products (or of unfolded token pairs), of ``s I O``, and of writing it out."""
        C, size_in, size_out = self.x.shape[2], _product(self.x.shape[3:]), _product(self.d.shape[4:])
        k, s, O = _product(self.window.kernel), self.window.groups, self.d.shape[2] * self.d.shape[3]
        T = self.x.shape[1] * size_out
        P = float(O * (C // s) * k)
        if self._by_pixels():
            factors = size_in**2 * C + size_out**2 * (O + ELEMENTWISE * k)
        else:
            factors = T * T * (C * k + O + ELEMENTWISE * s)
        return float(factors), P, T * P


def _pixels(x: Tensor) -> Tensor:
    """Return ``(N · pixels, C)`` of pictures ``(N, C, *size)``."""
    return x.flatten(2).transpose(1, 2).reshape(-1, x.shape[1])


def _product(sizes: tuple[int, ...] | torch.Size) -> int:
    return int(torch.Size(sizes).numel())
