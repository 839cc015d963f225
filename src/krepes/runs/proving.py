"""``krepes prove``: the intervention test on a run, kept beside it, and what later answers say of it.

The proof lies in ``RUN.proof``, not inside the run: a run folder stays what its hash and its signature cover. It names
that hash, so that the proof of an earlier fit is never taken for one of this.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout

from krepes._checks import require_range
from krepes.errors import RunFolderError
from krepes.influence.ladder import MEMBERS
from krepes.proof import Proof
from krepes.proof.judging import prove as put_to_the_test
from krepes.proof.result import FEWEST, UNREPEATABLE
from krepes.proof.scores import RUNGS
from krepes.runs.opening import open_run
from krepes.runs.place import LOCK
from krepes.runs.store import read_manifest, versions
from krepes.runs.subject import run_subject
from krepes.runs.workspace import Workspace
from krepes.storage.files import publish, require_writable

logger = logging.getLogger("krepes")
PROOF, FORMAT = "proof.json", 1
Told = TypeVar("Told")


def prove(
    run: str | Path | Workspace,
    *,
    label: str | None = None,
    minutes: float = 30.0,
    halves: int = 60,
    retrainings: int = 2,
    members: int = MEMBERS,
    seed: int = 0,
    progress: bool = True,
    **opening: Any,
) -> Proof:
    """Retrain random halves of a run's rows, and see whether its row-level causes predicted what came of it.

    Args:
        run: A run folder, or an opened run.
        label: Column that defines the margin of a sample; by default the run's, and without one its neighbours do.
        minutes: No half is begun after so many; called again, the test goes on where it was.
        halves: At most so many.
        retrainings: Encoders for each half; two tell noise from effect.
        members: Trainings that a replay averages; by default as many as an answer by it does.
        seed: Of the outcomes, the halves and their trainings.
        progress: Show bars with the time left.
        **opening: As `krepes.runs.opening.open_run` takes them, where ``run`` is a folder.

    Returns:
        The proof: a table, its costs and a verdict in words. It is also kept beside the run, see `proof_of`.
    """
    for name, value, low in (("minutes", minutes, 0), ("halves", halves, 2), ("retrainings", retrainings, 2)):
        require_range(value, name, low=low)
    require_range(members, "members", low=1)
    space = run if isinstance(run, Workspace) else open_run(run, **opening)
    sha = str(read_manifest(space.folder)["run_sha256"])
    subject = run_subject(space, sha, label or space.settings.label, seed)
    told = {**subject.details(), "retrainings": retrainings}
    folder = proof_folder(space.folder)
    require_writable(folder / PROOF, "the proof")
    key = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:12]
    sizes: dict[str, Any] = {"halves": halves, "retrainings": retrainings, "members": members}
    with _alone(folder):
        found = put_to_the_test(subject, folder / key, **sizes, seconds=60 * minutes, progress=progress)
        _keep(found, folder / PROOF, told)
    return found


@contextmanager
def _alone(folder: Path) -> Generator[None, None, None]:
    """Hold the folder of a proof while it is written."""
    try:
        with FileLock(folder / LOCK, blocking=False):
            yield
    except Timeout as error:
        raise RunFolderError(f"another process is proving {folder.stem}. Wait until it has finished.") from error


def proof_folder(run: str | Path) -> Path:
    """Return where the proof of a run lies: beside it."""
    folder = Path(run).resolve()
    return folder.with_name(f"{folder.name}.proof")


def proof_of(run: str | Path, method: str | None = None) -> str | None:
    """Return what retraining said of a run's row-level causes.

    Args:
        run: The run folder.
        method: The rung whose answers are asked about; by default the best.

    Returns:
        A sentence with figures, or ``None`` if it was not measured, or only for an earlier fit or other rungs.
    """

    def said(kept: Any) -> dict[str, Any]:
        return {outcome: told.get(method or "best") for outcome, told in kept["verdicts"].items()}

    words = _read(run, said)
    if not words or not all(isinstance(text, str) for text in words.values()):
        return None
    return "measured by retraining: " + " ".join(f"{outcome}: {text}" for outcome, text in words.items())


def best_rung(run: str | Path, outcomes: int, seconds: float) -> str | None:
    """Return the rung that predicted retraining best where a run was proved, of those that take no longer than allowed.

    Args:
        run: The run folder.
        outcomes: How many are asked about.
        seconds: That they may take, by what all of the proof took: fewer may take as long, for passes are shared.

    Returns:
        Its name, or ``None`` if the run was not proved, or with too few halves to tell.
    """

    def best(kept: Any) -> str | None:
        taken = {line["score"]: max(line["seconds"], outcomes * (line["per outcome"] or 0.0)) for line in kept["costs"]}
        if kept.get("members") != MEMBERS:
            taken["replay"] = float("inf")  # an answer averages more trainings than were judged
        reached: dict[str, list[float]] = {}
        for line in kept["table"]:
            if line["kind"] == "rung" and line["value"] is not None and taken[line["score"]] <= seconds:
                reached.setdefault(line["score"], []).append(float(line["value"]))
        if kept["halves"] < FEWEST or not reached:
            return None
        return max(reached, key=lambda rung: sum(reached[rung]) / len(reached[rung]))

    return _read(run, best)


def _read(run: str | Path, wanted: Callable[[Any], Told]) -> Told | None:
    """Return what is wanted of the proof of a run, or nothing where there is none of this very fit."""
    path = proof_folder(run) / PROOF
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["format"] != FORMAT or kept["subject"]["run"] != read_manifest(run)["run_sha256"]:
            return None
        return wanted(kept)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        logger.warning("%s cannot be used (%s): prove the run again", path, error)
        return None


def trust_in_rows(space: Workspace, method: str) -> str | None:
    """Return what retraining said of a rung's answers about a run, that it cannot, or nothing if nobody asked it yet.

    Args:
        space: The run.
        method: The rung whose answers are asked about.

    Returns:
        A sentence, or ``None`` where ``krepes prove`` would measure it.
    """
    return proof_of(space.folder, method) or (UNREPEATABLE if space.recipe is None else None)


def _keep(found: Proof, path: Path, subject: dict[str, Any]) -> None:
    rungs = [name for name in RUNGS if name in found.scores]
    verdicts = {
        outcome: {"best": found.verdict(outcome), **{rung: found.verdict(outcome, rung) for rung in rungs}}
        for outcome in found.outcomes
    }
    told = {
        "format": FORMAT,
        "subject": subject,
        "halves": found.halves,
        "members": found.scores["replay"].details.get("members") if "replay" in found.scores else None,
        "verdicts": verdicts,
        "left_out": dict(found.left_out),
        "table": json.loads(found.table.to_json(orient="records")),
        "costs": json.loads(found.costs().to_json(orient="records")),
        "versions": versions(),
    }
    publish(path, lambda temporary: temporary.write_text(json.dumps(told, indent=2, sort_keys=True) + "\n"))
