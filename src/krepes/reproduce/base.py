"""What a reproduction is: a function of a trial, repeated over seeds, with the paper's figure beside ours."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from tqdm import tqdm

from krepes._checks import require_range
from krepes.errors import InvalidInputError
from krepes.figures import render
from krepes.reproduce import measured
from krepes.reproduce.claims import Claim, decide
from krepes.reproduce.measured import Measured
from krepes.reproduce.parts import Findings, Part, Work, commit_of_code, run_part
from krepes.reproduce.scale import find_scale
from krepes.reproduce.sections import section, summary
from krepes.reproduce.stored import end_retraining, open_retraining
from krepes.reproduce.trial import Trial
from krepes.runs.store import versions
from krepes.storage.files import publish_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


__all__ = ["Findings", "Target", "begin", "redraw", "reproduce", "retell", "summarise"]


@dataclass(frozen=True)
class Target:
    """One table or figure of the paper.

    Attributes:
        name: On the command line.
        what: The paper's table or figure.
        data: The data sets it needs.
        keys: Columns that name a row of the result.
        across: The key whose values become columns of the page's table.
        run: What one trial finds.
        note: What differs from the paper's setting, and how hyper-parameters were chosen.
        paper: The paper's figures, with the ``keys`` and a column ``paper``.
        draw: A figure of the table over all seeds.
        drawings: Further figures of it, by name.
        digests: Shorter tables made of it, by their titles; they stand before it.
        judge: What is asked of the table, as ``(check, whether it holds)``.
        claims: What the paper claims, under every reading that its text allows.
        studies: Whether each data set is a study of its own, so that some can be run without the others.
        optional: Methods that can be left out.
        beyond: Whether the paper has nothing like it: ``all`` leaves it out.
    """

    name: str
    what: str
    data: tuple[str, ...]
    keys: tuple[str, ...]
    across: str
    run: Callable[[Trial], Findings]
    note: str
    paper: pd.DataFrame | None = None
    draw: Callable[[pd.DataFrame], Figure] | None = None
    drawings: Mapping[str, Callable[[pd.DataFrame], Figure]] = field(default_factory=dict)
    digests: Mapping[str, Callable[[pd.DataFrame], pd.DataFrame]] = field(default_factory=dict)
    judge: Callable[[pd.DataFrame], list[tuple[str, bool]]] | None = None
    claims: tuple[Claim, ...] = ()
    studies: bool = False
    optional: tuple[str, ...] = ()
    beyond: bool = False


def reproduce(
    target: Target,
    scale: str,
    data_dir: str | None,
    folder: str | Path,
    *,
    seeds: int | None = None,
    only: Sequence[str] = (),
    without: Sequence[str] = (),
    retrain: bool = False,
) -> pd.DataFrame:
    """Run a target over its seeds and write ``<name>-<scale>.json``, ``.md`` and ``.png``; `begin` has the arguments.

    Returns:
        One row a combination of the target's keys: ``mean`` and ``spread`` over seeds, ``seeds`` and ``paper``.
    """
    table = begin(target, scale, data_dir, folder, seeds=seeds, only=only, without=without, retrain=retrain)()
    if retrain:
        end_retraining(Path(folder))
    return table


def begin(
    target: Target,
    scale: str,
    data_dir: str | None,
    folder: str | Path,
    *,
    seeds: int | None = None,
    only: Sequence[str] = (),
    without: Sequence[str] = (),
    retrain: bool = False,
    crew: Executor | None = None,
) -> Callable[[], pd.DataFrame]:
    """Begin with a target; what is returned ends it, and returns and writes what `reproduce` does.

    Studies that an earlier call measured in the same folder, and this one does not, stay in the result.

    Each finished seed is kept in ``parts``: an interrupted run goes on from there, as long as the commit is the same.

    Args:
        target: What to reproduce.
        scale: ``"quick"``, ``"standard"`` or ``"full"``.
        data_dir: Folder of the data sets; by default KREPES_DATA.
        folder: Where the results go; its folder ``encoders`` keeps what was trained, for the next target.
        seeds: Repetitions, where the scale's number would take too long; the table says how many there were.
        only: Data sets to look at, if the target's are studies of their own; by default all.
        without: Methods to leave out, of those that the target says can be.
        retrain: Train encoders anew instead of using those of the repository or of an earlier call. Targets share them
            until `krepes.reproduce.stored.end_retraining` says that the call has ended; called before, it goes on.
        crew: Processes that share the seeds, of this target and of others that were begun; by default none.

    Returns:
        What to call for the table.
    """
    size, folder = find_scale(scale), Path(folder)
    if seeds is not None:
        require_range(seeds, "seeds", low=1)
        size = replace(size, seeds=seeds)
    _require_choice("--only", target, only, target.data if target.studies else ())
    _require_choice("--without", target, without, target.optional)
    commit = commit_of_code()
    encoders = open_retraining(folder, commit) if retrain else folder / "encoders"
    trial = Trial(size, 0, data_dir, encoders, tuple(only), tuple(without), retrain)
    trials = [replace(trial, seed=seed) for seed in range(size.seeds)]
    work = Work(target.name, target.run)
    waiting = [] if crew is None else [crew.submit(run_part, work, one, folder, commit) for one in trials]

    def end() -> pd.DataFrame:
        parts = []
        for number, one in enumerate(trials):
            parts.append(waiting[number].result() if waiting else run_part(work, one, folder, commit))
            done = f"{target.name}: seed {number + 1} of {len(trials)} done, {parts[-1].seconds / 60:.1f} core minutes"
            tqdm.write(done, file=sys.stderr)
        choices = {"data": list(only or target.data), "only": list(only), "without": list(without)}
        return _conclude(
            target, parts, {**choices, "sizes": asdict(size), "seeds": size.seeds, "commit": commit}, folder
        )

    return end


def _conclude(target: Target, parts: Sequence[Part], run: dict[str, Any], folder: Path) -> pd.DataFrame:
    """Return the table over all seeds, and write it with its figures."""
    table = summarise(target, pd.concat([part.rows for part in parts], ignore_index=True))
    scale = run["sizes"]["name"]
    now = {
        "target": target.name,
        "scale": scale,
        "runs": [{**run, **_work(parts), "versions": versions()}],
        "table": measured.as_columns(table),
        "pictures": parts[0].pictures,
    }
    path = measured.result_path(folder, target.name, scale)
    found = measured.together(measured.read(path), now)
    measured.write(found, path)
    redraw(target, found, folder)
    details = retell(target, found)
    page = "\n".join([summary({target.name: details}), section(target.name, details, ".")])
    publish_bytes(folder / f"{target.name}-{scale}.md", page.encode())
    return table


def _work(parts: Sequence[Part]) -> dict[str, Any]:
    """Return the CPU seconds of a run, and whether an earlier one had done some of its work."""
    kept = {"kept": True} if any(part.kept for part in parts) else {}
    return {"seconds": sum(part.seconds for part in parts), **kept}


def _require_choice(flag: str, target: Target, chosen: Sequence[str], known: Sequence[str]) -> None:
    """Refuse what a target does not have, or cannot be run with or without."""
    unknown = [name for name in chosen if name not in known]
    if unknown:
        takes = f"takes {', '.join(known)}" if known else "takes none"
        raise InvalidInputError(f"{flag} {unknown[0]}: {target.name} {takes} there.")


def summarise(target: Target, runs: pd.DataFrame) -> pd.DataFrame:
    """Return each combination of the keys over seeds: mean, deviation, the values themselves, the paper's figure."""
    keys = list(target.keys)
    grouped = runs.groupby(keys, sort=False, dropna=False)["value"]
    table = grouped.agg(mean="mean", spread="std", seeds="count", by_seed=list).reset_index()
    ends = [name for name in ("low", "high") if name in runs]
    if ends:
        table = table.merge(runs.groupby(keys, sort=False, dropna=False)[ends].mean().reset_index(), on=keys)
    if target.paper is None:
        return table
    return table.merge(target.paper, how="left", on=keys)


def retell(target: Target, found: Measured) -> dict[str, Any]:
    """Return a measurement with the target's words and figures, and with its claims judged by the table."""
    table = measured.as_table(found)
    verdicts = [] if target.judge is None else target.judge(table)
    checks = [{"check": check, "holds": bool(holds)} for check, holds in verdicts]
    claims = [decide(claim, table) for claim in target.claims if claim.judged_by(table)]
    words = {"what": target.what, "note": target.note, "keys": list(target.keys), "across": target.across}
    pictures = [*_drawings(target, found["scale"]), *found["pictures"]]
    digests = {title: digest(table) for title, digest in target.digests.items()}
    told = {"checks": checks, "claims": claims, "digests": digests, "pictures": pictures}
    return {**found, **words, "table": table, **told}


def redraw(target: Target, found: Measured, folder: Path) -> None:
    """Draw the figures of a measurement's table; pictures of single samples stay as they were."""
    for name, draw in _drawings(target, found["scale"]).items():
        publish_bytes(folder / name, render(draw(measured.as_table(found))))


def _drawings(target: Target, scale: str) -> dict[str, Callable[[pd.DataFrame], Figure]]:
    """Return what draws the figures of the table, by the names of their files."""
    first = {} if target.draw is None else {f"{target.name}-{scale}.png": target.draw}
    return first | {f"{target.name}-{scale}-{name}.png": draw for name, draw in target.drawings.items()}
