"""Covertype: 581,012 patches of forest, 10 measurements, wilderness area and soil type (Blackard, UCI)."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pandas as pd

from krepes.data.files import foreign
from krepes.data.local import NamedTable, data_root, locate, part_of, read_verified
from krepes.errors import InvalidInputError

MEASUREMENTS = (
    "elevation", "aspect", "slope", "horizontal_distance_to_hydrology", "vertical_distance_to_hydrology",
    "horizontal_distance_to_roadways", "hillshade_9am", "hillshade_noon", "hillshade_3pm",
    "horizontal_distance_to_fire_points",
)  # fmt: skip
AREAS = ("Rawah", "Neota", "Comanche Peak", "Cache la Poudre")
SOILS = tuple(f"soil {i}" for i in range(1, 41))
CLASSES = ("spruce/fir", "lodgepole pine", "ponderosa pine", "cottonwood/willow", "aspen", "douglas-fir", "krummholz")
CANDIDATES = tuple(f"{folder}covtype.data{end}" for folder in ("covertype/", "covtype/", "") for end in (".gz", ""))
SHA256 = "0a9371cef7c964b5475d6053cc3e0894a5aa6f65ad1ed3ecb01c45aa96217945"


def load(data_dir: str | Path | None = None, split: str = "all", *, verify: bool = True) -> NamedTable:
    """Read Covertype from UCI's ``covtype.data``, packed or not, in ``covertype/`` or the folder itself.

    Args:
        data_dir: The data folder; by default the one that KREPES_DATA names.
        split: ``"all"``, or ``"train"`` and ``"test"``, a fixed random fifth of the rows.
        verify: Check the sha256 of the unpacked file.

    Returns:
        10 measurements and 2 categorical columns, which the file spreads over 4 and 40 columns of zeros and ones; and
        the cover, one of 7 classes.

    Raises:
        InvalidInputError: If the file's columns are not those.
    """
    path = locate(data_root(data_dir), CANDIDATES, "covtype.data.gz of the UCI data set Covertype")
    content = read_verified(path, SHA256 if verify else None)
    with foreign(f"{path} is not the table of Covertype", "Download it again."):
        rows = pd.read_csv(io.BytesIO(content), header=None, dtype=np.int32).to_numpy()
    if rows.shape[1] != 55 or not np.isin(rows[:, 54], range(1, 8)).all():
        raise InvalidInputError(f"{path} needs 54 columns and a class of 1 to 7, it has {rows.shape[1]} columns.")
    frame = pd.DataFrame(rows[:, :10], columns=list(MEASUREMENTS)).assign(
        wilderness_area=_fold(rows[:, 10:14], AREAS, path), soil_type=_fold(rows[:, 14:54], SOILS, path)
    )
    return part_of(NamedTable("covertype", frame, np.array(CLASSES)[rows[:, 54] - 1]), split)


def _fold(one_hot: np.ndarray, names: tuple[str, ...], path: Path) -> pd.Categorical[str]:
    """Return the category of each row of ``one_hot``, ``(n, c)``."""
    if not (one_hot.sum(axis=1) == 1).all():
        raise InvalidInputError(f"{path}: each row must have exactly one of {names[0]!r} to {names[-1]!r}.")
    return pd.Categorical.from_codes(one_hot.argmax(axis=1), categories=pd.Index(names))
