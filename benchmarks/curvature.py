"""The curvature of a sample of rows against that of all: error, time and products; ``python -m benchmarks.curvature``.

The rows are those of a kernel over a data set that is read by name; the damping is that of the solve with all rows.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from krepes.engine.rowstore import RowStore
from krepes.engine.solution import Solution
from krepes.engine.solvers import solve
from krepes.objectives import make_objective
from krepes.runs.fitting import fit
from krepes.runs.settings import Settings


def compared(run: Any, samples: list[int]) -> pd.DataFrame:
    """Return a row for all rows and one for each sample.

    Args:
        run: A fitted run of a row objective.
        samples: Rows that the curvature is taken of.

    Returns:
        Rows, seconds, the estimated and the true error of the step, and the losses.
    """
    model, found = run.model, []
    data, objective = model.data_, model.objective_
    assert isinstance(data, RowStore)
    theta0 = model.solution_.theta0
    whole: Solution | None = None
    for rows in [data.n, *samples]:
        how: dict[str, Any] = {"tol": 1e-6, "damping": run.settings.damping}
        if whole is not None:
            how |= {"damping": whole.damping_absolute, "relative": False}
        began = time.process_time()
        made = solve(replace(objective, curvature_rows=rows), data, theta0, **how)
        seconds = time.process_time() - began
        whole = whole or made
        step = whole.theta - theta0
        found.append({
            "objective": objective.name,
            "n": data.n,
            "curvature rows": rows,
            "seconds": round(seconds, 1),
            "products": made.iterations,
            "error told": made.curvature_error,
            "error": float((made.theta - whole.theta).norm() / step.norm()),
            "loss before": made.loss_before,
            "loss after": made.loss_after,
        })
    return pd.DataFrame(found)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--objective", default="byol")
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("-m", type=int, default=100)
    parser.add_argument("--h", type=int, default=16)
    parser.add_argument("--damping", type=float, default=1e-3)
    parser.add_argument("--samples", type=int, nargs="+", default=[16_384, 8_192, 4_096, 2_048])
    asked = parser.parse_args()
    make_objective(asked.objective)
    settings = Settings(
        data=asked.data,
        label="label",
        kernel="rbf",
        objective=asked.objective,
        max_rows=asked.rows,
        m=asked.m,
        h=asked.h,
        damping=asked.damping,
        curvature_rows=2_048,
    )
    with tempfile.TemporaryDirectory() as folder:
        run = fit(settings, Path(folder) / "run", progress=False)
        print(compared(run, asked.samples).to_string(index=False))


if __name__ == "__main__":
    main()
