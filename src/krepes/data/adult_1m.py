"""Adult grown to a million rows, for questions of scale: no public source of that many rows exists.

1. Rows that are alike are put into cells of 8 to 16: numeric columns by rank, categories as indicators, each column
   at a total variance of one; their first ten principal components; the leaves of a k-d tree.
2. A new row starts as a copy of an original, each serving equally often, and meets a partner from the same cell.
3. Each block of columns is taken from the partner with probability ``swap``, else kept.

Copy and partner are both uniform over the originals, so every marginal is kept in expectation. Two columns of one block
always come from one person, which keeps what must agree: education and its number; marital status, relationship and
sex; gains, losses and income. Two columns of different blocks come from one person with probability
``swap² + (1 - swap)²`` and else from two of one cell, so that their association loses a part of what it has inside
cells, and nothing of what it has between them. `krepes.data.likeness.compare` measures both.

What it is not: new information. Every value is an original's, rare combinations are no better covered than in the
48,842 originals, and dependences of three and more blocks inside a cell are weakened. Near-copies abound by
construction, so it serves for time and memory, not for claims about duplicates or about generalisation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype
from sklearn.decomposition import PCA
from sklearn.neighbors import KDTree
from threadpoolctl import threadpool_limits

from krepes._checks import require_range
from krepes.budget import DEFAULT_BUDGET, Budget, MemoryBudget
from krepes.data.kept import kept
from krepes.data.values import categories
from krepes.errors import InvalidInputError

BLOCKS = (
    ("education", "education-num"),
    ("marital-status", "relationship", "sex"),
    ("capital-gain", "capital-loss", "income"),
    ("race", "native-country"),
    ("workclass", "occupation"),
)
CELL = 8
COMPONENTS = 10


def adult_1m(
    frame: pd.DataFrame,
    n: int = 1_000_000,
    *,
    seed: int = 0,
    swap: float = 0.5,
    memory_budget: MemoryBudget = DEFAULT_BUDGET,
) -> pd.DataFrame:
    """Grow Adult, or a table like it, to ``n`` rows.

    Args:
        frame: The originals, with or without the column ``income``; columns that `BLOCKS` does not name are blocks of
            their own.
        n: Rows to make.
        seed: Another seed makes other rows.
        swap: Probability that a block comes from the partner; at 0 rows are copies.
        memory_budget: Rows that take more than an eighth of it lie in a temporary file.

    Returns:
        ``n`` rows with the columns and types of ``frame``, in random order.

    Raises:
        InvalidInputError: If there are fewer originals than a cell holds.
    """
    require_range(n, "n", low=1)
    require_range(swap, "swap", low=0.0, high=0.5)
    if len(frame) < CELL:
        raise InvalidInputError(f"{len(frame)} rows are too few to grow from: a cell of alike rows holds {CELL}.")
    rng = np.random.default_rng(seed)
    source = np.concatenate([rng.permutation(len(frame)) for _ in range(-(-n // len(frame)))])[:n]
    source = rng.permutation(source)
    partner = _partners(_cells(frame), source, rng)
    size = n / len(frame) * frame.memory_usage(index=False).sum()
    columns = _grown(frame, source, partner, swap, rng)
    grown = pd.DataFrame(dict(columns)) if Budget.of(memory_budget).fits(size, share=1 / 8) else kept(columns)
    return grown[list(frame.columns)]


def _grown(
    frame: pd.DataFrame, source: np.ndarray, partner: np.ndarray, swap: float, rng: np.random.Generator
) -> Iterator[tuple[str, pd.Series[Any]]]:
    """Yield the columns, block by block."""
    for block in _blocks(list(frame.columns)):
        row = np.where(rng.random(len(source)) < swap, partner, source)
        for name in block:
            yield name, frame[name].take(row).reset_index(drop=True)


def _blocks(names: list[str]) -> list[tuple[str, ...]]:
    """Return the columns that stay together, those of no block alone."""
    together = [tuple(name for name in block if name in names) for block in BLOCKS]
    alone = [(name,) for name in names if not any(name in block for block in BLOCKS)]
    return [block for block in together if block] + alone


def _cells(frame: pd.DataFrame) -> list[np.ndarray]:
    """Return the row numbers of each cell of alike rows; the cells have all rows between them."""
    X = np.hstack([_scaled(frame[name]) for name in frame])
    with threadpool_limits(1):  # another number of threads rounds otherwise, and rows that tie would change cells
        points = PCA(min(COMPONENTS, *X.shape), svd_solver="full").fit_transform(X)
    _, order, nodes, _ = (np.asarray(array) for array in KDTree(points, leaf_size=CELL).get_arrays())
    return [order[node["idx_start"] : node["idx_end"]] for node in nodes if node["is_leaf"]]


def _scaled(column: pd.Series[Any]) -> np.ndarray:
    """Return ranks or indicators ``(n, c)``, of mean zero and a total variance of at most one."""
    numeric = is_numeric_dtype(column)
    block = (column.rank().to_frame() if numeric else pd.get_dummies(categories(column), dtype=float)).to_numpy()
    centred = np.nan_to_num(block - np.nanmean(block, axis=0))
    spread = centred.std(axis=0)
    return centred / np.where(spread > 0, spread, 1.0) / block.shape[1] ** 0.5


def _partners(cells: list[np.ndarray], source: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return, for each row of ``source``, a uniform member of its cell, itself among them."""
    members, sizes = np.concatenate(cells), np.array([len(cell) for cell in cells])
    cell_of = np.empty(len(members), dtype=np.int64)
    cell_of[members] = np.repeat(np.arange(len(cells)), sizes)
    cell = cell_of[source]
    return members[(np.cumsum(sizes) - sizes)[cell] + rng.integers(sizes[cell])]
