"""Which scores of training rows predict retraining: our rungs beside dattri's TRAK, where it can run the loss.

Libraries that attribute to training data take the gradient of one row's loss. Of the losses here only BYOL has one: its
distance of two views of a row. Barlow Twins, VICReg and SimCLR compare a row with the whole batch, and are left out for
them; the exact gradients that stand beside ours in ``krepes prove`` take the batch into account.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from benchmarks.rivals import installed
from krepes.encoders.losses import cosine_distance
from krepes.proof.halves import retrain
from krepes.proof.lds import lds, noise_ceiling
from krepes.proof.scores import score_gradients, score_lazy, score_warm
from krepes.proof.subject import MARGIN, measure
from krepes.reproduce.retraining import Study, open_study

HALVES, RETRAININGS = 40, 2
RIDGES = (1e-3, 1e-1, 1e1, 1e3)


def dattri_trak(study: Study, encoder: nn.Module, ridge: float) -> Tensor:
    """Return dattri's TRAK scores of every row for every margin, ``(n, t)``, with no projection of its own."""
    from dattri.algorithm.trak import TRAKAttributor
    from dattri.task import AttributionTask
    from torch.utils.data import DataLoader, TensorDataset

    views = study.views().views_of(torch.arange(study.n))

    def row_loss(parameters: Any, pair: Any) -> Tensor:
        Y = functional_call(encoder, parameters, (torch.stack([part.flatten() for part in pair]),))
        return cosine_distance(Y[:1], Y[1:]) + cosine_distance(Y[1:], Y[:1])

    def margin(parameters: Any, of: Any) -> Tensor:
        x, group = of
        Z = functional_call(encoder, parameters, (torch.cat([x.reshape(1, -1), study.reference]),))
        return measure(Z[:1].expand(2, -1), Z[1:], group.reshape(1, -1))[0][0]

    task = AttributionTask(
        loss_func=row_loss, target_func=margin, model=encoder, checkpoints=dict(encoder.state_dict())
    )
    attributor = TRAKAttributor(
        task,
        correct_probability_func=lambda parameters, pair: (-row_loss(parameters, pair)).exp(),
        projector_kwargs={"proj_dim": 512, "device": "cpu"},
        regularization=ridge,
    )
    rows = DataLoader(TensorDataset(views[0], views[1]), batch_size=study.n, shuffle=False)
    asked = DataLoader(TensorDataset(study.test.chunk(2)[0], study.group), batch_size=study.t, shuffle=False)
    attributor.cache(rows)
    return attributor.attribute(asked).double()


def main() -> dict[str, Any]:
    """Print the LDS of each score on digits with BYOL, and the noise ceiling."""
    torch.set_num_threads(1)
    study = open_study("digits", None, 0, loss="byol")
    encoder = study.record(0).encoder
    with tempfile.TemporaryDirectory() as folder:
        retrained = retrain(study, HALVES, RETRAININGS, path=Path(folder) / "halves.safetensors")
    member, values = retrained.member, retrained.outcomes[MARGIN]
    found: dict[str, Tensor] = {
        "warm": score_warm(study).scores[MARGIN],
        "lazy": score_lazy(study).scores[MARGIN],
        **{name: scored.scores[MARGIN] for name, scored in score_gradients(study, projector=False).items()},
    }
    seconds = time.monotonic()
    if installed("dattri"):
        found |= {f"dattri TRAK, ridge {ridge:g}": dattri_trak(study, encoder, ridge) for ridge in RIDGES}
    seconds = time.monotonic() - seconds
    table = {name: abs(lds(scores, member, values)) for name, scores in found.items()}
    print(f"LDS of margins in size, {HALVES} halves of {study.n} digits, BYOL; ceiling {noise_ceiling(values):.2f}")
    for name, value in table.items():
        print(f"  {name:<36}{value:.2f}")
    return {"lds": table, "ceiling": noise_ceiling(values), "seconds of dattri": seconds}
