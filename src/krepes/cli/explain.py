"""``krepes explain`` and ``krepes influence``: two questions that are not the same."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
import typer

from krepes.attribution import attribute
from krepes.cli import options as o
from krepes.cli.show import console, show_frame, show_json
from krepes.concepts import ConceptVector
from krepes.errors import InvalidInputError
from krepes.influence import influence_of, pull, similarity
from krepes.influence import toward as along
from krepes.influence.outcomes import Outcome
from krepes.runs.workspace import Workspace, open_run

CONCEPT = "concept:"


def explain(
    run: o.Run,
    row: o.Rows,
    top: o.Top = 5,
    data: o.Moved = None,
    strip: Annotated[str | None, typer.Option(help="For images: save a picture strip here.")] = None,
    as_json: o.Json = False,
) -> None:
    """Which landmarks is this embedding made of? Attractive first, then repulsive.

    Example: [bold]krepes explain runs/income --row 17[/]
    """
    space = open_run(run, data=data)
    places = torch.tensor([space.source.row(id) for id in row])
    found = attribute(space.model, space.samples(places), ids=row)
    frame = pd.concat([found.to_frame(top, by="score"), found.to_frame(top, by="repulsive")], ignore_index=True)
    frame = frame.drop_duplicates(subset=[frame.columns[0], "landmark"]) if "landmark" in frame else frame
    if as_json:
        show_json(frame)
        return
    show_frame(frame, "what the embedding is made of (not: what would change it; see krepes influence)")
    if space.source.kind == "image":
        _save_strip(space, places, found, top, strip or f"{run}-rows.png")


def _save_strip(space: Workspace, places: torch.Tensor, found: Any, top: int, path: str) -> None:
    from krepes.figures import landmark_strips, render

    best = found.top(top, by="score")
    landmarks = space.source.take(space.train[space.model.landmarks_])
    names = [str(id) for id in space.model.landmark_ids_]
    picture = landmark_strips(
        space.source.take(places),
        landmarks,
        best.indices,
        best.scores,
        sample_names=found.sample_ids,
        landmark_names=names,
    )
    Path(path).write_bytes(render(picture))
    console.print(path)


def influence(
    run: o.Run,
    row: o.Rows,
    toward: Annotated[
        str | None, typer.Option(help="column=value: a group; concept:column=value: its direction.")
    ] = None,
    top: o.Top = 10,
    draws: Annotated[int, typer.Option(help="Average over so many new draws of the views.")] = 0,
    data: o.Moved = None,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
) -> None:
    """Which training rows would change this if they weighed more, or were removed?

    Two rows: what brings them together or apart. One row with --toward: what pulls it to a group, or along the
    direction of a concept that separates the group from the others.

    Example: [bold]krepes influence runs/income --row 17 --row 42[/]

    Example: [bold]krepes influence runs/income --row 17 --toward sex=Female[/]
    """
    space = open_run(run, data=data)
    outcome = _outcome(space, row, toward)
    found = influence_of(
        space.model, outcome, stream=space.stream, ids=space.train_ids, draws=draws, progress=not quiet
    )
    raises, lowers = found.top(top, by="raises"), found.top(top, by="lowers")
    if as_json:
        show_json({"outcome": outcome.name, "raises": raises, "lowers": lowers})
        return
    show_frame(raises, f"training rows that raise: {outcome.name}")
    show_frame(lowers, f"training rows that lower: {outcome.name}")


def _outcome(space: Workspace, row: list[str], toward: str | None) -> Outcome:
    """Return the similarity of two rows, or the pull of one towards a group."""
    samples = [space.samples(torch.tensor([space.source.row(id)])) for id in row]
    if toward is None:
        if len(samples) != 2:
            raise InvalidInputError(f"{len(samples)} rows were given: pass two, or one with --toward column=value.")
        return similarity(space.model, *samples, name=f"similarity of {row[0]} and {row[1]}")
    if len(samples) != 1:
        raise InvalidInputError(f"{len(samples)} rows were given with --toward: pass one.")
    column, equals, value = toward.removeprefix(CONCEPT).partition("=")
    values = space.source.column(column)[space.train.numpy()].astype(str)
    inside = np.flatnonzero(values == value)
    if not equals or not 0 < len(inside) < len(values):
        raise InvalidInputError(
            f"--toward {toward!r} names {len(inside)} of {len(values)} training rows: write column=value with a value "
            f"some rows have, such as {column}={values[0]}."
        )
    outside = np.flatnonzero(values != value)
    group, others = (space.samples(space.train[torch.from_numpy(part[:500])]) for part in (inside, outside))
    if toward.startswith(CONCEPT):
        concept = ConceptVector.fit(space.model, group, others, name=toward)
        return along(space.model, samples[0], concept.v, name=f"place of {row[0]} along {toward}")
    return pull(space.model, samples[0], group, others, name=f"pull of {row[0]} towards {toward}")
