"""`make slow`: every objective on real embeddings. The table shows what one damped step did."""

import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits

from krepes.encoders import MLP
from krepes.encoders.pretrain import pretrain
from krepes.model import Krepes
from krepes.objectives import OBJECTIVES
from krepes.views import GaussianNoise, ViewStream


@pytest.mark.slow
def test_the_step_lowers_every_objective_on_digits():
    X = torch.tensor(load_digits().data / 16.0, dtype=torch.float32)
    torch.manual_seed(0)
    stream = ViewStream(X, GaussianNoise(0.15), seed=0)
    mlp = MLP(64, width=128, depth=2, out=64)
    encoder = pretrain(mlp, stream, loss="barlow_twins", epochs=10, progress=False).encoder
    rows = []
    for name in OBJECTIVES:
        solution = Krepes(encoder, objective=name, m=200, h=32, progress=False).fit(stream).solution_
        rows.append({
            "objective": name,
            "loss before": solution.loss_before,
            "loss after": solution.loss_after,
            "damping": solution.damping,
            "gain": solution.gain,
            "iterations": solution.iterations,
            "converged": solution.converged,
        })
    table = pd.DataFrame(rows)
    print("\n" + table.to_string(index=False, float_format=lambda x: f"{x:.4g}"))
    assert (table["loss after"] < table["loss before"]).all()
    assert table["converged"].all()
