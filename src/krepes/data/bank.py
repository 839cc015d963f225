"""Bank Marketing: 45,211 calls of a Portuguese bank, 16 attributes (Moro, Rita, Cortez, UCI)."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd

from krepes.data.files import foreign
from krepes.data.local import NamedTable, data_root, locate, part_of, read_verified
from krepes.errors import InvalidInputError

CANDIDATES = ("bank/bank-full.csv", "bank-full.csv")
SHA256 = "d1513ec63b385506f7cfce9f2c5caa9fe99e7ba4e8c3fa264b3aaf0f849ed32d"
CLASSES = ("no", "yes")


def load(data_dir: str | Path | None = None, split: str = "all", *, verify: bool = True) -> NamedTable:
    """Read Bank Marketing from UCI's ``bank-full.csv``, in ``bank/`` or the folder itself.

    Args:
        data_dir: The data folder; by default the one that KREPES_DATA names.
        split: ``"all"``, or ``"train"`` and ``"test"``, a fixed random fifth of the rows.
        verify: Check the sha256 of the file.

    Returns:
        The 16 attributes (``unknown`` is a category of its own), and whether the customer subscribed.

    Raises:
        InvalidInputError: If the file has no column ``y`` of yes and no.
    """
    path = locate(data_root(data_dir), CANDIDATES, "bank-full.csv of the UCI data set Bank Marketing (in bank.zip)")
    content = io.BytesIO(read_verified(path, SHA256 if verify else None))
    with foreign(f"{path} is not the table of Bank Marketing", "Download it again."):
        frame = pd.read_csv(content, sep=";")
    if "y" not in frame or not frame["y"].isin(CLASSES).all():
        raise InvalidInputError(f"{path} needs ';' between its columns and a column y of yes and no: {list(frame)}.")
    return part_of(NamedTable("bank", frame, frame.pop("y").to_numpy(str)), split)
