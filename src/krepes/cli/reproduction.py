"""``krepes reproduce``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from krepes.cli import options as o
from krepes.cli.show import say, show_frame, show_json
from krepes.errors import InvalidInputError


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME...",
            help="Tables or figures of the paper, `list` (the default), `all` of the paper's, or `page`.",
        ),
    ] = None,
    scale: Annotated[str, typer.Option(help="quick, standard, or full (the paper's size).")] = "quick",
    seeds: Annotated[int | None, typer.Option(help="Repetitions; by default those of the scale.")] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="A data set of a target that is made of studies (repeatable).")
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(help="A method to leave out, such as replay of intervention (repeatable).")
    ] = None,
    retrain: Annotated[
        bool, typer.Option("--retrain", help="Train encoders anew; by default stored ones are used.")
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Processes that share the seeds, of one thread each.")] = 1,
    out: o.Out = "results",
    data_dir: o.DataDir = None,
    page: Annotated[str, typer.Option(help="Where `page` writes all results of the scale.")] = "docs/reproduction.md",
    as_json: o.Json = False,
) -> None:
    """Regenerate tables of the paper from real data, the paper's figures and the baselines beside ours.

    Several share the processes of [bold]--jobs[/]; each table is written when its last seed is done.

    Example: [bold]krepes reproduce consistency --scale quick --data-dir data[/]
    """
    import time
    from pathlib import Path

    import pandas as pd

    from krepes.reproduce import TARGETS, begin, crew, find_target, write_page
    from krepes.reproduce.stored import end_retraining

    wanted = list(dict.fromkeys(names or ["list"]))
    alone = _alone(wanted)
    if alone == "list":
        listed = [(target.name, target.what, ", ".join(target.data)) for target in TARGETS.values()]
        show_frame(pd.DataFrame(listed, columns=["name", "what", "data"]), "what can be reproduced")
        return
    if alone == "page":
        say(str(write_page(out, scale, page, list(TARGETS.values()))))
        return
    beyond = [target.name for target in TARGETS.values() if target.beyond]
    paper = [target for target in TARGETS.values() if not target.beyond]
    chosen: dict[str, Any] = {"seeds": seeds, "only": only or (), "without": without or (), "retrain": retrain}
    began = time.monotonic()
    with crew(jobs) as processes:
        begun = [
            (target, begin(target, scale, data_dir, out, crew=processes, **chosen))
            for target in (paper if alone == "all" else [find_target(name) for name in wanted])
        ]
        for target, end in begun:
            table = end()
            if as_json:
                show_json(table)
                continue
            show_frame(table, target.what)
            say(target.note)
            say(f"{out}/{target.name}-{scale}.md")
    if retrain:
        end_retraining(Path(out))
    if len(begun) > 1 and not as_json:
        by = "1 process" if jobs == 1 else f"{jobs} processes"
        say(f"{len(begun)} tables in {(time.monotonic() - began) / 60:.0f} minutes by {by}.")
    if alone == "all" and not as_json:
        say(f"Not in the paper, and run by name alone, since they retrain for hours: {', '.join(beyond)}.")


def _alone(wanted: list[str]) -> str | None:
    """Return the word that is no target, if one was given; it stands by itself."""
    found = next((name for name in wanted if name in {"list", "page", "all"}), None)
    if found is not None and len(wanted) > 1:
        raise InvalidInputError(f"{found} stands by itself: leave the other names out, or {found}.")
    return found
