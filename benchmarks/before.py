"""The figures of the run that was kept last beside those of this run: ratios, shares, errors and counts, never seconds.

``before.json`` holds them by benchmark; ``python -m benchmarks --keep`` puts those of this run in their place. Seconds
belong to a machine and its load; a ratio of two that were measured side by side does not, or far less.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("before.json")
COMPARED = re.compile(
    r" / |_over_|share|ratio|error|\bR2\b|speedup|\blds\b|ceiling|gain|at least|without|tectures$|multiply-adds|GiB"
)
"""Names of figures that another machine would find too, or nearly; the last part of the name, or one before it."""
SECONDS = re.compile(r"second|\bs\b|\bms\b|cpu_s|GFLOP", re.IGNORECASE)


def figures(result: Any) -> dict[str, float]:
    """Return the comparable numbers of a benchmark's result, named by the way to them.

    Args:
        result: Nested dicts and lists, as ``main`` of a benchmark returns them.

    Returns:
        Numbers by name; of lists, those of records with a size ``n``.

    Example:
        >>> figures({"ResMLP": {"KREPES": 0.2, "torch.func / KREPES": 186.0}})
        {'ResMLP: torch.func / KREPES': 186.0}
    """
    found: dict[str, float] = {}

    def visit(value: Any, path: tuple[str, ...]) -> None:
        if isinstance(value, dict):
            for name, part in value.items():
                visit(part, (*path, str(name)))
        elif isinstance(value, list):
            for part in value:
                if isinstance(part, dict) and "n" in part:
                    visit(part, (*path, f"n = {part['n']}"))
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            if COMPARED.search(": ".join(path)) and not SECONDS.search(path[-1]):
                found[": ".join(path)] = float(value)

    visit(result, ())
    return found


def load() -> dict[str, dict[str, float]]:
    """Return the stored figures by benchmark."""
    found: dict[str, dict[str, float]] = json.loads(FILE.read_text())
    return found


def keep(results: dict[str, Any]) -> None:
    """Store the figures of this run, to three digits; those of benchmarks that did not run stay."""
    stored = load() | {
        name: {key: float(f"{value:.3g}") for key, value in figures(result).items()} for name, result in results.items()
    }
    FILE.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")


def table(name: str, result: Any) -> list[str]:
    """Return the lines that set this run's figures beside the stored ones; a dash where none is stored."""
    before, now = load().get(name, {}), figures(result)
    if not now:
        return []
    lines = [f"    {'beside the run kept last':58s} {'before':>10s} {'now':>10s} {'now / before':>13s}"]
    for key, value in now.items():
        old = before.get(key)
        change = f"{value / old:13.2f}" if old else f"{'-':>13s}"
        lines.append(f"    {key:58s} {'-' if old is None else f'{old:.3g}':>10s} {value:10.3g} {change}")
    return lines
