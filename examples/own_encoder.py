"""An encoder of your own, with weights from elsewhere: load it, see what served it, fit it, choose a part of it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from krepes import EmpiricalNTK, Krepes, attribute
from krepes.encoders import load_encoder
from krepes.views import GaussianNoise


class Rows(nn.Module):
    """Reads a digit row by row: eight tokens, one attention layer, their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(8, 32)
        self.place = nn.Parameter(0.1 * torch.randn(8, 32))
        self.mix = nn.TransformerEncoderLayer(32, nhead=2, dim_feedforward=64, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """Return embeddings ``(b, 32)`` of digits ``(b, 64)``."""
        embedded: Tensor = self.mix(self.embed(x.unflatten(1, (8, 8))) + self.place)
        return embedded.mean(1)


def main(folder: Path) -> Krepes:
    """Load the encoder from a checkpoint in ``folder``, fit it twice, and return the fit of its last block."""
    torch.manual_seed(0)
    trained = {f"backbone.{name}": value for name, value in Rows().state_dict().items()}
    torch.save({"state_dict": trained | {"projector.weight": torch.zeros(4, 32)}, "epoch": 100}, folder / "ssl.ckpt")

    loaded = load_encoder(Rows, folder / "ssl.ckpt")
    print(str(loaded.report).replace(str(folder), "."), end="\n\n")

    X = torch.tensor(load_digits().data[:600] / 16, dtype=torch.float32)
    kernel = EmpiricalNTK(loaded.encoder)
    kernel(X[:4], X[:4])
    for entry in kernel.coverage():
        print(f"{entry.parameter:30} {entry.size:6} {entry.rule}")

    whole = Krepes(loaded.encoder, m=60, h=12, augment=GaussianNoise(0.1), progress=False).fit(X[:500])
    part = EmpiricalNTK(loaded.encoder, parameters="mix.*", memory_budget=256 << 20)
    last = Krepes(part, m=60, h=12, augment=GaussianNoise(0.1), progress=False).fit(X[:500])
    for name, model in (("all parameters", whole), ("the attention layer", last)):
        print(f"\n{name}:", attribute(model, X[500:501]).to_frame(k=3), sep="\n")
    return last


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(place))
