"""What if some training rows had not been there: what moves in the surrogate, beside random sets of the same size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from html import escape

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from tqdm import tqdm

from krepes import registry
from krepes.audit.study import Study
from krepes.encoders.frozen import in_pieces
from krepes.errors import InvalidInputError
from krepes.influence import movement
from krepes.influence.lazy import LAZY
from krepes.influence.linearised import coefficients
from krepes.influence.whatif import LazyReplay
from krepes.model import Krepes
from krepes.model.removal import places_of, random_places
from krepes.runs.answers import study
from krepes.runs.retraining import training_loss
from krepes.runs.workspace import Workspace
from krepes.views.source import evenly_spaced

METHODS = ("surrogate", "lazy")
SEEN = 500
"""Held-out samples that are looked at, evenly spaced."""
COMPARED = ("features", "groups", "consistency", "spectrum")
"""Audits that are asked of every model."""
Version = tuple[Tensor, Krepes | None]
"""Embeddings of the samples looked at, ``(t, h)``, and the model, where there is one to audit."""


@dataclass(frozen=True)
class WhatIf:
    """What a removal moved; each table has the columns of `krepes.influence.whatif.against_random`.

    Attributes:
        method: ``"surrogate"`` or ``"lazy"``.
        removed: Training rows taken out.
        trained: Training rows before.
        sets: Random sets compared with.
        overall: One row: mean distance that held-out samples moved, in parts of the spread.
        samples: Held-out samples that moved most.
        pairs: Pairs of them whose cosine changed most.
        groups: Distances of group means, in parts of the spread.
        audits: Numbers of audits.
        missing: Audits that were not asked, and why.
    """

    method: str
    removed: int
    trained: int
    sets: int
    overall: pd.DataFrame = field(repr=False)
    samples: pd.DataFrame = field(repr=False)
    pairs: pd.DataFrame = field(repr=False)
    groups: pd.DataFrame = field(repr=False)
    audits: pd.DataFrame = field(repr=False)
    missing: dict[str, str] = field(repr=False)

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The tables that hold something, by name."""
        found = {name: getattr(self, name) for name in ("overall", "samples", "pairs", "groups", "audits")}
        return {name: table for name, table in found.items() if len(table)}

    def sentence(self) -> str:
        """Return the whole in words."""
        row = self.overall.iloc[0]
        return (
            f"Without {self.removed} of {self.trained} training rows held-out samples move by {row['change']:.3g} of "
            f"the spread of the embeddings on average; without {self.sets} random sets of the same size by "
            f"{row['random mean']:.3g}, and {round(row['random below'] * self.sets)} of {self.sets} moved them less."
        )

    def _repr_html_(self) -> str:
        tables = [table.to_html(index=False, float_format="{:.4g}".format) for table in self.tables.values()]
        return f"<p>{escape(self.sentence())}</p>{''.join(tables)}"

    def to_frame(self) -> pd.DataFrame:
        """Return all tables as one: column ``table``, then ``what``, then what they share."""
        parts = [table.assign(table=name) for name, table in self.tables.items()]
        whole = pd.concat(parts, ignore_index=True)
        return whole[["table", *(name for name in whole if name != "table")]]


def require_removable(space: Workspace, method: str) -> None:
    """Refuse a run that no rows can be taken out of by a method, and say what works.

    Args:
        space: The run.
        method: One of `METHODS`.

    Raises:
        InvalidInputError: If the method is unknown, or does not serve the run's objective, loss or kernel.
    """
    registry.chosen(dict.fromkeys(METHODS, "krepes:Krepes"), [method], "--method")
    loss, model = training_loss(space), space.model
    has_encoder = isinstance(model.kernel, nn.Module)
    lazy = has_encoder and isinstance(loss, str) and loss in LAZY
    if method == "lazy" and not lazy:
        name = space.settings.training_loss if space.recipe is None else space.recipe.settings.training_loss
        what = repr(name) if isinstance(loss, str) or ":" in name else f"{name!r} with options of its own"
        why = (
            f"the training loss {what} is no function of second moments that is known"
            if has_encoder
            else "there is no encoder"
        )
        raise InvalidInputError(
            f"--method lazy cannot be used with this run: {why}. It serves encoders trained by {', '.join(LAZY)}."
        )
    if method == "surrogate" and model.moments_ is None:
        other = "--method lazy can, from the loss of the training" if lazy else "--method lazy cannot either"
        raise InvalidInputError(
            f"the objective {model.objective_.name!r} of this run is a function of kernel rows, batch by batch, not of "
            f"their second moments: rows cannot be taken out of it without fitting again. {other}. Or fit the run with "
            f"--objective barlow_twins, vicreg, spectral, simple, kpca or kae: rows are taken out of those exactly."
        )


def what_if(
    space: Workspace,
    rows: Tensor,
    *,
    method: str = "surrogate",
    groups: Sequence[str] = (),
    label: str | None = None,
    sets: int = 20,
    top: int = 10,
    seed: int = 0,
    progress: bool = True,
) -> WhatIf:
    """Take training rows out of the surrogate of a run, and random sets of the same size, and compare.

    Args:
        space: The run.
        rows: Places ``(r,)`` in its stream.
        method: ``"surrogate"`` for the kernel model, exactly; ``"lazy"`` for the encoder linearised at itself.
        groups: Columns whose values are groups.
        label: Column that judges; by default that of the settings.
        sets: Random sets.
        top: Samples and pairs to keep.
        seed: Of the random sets.
        progress: Show a bar.

    Returns:
        What moved.

    Raises:
        InvalidInputError: If fewer than two samples can be looked at: distances are in parts of their spread.
    """
    require_removable(space, method)
    if len(space.test) < 2:
        raise InvalidInputError(f"{len(space.test)} sample can be looked at: two are required, to have a spread.")
    rows = places_of(rows, space.stream.n)
    seen = replace(space, test=space.test[evenly_spaced(len(space.test), SEEN)])
    asked = study(seen, groups=groups, label=label, counterfactual=False)
    others = random_places(space.stream.n, len(rows), sets, seed)
    versions = _versions(seen, [rows, *others], method, progress)
    Zs, numbers, missing = [], [], dict[str, str]()
    for Z, model in tqdm(versions, total=sets + 2, desc="what if", unit=" models", disable=not progress):
        Zs.append(Z)
        found, missing = _audited(asked, model, missing)
        numbers.append(found)
    Z, ids = torch.stack(Zs), seen.test_ids
    return WhatIf(
        method,
        len(rows),
        space.stream.n,
        sets,
        movement.overall(Z),
        movement.samples(Z, ids, top),
        movement.pairs(Z, ids, top),
        movement.groups(Z, {name: test for name, (_, test) in asked.groups.items()}),
        _audits(numbers),
        missing,
    )


def _versions(space: Workspace, sets: list[Tensor], method: str, progress: bool) -> Iterator[Version]:
    """Yield the whole, then each without a set."""
    model, X = space.model, space.test_source
    if method == "surrogate":
        x = torch.nn.functional.pad(model.model_rows(X), (0, 1), value=1.0)
        yield x @ model.solution_.theta, model
        for less in model.without_each(sets, stream=space.stream):
            yield x @ less.solution_.theta, less
        return
    assert isinstance(model.kernel, nn.Module)
    loss = training_loss(space)
    assert isinstance(loss, str)
    replay = LazyReplay.of(model.kernel, model.base_kernel_, model.points_, space.stream, loss, progress=progress)
    x = torch.cat([replay.linearised.rows(some) for some in in_pieces(X)])
    for chosen in (None, *sets):
        yield x @ coefficients(replay.state(chosen)["B"]), None


def _audited(asked: Study, model: Krepes | None, missing: dict[str, str]) -> tuple[dict[str, float], dict[str, str]]:
    """Return the numbers of the audits of one model, and what was not asked."""
    if model is None:
        return {}, dict.fromkeys(COMPARED, "It belongs to the kernel model: pass --method surrogate.")
    seen, found = replace(asked, model=model), dict[str, float]()
    for name, audit in registry.chosen(registry.AUDITS, COMPARED, "audits").items():
        reason = audit.missing(seen)
        if reason is not None:
            missing = {name: reason, **missing}
            continue
        table = audit.compute(seen).table
        found |= {f"{name}: {key}": value for key, value in audit.numbers(table).items()}
    return found, missing


def _audits(numbers: list[dict[str, float]]) -> pd.DataFrame:
    names = [name for name in numbers[0] if name in numbers[1]]
    if not names:
        return pd.DataFrame()
    values = np.array([[found.get(name, np.nan) for name in names] for found in numbers])
    return movement.frame(names, values[0], values[1], values[2:])
