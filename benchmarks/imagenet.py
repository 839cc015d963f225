"""The path of ImageNet on made-up pictures: ``python -m benchmarks.imagenet timm:resnet50 --images 48``.

Writes photographs that are none in ImageNet's layout, does the same fit as docs/imagenet.md on them with fewer
landmarks, compares it with its forecast, and prints what the whole would cost on 1, 8 and 32 GPUs. No GPU is used. With
``--tar`` the same pictures are fitted once more from tar files, as WebDataset keeps them, and both results compared.
"""

from __future__ import annotations

import argparse
import io
import resource
import tarfile
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image

from krepes.encoders import build_encoder, save_weights
from krepes.runs.calibration import Rates
from krepes.runs.fitting import fit
from krepes.runs.forecast import forecast
from krepes.runs.scaling import Counts, Work, faster, on_gpus, work_of
from krepes.runs.settings import Settings
from krepes.runs.workspace import Workspace

N, M, H, POOL, REFERENCE = 1_281_167, 2_000, 1_024, 10_000, 512
GPUS = (1, 8, 32)


def make_pictures(root: Path, count: int, classes: int = 8) -> None:
    """Write ``count`` JPEG files of the usual sizes into folders of classes: coloured shapes on noise.

    Args:
        root: The folder.
        count: How many.
        classes: Folders.
    """
    draw = np.random.default_rng(0)
    for i in range(count):
        height, width = int(draw.integers(300, 500)), int(draw.integers(375, 500))
        pixels = draw.integers(0, 120, (height // 8, width // 8, 3), dtype=np.uint8)
        picture = np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC)).copy()
        kind = i % classes
        y, x = int(draw.integers(0, height // 2)), int(draw.integers(0, width // 2))
        picture[y : y + height // 3, x : x + width // 3, kind % 3] = 120 + 15 * kind
        folder = root / f"n{kind:08d}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(folder / f"n{kind:08d}_{i}.JPEG", quality=90)


def make_tars(folder: Path, root: Path, size: int = 1000) -> None:
    """Write the pictures of a folder as tar files of ``size`` pictures, each with its label, in the same order.

    Args:
        folder: Of folders of classes.
        root: Where the tar files go.
        size: Pictures in each.
    """
    root.mkdir()
    files = sorted(folder.rglob("*.JPEG"))
    for number, start in enumerate(range(0, len(files), size)):
        with tarfile.open(root / f"train-{number:06d}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for file in files[start : start + size]:
                key, label = f"{file.parent.name}-{file.stem}", file.parent.name.encode()
                tar.add(file, arcname=f"{key}.jpg")
                member = tarfile.TarInfo(f"{key}.cls")
                member.size = len(label)
                tar.addfile(member, io.BytesIO(label))


def compared(one: Workspace, other: Workspace) -> str:
    """Return how the fits of two layouts differ, in words."""
    same = torch.equal(one.model.landmarks_, other.model.landmarks_)
    theta, found = (each.model.solution_.theta for each in (one, other))
    gap = float((theta - found).abs().max() / theta.abs().max()) if theta.shape == found.shape else float("nan")
    return f"tar files: landmarks {'the same' if same else 'OTHERS'}, coefficients differ by {gap:.2g} of the largest"


def measured(settings: Settings, folder: Path) -> tuple[pd.DataFrame, Rates, Workspace]:
    """Return the seconds of each phase, foretold and spent, and the rates.

    Args:
        settings: Of the small fit.
        folder: Where the run goes.

    Returns:
        The comparison, the rates and the run.
    """
    found = forecast(settings)
    began = time.perf_counter()
    run = fit(settings, folder, progress=False)
    whole = time.perf_counter() - began
    spent = {name: cost.seconds for name, cost in run.model.work_.items()}
    table = found.table[["phase", "samples through the encoder", "seconds"]].rename(columns={"seconds": "foretold"})
    table["spent"] = [spent.get(phase, float("nan")) for phase in table["phase"]]
    print(f"samples through the encoder: {sum(cost.samples for cost in run.model.work_.values())}, {whole:.0f} s")
    return table, found.rates, run


def whole_cost(settings: Settings, rates: Rates) -> pd.DataFrame:
    """Return hours of the fit of all of ImageNet on some GPUs.

    Args:
        settings: Of the small fit.
        rates: Measured in it.

    Returns:
        The table of `krepes.runs.scaling.on_gpus`.
    """
    p, points, q = 2, 2 * M, settings.features
    # What does not go through the encoder, by its multiply-adds: float64 sums of moments, the choice, the solve.
    large = Rates(**{**vars(rates), "sums": 2 * rates.product * p * p * (points + 1) ** 2})
    counts = Counts(N, p, M, REFERENCE, POOL - REFERENCE, True, True)
    chosen = counts.looks * (rates.read + rates.features) + POOL * M * (2 * q + M) * rates.product
    solve = 15 * 2 * rates.product * (10 * (points + 1) ** 3 + 4 * (points + 1) ** 2 * H)
    parts: list[Work] = work_of(counts, large, chosen=chosen, solve=solve)
    return on_gpus(parts, GPUS, faster(rates))


def memory(q: int) -> str:
    """Return what each process of the whole fit holds, in words, for ``q`` features of the sketch."""
    held = {
        "moments while they are summed": 5 * 8 * (2 * (2 * M + 1)) ** 2,
        "features of the landmark points": 4 * 2 * M * q,
        "features of the candidates": 4 * POOL * (q + M),
    }
    return ", ".join(f"{name} {size / 2**30:.2f} GiB" for name, size in held.items())


def main() -> None:
    """Make pictures, fit, compare, and print the cost of the whole."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("encoder", help="timm:resnet50, timm:vit_small_patch16_224, ...")
    parser.add_argument("--images", type=int, default=48)
    parser.add_argument("-m", type=int, default=8)
    parser.add_argument("--features", type=int, default=4096)
    parser.add_argument("--tar", action="store_true", help="fit once more from tar files, and compare")
    parser.add_argument("--weights", default=None, help="a checkpoint; without it weights are drawn")
    asked = parser.parse_args()
    # Seconds of the processor: what else the machine does is neither foretold nor spent.
    time.perf_counter = time.process_time
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        make_pictures(root / "train", asked.images)
        given: dict[str, Any] = {"m": asked.m, "h": min(1024, asked.m), "features": asked.features, "kernel": "sketch"}
        settings = Settings(
            data=str(root / "train"),
            encoder=asked.encoder,
            weights=asked.weights or str(_first_weights(asked.encoder, root / "weights.safetensors")),
            augment="images",
            reference=min(REFERENCE, asked.images // 4),
            batch_size=16,
            workers=0,
            **given,
        )
        idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        table, rates, run = measured(settings, root / "run")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - idle
        print(table.round(1).to_string(index=False))
        seconds = {name: f"{1000 * value:.3g} ms" for name, value in vars(rates).items() if name != "product"}
        print(f"one sample: {seconds}; {1 / rates.product:.2g} multiply-adds a second here")
        print(whole_cost(settings, rates).round(3).to_string(index=False))
        print(f"memory of this fit beside the program: {peak / 2**20:.2f} GiB")
        if asked.tar:
            make_tars(root / "train", root / "shards")
            again = fit(replace(settings, data=str(root / "shards")), root / "tar", progress=False)
            print(compared(run, again))
        print(f"memory of a process, whatever their number: {memory(settings.features)}")


def _first_weights(encoder: str, path: Path) -> Path:
    """Write the weights that a network is made with, so that a fit has some to load."""
    torch.manual_seed(0)
    save_weights(build_encoder(encoder), path)
    return path


if __name__ == "__main__":
    main()
