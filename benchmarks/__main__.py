"""Run the named benchmarks (all by default), print their tables and write ``results/bench-<name>.json``.

Beside each figure that is not seconds stands that of the run that was kept last (``benchmarks/before.json``);
``--keep`` puts the figures of this run in its place. A benchmark whose library or data are missing is skipped; one that
fails is named at the end, after all others have run.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from benchmarks import before
from krepes.errors import InvalidInputError

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


def run(name: str) -> Any:
    """Return what a benchmark's ``main`` returned, or ``None`` where a library or a data set is missing."""
    try:
        return importlib.import_module(f"benchmarks.{name}").main()
    except (ImportError, InvalidInputError) as error:
        print(f"    skipped: {error}", flush=True)
        return None


def main(names: list[str], *, keep: bool) -> int:
    """Run the benchmarks one after the other and return how many failed."""
    Path("results").mkdir(exist_ok=True)
    results: dict[str, Any] = {}
    failed: list[str] = []
    for name in names or list(NAMES):
        print(f"\n== {name}", flush=True)
        began, spent = time.perf_counter(), time.process_time()
        try:
            result = run(name)
        except Exception:
            traceback.print_exc()
            failed.append(name)
            continue
        if result is not None:
            results[name] = result
            Path(f"results/bench-{name}.json").write_text(json.dumps(result, indent=2, sort_keys=True) + "\n")
            print("\n".join(before.table(name, result)))
        clock, cpu = time.perf_counter() - began, time.process_time() - spent
        print(f"    {name}: {clock:.0f} s, {cpu:.0f} CPU s in this process", flush=True)
    if keep:
        before.keep(results)
    if failed:
        print(f"\nfailed: {', '.join(failed)}", file=sys.stderr)
    return len(failed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Speed against other tools.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--keep", action="store_true", help="store the figures of this run as those to compare with")
    given = parser.parse_args()
    if unknown := set(given.names) - set(NAMES):
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}. There are {', '.join(NAMES)}.")
    sys.exit(min(1, main(given.names, keep=given.keep)))
