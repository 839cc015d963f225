"""``krepes explain`` and ``krepes influence``: two questions that are not the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from krepes.cli import options as o
from krepes.cli.show import notes, plain, say, show_frame, show_json
from krepes.errors import InvalidInputError

if TYPE_CHECKING:
    from krepes.influence import Outcome
    from krepes.runs.workspace import Workspace

CONCEPT = "concept:"


def opened(
    run: str, data: str | None, data_dir: str | None, encoder: str | None, trust_code: bool, allow_changed_data: bool
) -> Workspace:
    """Return the workspace of a run, and say what must be known of its data."""
    from krepes.runs.opening import open_run

    space = open_run(
        run,
        data=data,
        data_dir=data_dir,
        encoder=encoder,
        trust_code=trust_code,
        allow_changed_data=allow_changed_data,
    )
    for note in space.notes:
        notes.print(f"[yellow]note[/] {plain(note)}", highlight=False, soft_wrap=True)
    return space


def explain(
    run: o.Run,
    row: o.Rows,
    top: o.Top = 5,
    strip: Annotated[str | None, typer.Option(help="For images: save a picture strip here.")] = None,
    data: o.Moved = None,
    data_dir: o.DataDir = None,
    encoder: o.Own = None,
    trust_code: o.Trust = False,
    allow_changed_data: o.Changed = False,
    as_json: o.Json = False,
) -> None:
    """Which landmarks is this embedding made of? Attractive first, then repulsive.

    Example: [bold]krepes explain runs/income --row 17[/]
    """
    from krepes.runs.answers import made_of, picture_strip

    space = opened(run, data, data_dir, encoder, trust_code, allow_changed_data)
    frame = made_of(space, row, top)
    if as_json:
        show_json({"notes": space.notes, "landmarks": frame})
        return
    show_frame(frame, "what the embedding is made of (not: what would change it; see krepes influence)")
    if space.asked.kind == "image":
        say(str(picture_strip(space, row, top, Path(strip or f"{run}-rows.png"))))


def influence(
    run: o.Run,
    row: o.Rows,
    toward: Annotated[
        str | None, typer.Option(help="column=value: a group; concept:column=value: its direction.")
    ] = None,
    top: o.Top = 10,
    method: Annotated[
        str,
        typer.Option(
            help="surrogate (fast), lazy or warm (predict retraining better), replay (of the whole training, of runs "
            "trained here or by krepes pretrain), or auto."
        ),
    ] = "surrogate",
    members: Annotated[
        int, typer.Option(help="Trainings that a replay averages: the run's own, and others by its recipe.", min=1)
    ] = 4,
    seconds: Annotated[float, typer.Option(help="What auto may take.", min=0)] = 120.0,
    draws: Annotated[int, typer.Option(help="Average the surrogate over so many new draws of the views.", min=0)] = 0,
    data: o.Moved = None,
    data_dir: o.DataDir = None,
    encoder: o.Own = None,
    trust_code: o.Trust = False,
    allow_changed_data: o.Changed = False,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
) -> None:
    """Which training samples would change this if they weighed more, or were removed?

    Two rows: what brings them together or apart. One row with --toward: what pulls it to a group, or along the
    direction of a concept that separates the group from the others.

    Example: [bold]krepes influence runs/income --row 17 --row 42[/]

    Example: [bold]krepes influence runs/income --row 17 --toward sex=Female[/]
    """
    from krepes.influence import influence_of
    from krepes.runs.proving import proof_of
    from krepes.runs.retraining import how_to_replay

    space = opened(run, data, data_dir, encoder, trust_code, allow_changed_data)
    outcome = _outcome(space, row, toward)
    how, stream = how_to_replay(space, method, members=members, seconds=seconds)
    asked: dict[str, Any] = {"method": method, "how": how, "draws": draws, "progress": not quiet}
    found = influence_of(space.model, outcome, stream=stream, ids=space.train_ids, **asked)
    k = min(top, len(space.train))
    answer: dict[str, Any] = {"raises": found.top(k, by="raises"), "lowers": found.top(k, by="lowers")}
    trust = proof_of(run, found.method)
    if as_json:
        told = {"notes": space.notes, "outcome": outcome.name, "method": found.method, "unit": found.unit}
        show_json({**told, "trust": trust, **answer})
        return
    for verb, frame in answer.items():
        show_frame(frame, f"training samples whose weight {verb} it: {outcome.name}")
    say(f"by {found.method}: {found.unit}")
    say(trust or f"whether to trust it was not measured: run krepes prove {run}")


def _outcome(space: Workspace, row: list[str], toward: str | None) -> Outcome:
    """Return the similarity of two samples, or the pull of one towards a group."""
    from krepes.runs.answers import along_concept, pull_to_group, similarity_of

    if toward is None:
        if len(row) != 2:
            raise InvalidInputError(f"{len(row)} rows were given: pass two, or one with --toward column=value.")
        return similarity_of(space, row[0], row[1])
    if len(row) != 1:
        raise InvalidInputError(f"{len(row)} rows were given with --toward: pass one.")
    column, equals, value = toward.removeprefix(CONCEPT).partition("=")
    if not equals:
        raise InvalidInputError(f"--toward {toward!r} is not column=value, nor concept:column=value.")
    ask = along_concept if toward.startswith(CONCEPT) else pull_to_group
    return ask(space, row[0], column, value)
