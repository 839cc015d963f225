"""Run the named benchmarks (all by default), print their tables and write ``results/bench-<name>.json``."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

NAMES = (
    "entk",
    "architectures",
    "sketch",
    "landmarks",
    "passes",
    "rows",
    "outcomes",
    "shared",
    "solve",
    "attribution",
    "explorer",
)


def main(names: list[str]) -> None:
    """Run each benchmark's ``main`` and keep what it returns; one whose libraries are missing is skipped."""
    Path("results").mkdir(exist_ok=True)
    for name in names or list(NAMES):
        print(f"\n== {name}", flush=True)
        try:
            result = importlib.import_module(f"benchmarks.{name}").main()
        except ImportError as error:
            print(f"    skipped: {error}", flush=True)
            continue
        Path(f"results/bench-{name}.json").write_text(json.dumps(result, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
