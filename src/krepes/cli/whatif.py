"""``krepes whatif``: what would be different if some training rows had not been there."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from krepes.cli import options as o
from krepes.cli.explain import opened, trust_in
from krepes.cli.show import notes, plain, say, show_frame, show_json

TITLES = {
    "overall": "how far held-out samples moved, in parts of the spread of the embeddings",
    "samples": "held-out samples that moved most, in parts of the spread",
    "pairs": "pairs of held-out samples whose cosine changed most",
    "groups": "distance of the means of groups, in parts of the spread",
    "audits": "audits of the run, before and after",
}
DISTANCES = ("overall", "samples")
"""Tables of distances from the model of all rows, which is at none from itself."""


def whatif(
    run: o.Run,
    remove: Annotated[str | None, typer.Option(help="CSV of ids to remove: its id column, or the first.")] = None,
    where: Annotated[
        str | None,
        typer.Option(help="Rows to remove: column OP value, OP one of == != < <= > >= in; and, or, parentheses."),
    ] = None,
    group: o.Groups = None,
    label: o.Label = None,
    method: Annotated[
        str, typer.Option(help="surrogate: the kernel model, exactly; lazy: the encoder linearised at itself.")
    ] = "surrogate",
    sets: o.Sets = 20,
    top: o.Top = 10,
    seed: Annotated[int, typer.Option(help="Of the random sets.", min=0)] = 0,
    out: o.Csv = None,
    data: o.Moved = None,
    data_dir: o.DataDir = None,
    encoder: o.Own = None,
    trust_code: o.Trust = False,
    allow_changed_data: o.Changed = False,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
) -> None:
    """What would move if some training rows had not been there? Beside random sets of the same size.

    Example: [bold]krepes whatif runs/income --where "country == 'X' and age < 30" --group sex[/]

    Example: [bold]krepes whatif runs/income --remove ids.csv --out moved.csv[/]
    """
    from krepes.data.export import write_csv
    from krepes.runs.removal import chosen_rows, require_choice
    from krepes.runs.whatif import require_removable, what_if
    from krepes.storage.files import require_writable

    require_choice(remove, where)
    if out is not None:
        require_writable(out, "--out")
    space = opened(run, data, data_dir, encoder, trust_code, allow_changed_data)
    o.require_apart(out, space.settings.data, data, remove)
    require_removable(space, method)
    space.require_columns(group or (), label)
    chosen = chosen_rows(space, remove=remove, where=where)
    asked: dict[str, Any] = {"groups": group or (), "label": label, "sets": sets, "top": top, "seed": seed}
    found = what_if(space, chosen.places, method=method, progress=not quiet, **asked)
    if out is not None:
        write_csv(found.to_frame(), out)
    if as_json:
        said: dict[str, Any] = {"notes": [*space.notes, *chosen.notes], "rows": chosen.what, "removed": found.removed}
        said |= {"trained": found.trained, "sets": found.sets, "method": method, "sentence": found.sentence()}
        said |= {"trust": trust_in(space, run, method)}
        show_json({**said, **found.tables, "missing": found.missing})
        return
    for note in chosen.notes:
        notes.print(f"[yellow]note[/] {plain(note)}", highlight=False, soft_wrap=True)
    for name, table in found.tables.items():
        show_frame(table.drop(columns=["before", "after"]) if name in DISTANCES else table, TITLES[name])
    for name, reason in found.missing.items():
        say(f"{name}: {reason}")
    say(found.sentence())
    say(trust_in(space, run, method))
    if out is not None:
        say(out)
