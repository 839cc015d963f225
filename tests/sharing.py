"""One fit shared by the processes that torchrun started; the first writes what it found. Used by test_processes.py."""

import sys
from pathlib import Path

import torch
from torch import nn

from krepes import Krepes
from krepes.processes import connected
from krepes.storage.tensorfile import write_tensors
from krepes.views import GaussianNoise, ViewStream


def fitted(objective, kind, workdir=None):
    """Return a small model: 700 rows, batches of 64, so that spans do not divide evenly."""
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 8)).double()
    X = torch.randn(700, 6, dtype=torch.float64)
    stream = ViewStream(X, GaussianNoise(0.1), seed=1, batch_size=64)
    model = Krepes(encoder, objective=objective, kernel_kind=kind, q=256, m=20, h=4, damping=0.1, progress=False)
    return model.fit(stream, workdir=workdir)


if __name__ == "__main__":
    torch.set_num_threads(1)
    with connected() as us:
        for objective, kind in (("barlow_twins", "exact"), ("simclr", "sketch"), ("kae", "exact")):
            model = fitted(objective, kind, Path(sys.argv[1]) / objective)
            found = {"theta": model.solution_.theta, "landmarks": model.landmarks_}
            write_tensors(Path(sys.argv[1]) / f"{objective}-{us.rank}.safetensors", found, {"n": model.processes_})
