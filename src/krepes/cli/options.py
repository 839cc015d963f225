"""The options that several commands share, each said once."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from krepes.errors import InvalidInputError

Data = Annotated[str, typer.Argument(help="CSV, Parquet, .npy, a folder of images, or a data set such as digits.")]
Run = Annotated[str, typer.Argument(help="A run folder that `krepes fit` wrote.")]
Config = Annotated[
    str | None, typer.Option("--config", help="A TOML file with any of the settings; flags override it.")
]
DataDir = Annotated[str | None, typer.Option(help="Folder of the named data sets (default: KREPES_DATA).")]
Moved = Annotated[str | None, typer.Option("--data", help="The data, where they are not where the run found them.")]
Schema = Annotated[str | None, typer.Option(help="TOML file overriding the kinds of a table's columns.")]
IdColumn = Annotated[str | None, typer.Option(help="Column of a table with the row ids.")]
Label = Annotated[str | None, typer.Option(help="Column that judges; the encoder never sees it.")]
Exclude = Annotated[list[str] | None, typer.Option(help="Column that the encoder must not see (repeatable).")]
Size = Annotated[int | None, typer.Option(help="Side of images, in pixels.")]
SkipBroken = Annotated[bool | None, typer.Option("--skip-broken", help="Leave out images that cannot be read.")]
Encoder = Annotated[str | None, typer.Option(help="mlp, resmlp, resnet18, ..., module:factory, or rbf.")]
EncoderOption = Annotated[list[str] | None, typer.Option(help="name=value for the encoder's factory (repeatable).")]
Weights = Annotated[str | None, typer.Option(help="Weights: safetensors or a torch checkpoint. Without: train here.")]
Loss = Annotated[str | None, typer.Option("--loss", help="Loss of training on the spot.")]
Epochs = Annotated[int | None, typer.Option(help="Epochs of training on the spot.")]
Augment = Annotated[str | None, typer.Option(help="noise, drop, scarf or images; by default what suits the data.")]
Objective = Annotated[str | None, typer.Option(help="barlow_twins, vicreg, simclr, byol, spectral, simple, kpca, kae.")]
ObjectiveOption = Annotated[list[str] | None, typer.Option(help="name=value for the objective (repeatable).")]
M = Annotated[int | None, typer.Option("-m", help="Number of landmarks.")]
H = Annotated[int | None, typer.Option("-h", help="Embedding dimension.")]
Landmarks = Annotated[str | None, typer.Option(help="rpcholesky, kmeans++, leverage-nystrom, uniform, ...")]
Seed = Annotated[int | None, typer.Option(help="Seed of everything random.")]
Out = Annotated[str, typer.Option("--out", help="Where the result goes.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bars.")]
Rows = Annotated[list[str], typer.Option("--row", help="Row id (repeatable).")]
Top = Annotated[int, typer.Option(help="How many to show.")]
Groups = Annotated[list[str] | None, typer.Option("--group", help="Column whose values are groups (repeatable).")]


def pairs(options: list[str] | None) -> dict[str, Any] | None:
    """Return ``name=value`` options as values: numbers and true/false where they read so.

    Args:
        options: As typed.

    Returns:
        The values by name, or ``None`` where there is none.

    Raises:
        InvalidInputError: If one has no ``=``.
    """
    if not options:
        return None
    found = {}
    for option in options:
        name, equals, text = option.partition("=")
        if not equals:
            raise InvalidInputError(f"{option!r} is not name=value.")
        found[name] = value(text)
    return found


def value(text: str) -> Any:
    """Return a typed value: true, false, an integer, a number, or the text itself."""
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
