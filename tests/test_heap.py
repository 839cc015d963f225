"""Memory that was freed is given back to the system."""

import re
import subprocess
import sys
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


GROWS = """
import re, sys, torch
import numpy as np
from pathlib import Path
from krepes.objectives.parts import Part
from krepes.objectives.simclr import SimCLR
torch.set_num_threads(1)

class Rows:
    n, K, budget = 250 * 256, torch.eye(1000), None
    def batches(self, size, chosen=None):
        for _ in range(250):
            rows = torch.from_numpy(np.random.rand(256, 2, 1000).astype(np.float32)).to(torch.float64)
            yield torch.nn.functional.pad(rows.transpose(0, 1), (0, 1), value=1.0)

def resident():
    return 1024 * int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

block = torch.ones(31 << 20, dtype=torch.uint8)  # freed, it makes the C library keep smaller blocks for itself
del block
theta = torch.rand(1001, 64, dtype=torch.float64)
part, loss, before = Part(Rows()), SimCLR(), resident()
part.value(loss.at(Rows(), theta), theta, True)
print(resident() - before)
"""


@pytest.mark.skipif(not STATUS.exists(), reason="the system does not say")
def test_a_loss_over_many_batches_takes_the_memory_of_one():
    """A value kept of each batch would lie between the blocks of rows, and pin what they free: a gigabyte in a fit."""
    found = subprocess.run([sys.executable, "-c", GROWS], capture_output=True, text=True, check=True)
    assert int(found.stdout) < 100e6, "a batch of rows has 4 MB; 250 of them pinned 210 MB"
