"""Memory that was freed is given back to the system."""

import re
from pathlib import Path

import pytest
import torch

from krepes.storage import heap

STATUS = Path("/proc/self/status")


def resident():
    return 1024 * int(re.search(r"VmRSS:\s+(\d+)", STATUS.read_text())[1])


@pytest.mark.skipif(
    not STATUS.exists() or heap._malloc_trim() is None, reason="the system does not say, or has no trim"
)
def test_holes_between_small_blocks_are_given_back():
    large, small = [], []
    for _ in range(400):  # each hole is below the size from which the C library asks the system for a block of its own
        large.append(torch.ones(15_000, dtype=torch.float64))
        small.append(torch.ones(300, dtype=torch.float64))
    full = resident()
    del large
    heap.trim()
    assert full - resident() > 0.7 * 400 * 15_000 * 8


def test_without_such_a_call_nothing_happens(monkeypatch):
    monkeypatch.setattr(heap, "_malloc_trim", lambda: None)
    heap.trim()
