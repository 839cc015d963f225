r"""``F.multi_head_attention_forward`` written with plain ``F.linear`` calls, which the rule for linear layers sees.

PyTorch computes the projections of ``nn.MultiheadAttention`` inside one function: no hook of a ``Linear`` fires there.
This is the same function for the cases met in encoders; anything else returns ``None`` and keeps the original. A token
that is alone attends to itself with weight one, whatever its query and key are: those are then not computed, which is
two thirds of the projection, forward, backward and in every inner product.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
    *,
    alone: Callable[[bool], bool] = bool,
) -> tuple[Tensor, Tensor | None] | None:
    """Return ``(output (L, N, E), weights or None)``, or ``None`` where this form does not cover the call.

    ``alone`` is told whether there is one token, and says whether queries and keys may be left out.
    """
    exotic = bias_k is not None or static_k is not None or static_v is not None or add_zero_attn
    if exotic or query.ndim != 3 or (training and dropout_p > 0):
        return None
    single = len(query) == len(key) == 1 and attn_mask is None and key_padding_mask is None and not need_weights
    if in_proj_weight is not None and alone(single):
        return F.linear(values_of(value, in_proj_weight, in_proj_bias), out_proj_weight, out_proj_bias), None
    if in_proj_weight is not None and query is key and key is value:
        q, k, v = F.linear(query, in_proj_weight, in_proj_bias).chunk(3, dim=-1)
    else:
        apart = (q_proj_weight, k_proj_weight, v_proj_weight)
        W = apart if in_proj_weight is None else in_proj_weight.chunk(3)
        b = (None, None, None) if in_proj_bias is None else in_proj_bias.chunk(3)
        q, k, v = (F.linear(x, w, c) for x, w, c in zip((query, key, value), W, b, strict=True))  # type: ignore[arg-type]
    out, weights = _attend(q, k, v, num_heads, attn_mask, key_padding_mask)
    out = F.linear(out, out_proj_weight, out_proj_bias)
    shown = weights.mean(1) if average_attn_weights else weights
    return out, shown if need_weights else None


def values_of(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the values ``(..., E)`` by the last third of a packed projection ``(3 E, E)``; a mode may watch it."""
    if has_torch_function((input, weight)):
        return handle_torch_function(values_of, (input, weight), input, weight, bias)
    first = 2 * (len(weight) // 3)
    return F.linear(input, weight[first:], None if bias is None else bias[first:])


def weighted_values(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor | None:
    """Return ``F.scaled_dot_product_attention`` written out, so that a bias table among its masks is seen as added."""
    if attn_mask is None or attn_mask.dtype == torch.bool or dropout_p > 0 or is_causal or enable_gqa:
        return None
    logits = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    return (logits + attn_mask).softmax(-1) @ value


def _attend(q: Tensor, k: Tensor, v: Tensor, heads: int, mask: Any, padding: Any) -> tuple[Tensor, Tensor]:
    """Return the values by attention, ``(L, N, E)``, and its weights, ``(N, heads, L, S)``, from the projections."""
    (L, N, E), S, width = q.shape, k.shape[0], q.shape[2] // heads
    q, k, v = (x.reshape(-1, N, heads, width).permute(1, 2, 0, 3) for x in (q, k, v))  # (N, heads, L or S, width)
    logits = q @ k.transpose(-2, -1) / math.sqrt(width)
    weights = _mask(logits, mask, padding, (N, heads, L, S)).softmax(-1)
    return (weights @ v).permute(2, 0, 1, 3).reshape(L, N, E), weights


def _mask(logits: Tensor, attn_mask: Any, key_padding_mask: Any, shape: tuple[int, int, int, int]) -> Tensor:
    """Return the logits with both masks added; boolean masks remove where they are true."""
    N, heads, L, S = shape
    if attn_mask is not None:
        attn_mask = attn_mask.reshape(N, heads, L, S) if attn_mask.ndim == 3 else attn_mask
        logits = logits + _additive(attn_mask, logits.dtype)
    if key_padding_mask is not None:
        logits = logits + _additive(key_padding_mask, logits.dtype)[:, None, None, :]
    return logits


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(mask, -math.inf)
