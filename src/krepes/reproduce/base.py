"""What a reproduction is: a function of scale and seed, repeated over seeds, with the paper's figure beside ours."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd

from krepes.errors import InvalidInputError
from krepes.files import publish
from krepes.runs import versions


@dataclass(frozen=True)
class Scale:
    """How much data and work a reproduction takes.

    Attributes:
        train: Training rows at most.
        test: Test rows at most.
        epochs: Of pre-training.
        m: Landmarks.
        h: Embedding dimension.
        seeds: Repetitions.
        width: Width of the encoder's layers; the paper's ResMLP has 1032.
    """

    train: int
    test: int
    epochs: int
    m: int
    h: int
    seeds: int
    width: int


SCALES = {
    "quick": Scale(train=6_000, test=1_000, epochs=5, m=300, h=32, seeds=1, width=256),
    "standard": Scale(train=40_000, test=5_000, epochs=20, m=1_000, h=64, seeds=3, width=512),
    "full": Scale(train=10**9, test=10**9, epochs=100, m=1_000, h=250, seeds=3, width=1032),
}


@dataclass(frozen=True)
class Target:
    """One table or figure of the paper.

    Attributes:
        name: On the command line.
        what: The paper's table or figure.
        data: The data sets it needs.
        keys: Columns that name a row of the result.
        run: ``(scale, data_dir, seed) -> rows`` with the ``keys`` and a column ``value``.
        paper: The paper's figures, with the ``keys`` and a column ``paper``.
        note: What differs from the paper's setting, and how hyper-parameters were chosen.
    """

    name: str
    what: str
    data: tuple[str, ...]
    keys: tuple[str, ...]
    run: Callable[[Scale, str | None, int], pd.DataFrame]
    paper: pd.DataFrame
    note: str


def reproduce(target: Target, scale: str, data_dir: str | None, folder: str | Path) -> pd.DataFrame:
    """Run a target over its seeds and write ``<name>-<scale>.json`` and ``.md``.

    Args:
        target: What to reproduce.
        scale: ``"quick"``, ``"standard"`` or ``"full"``.
        data_dir: Folder of the data sets; by default KREPES_DATA.
        folder: Where the results go.

    Returns:
        One row a combination of the target's keys: ``mean`` and ``spread`` over seeds, ``seeds`` and ``paper``.

    Raises:
        InvalidInputError: If the scale is unknown.
    """
    if scale not in SCALES:
        raise InvalidInputError(f"scale={scale!r} is unknown: choose one of {', '.join(SCALES)}.")
    size = SCALES[scale]
    runs = pd.concat([target.run(size, data_dir, seed) for seed in range(size.seeds)], ignore_index=True)
    grouped = runs.groupby(list(target.keys), sort=False)["value"]
    table = grouped.agg(mean="mean", spread="std", seeds="count").reset_index()
    table = table.merge(target.paper, how="left", on=list(target.keys))
    _write(target, scale, size, table, Path(folder))
    return table


def markdown(table: pd.DataFrame) -> str:
    """Return a table in markdown; a figure that the paper does not give is a dash."""
    cells = [[_cell(value) for value in row] for row in table.itertuples(index=False)]
    lines = [list(map(str, table.columns)), ["---"] * len(table.columns), *cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "–" if value != value else f"{value:.4g}"
    return str(value)


def _write(target: Target, scale: str, size: Scale, table: pd.DataFrame, folder: Path) -> None:
    """Write the result for machines and for readers."""
    story = {
        "target": target.name,
        "what": target.what,
        "scale": {"name": scale, **asdict(size)},
        "note": target.note,
        "versions": versions(),
        "table": json.loads(table.to_json(orient="records")),
    }
    text = json.dumps(story, indent=2, sort_keys=True) + "\n"
    publish(folder / f"{target.name}-{scale}.json", lambda path: path.write_text(text))
    heading = f"## {target.what}\n\n`krepes reproduce {target.name} --scale {scale}`: {target.note}\n\n"
    page = heading + markdown(table)
    publish(folder / f"{target.name}-{scale}.md", lambda path: path.write_text(page))
