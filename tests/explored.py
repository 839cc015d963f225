"""A small study to explore: two kinds of people in a table, some of whose words try to become code."""

import numpy as np
import pandas as pd
import torch

from krepes import Krepes
from krepes.audit.study import Study
from krepes.encoders import MLP
from krepes.views import GaussianNoise, ViewStream

N, T = 260, 60
HOSTILE = "<img src=x onerror=alert(1)>"


def people(seed: int = 0, objective: str = "barlow_twins") -> Study:
    """Return a study of a fitted model; another seed is another encoder of the same people."""
    draw = torch.Generator().manual_seed(0)
    X = torch.randn(N + T, 6, generator=draw)
    X[::2] += 2.0
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        "sex": np.where(np.arange(N + T) % 2, "M", "F"),
        "age": rng.integers(18, 80, N + T),
        "words": [HOSTILE if i % 7 == 0 else f"=cmd|{i}" for i in range(N + T)],
    })
    rich = np.where(X[:, 0].numpy() > 1, "yes", "no")
    torch.manual_seed(seed)
    stream = ViewStream(X[:N], GaussianNoise(0.3), seed=0)
    model = Krepes(MLP(6, width=16, out=8), objective=objective, m=30, h=4, progress=False, seed=seed).fit(stream)
    return Study(
        model,
        X[N:],
        [HOSTILE, *(f"t{i}" for i in range(1, T))],
        [f"r{i}" for i in range(N)],
        tables=(frame.iloc[:N], frame.iloc[N:]),
        labels=(rich[:N], rich[N:]),
        inputs="table",
        title=f"people {HOSTILE}",
        k=5,
    )
