"""HIGGS: simulated collisions, 21 measurements and 7 masses derived from them (Baldi, Sadowski, Whiteson, UCI).

UCI has 11,000,000 rows. A smaller ``higgs_subset.npz`` with arrays ``X`` ``(n, 28)``, ``y`` and ``columns`` will do.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pandas as pd

from krepes.data.files import foreign
from krepes.data.local import NamedTable, data_root, locate, part_of, read_verified
from krepes.errors import InvalidInputError

COLUMNS = (
    "lepton_pT", "lepton_eta", "lepton_phi", "missing_energy_magnitude", "missing_energy_phi",
    *(f"jet_{i}_{what}" for i in range(1, 5) for what in ("pt", "eta", "phi", "btag")),
    "m_jj", "m_jjj", "m_lv", "m_jlv", "m_bb", "m_wbb", "m_wwbb",
)  # fmt: skip
CLASSES = ("background", "signal")
SUBSET = ("higgs/higgs_subset.npz", "higgs_subset.npz")
FULL = tuple(f"{folder}HIGGS.csv{end}" for folder in ("higgs/", "HIGGS/", "") for end in (".gz", ""))
SUBSET_SHA256 = "c8830e8be0f3016987fe9715c75ceb3cdb6e7d29a793532a2fa9e546e492f9cb"
FULL_ROWS = 11_000_000
CHUNK = 500_000


def load(data_dir: str | Path | None = None, split: str = "all", *, verify: bool = True) -> NamedTable:
    """Read HIGGS from ``higgs_subset.npz`` or, without it, UCI's ``HIGGS.csv``, packed or not.

    Args:
        data_dir: The data folder; by default the one that KREPES_DATA names. Files lie in ``higgs/`` or in itself.
        split: ``"all"``, or ``"train"`` and ``"test"``, a fixed random fifth of the rows.
        verify: Check the sha256 of the subset, or that the full file has its 11,000,000 rows: its sum is not published.

    Returns:
        28 float32 columns, and whether a row is a signal.

    Raises:
        InvalidInputError: If the file's columns are not those.
    """
    path = locate(data_root(data_dir), (*SUBSET, *FULL), "HIGGS.csv.gz of the UCI data set HIGGS")
    with foreign(f"{path} is not the data set HIGGS", "Download it again."):
        X, y = _subset(path, verify) if path.suffix == ".npz" else _full(path, verify)
    if X.shape[1:] != (len(COLUMNS),) or not np.isin(y, (0, 1)).all():
        raise InvalidInputError(f"higgs needs 28 columns and labels of 0 and 1, got X of shape {X.shape}.")
    frame = pd.DataFrame(X, columns=list(COLUMNS))
    return part_of(NamedTable("higgs", frame, np.array(CLASSES)[y.astype(np.int64)]), split)


def _subset(path: Path, verify: bool) -> tuple[np.ndarray, np.ndarray]:
    content = io.BytesIO(read_verified(path, SUBSET_SHA256 if verify else None))
    with np.load(content, allow_pickle=False) as stored:
        return stored["X"], stored["y"]


def _full(path: Path, verify: bool) -> tuple[np.ndarray, np.ndarray]:
    """Read in pieces as float32, so that eleven million rows take 1.3 GB and not several times that."""
    pieces = [piece.to_numpy() for piece in pd.read_csv(path, header=None, dtype=np.float32, chunksize=CHUNK)]
    rows = np.concatenate(pieces)
    if verify and len(rows) != FULL_ROWS:
        raise InvalidInputError(
            f"{path} has {len(rows):,} rows, it must have {FULL_ROWS:,}. Download it again, or pass verify=False."
        )
    return rows[:, 1:], rows[:, 0]
