"""``krepes reproduce``."""

from __future__ import annotations

from typing import Annotated

import pandas as pd
import typer

from krepes.cli import options as o
from krepes.cli.show import console, show_frame, show_json


def reproduce(
    name: Annotated[str, typer.Argument(help="A table or figure of the paper, or `list`.")] = "list",
    scale: Annotated[str, typer.Option(help="quick, standard, or full (the paper's size).")] = "quick",
    out: o.Out = "results",
    data_dir: o.DataDir = None,
    as_json: o.Json = False,
) -> None:
    """Regenerate a table of the paper from real data, the paper's figures and the baselines beside ours.

    Example: [bold]krepes reproduce consistency --scale quick --data-dir data[/]
    """
    from krepes.reproduce import TARGETS, find_target
    from krepes.reproduce import reproduce as run

    if name == "list":
        listed = [(target.name, target.what, ", ".join(target.data)) for target in TARGETS.values()]
        show_frame(pd.DataFrame(listed, columns=["name", "what", "data"]), "what can be reproduced")
        return
    target = find_target(name)
    table = run(target, scale, data_dir, out)
    if as_json:
        show_json(table)
        return
    show_frame(table, target.what)
    console.print(target.note)
    console.print(f"{out}/{name}-{scale}.md")
