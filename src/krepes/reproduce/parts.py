"""One seed of a reproduction, kept on disk, so that a run of hours that was interrupted goes on where it was."""

from __future__ import annotations

import json
import os
import subprocess
import time
import warnings
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pandas as pd
import torch
from threadpoolctl import threadpool_limits

from krepes.figures import render
from krepes.reproduce.trial import Trial
from krepes.storage.files import publish_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


UNKNOWN = "unknown"
"""The commit of code without a history."""


@dataclass(frozen=True, eq=False)
class Findings:
    """What one trial found.

    Attributes:
        rows: The target's ``keys`` and a column ``value``; ``low`` and ``high`` where a value has an interval.
        pictures: Figures by name, drawn from this trial; those of the first seed are kept.
        kept: Whether work of an earlier call was used again, so that the seconds of this one are not all that it took.
    """

    rows: pd.DataFrame
    pictures: Mapping[str, Figure] = field(default_factory=dict)
    kept: bool = False


@dataclass(frozen=True, eq=False)
class Part:
    """Findings of a trial whose figures are written: ``rows``, names of the ``pictures``, CPU ``seconds`` it took.

    With ``kept`` an earlier call had done some of the work.
    """

    rows: pd.DataFrame
    pictures: list[str]
    seconds: float
    kept: bool = False


@dataclass(frozen=True)
class Work:
    """What is run for each seed: the ``name`` of a target, and its function of a trial. Other processes can take it."""

    name: str
    run: Callable[[Trial], Findings]


@contextmanager
def crew(jobs: int) -> Generator[Executor | None, None, None]:
    """Start processes of one thread each that run parts; for one job there are none, and this process does it all.

    Args:
        jobs: How many.

    Yields:
        What parts are given to. If the block fails, parts that were not begun are dropped; others end first, but not
        after Ctrl-C.
    """
    if jobs == 1:
        yield None
        return
    fresh, others = get_context("spawn"), set(active_children())  # threads of torch do not survive a fork
    with ProcessPoolExecutor(jobs, mp_context=fresh, initializer=_join) as processes:
        try:
            yield processes
        except BaseException as error:
            processes.shutdown(wait=False, cancel_futures=True)
            if isinstance(error, KeyboardInterrupt):
                for process in set(active_children()) - others:
                    process.terminate()
            raise


def _join() -> None:
    """Make this process one of a crew.

    It has one thread, of torch and of the libraries below NumPy: beside others it would wait more. It says its warnings
    in a line, without the place in the code. And it ends with the process that began it, however that one ends.
    """
    warnings.formatwarning = lambda message, category, *_: f"{category.__name__} {message}\n"
    torch.set_num_threads(1)
    threadpool_limits(1)
    Thread(target=_end_with, args=(parent_process(),), daemon=True).start()


def _end_with(parent: BaseProcess | None) -> None:
    """Wait until the process that began this one has ended, and end at once; files are written whole or not at all."""
    if parent is not None:
        parent.join()
        os._exit(1)


def run_part(target: Work, trial: Trial, folder: Path, commit: str) -> Part:
    """Return what a trial finds, read from disk if the same commit has found it before.

    Args:
        target: What to run.
        trial: Its seed, scale and choices.
        folder: Of the results; figures of the first seed are written there.
        commit: Of the code; what was found with changes that are not committed is not used again.

    Returns:
        The rows, and the names of the figures.
    """
    path = folder / "parts" / f"{target.name}-{trial.scale.name}-{trial.seed}.json"
    scale = {name: value for name, value in asdict(trial.scale).items() if name != "seeds"}
    anew = trial.encoders.name if trial.retrain else False  # of which call: another one trains others
    choices = {"only": list(trial.only), "without": list(trial.without), "retrain": anew}
    key = {"commit": commit, "scale": scale, **choices}
    if path.is_file():
        kept = json.loads(path.read_text())
        if kept["key"] == key and is_clean(commit):
            return Part(pd.DataFrame(kept["rows"]), kept["pictures"], kept["seconds"], kept["kept"])
    began = time.process_time()
    found = target.run(trial)
    seconds = time.process_time() - began
    pictures = {f"{target.name}-{trial.scale.name}-{name}.png": figure for name, figure in found.pictures.items()}
    if trial.seed == 0:
        for name, figure in pictures.items():
            publish_bytes(folder / name, render(figure))
    rows = {name: column.tolist() for name, column in found.rows.items()}  # every digit, unlike the JSON of pandas
    kept = {"key": key, "rows": rows, "pictures": list(pictures), "seconds": seconds, "kept": found.kept}
    publish_bytes(path, json.dumps(kept).encode())
    return Part(found.rows, list(pictures), seconds, found.kept)


def commit_of_code() -> str:
    """Return the commit of the code, and whether the code differs from it; ``unknown`` without its history."""
    head, changes = _git("rev-parse", "--short", "HEAD"), _git("status", "--porcelain", "--", ".")
    if head is None:
        return UNKNOWN
    return f"{head} with uncommitted changes" if changes else head


def is_clean(commit: str) -> bool:
    """Return whether a commit tells the code: it is known, and nothing differs from it."""
    return commit == commit.split()[0] != UNKNOWN


def _git(*arguments: str) -> str | None:
    """Return what git says of the folder of this package, or nothing where it says nothing."""
    package = Path(__file__).parents[1]
    found = subprocess.run(["git", "-C", package, *arguments], capture_output=True, text=True)
    return found.stdout.strip() if found.returncode == 0 else None
