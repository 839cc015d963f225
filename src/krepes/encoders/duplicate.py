"""A copy of a network that has been used."""

from __future__ import annotations

import copy
from typing import TypeVar

from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)


def duplicate(module: Module) -> Module:
    """Return a deep copy of a network.

    A pass may leave values with their graph behind, such as the weight that `torch.nn.utils.weight_norm` makes of its
    parts: torch refuses to copy them. The copy has them without the graph, and makes them anew when it is called.

    Args:
        module: The network.

    Returns:
        The copy.
    """
    left: dict[int, object] = {}
    for part in module.modules():
        for value in (*vars(part).values(), *part.buffers(recurse=False)):
            if isinstance(value, Tensor) and value.grad_fn is not None:
                left[id(value)] = value.detach().clone()
    return copy.deepcopy(module, left)
