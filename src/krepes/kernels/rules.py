"""The table of rules: which one serves each layer function."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F

from krepes.kernels.attention import values_of
from krepes.kernels.convolutions import ConvRule, TransposedRule
from krepes.kernels.layers import EmbeddingRule, LinearRule, Rule, ValuesRule
from krepes.kernels.norms import NORM_RULES

LAYER_RULES: dict[Any, Rule] = {
    F.linear: LinearRule(),
    values_of: ValuesRule(),
    F.conv1d: ConvRule(1),
    F.conv2d: ConvRule(2),
    F.conv3d: ConvRule(3),
    F.conv_transpose1d: TransposedRule(1),
    F.conv_transpose2d: TransposedRule(2),
    F.conv_transpose3d: TransposedRule(3),
    F.embedding: EmbeddingRule(),
    **NORM_RULES,
}
"""The rule that serves each layer function; a new layer enters here."""
