"""Adult, also Census Income: 32,561 and 16,281 people of the 1994 census, 14 attributes (Becker and Kohavi, UCI)."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd

from krepes.data.files import foreign
from krepes.data.local import NamedTable, data_root, locate, read_verified, require_split
from krepes.errors import InvalidInputError

COLUMNS = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship", "race",
    "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income",
)  # fmt: skip
CLASSES = ("<=50K", ">50K")
FILES = {"train": ("adult.data",), "test": ("adult.test",), "all": ("adult.data", "adult.test")}
SHA256 = {
    "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
}


def load(data_dir: str | Path | None = None, split: str = "train", *, verify: bool = True) -> NamedTable:
    """Read Adult from UCI's ``adult.data`` and ``adult.test``, in ``adult/`` or the folder itself.

    Args:
        data_dir: The data folder; by default the one that KREPES_DATA names.
        split: ``"train"``, ``"test"`` or ``"all"``, the first followed by the second.
        verify: Check the sha256 of the files.

    Returns:
        The 14 attributes, NaN where the file has ``?``, and whether the income is above 50,000 dollars.

    Raises:
        InvalidInputError: If a label is neither of the two.
    """
    require_split(split, tuple(FILES), "adult")
    frame = pd.concat([_read(data_root(data_dir), name, verify) for name in FILES[split]], ignore_index=True)
    income = frame.pop("income").astype(str).str.rstrip(".")
    if not income.isin(CLASSES).all():
        raise InvalidInputError(f"adult has labels {sorted(income.unique().tolist(), key=str)}, not only {CLASSES}.")
    return NamedTable(f"adult/{split}", frame, income.to_numpy(str))


def _read(root: Path, name: str, verify: bool) -> pd.DataFrame:
    candidates = [f"adult/{name}", name]
    path = locate(root, candidates, f"{name} of the UCI data set Adult")
    content = io.BytesIO(read_verified(path, SHA256[name] if verify else None))
    with foreign(f"{path} is not a table of Adult", "Download it again."):
        # adult.test opens with a line "|1x3 Cross validator", a comment in the language of the C4.5 program.
        return pd.read_csv(content, names=list(COLUMNS), skipinitialspace=True, na_values="?", comment="|")
