"""Functions that are linear layers, lookups or sums under another name, written with those that rules know.

Each entry takes ``held``, which tells whether a tensor is made of parameters, then the function's own arguments, and
returns the function's result, or ``None`` where this form does not cover the call.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from krepes.kernels.attention import attention, weighted_values
from krepes.kernels.recurrent import RECURRENT


class Held(Protocol):
    """What a rewritten function may ask."""

    def __call__(self, x: Any) -> bool:
        """Return whether a tensor is made of parameters."""

    def alone(self, single: bool) -> bool:
        """Return whether an attention is to be taken as that of a single token, told whether it is one now."""


Rewrite = Callable[..., Any]


def _matmul(held: Held, x: Tensor, y: Tensor) -> Tensor | None:
    """``x W`` and ``W x``, as linear layers over the other operand's tokens."""
    if held(x) == held(y):
        return None
    if held(y) and y.ndim <= 2:
        return F.linear(x, y.mT) if y.ndim == 2 else F.linear(x, y.unsqueeze(0)).squeeze(-1)
    if held(x) and x.ndim == 2 and y.ndim >= 2:
        return F.linear(y.mT, x).mT
    if held(y) and y.ndim == 3 and x.ndim == 4 and x.shape[1] == y.shape[0]:
        return _einsum(held, "nhti,hio->nhto", x, y)
    return None


def _addmm(held: Held, bias: Tensor, x: Tensor, W: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor | None:
    """``bias + x W``."""
    if not held(W) or held(x) or beta != 1 or alpha != 1 or bias.ndim != 1:
        return None
    return F.linear(x, W.mT, bias)


def _bilinear(held: Held, x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor | None:
    """``xᵀ W_o y + b_o``: a linear layer on the products of all entries."""
    if held(x) or held(y):
        return None
    return F.linear((x.unsqueeze(-1) * y.unsqueeze(-2)).flatten(-2), weight.flatten(1), bias)


def _einsum(held: Held, equation: Any, *operands: Any) -> Tensor | None:
    """Two operands of which one is made of parameters: a linear layer, in channel groups if both share an axis."""
    if len(operands) != 2 or not isinstance(equation, str) or "->" not in equation or "." in equation:
        return None
    if held(operands[0]) == held(operands[1]):
        return None
    inputs, out = equation.replace(" ", "").split("->")
    of_x, of_w = inputs.split(",")
    x, W = operands
    if held(x):
        x, W, of_x, of_w = W, x, of_w, of_x
    if any(len(set(letters)) != len(letters) for letters in (of_x, of_w, out)):
        return None
    if set(of_x + of_w) != set(of_x) & set(out) | set(of_w) & set(out) | set(of_x) & set(of_w):
        return None  # an axis that is summed away in one operand alone
    return _contract(x, of_x, W, of_w, out)


def _contract(x: Tensor, of_x: str, W: Tensor, of_w: str, out: str) -> Tensor:
    """Return the contraction of ``x`` and ``W`` with axes named by letters."""
    size = dict(zip(of_x + of_w, (*x.shape, *W.shape), strict=True))
    lead = "".join(a for a in out if a not in of_w)
    groups = "".join(a for a in out if a in of_x and a in of_w)
    outputs = "".join(a for a in out if a not in of_x)
    inputs = "".join(a for a in of_x if a in of_w and a not in out)

    def arrange(tensor: Tensor, names: str, wanted: str, shape: list[int]) -> Tensor:
        return tensor.permute([names.index(a) for a in wanted]).reshape(shape)

    sizes = [size[a] for a in lead]
    s, O, I = (int(torch.Size([size[a] for a in names]).numel()) for names in (groups, outputs, inputs))
    if not groups:
        y = F.linear(arrange(x, of_x, lead + inputs, [*sizes, I]), arrange(W, of_w, outputs + inputs, [O, I]))
    elif not inputs:  # nothing is summed: a product entry by entry
        y = arrange(x, of_x, lead + groups, [*sizes, s, 1]) * arrange(W, of_w, groups + outputs, [s, O])
    else:
        pictures = arrange(x, of_x, lead + groups + inputs, [-1, s * I, 1])
        y = F.conv1d(pictures, arrange(W, of_w, groups + outputs + inputs, [s * O, I, 1]), groups=s)
    y = y.reshape([*sizes, *[size[a] for a in groups + outputs]])
    return y.permute([(lead + groups + outputs).index(a) for a in out])


def _lookup(held: Held, table: Tensor, index: Any) -> Tensor | None:
    """``table[ids]`` with ids from the data."""
    if not held(table) or table.ndim != 2 or not isinstance(index, Tensor) or index.is_floating_point():
        return None
    if index.dtype in (torch.bool, torch.uint8):
        return None
    return F.embedding(torch.where(index < 0, index + table.shape[0], index), table)


def _index_select(held: Held, table: Tensor, dim: int, index: Tensor) -> Tensor | None:
    """``table.index_select(0, ids)``."""
    return _lookup(held, table, index) if dim == 0 else None


def _embedding_bag(
    held: Held,
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor | None:
    """Sums and means of looked-up rows, for bags of one length."""
    if input.ndim != 2 or offsets is not None or max_norm is not None or scale_grad_by_freq or mode == "max":
        return None
    padding = -1 if padding_idx is None else padding_idx % weight.shape[0]
    counted = (input != padding).unsqueeze(2).to(weight.dtype)
    if per_sample_weights is not None:
        return (F.embedding(input, weight) * counted * per_sample_weights.unsqueeze(2)).sum(1)
    total = (F.embedding(input, weight) * counted).sum(1)
    return total if mode == "sum" else total / counted.sum(1).clamp_min(1)


def _prelu(held: Held, input: Tensor, weight: Tensor) -> Tensor:
    """``max(0, x) + w min(0, x)``, one ``w`` a channel."""
    slope = weight.reshape(-1, *[1] * (input.ndim - 2)) if weight.numel() > 1 and input.ndim > 1 else weight
    return torch.where(input > 0, input, slope * input)


def _exported() -> dict[Any, Rewrite]:
    """Return the operations of exported graphs, by the functions that they come from."""
    aten = torch.ops.aten
    same: dict[Any, Callable[..., Any]] = {
        aten.linear.default: F.linear,
        aten.conv1d.default: F.conv1d,
        aten.conv2d.default: F.conv2d,
        aten.conv3d.default: F.conv3d,
        aten.matmul.default: torch.matmul,
        aten.addmm.default: torch.addmm,
        aten.prelu.default: torch.prelu,
        aten.scaled_dot_product_attention.default: F.scaled_dot_product_attention,
    }
    table: dict[Any, Rewrite] = {op: partial(_under_its_name, function) for op, function in same.items()}
    table[aten.embedding.default] = lambda held, weight, ids, padding=-1, *_: F.embedding(
        ids, weight, None if padding < 0 else padding
    )
    table[aten.layer_norm.default] = lambda held, x, shape, w=None, b=None, eps=1e-5, *_: F.layer_norm(
        x, shape, w, b, eps
    )
    table[aten.group_norm.default] = lambda held, x, groups, w=None, b=None, eps=1e-5, *_: F.group_norm(
        x, groups, w, b, eps
    )
    table[aten.batch_norm.default] = lambda held, x, w, b, mean, var, training, momentum, eps, *_: F.batch_norm(
        x, mean, var, w, b, training, momentum, eps
    )
    return table


def _under_its_name(function: Callable[..., Any], held: Held, *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def _bias_apart(function: Callable[..., Tensor]) -> Rewrite:
    """Transposed convolutions: their bias is an added parameter."""

    def rewrite(
        held: Held, input: Tensor, weight: Tensor, bias: Tensor | None = None, *args: Any, **kwargs: Any
    ) -> Tensor | None:
        if bias is None:
            return None
        return function(input, weight, None, *args, **kwargs) + bias.reshape(-1, *[1] * (weight.ndim - 2))

    return rewrite


REWRITES: dict[Any, Rewrite] = {
    F.multi_head_attention_forward: lambda held, *args, **kwargs: attention(*args, alone=held.alone, **kwargs),
    F.scaled_dot_product_attention: lambda held, *args, **kwargs: weighted_values(*args, **kwargs),
    **dict.fromkeys(
        [torch.matmul, torch.mm, Tensor.matmul, Tensor.mm, Tensor.__matmul__, Tensor.__rmatmul__, torch.mv], _matmul
    ),
    torch.addmm: _addmm,
    Tensor.addmm: _addmm,
    F.bilinear: _bilinear,
    torch.einsum: _einsum,
    Tensor.__getitem__: _lookup,
    torch.index_select: _index_select,
    Tensor.index_select: _index_select,
    F.embedding_bag: _embedding_bag,
    F.prelu: _prelu,
    torch.prelu: _prelu,
    **{f: _bias_apart(f) for f in (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)},
    **RECURRENT,
    **_exported(),
}
"""The functions that are rewritten where values made of parameters meet data in them."""

SHAPED_AFTER = frozenset([Tensor.to, Tensor.type_as, Tensor.expand_as, Tensor.view_as, Tensor.reshape_as])
"""Functions whose first argument alone goes into the result; the second gives a type or a shape."""
