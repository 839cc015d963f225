"""Encoders retrained on random halves of their rows, and what became of test samples in each: the intervention."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from krepes.errors import InvalidInputError
from krepes.proof.subject import Subject, mixed
from krepes.storage.tensorfile import read_tensors, write_tensors


@dataclass(frozen=True, eq=False)
class Retrained:
    """What came of the halves.

    Attributes:
        member: Which rows each half holds, ``(halves, n)``, zeros and ones, float64.
        outcomes: By name, ``(halves, retrainings, t)``, float64.
    """

    member: Tensor
    outcomes: dict[str, Tensor]


def retrain(
    subject: Subject,
    halves: int,
    retrainings: int,
    *,
    path: str | Path | None = None,
    seconds: float = float("inf"),
    progress: bool = False,
) -> Retrained:
    """Train encoders on random halves of the rows and measure the test samples; each has weights and views of its own.

    Args:
        subject: The rows, the recipe and the samples.
        halves: How many.
        retrainings: Encoders for each.
        path: A safetensors file that keeps every finished half; a later call goes on from there.
        seconds: No half is begun after so many; the halves finished by then are returned, at least one.
        progress: Show a bar with the time left.

    Returns:
        The outcomes of all.
    """
    n, start = subject.n, time.monotonic()
    member, outcomes = _finished(path, subject, retrainings)
    with tqdm(total=halves, initial=min(len(member), halves), desc="halves", disable=not progress) as bar:
        while len(member) < halves and (not len(member) or time.monotonic() - start < seconds):
            number = len(member)
            draw = torch.Generator().manual_seed(mixed(subject.seed, 3, number))
            half = torch.randperm(n, generator=draw)[: n // 2].sort().values
            found = [_outcomes(subject, half, mixed(subject.seed, 4, number, again)) for again in range(retrainings)]
            member = torch.cat([member, torch.zeros(1, n, dtype=torch.float64).index_fill(1, half, 1.0)])
            outcomes = {
                name: torch.cat([before, torch.stack([one[name] for one in found])[None]])
                for name, before in outcomes.items()
            }
            if path is not None:
                write_tensors(path, {"member": member, **outcomes}, _story(subject, retrainings))
            bar.set_postfix_str(_time_left(seconds - (time.monotonic() - start)), refresh=False)
            bar.update()
    return Retrained(member[:halves], {name: values[:halves] for name, values in outcomes.items()})


def _time_left(seconds: float) -> str:
    return "" if seconds == float("inf") else f"stops in {max(0.0, seconds) / 60:.1f} min"


def _outcomes(subject: Subject, half: Tensor, seed: int) -> dict[str, Tensor]:
    encoder = subject.train(half, seed)
    with torch.no_grad():
        return {name: values.to("cpu", torch.float64) for name, values in subject.outcomes(encoder).items()}


def _story(subject: Subject, retrainings: int) -> dict[str, Any]:
    return {**subject.details(), "retrainings": retrainings}


def _finished(path: str | Path | None, subject: Subject, retrainings: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Return what an earlier call finished: halves ``(h, n)`` and outcomes ``(h, retrainings, t)``; none at first."""
    if path is None or not Path(path).exists():
        none = torch.zeros(0, subject.n, dtype=torch.float64)
        return none, {name: torch.zeros(0, retrainings, subject.t, dtype=torch.float64) for name in subject.names}
    tensors, details = read_tensors(path)
    if details != _story(subject, retrainings):
        raise InvalidInputError(
            f"{path} holds halves of another study: {details} against {_story(subject, retrainings)}. Use another "
            f"file, or delete this one if its retrainings are no longer wanted."
        )
    return tensors.pop("member"), tensors
