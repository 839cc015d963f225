"""Processes that decode images side by side; the pixels are those of a decoding in this process, byte for byte."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from krepes.data import decoding
from krepes.data.decoding import Part

FROM = 256
"""Images from which processes are started: for fewer, starting them takes longer than decoding."""
PIECE = 8
"""Images that a process is asked for at a time."""
MOST_BY_DEFAULT = 4

Pixels = np.ndarray[Any, np.dtype[np.uint8]]


def default_workers(images: int) -> int:
    """Return how many processes suit a number of images on this machine: none for few, or for a single core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MOST_BY_DEFAULT, cores) if images >= FROM and cores > 1 else 0


class Worker:
    """One process. Its own session keeps Ctrl-C away from it; the end of its input, for whatever reason, ends it."""

    def __init__(self) -> None:
        # As a file and without this folder on the path: only Pillow and NumPy are imported, from where ours are.
        self.process = subprocess.Popen(
            [sys.executable, "-P", decoding.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def decode(self, files: Sequence[Path | Part], size: int, channels: int) -> list[Pixels | None]:
        """Return the pixels of some images, ``(size, size, c)``; ``None`` for one that it could not decode."""
        asked, answers = self.process.stdin, self.process.stdout
        assert asked is not None and answers is not None
        how = {"size": size, "channels": channels}
        lines = [
            json.dumps((file._asdict() if isinstance(file, Part) else {"file": str(file)}) | how) + "\n"
            for file in files
        ]
        found: list[Pixels | None] = []
        try:
            for line in lines:  # one at a time: a pipe that is full on both sides would wait for ever
                asked.write(line.encode())
                asked.flush()
                told = json.loads(answers.readline() or '{"bytes": 0}')["bytes"]
                data = answers.read(told)
                whole = told == size * size * channels == len(data)
                found.append(np.frombuffer(data, np.uint8).reshape(size, size, channels) if whole else None)
        except (OSError, ValueError):  # the process is gone: what it leaves is decoded by whoever asked
            found += [None] * (len(files) - len(found))
        return found

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.close()
        except OSError:
            pass
        self.process.stdout.close()
        self.process.wait()


class Workers:
    """Some processes, started at first use.

    Args:
        number: How many.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self._lock = threading.Lock()
        self._all: list[Worker] = []
        self._free: SimpleQueue[Worker] = SimpleQueue()

    def decode(self, files: Sequence[Path | Part], size: int, channels: int) -> Iterator[Pixels | None]:
        """Yield the pixels of images in their order; ``None`` for one that no process could decode.

        Args:
            files: The images, or parts of files that are images.
            size: Height and width.
            channels: 1 or 3.

        Yields:
            ``(size, size, c)``.
        """
        self._start()
        pieces = [files[start : start + PIECE] for start in range(0, len(files), PIECE)]

        def one(piece: Sequence[Path | Part]) -> list[Pixels | None]:
            worker = self._free.get()
            try:
                return worker.decode(piece, size, channels)
            finally:
                self._free.put(worker)

        with ThreadPoolExecutor(self.number) as threads:
            for found in threads.map(one, pieces):
                yield from found

    def close(self) -> None:
        """End the processes; they are started again when they are needed."""
        with self._lock:
            for worker in self._all:
                worker.close()
            self._all, self._free = [], SimpleQueue()

    def __del__(self) -> None:
        """End the processes with the last use of them."""
        if hasattr(self, "_all"):
            self.close()

    def _start(self) -> None:
        with self._lock:
            while len(self._all) < self.number:
                worker = Worker()
                self._all.append(worker)
                self._free.put(worker)
