"""Tables of which a replay looks up few rows: those alone are parameters, the others stand still outside of it.

A step of a training by plain gradients changes the rows of a table that its batches look up and no others. A table of
16,384 pieces of words, of which some hundred texts have a few hundred, would otherwise be copied, stepped and
differentiated whole at every step, once for each outcome.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from krepes.batches import Batch
from krepes.encoders.call import call, cast, evaluation, home
from krepes.errors import InvalidInputError

SHARE = 2
"""A table is narrowed if it has more than so many times the rows that are used."""


class UsedRows(nn.Module):
    """A table whose used rows are its parameters.

    Args:
        table: The whole table, which is not kept as a parameter.
        used: Numbers of the rows, ``(u,)``, sorted.
    """

    place: Tensor
    rest: Tensor
    others: bool = False
    """Whether other rows may be looked up, as outcomes of new samples do; a training must not."""

    def __init__(self, table: nn.Embedding, used: Tensor) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = table.num_embeddings, table.embedding_dim
        whole = table.weight.detach()
        self.weight = nn.Parameter(whole[used].clone(), requires_grad=table.weight.requires_grad)
        place = torch.full((len(whole),), -1, dtype=torch.long, device=whole.device)
        place[used] = torch.arange(len(used), device=whole.device)
        # No buffers: a state holds buffers too, and these never change.
        object.__setattr__(self, "place", place)
        object.__setattr__(self, "rest", whole)
        pad = -1 if table.padding_idx is None else int(place[table.padding_idx])
        self.padding_idx = None if pad < 0 else pad

    def forward(self, input: Tensor) -> Tensor:
        """Return the rows of ``input`` ``(...)``, ``(..., E)``."""
        place = self.place[input]
        found = F.embedding(place.clamp(min=0), self.weight, self.padding_idx)
        known = place >= 0
        if bool(known.all()):
            return found
        if not self.others:
            raise InvalidInputError(
                f"the encoder looks up {int((~known).sum())} rows of a table of {self.num_embeddings} that no sample "
                f"of the batches names, so a replay cannot follow them. Use the method surrogate or lazy."
            )
        return torch.where(known[..., None], found, self.rest[input])


def narrowed(encoder: nn.Module, views: Callable[[int], tuple[Tensor, Batch]], steps: Iterable[int]) -> nn.Module:
    """Narrow the tables of an encoder that are looked up by numbers of its samples.

    Args:
        encoder: Whose modules may be replaced.
        views: From the number of a step to its samples and their views ``(p, b, ...)``.
        steps: All steps that will be made.

    Returns:
        The encoder with narrow tables, which gives the same embeddings and has the same gradients in the rows that are
        used; as it was where nothing is to be gained, or where the embeddings would differ.
    """
    X = pytree.tree_map(lambda leaf: leaf[0], views(0)[1])
    found = _looked_up(encoder, X)
    if not found:
        return encoder
    leaves = {leaf for leaf, _ in found.values()}
    numbers = {leaf: torch.zeros(0, dtype=torch.long) for leaf in leaves}
    for t in steps:
        held = pytree.tree_leaves(views(t)[1])
        numbers = {leaf: torch.cat([known, held[leaf].flatten().long()]).unique() for leaf, known in numbers.items()}
    before = _embedded(encoder, X)
    for name, (leaf, table) in found.items():
        used = numbers[leaf].to(table.weight.device)
        if SHARE * len(used) < table.num_embeddings:
            _replace(encoder, name, UsedRows(table, used))
            if not _same(encoder, X, before):  # its weight is used elsewhere too
                _replace(encoder, name, table)
    return encoder


def open_to_others(encoder: nn.Module) -> nn.Module:
    """Let samples that no training saw look up rows that stand still; return the encoder."""
    for module in encoder.modules():
        if isinstance(module, UsedRows):
            module.others = True
    return encoder


def _looked_up(encoder: nn.Module, X: Batch) -> dict[str, tuple[int, nn.Embedding]]:
    """Return the tables that are looked up by a part of the samples and by nothing else, each with that part."""
    owners = Counter(id(parameter) for _, parameter in encoder.named_parameters(remove_duplicate=False))
    tables = {
        name: module
        for name, module in encoder.named_modules()
        if name and _plain(module) and isinstance(module, nn.Embedding) and owners[id(module.weight)] == 1
    }
    seen: dict[str, list[Tensor]] = {name: [] for name in tables}

    def keep(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen[name].append((args[0] if args else kwargs["input"]).detach().cpu())

    hooks = [
        module.register_forward_pre_hook(lambda _, args, kwargs, name=name: keep(name, args, kwargs), with_kwargs=True)
        for name, module in tables.items()
    ]
    try:
        _embedded(encoder, X)
    finally:
        for hook in hooks:
            hook.remove()
    leaves = [leaf.cpu() for leaf in pytree.tree_leaves(X)]
    found: dict[str, tuple[int, nn.Embedding]] = {}
    for name, calls in seen.items():
        places = [
            place
            for place, leaf in enumerate(leaves)
            if not leaf.is_floating_point() and all(torch.equal(one.long(), leaf.long()) for one in calls)
        ]
        if calls and len(places) == 1:
            found[name] = places[0], tables[name]
    return found


def _plain(module: nn.Module) -> bool:
    """Say whether a module is a table that does nothing but look rows up."""
    return type(module) is nn.Embedding and module.max_norm is None and not module.scale_grad_by_freq


def _replace(encoder: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    setattr(encoder.get_submodule(parent), child, module)


def _same(encoder: nn.Module, X: Batch, before: Tensor) -> bool:
    """Say whether the embeddings are what they were."""
    try:
        return torch.equal(_embedded(encoder, X), before)
    except (RuntimeError, IndexError, AttributeError):
        return False


def _embedded(encoder: nn.Module, X: Batch) -> Tensor:
    with torch.no_grad(), evaluation(encoder):
        return call(encoder, cast(X, *home(encoder)))
