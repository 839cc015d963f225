"""One fit shared by the processes that torchrun started; the first writes what it found. Used by test_processes.py."""

import sys
from functools import partial
from pathlib import Path
from unittest import mock

import torch
from torch import nn

from krepes import Krepes
from krepes.attribution import attribute
from krepes.encoders import pretrain
from krepes.influence import How, influence_of, scoring, similarity, squares
from krepes.objectives import BYOL
from krepes.processes import connected
from krepes.storage.tensorfile import write_tensors
from krepes.views import GaussianNoise, ViewStream

FITS = (("barlow_twins", "exact"), ("simclr", "sketch"), ("byol", "sketch"), ("kae", "exact"))
OWN = {"byol": BYOL(batch=64, curvature_rows=300)}


def fitted(objective, kind, workdir=None):
    """Return a small model: 700 rows, batches of 64, so that spans do not divide evenly."""
    objective = OWN.get(objective, objective)
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 8)).double()
    X = torch.randn(700, 6, dtype=torch.float64)
    stream = ViewStream(X, GaussianNoise(0.1), seed=1, batch_size=64)
    model = Krepes(encoder, objective=objective, kernel_kind=kind, q=256, m=20, h=4, damping=0.1, progress=False)
    return model.fit(stream, workdir=workdir)


def answered(model):
    """Return the influence of rows by lazy replays of two losses, and how landmarks move some test samples."""
    X = torch.randn(7, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    asked = similarity(model, X[:1], X[1:2])
    found = {"scores": attribute(model, X).scores}
    for loss in ("barlow_twins", "simclr"):
        how = How(loss=loss, steps=3, draws=1)
        values = influence_of(model, asked, method="lazy", how=how, progress=False).values
        found[loss] = torch.from_numpy(values.copy())
    found["many"] = many_answers(model, X)
    return found


def many_answers(model, X):
    """Return the influence on six outcomes whose forms are sums of squares, made in groups that processes share."""
    asked = [similarity(model, X[i : i + 1], X[i + 1 : i + 2], name=str(i)) for i in range(6)]
    close = partial(squares.few_squares, tol=1e-10)
    with mock.patch.object(scoring, "EXACT_WORK", 0), mock.patch.object(scoring, "few_squares", close):
        how = {"how": How(loss="barlow_twins", steps=3, draws=1), "memory_budget": 2_000_000}
        return torch.from_numpy(influence_of(model, asked, method="lazy", progress=False, **how).values.copy())


TRAININGS = ("barlow_twins", "simclr", "vicreg", "byol")


class Net(nn.Module):
    """Convolution and batch norm of pictures and of rows, so that both statistics are shared."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
        self.last, self.rows = nn.Linear(16, 6), nn.BatchNorm1d(6)

    def forward(self, x):
        return self.rows(self.last(self.norm(self.first(x.unflatten(1, (1, 4, 4)))).relu().flatten(1)))


def trained(loss, checkpoint=None):
    """Return weights and statistics after some steps on batches of 15, which two do not share evenly."""
    torch.manual_seed(0)
    X = torch.randn(45, 16, dtype=torch.float64)
    stream = ViewStream(X, GaussianNoise(0.3), seed=1, batch_size=15)
    done = pretrain(
        Net().double(), stream, loss=loss, projector=(8, 8), epochs=2, checkpoint=checkpoint, progress=False
    )
    history = torch.tensor([[epoch.loss, epoch.spread] for epoch in done.history], dtype=torch.float64)
    return {**done.encoder.state_dict(), "history": history}


if __name__ == "__main__":
    torch.set_num_threads(1)
    with connected() as us:
        for loss in TRAININGS:
            found = trained(loss, Path(sys.argv[1]) / f"{loss}.checkpoint")
            write_tensors(Path(sys.argv[1]) / f"trained-{loss}-{us.rank}.safetensors", found, {})
        for objective, kind in FITS:
            model = fitted(objective, kind, Path(sys.argv[1]) / objective)
            found = {"theta": model.solution_.theta, "landmarks": model.landmarks_}
            looks = {name: spent.samples for name, spent in model.work_.items()}
            details = {"n": model.processes_, "looks": looks}
            write_tensors(Path(sys.argv[1]) / f"{objective}-{us.rank}.safetensors", found, details)
            if objective == "barlow_twins":
                write_tensors(Path(sys.argv[1]) / f"answered-{us.rank}.safetensors", answered(model), {})
