"""What the command line and a TOML file can say: strings become objects in `workspace`, and nowhere else."""

from __future__ import annotations

import dataclasses
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from krepes.errors import InvalidInputError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class Settings:
    """Everything that decides a run.

    Attributes:
        data: A CSV or Parquet file, an ``.npy`` array, a folder of images, or the name of a data set.
        data_dir: Folder of the named data sets; by default the environment variable KREPES_DATA.
        schema: A TOML file that overrides the kinds of a table's columns.
        id_column: Column of a table with the row ids; by default rows are numbered.
        label: Column (or the data set's own labels, ``"label"``) that judges; it never reaches the encoder.
        exclude: Columns of a table that the encoder must not see.
        size: Side of images, in pixels.
        skip_broken: Leave out images that cannot be read instead of refusing the folder.
        mean: Subtracted from each channel of an image, for an encoder that was trained so.
        std: Then divided by; beside ``mean``.
        max_rows: At most so many rows, drawn at random, are used; by default all.
        holdout: Share of the rows that is kept from the fit, to be explained.
        encoder: A name (mlp, resmlp, resnet18, ...), ``module:factory``, or ``rbf`` for a kernel without a network.
        encoder_options: Arguments of the encoder's factory.
        weights: Weights of the encoder; without them it is trained on the spot.
        pretrain: Loss of that training.
        epochs: Its length.
        batch_size: Samples in a training batch.
        lr: Its peak learning rate.
        projector: Widths of the head that its loss sees.
        augment: ``noise``, ``drop``, ``scarf``, ``crops`` or ``images``; by default what suits the data.
        augment_options: Its strengths, such as ``drop`` and ``noise`` of ``drop``, or ``crop`` of ``crops``.
        objective: Name of the objective.
        objective_options: Its hyper-parameters.
        m: Landmarks; by default 200, or half the rows of a small table.
        h: Embedding dimension; by default 32, or a quarter of a small m.
        landmarks: How they are chosen.
        damping: Relative damping, or ``"auto"``.
        steps: Gauss-Newton steps.
        seed: Of everything random.
    """

    data: str = ""
    data_dir: str | None = None
    schema: str | None = None
    id_column: str | None = None
    label: str | None = None
    exclude: tuple[str, ...] = ()
    size: int = 32
    skip_broken: bool = False
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    max_rows: int | None = None
    holdout: float = 0.2
    encoder: str | None = None
    encoder_options: dict[str, Any] = field(default_factory=dict)
    weights: str | None = None
    pretrain: str = "barlow_twins"
    epochs: int = 20
    batch_size: int = 256
    lr: float = 1e-3
    projector: tuple[int, ...] = (256, 256)
    augment: str | None = None
    augment_options: dict[str, float] = field(default_factory=dict)
    objective: str = "barlow_twins"
    objective_options: dict[str, Any] = field(default_factory=dict)
    m: int | None = None
    h: int | None = None
    landmarks: str = "rpcholesky"
    damping: float | str = "auto"
    steps: int = 1
    seed: int = 0

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Settings:
        """Return settings from plain values.

        Args:
            values: By name; those missing keep their default.

        Returns:
            The settings.

        Raises:
            InvalidInputError: If a name is unknown.
        """
        known = {f.name for f in dataclasses.fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise InvalidInputError(f"unknown settings {unknown}: known are {sorted(known)}.")
        lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        return cls(**values | lists)

    @classmethod
    def gather(cls, path: str | Path | None, flags: dict[str, Any]) -> Settings:
        """Return the settings of a file, if there is one, overridden by the flags that were given.

        Args:
            path: A TOML file, the JSON that runs and reproductions keep, or ``None``.
            flags: Values by name; ``None`` means not given.

        Returns:
            The settings.

        Raises:
            InvalidInputError: If the file cannot be read, or no data were named.
        """
        values: dict[str, Any] = {}
        if path is not None:
            try:
                text = Path(path).read_text()
                values = json.loads(text) if Path(path).suffix == ".json" else tomllib.loads(text)
            except (OSError, ValueError) as error:
                raise InvalidInputError(f"the settings file {path} cannot be read: {error}.") from error
        values |= {name: value for name, value in flags.items() if value is not None}
        if not values.get("data"):
            raise InvalidInputError("no data were named: pass a file, a folder of images or the name of a data set.")
        return cls.from_dict(values)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, for the run folder."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}
