"""Scores of rows that were made before: used again for the same subject and by the same code, made anew otherwise.

An upgrade may mend a method. Its old scores beside new ones would be judged as if the new code had made them.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from krepes.proof.scores import Scored
from krepes.proof.subject import Subject
from krepes.storage.tensorfile import read_tensors, write_tensors

logger = logging.getLogger("krepes")
SHOWING = ("audit", "cli", "explore", "figures", "report", "reproduce")
"""Rooms that make no score: their code may change without any being made anew."""


@cache
def code_of_scores() -> str:
    """Return a hash of the code that scores are made by."""
    root = Path(__file__).parents[1]
    found = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root)
        if place.parts[0] not in SHOWING:
            found.update(place.as_posix().encode() + path.read_bytes())
    return found.hexdigest()[:16]


def made_by(subject: Subject) -> dict[str, Any]:
    """Return what tells the scores of one subject and one code from others."""
    return {"subject": subject.details(), "code": code_of_scores()}


def is_kept(folder: Path, subject: Subject) -> bool:
    """Return whether a folder holds all scores of a method, of this subject and by this code."""
    whole = _whole(folder)
    return whole.exists() and read_tensors(whole)[1].get("made_by") == made_by(subject)


def kept(
    folder: Path, name: str, subject: Subject, make: Callable[[], Scored | dict[str, Scored]]
) -> dict[str, Scored]:
    """Return what ``make`` gives, read from ``folder`` if it is there, whole, and of this subject and code."""
    if not is_kept(folder, subject):
        if _whole(folder).exists():
            logger.warning("%s: the scores in %s are of another subject or other code and are made anew", name, folder)
            _whole(folder).unlink()
        for old in _parts(folder):
            old.unlink()
        made = make()
        scores = {name: made} if isinstance(made, Scored) else made
        for number, (key, scored) in enumerate(scores.items()):
            details = {"name": key, "seconds": scored.seconds, "details": scored.details}
            write_tensors(folder / f"{number:02d}.safetensors", scored.scores, details)
        write_tensors(_whole(folder), {}, {"parts": len(scores), "made_by": made_by(subject)})
    found: dict[str, Scored] = {}
    for path in _parts(folder):
        tensors, told = read_tensors(path)
        found[told["name"]] = Scored(tensors, told["seconds"], told["details"])
    return found


def _whole(folder: Path) -> Path:
    """Return the file that says that a folder of scores is complete."""
    return folder / "whole.safetensors"


def _parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("[0-9][0-9].safetensors"))
