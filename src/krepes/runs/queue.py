"""A fit as jobs of a batch queue without a common network: each does its part of the pass, and one merges them.

A part is a folder of ours: the settings it was begun with, which part of how many it is, its landmarks, and the
finished shards of its pass. All jobs choose the same landmarks by themselves, since the choice is a function of data
and settings; merging checks that they did.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from krepes import registry
from krepes.engine.passes import MOMENTS, ROWS
from krepes.errors import InvalidInputError, RunFolderError
from krepes.processes import Processes, acting_as
from krepes.runs.adapting import has_weights
from krepes.runs.fitting import fit
from krepes.runs.losses import code_named_by
from krepes.runs.place import BEGUN
from krepes.runs.settings import Settings, flag
from krepes.runs.store import WORK, is_run
from krepes.runs.workspace import Workspace
from krepes.storage.files import publish_bytes

PART = "part.json"


def shard_of(text: str) -> Processes:
    """Return the job that ``"2/8"`` names: the second of eight.

    Args:
        text: As the user wrote it.

    Returns:
        The job, which knows nothing of the others.

    Raises:
        InvalidInputError: If it is no such pair of numbers.
    """
    number, slash, count = text.partition("/")
    if not (slash and number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise InvalidInputError(f"--shard {text}: two numbers are wanted, such as 2/8 for the second of eight parts.")
    return Processes(int(number) - 1, int(count), "apart")


def fit_part(settings: Settings, folder: str | Path, job: Processes, *, progress: bool = True) -> Workspace:
    """Do one job's part of the pass, and keep it in a folder for `merge_parts`.

    Args:
        settings: The same for all jobs.
        folder: Of the part; called again, an interrupted job goes on.
        job: Which part.
        progress: Show progress bars.

    Returns:
        What was opened for it; its model is not solved.

    Raises:
        InvalidInputError: If an encoder would have to be trained, once in every job.
    """
    if settings.kernel not in registry.KERNELS and not has_weights(settings):
        raise InvalidInputError(
            f"--shard needs the weights of a trained encoder, for every job would train one. Train it once by krepes "
            f"pretrain, and pass {flag('weights')}."
        )
    with acting_as(job):
        made = fit(settings, folder, progress=progress)
    part = {"shard": [job.rank, job.count], "landmarks": made.model.landmarks_.tolist()}
    publish_bytes(Path(folder) / WORK / PART, json.dumps(part).encode())
    return made


def merge_parts(
    parts: Sequence[str | Path], folder: str | Path, *, trust_code: bool = False, progress: bool = True
) -> Workspace:
    """Put the parts of a fit together, solve, and write the run.

    The views of every part are drawn again to be recognised; no kernel is evaluated for them.

    Args:
        parts: Folders that `fit_part` filled, in any order.
        folder: Where the run goes.
        trust_code: Import the encoder, loss or tokenizer ``module:name`` that the parts name. Importing runs code.
        progress: Show progress bars.

    Returns:
        The workspace.

    Raises:
        RunFolderError: If parts are missing, unfinished, or of different fits.
        InvalidInputError: If they name code that was not trusted.
    """
    found = {place: _read(Path(place)) for place in parts}
    first, (settings, part) = next(iter(found.items()))
    count = part["shard"][1]
    for place, (others, other) in found.items():
        if others != settings or other["shard"][1] != count or other["landmarks"] != part["landmarks"]:
            differs = "settings" if others != settings else "landmarks or number of parts"
            raise RunFolderError(f"{place} and {first} are parts of different fits: their {differs} differ.")
    by_rank = {other["shard"][0]: Path(place) for place, (_, other) in found.items()}
    missing = [f"{rank + 1}/{count}" for rank in range(count) if rank not in by_rank]
    if missing:
        raise RunFolderError(f"{len(missing)} of {count} parts are missing: {', '.join(missing)}. Run these jobs.")

    def bring(work: Path) -> None:
        for place in by_rank.values():
            for name in (MOMENTS, ROWS):
                if (place / WORK / name).is_dir():
                    shutil.copytree(place / WORK / name, work / name, dirs_exist_ok=True)

    chosen = Settings.from_dict(settings)
    code = code_named_by(chosen)
    if code and not trust_code:
        raise InvalidInputError(
            f"the parts name code of their user's own, {', '.join(map(repr, code))}. Merging imports it, which runs "
            f"that module's code: pass --trust-code (in Python: trust_code=True)."
        )
    with acting_as(Processes(0, count, "merging")):
        return fit(chosen, folder, progress=progress, bring=bring)


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings and the description of a finished part."""
    if not is_run(folder) or not (folder / WORK / PART).is_file():
        raise RunFolderError(f"{folder} is no finished part of a fit: krepes fit --shard writes one.")
    try:
        settings, part = (json.loads((folder / WORK / name).read_text()) for name in (BEGUN, PART))
        rank, count = part["shard"]
        if not (0 <= rank < count and isinstance(part["landmarks"], list)):
            raise ValueError("its numbers do not fit")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunFolderError(f"{folder} is damaged ({error}). Run its job again.") from error
    return settings, part
