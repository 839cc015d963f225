"""Slow, obvious versions: SplitMix64 in Python integers, one image at a time, one pixel at a time."""

import colorsys
import hashlib
import json
import math

import torch
import torch.nn.functional as F

MASK = 2**64 - 1


def splitmix64(state):
    """Next output of the published generator from an unsigned 64-bit state."""
    z = (state + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def noise_bits(seed, index, view, path, stream, position):
    """The unsigned word at one address: sample ``index`` reads output ``index`` of its stream, and starts there."""
    gamma = 0x9E3779B97F4A7C15
    key = int.from_bytes(hashlib.sha256(json.dumps([seed, view, *path, stream]).encode()).digest()[:8], "big")
    start = splitmix64((key + (index - 1) * gamma) & MASK)
    return splitmix64((start + position * gamma) & MASK)


def crop_and_resize(X, box, size):
    """Cut, then torch's own antialiased bicubic resize, image by image."""
    pieces = []
    for x, (top, left, height, width) in zip(X, box.tolist(), strict=True):
        piece = x[None, :, top : top + height, left : left + width]
        pieces.append(F.interpolate(piece, size=size, mode="bicubic", antialias=True, align_corners=False))
    return torch.cat(pieces).clamp(0, 1)


def turn_hue(x, turns):
    """Hue of one image (3, H, W) turned pixel by pixel with the standard library."""
    out = x.clone()
    for i in range(x.shape[1]):
        for j in range(x.shape[2]):
            h, s, v = colorsys.rgb_to_hsv(*x[:, i, j].tolist())
            out[:, i, j] = torch.tensor(colorsys.hsv_to_rgb((h + turns) % 1.0, s, v), dtype=x.dtype)
    return out


def blur(x, sigma, radius):
    """One image (C, H, W) under one dense two-dimensional Gaussian."""
    line = [math.exp(-(j**2) / (2 * sigma**2)) for j in range(-radius, radius + 1)]
    kernel = torch.tensor([[a * b for a in line] for b in line], dtype=x.dtype)
    padded = F.pad(x[:, None], (radius,) * 4, mode="replicate")
    return F.conv2d(padded, (kernel / kernel.sum())[None, None])[:, 0]
