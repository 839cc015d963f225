"""Pre-training as a product: an encoder from settings to a file, resumed where it stopped, over nothing of others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pandas as pd

from krepes.encoders import save_weights
from krepes.errors import InvalidInputError, RunFolderError
from krepes.processes import current
from krepes.runs.adapting import completed
from krepes.runs.augment import open_stream
from krepes.runs.dataset import Dataset, open_dataset, split
from krepes.runs.encoder import train_encoder
from krepes.runs.fitting import require_encoder
from krepes.runs.losses import require_loss
from krepes.runs.recipe import Recipe
from krepes.runs.settings import Settings
from krepes.runs.suiting import suited_to_kind
from krepes.storage.files import require_writable
from krepes.storage.tensorfile import read_tensors

CHECKPOINT = ".checkpoint"


def pretrain_run(
    settings: Settings, out: str | Path, *, progress: bool = True, seen: Callable[[Dataset], None] | None = None
) -> tuple[pd.DataFrame, bool]:
    """Train the encoder of some settings and save its weights.

    Args:
        settings: What to train, on what.
        out: A safetensors file. The state of the training lies beside it; called again, an interrupted training goes
            on and a finished one is only read.
        progress: Show a bar.
        seen: Is shown the data once they were read.

    Returns:
        The history, one row per epoch, and whether everything had been trained before.
    """
    out = Path(out)
    _require_ours(out)
    settings = completed(settings)
    dataset = open_dataset(settings)
    if seen is not None:
        seen(dataset)
    settings = suited_to_kind(settings, dataset)
    require_loss(settings)
    stream = open_stream(settings, dataset, split(dataset.n, settings)[0])
    require_encoder(settings, dataset, stream)
    checkpoint = out.with_name(f"{out.name}{CHECKPOINT}")
    before = _finished_epochs(checkpoint)
    done = train_encoder(settings, dataset, stream, checkpoint=checkpoint, resume=True, progress=progress)
    recipe = Recipe(replace(settings, data_dir=None), stream.fingerprint())
    if current().first:
        save_weights(done.encoder, out, recipe=recipe.to_dict())
    return pd.DataFrame([asdict(epoch) for epoch in done.history]), before == settings.epochs


def _require_ours(out: Path) -> None:
    """Refuse a file that we did not write, and a place that cannot be written to, before any work."""
    require_writable(out, "--out")
    if out.exists():
        try:
            ours = bool(read_tensors(out)[1])
        except InvalidInputError:
            ours = False
        if not ours:
            raise RunFolderError(
                f"--out: {out} exists and was not written by krepes. It was not touched: choose another."
            )


def _finished_epochs(checkpoint: Path) -> int:
    return len(read_tensors(checkpoint)[1].get("history", ())) if checkpoint.is_file() else 0
