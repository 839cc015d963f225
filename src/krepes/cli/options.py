"""The options that several commands share and that are no settings, each said once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from krepes.errors import InvalidInputError

OPENING = "Opening the run"
Run = Annotated[str, typer.Argument(help="A run folder that `krepes fit` wrote.")]
Moved = Annotated[
    str | None,
    typer.Option(
        "--data",
        help="The data, where they have moved; or a new file, whose samples to explain.",
        rich_help_panel=OPENING,
    ),
]
DataDir = Annotated[
    str | None, typer.Option(help="Folder of the named data sets; by default KREPES_DATA.", rich_help_panel=OPENING)
]
Own = Annotated[
    str | None,
    typer.Option("--encoder", help="module:factory of a run's own encoder; it is imported.", rich_help_panel=OPENING),
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust-code", help="Import the encoder, loss or tokenizer that the run names.", rich_help_panel=OPENING
    ),
]
Changed = Annotated[
    bool,
    typer.Option(
        "--allow-changed-data", help="Answer although the data were changed, and say so.", rich_help_panel=OPENING
    ),
]
Label = Annotated[str | None, typer.Option(help="Column that judges; by default that of the fit.")]
Groups = Annotated[list[str] | None, typer.Option("--group", help="Column whose values are groups (repeatable).")]
Concepts = Annotated[
    list[str] | None, typer.Option("--concept", help="column=value: an idea to look for (repeatable).")
]
Predictions = Annotated[str | None, typer.Option(help="Column with the classes that a classifier gave.")]
Out = Annotated[str, typer.Option("--out", help="Where the result goes.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bars.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what it will cost, in time, memory and disk, and do nothing.")
]
Gpus = Annotated[
    str | None,
    typer.Option(help="With --dry-run: 1,8,32 shows the hours that so many GPUs are expected to take. None was used."),
]
Shard = Annotated[
    str | None,
    typer.Option(help="2/8: do the second of eight parts of the pass, as a job of a queue; krepes merge adds them up."),
]
Rows = Annotated[list[str], typer.Option("--row", help="Id of a sample (repeatable).")]
SomeRows = Annotated[list[str] | None, typer.Option("--row", help="Id of a sample (repeatable).")]
Top = Annotated[int, typer.Option(help="How many to show.", min=1)]
Sets = Annotated[int, typer.Option("--sets", help="Random sets of the same size to compare with.", min=2)]
Csv = Annotated[str | None, typer.Option("--out", help="Write the tables to this CSV file.")]
_OUTCOME = typer.Option(
    "--outcome",
    help='"group_distance COLUMN", "label_consistency", "margin ID", "pull ID COLUMN=VALUE" or "pair ID ID".',
)
NamedOutcome = Annotated[str, _OUTCOME]
AnyOutcome = Annotated[str | None, _OUTCOME]
OutcomeFile = Annotated[
    str | None,
    typer.Option(
        "--outcomes", help="A text file with an outcome in each line, as --outcome takes it: hundreds share the passes."
    ),
]
Method = Annotated[
    str,
    typer.Option(
        "--method",
        help="auto (the best that --seconds allow), surrogate (fast), lazy or warm (predict retraining better), or "
        "replay (of the whole training, for runs trained here or by krepes pretrain).",
    ),
]
Members = Annotated[
    int,
    typer.Option("--members", help="Trainings that a replay averages: the run's own, and others by its recipe.", min=1),
]
Seconds = Annotated[float, typer.Option("--seconds", help="What auto may take.", min=0)]


def require_apart(out: str | None, *inputs: str | None) -> None:
    """Refuse to write a result over what it was made from.

    Args:
        out: Where the result goes, or ``None``.
        inputs: Files that were read.

    Raises:
        InvalidInputError: If they are one file.
    """
    if out is not None and Path(out).exists():
        for path in inputs:
            if path is not None and Path(path).exists() and Path(out).samefile(path):
                raise InvalidInputError(f"--out: {out} is what the answer is made from. Choose another place.")
