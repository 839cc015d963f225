"""Outcomes by name, one naming for every command: a word and what it is about, such as ``group_distance sex``.

- ``group_distance COLUMN``: distance of the means of groups of held-out samples, over the spread.
- ``label_consistency``: mean cosine of held-out samples to their own class minus that to the rest.
- ``margin ID``: mean cosine of a sample to its class minus that to the rest.
- ``pull ID COLUMN=VALUE``: mean cosine of a sample to a group minus that to the rest.
- ``pair ID ID``: cosine of two samples.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from krepes import registry
from krepes.data.files import foreign, named, require_file
from krepes.data.text import printable
from krepes.errors import InvalidInputError
from krepes.influence import Outcome, custom, pull
from krepes.influence.measures import class_margin, relative_group_distance
from krepes.runs.answers import pull_to_group, similarity_of
from krepes.runs.workspace import Workspace
from krepes.views.source import evenly_spaced

SEEN = 500
"""Held-out samples that an outcome of all of them looks at."""
Direction = Literal["lower", "raise"]


@dataclass(frozen=True)
class Asked:
    """An outcome that was named, and the way it is wanted to go.

    Attributes:
        outcome: The outcome.
        wanted: Where a person wants it by default, or ``None`` if either is as likely.
        fresh: The same outcome on held-out samples that it was not asked on, or ``None`` for one of named samples.
        about: Ids of the samples that were named.
    """

    outcome: Outcome
    wanted: Direction | None
    fresh: Outcome | None = field(default=None, repr=False)
    about: tuple[str, ...] = ()


def named_outcome(space: Workspace, text: str, *, label: str | None = None, asked_by: str = "--outcome") -> Asked:
    """Return the outcome that a text names.

    Args:
        space: The run.
        text: A name of `FORMS` and what it takes; an id or column with spaces is put in quotes.
        label: Column of the classes; by default that of the settings, or the labels that the data brought along.
        asked_by: The flag or argument that holds it, for the message.

    Returns:
        The outcome.

    Raises:
        InvalidInputError: If no outcome has the name, or it takes something else.
    """
    try:
        name, *given = shlex.split(text)
    except ValueError as error:
        what = "is empty" if not text.strip() else f"cannot be read: {error}"
        raise InvalidInputError(f"{asked_by}: {printable(text)!r} {what}. Outcomes are {_forms()}.") from error
    if name not in FORMS:
        hint = registry.suggestion(name, FORMS)
        raise InvalidInputError(f"{asked_by}: there is no outcome {printable(name)!r}.{hint} Outcomes are {_forms()}.")
    takes, make = FORMS[name]
    if len(given) != len(takes):
        raise InvalidInputError(
            f"{asked_by}: {name} takes {' '.join(takes) or 'nothing'}, and {len(given)} words were given after it. Put "
            f"an id or a column with spaces in quotes."
        )
    return make(space, *given, label=label)


def listed_outcomes(space: Workspace, path: str) -> list[Asked]:
    """Return the outcomes that a text file names, one in each line; empty lines and those that start with # are none.

    Args:
        space: The run.
        path: The file.

    Returns:
        The outcomes, at least one.

    Raises:
        InvalidInputError: If the file cannot be read, names none, or a line names no outcome.
    """
    file = require_file(path, "a text file with an outcome in each line")
    with foreign(f"{named(file)} cannot be read as text", "Save it as UTF-8, with an outcome in each line."):
        lines = file.read_text(encoding="utf-8").splitlines()
    said = {place: line for place, line in enumerate(lines, 1) if line.strip() and not line.lstrip().startswith("#")}
    if not said:
        raise InvalidInputError(f"{named(file)} names no outcome. Write one in each line: {_forms()}.")
    return [named_outcome(space, line, asked_by=f"{named(file)}, line {place}") for place, line in said.items()]


def _group_distance(space: Workspace, column: str, *, label: str | None) -> Asked:
    values = space.of_test(column, "--outcome group_distance")
    return _of_held_out(space, values, relative_group_distance, f"group_distance {column}", "lower")


def _label_consistency(space: Workspace, *, label: str | None) -> Asked:
    values = space.of_test(_label(space, label, "label_consistency"))
    return _of_held_out(space, values, class_margin, "label_consistency", "raise")


def _of_held_out(
    space: Workspace,
    values: np.ndarray[Any, Any],
    measure: Callable[[Tensor, Tensor], Tensor],
    name: str,
    wanted: Direction,
) -> Asked:
    """Return an outcome of groups or classes of every other held-out sample; the rest are for a fresh look."""
    t = len(space.test)
    made: list[Outcome] = []
    for half in (torch.arange(0, t, 2), torch.arange(1, t, 2)):
        chosen = half[evenly_spaced(len(half), SEEN)] if len(half) else half
        levels, codes = np.unique(values[chosen.numpy()].astype(str), return_inverse=True)
        counts = np.bincount(codes) if len(codes) else np.zeros(0)
        if len(levels) < 2 or counts.max() < 2:
            if made:
                return Asked(made[0], wanted)
            raise InvalidInputError(
                f"--outcome {name}: {len(levels)} groups are among the {len(chosen)} held-out samples looked at: at "
                f"least two are required, one of two samples."
            )
        function = partial(_measured, measure, torch.from_numpy(codes.astype(np.int64)))
        made.append(custom(space.model, space.held_out(chosen), function, name=name))
    return Asked(made[0], wanted, made[1])


def _measured(measure: Callable[[Tensor, Tensor], Tensor], codes: Tensor, Z: Tensor) -> Tensor:
    return measure(Z, codes.to(Z.device))


def _margin(space: Workspace, id: str, *, label: str | None) -> Asked:
    column = _label(space, label, "margin")
    own = str(space.asked.column(column)[space.asked.place(id)])
    group, others = space.members(column, own, "--outcome margin")
    reference = space.held_out(evenly_spaced(len(space.test), SEEN))
    name = f"margin of {id} to {column}={own}"
    made = pull(space.model, space.samples([id]), group, others, reference=reference, name=name)
    return Asked(made, "raise", about=(id,))


def _pull(space: Workspace, id: str, target: str, *, label: str | None) -> Asked:
    column, equals, value = target.partition("=")
    if not equals:
        raise InvalidInputError(f"--outcome pull: {printable(target)!r} is not COLUMN=VALUE.")
    return Asked(pull_to_group(space, id, column, value), None, about=(id,))


def _pair(space: Workspace, first: str, second: str, *, label: str | None) -> Asked:
    return Asked(similarity_of(space, first, second), None, about=(first, second))


def _label(space: Workspace, label: str | None, name: str) -> str:
    """Return the column of the classes."""
    found = label or space.settings.label or ("label" if space.data.labels is not None else None)
    if found is None:
        raise InvalidInputError(f"--outcome {name} needs classes, and the run has none. Pass --label COLUMN.")
    return found


FORMS: dict[str, tuple[tuple[str, ...], Callable[..., Asked]]] = {
    "group_distance": (("COLUMN",), _group_distance),
    "label_consistency": ((), _label_consistency),
    "margin": (("ID",), _margin),
    "pull": (("ID", "COLUMN=VALUE"), _pull),
    "pair": (("ID", "ID"), _pair),
}
"""By name: what an outcome takes, and what makes it."""


def _forms() -> str:
    return "; ".join(" ".join((name, *takes)) for name, (takes, _) in FORMS.items())
