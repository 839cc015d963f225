"""``krepes curate``: which training rows to remove so that an outcome goes where it is wanted, and whether it does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from krepes.cli import options as o
from krepes.cli.explain import opened, say_samples, trust_in
from krepes.cli.show import notes, plain, say, show_frame, show_json
from krepes.errors import InvalidInputError

if TYPE_CHECKING:
    from krepes.runs.curation import Proposal
    from krepes.runs.outcomes import Asked
    from krepes.runs.workspace import Workspace


def curate(
    run: o.Run,
    outcome: o.NamedOutcome,
    drop: Annotated[str, typer.Option(help="Rows to propose: a share, such as 5%, or a number.")] = "5%",
    lower: Annotated[
        bool | None,
        typer.Option("--lower/--raise", help="Where it shall go; by default groups together, classes apart."),
    ] = None,
    weight: Annotated[
        float, typer.Option(help="Weight that the rows keep: 0 removes them, 0.5 halves them.", min=0, max=1)
    ] = 0.0,
    method: o.Method = "auto",
    members: o.Members = 4,
    seconds: o.Seconds = 600.0,
    sets: o.Sets = 20,
    verify: Annotated[
        bool, typer.Option("--verify", help="Train again without the rows, and without random ones, and compare.")
    ] = False,
    seeds: Annotated[int, typer.Option(help="Trainings of each kind for --verify.", min=2)] = 5,
    top: o.Top = 10,
    out: Annotated[str, typer.Option("--out", help="CSV of ids, scores and proposed weights.")] = "curated.csv",
    label: o.Label = None,
    data: o.Moved = None,
    data_dir: o.DataDir = None,
    encoder: o.Own = None,
    trust_code: o.Trust = False,
    allow_changed_data: o.Changed = False,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
) -> None:
    """Propose training rows to remove, so that an outcome goes where it is wanted.

    Example: [bold]krepes curate runs/income --outcome "group_distance sex" --drop 5% --verify[/]

    Example: [bold]krepes curate runs/income --outcome "pair 17 42" --raise --drop 20[/]
    """
    from krepes.data.export import write_csv
    from krepes.runs.curation import direction_of, drop_count, propose
    from krepes.runs.outcomes import named_outcome
    from krepes.runs.retraining import require_recipe
    from krepes.runs.verification import verify_removal
    from krepes.storage.files import require_writable

    _require_removal(verify, weight)
    require_writable(out, "--out")
    space = opened(run, data, data_dir, encoder, trust_code, allow_changed_data)
    o.require_apart(out, space.settings.data, data)
    count = drop_count(drop, len(space.train))
    if verify:
        require_recipe(space)
    asked = named_outcome(space, outcome, label=label)
    direction = direction_of(asked, lower)
    rung: dict[str, Any] = {"method": method, "members": members, "seconds": seconds}
    found = propose(space, asked, count, direction, weight=weight, sets=sets, progress=not quiet, **rung)
    write_csv(found.rows, out)
    answer: dict[str, Any] = {"outcome": found.outcome, "direction": direction, "method": found.method, "out": out}
    answer |= {"notes": [*space.notes, *found.notes], "prediction": found.prediction, "sentence": found.sentence()}
    answer["trust"] = trust_in(space, run, found.method)
    if not as_json:
        _show(space, asked, found, top)
        say(answer["trust"])
        say(out)
    if verify:
        checked = verify_removal(space, asked, found.places, seeds=seeds, progress=not quiet)
        answer |= {"verified": checked.summary, "times": checked.times, "trainings": checked.values}
        answer |= {"verdict": checked.sentence()}
        if not as_json:
            show_frame(checked.summary, "what training again did, mean over seeds with 95 % intervals")
            say(checked.sentence())
    if as_json:
        show_json({**answer, "rows": found.rows})


def _show(space: Workspace, asked: Asked, found: Proposal, top: int) -> None:
    """Print a proposal: its first rows, of texts what they say, and what the set is predicted to do."""
    from krepes.runs.sentences import rows_in_words

    for note in found.notes:
        notes.print(f"[yellow]note[/] {plain(note)}", highlight=False, soft_wrap=True)
    words = rows_in_words(space, found.rows.head(top).assign(row=found.places[:top].numpy()), asked.about)
    say_samples(words)
    told = f"first of {len(found.rows)} rows; score: change of the outcome without the row"
    show_frame(words.frame.drop(columns="row"), told)
    if words.note:
        say(words.note)
    show_frame(found.prediction, "predicted change of the outcome without all of them")
    say(found.sentence())


def _require_removal(verify: bool, weight: float) -> None:
    if weight == 1:
        raise InvalidInputError("--weight 1 leaves every row as it is: pass less.")
    if verify and weight:
        raise InvalidInputError(
            f"--verify trains again without the proposed rows, and --weight {weight:g} keeps a part of them: pass one."
        )
