"""Runs side by side: the same audits of several runs of the same data, and which findings stand in all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from krepes.audit.base import AuditResult, run_audits
from krepes.audit.standing import Comparison, compare
from krepes.audit.study import Study
from krepes.errors import InvalidInputError
from krepes.registry import AUDITS, loaded
from krepes.runs.answers import study
from krepes.runs.fitting import fit
from krepes.runs.workspace import Workspace


@dataclass(frozen=True, eq=False)
class Audited:
    """A run with its audits.

    Attributes:
        study: What was audited.
        results: By the name of the audit.
        missing: Audits that could not be asked, and why.
    """

    study: Study
    results: dict[str, AuditResult]
    missing: dict[str, str]

    @property
    def found(self) -> tuple[dict[str, AuditResult], dict[str, str]]:
        """Both as `krepes.report.report_of` takes them."""
        return self.results, self.missing


def audited(space: Workspace, audits: Mapping[str, Any] | None = None, **options: Any) -> Audited:
    """Audit a run.

    Args:
        space: The run.
        audits: Which, by name; by default all.
        **options: Of `krepes.runs.answers.study`.

    Returns:
        The run with its results.
    """
    asked = study(space, **options)
    return Audited(asked, *run_audits(asked, loaded(AUDITS) if audits is None else audits))


def side_by_side(spaces: Mapping[str, Workspace], **options: Any) -> Comparison:
    """Return the findings of several runs side by side.

    Args:
        spaces: Runs of the same data, by what each is called.
        **options: Of `krepes.runs.answers.study`.

    Returns:
        The comparison.
    """
    require_same_data(spaces)
    return compare({name: audited(space, **options).results for name, space in spaces.items()})


def require_same_data(spaces: Mapping[str, Workspace]) -> None:
    """Refuse runs whose samples are not the same: no finding of one could be looked for in the other."""
    (first, one), *others = spaces.items()
    for name, other in others:
        mine, theirs = set(map(str, one.data.ids)), set(map(str, other.data.ids))
        columns = [sorted(space.data.names) for space in (one, other)]
        if one.data.kind != other.data.kind or columns[0] != columns[1] or not mine & theirs:
            raise InvalidInputError(
                f"{first} is about {one.data.n} samples of {one.data.name} with columns {columns[0][:8]}, {name} about "
                f"{other.data.n} of {other.data.name} with columns {columns[1][:8]}; they share {len(mine & theirs)} "
                f"ids. Compare two runs of the same data."
            )


def repeated(space: Workspace, folder: Path, seeds: int, *, progress: bool = True) -> dict[str, Workspace]:
    """Fit a run again with other seeds: another split, another training where it is trained here, other landmarks.

    Args:
        space: The run.
        folder: Where the others go, one folder each.
        seeds: How many runs there shall be in all, at least two.
        progress: Show progress bars.

    Returns:
        The runs by what they are called, the given one first.
    """
    first = space.settings.seed
    found = {f"seed {first}": space}
    for seed in range(first + 1, first + seeds):
        found[f"seed {seed}"] = fit(replace(space.settings, seed=seed), folder / f"seed-{seed}", progress=progress)
    return found


def named_runs(folders: Sequence[str]) -> list[str]:
    """Return short names of run folders that tell them apart."""
    last = [Path(folder).name or folder for folder in folders]
    return last if len(set(last)) == len(last) else list(folders)
