"""What commands take beside the idle program: ``python -m benchmarks.memory table --memory 512M``.

Writes a large data set and the weights of a small encoder once, then runs ``fit``, ``audit``, ``influence`` and
``report`` in a fresh process each, and prints by how much its peak lies above that process with everything imported.
``--only`` names others: ``explain``, ``curate``, and ``whatif`` for the table.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image
from torch import nn

from krepes.encoders import save_weights
from krepes.runs.augment import open_stream
from krepes.runs.dataset import open_dataset, split
from krepes.runs.encoder import fresh_encoder
from krepes.runs.settings import Settings

CHILD = r"""
import atexit, os, re, sys
import pandas, pyarrow.parquet, scipy.stats, sklearn.linear_model, sklearn.svm, torch
import krepes.audit, krepes.influence, krepes.report, krepes.runs.answers, krepes.runs.fitting, krepes.runs.opening
from krepes.cli import main

def of(entry):
    return 1024 * int(re.search(entry + r":\s+(\d+)", open("/proc/self/status").read())[1])

idle = of("VmRSS")
atexit.register(lambda: print("rise", of("VmHWM") - idle, "idle", idle, "user", sum(os.times()[:2]), flush=True))
sys.argv = ["krepes", *sys.argv[1:]]
main()
"""
CITIES = ("Aachen", "Bonn", "Celle", "Dresden", "Erfurt", "Fulda", "Gera", "Halle", "Jena", "Kassel", "Lingen", "Ulm")


def make_table(path: Path, rows: int) -> None:
    """Write a CSV file of 20 columns of mixed kinds, with missing values, dates, codes and texts that all differ."""
    draw = np.random.default_rng(0)
    for start in range(0, rows, 50_000):
        n = min(50_000, rows - start)
        kind = draw.integers(0, 4, n)
        frame = pd.DataFrame({
            "name": [f"p{start + i:08d}" for i in range(n)],
            "age": draw.integers(17, 91, n),
            "income": np.round(np.exp(draw.normal(10 + 0.2 * kind, 0.6)), 2),
            "city": draw.choice(CITIES, n),
            "code": [f"{x:05d}" for x in draw.integers(1000, 1100, n)],
            "since": pd.to_datetime(draw.integers(10_000, 19_000, n), unit="D").strftime("%Y-%m-%d"),
            "member": np.where(draw.random(n) < 0.5, "yes", "no"),
            "score": np.where(draw.random(n) < 0.1, np.nan, np.round(draw.normal(kind), 3)),
            "job": draw.choice([f"occupation {i}" for i in range(40)], n),
            "group": np.asarray(["a", "b", "c", "d"])[kind],
            **{f"x{j}": np.round(draw.normal(0.3 * kind * (j % 3), 1, n), 4) for j in range(8)},
            "children": draw.integers(0, 6, n),
            "label": np.where(draw.random(n) < 0.2 + 0.15 * kind, ">50K", "<=50K"),
        })
        frame.to_csv(path, mode="w" if not start else "a", header=not start, index=False)


def make_wide(path: Path, rows: int) -> None:
    """Write an array of 5,000 columns."""
    draw = np.random.default_rng(0)
    array = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(rows, 5_000))
    mix = draw.normal(size=(20, 5_000)).astype(np.float32)
    for start in range(0, rows, 2_000):
        part = array[start : start + 2_000]
        part[:] = draw.normal(size=(len(part), 20)) @ mix + draw.normal(size=part.shape)
    array.flush()


def make_images(path: Path, rows: int, side: int = 224) -> None:
    """Write a ``.tar`` of JPEG files with their classes as folders."""
    draw = np.random.default_rng(0)
    with tarfile.open(path, "w") as tar:
        for i in range(rows):
            small = Image.fromarray(draw.integers(0, 120, (28, 28, 3), dtype=np.uint8))
            picture = np.asarray(small.resize((side, side), Image.Resampling.BICUBIC)).copy()
            y, x = draw.integers(0, side // 2, 2)
            picture[y : y + side // 3, x : x + side // 3, i % 3] = 120 + 15 * (i % 8)
            packed = io.BytesIO()
            Image.fromarray(picture).save(packed, "JPEG", quality=90)
            entry = tarfile.TarInfo(f"class{i % 8}/{i:06d}.jpg")
            entry.size = packed.tell()
            packed.seek(0)
            tar.addfile(entry, packed)


def strided() -> nn.Module:
    """Return a small network for images of 224 pixels that makes them smaller at once."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 16, 7, stride=4), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU()]
    layers += [nn.Conv2d(32, 64, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()]
    return nn.Sequential(*layers)


KINDS: dict[str, tuple[str, int, Any, list[str]]] = {
    "table": ("table.csv", 1_000_000, make_table, ["--label", "label", "--encoder", "mlp", "--m", "250"]),
    "parquet": ("table.parquet", 1_000_000, None, ["--label", "label", "--encoder", "mlp", "--m", "250"]),
    "adult_1m": ("adult_1m", 1_000_000, None, ["--label", "label", "--encoder", "mlp", "--m", "250"]),
    "wide": ("wide.npy", 50_000, make_wide, ["--encoder", "mlp", "--m", "100"]),
    "images": (
        "images.tar",
        5_000,
        make_images,
        ["--size", "224", "--encoder", "benchmarks.memory:strided", "--m", "100"],
    ),
    "large": ("images.tar", 5_000, make_images, ["--size", "224", "--encoder", "convnet", "--m", "100"]),
}


def make_weights(path: Path, settings: Settings) -> None:
    """Write weights that are only drawn: what a command takes does not depend on them."""
    dataset = open_dataset(settings)
    stream = open_stream(settings, dataset, split(dataset.n, settings)[0])
    torch.manual_seed(0)
    encoder = fresh_encoder(settings, dataset, stream)
    assert isinstance(encoder, torch.nn.Module)
    save_weights(encoder, path)


def peak(arguments: list[str]) -> dict[str, Any]:
    """Run a command of krepes and return its peak above the idle program in MiB, and its seconds."""
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", CHILD, *arguments], capture_output=True, text=True, check=False)
    found = re.search(r"rise (\d+) idle (\d+) user ([\d.]+)", done.stdout)
    if done.returncode or found is None:
        print(done.stdout[-2000:], done.stderr[-4000:])
        return {"command": arguments[0], "MiB": float("nan")}
    warned = [line for line in done.stderr.splitlines() if "memory" in line]
    print(*warned, sep="\n", end="\n" if warned else "")
    return {
        "command": arguments[0],
        "MiB": round(int(found[1]) / 2**20),
        "idle MiB": round(int(found[2]) / 2**20),
        "CPU seconds": round(float(found[3])),
        "seconds": round(time.perf_counter() - began),
    }


def main() -> None:
    """Make what is absent, run the commands and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=list(KINDS))
    parser.add_argument("--memory", default="512M")
    parser.add_argument("--rows", type=int, default=None)
    parser.add_argument("--place", type=Path, default=Path("results/memory"))
    parser.add_argument("--only", nargs="+", default=["fit", "audit", "influence", "report"])
    parser.add_argument("--set", dest="more", default="", help="further flags of fit, in one text")
    asked = parser.parse_args()
    asked.place.mkdir(parents=True, exist_ok=True)
    name, rows, make, flags = KINDS[asked.kind]
    data = name if asked.kind == "adult_1m" else str(asked.place / name)
    if make is not None and not Path(data).exists():
        make(Path(data), asked.rows or rows)
    elif asked.kind == "parquet" and not Path(data).exists():
        pd.read_csv(asked.place / "table.csv").to_parquet(data)
    weights, run = asked.place / f"{asked.kind}.safetensors", asked.place / f"run-{asked.kind}"
    given = dict(zip([flag.removeprefix("--") for flag in flags[::2]], flags[1::2], strict=True))
    if not weights.exists():
        sizes: dict[str, Any] = {key: int(given[key]) for key in ("size",) if key in given}
        make_weights(weights, Settings(data=data, label=given.get("label"), encoder=given["encoder"], **sizes))
    more = [*flags, *asked.more.split(), "--weights", str(weights), "--memory", asked.memory, "--quiet"]
    names = ("17", "42") if not data.endswith(".tar") else ("class1/000017.jpg", "class2/000042.jpg")
    own = ["--encoder", given["encoder"]] if ":" in given["encoder"] else []
    judged = [*own, "--label", "label"] if data.endswith(".tar") else own  # the folders of images
    commands = {
        "fit": ["fit", data, *more, "--out", str(run)],
        "audit": ["audit", str(run), *judged],
        "influence": ["influence", str(run), "--row", names[0], "--row", names[1], *own],
        "report": ["report", str(run), "--out", str(asked.place / f"{asked.kind}.html"), *judged],
        "explain": ["explain", str(run), "--row", names[0], *own],
        "curate": [
            "curate",
            str(run),
            "--outcome",
            f"pair {names[0]} {names[1]}",
            "--lower",
            "--drop",
            "100",
            "--out",
            str(asked.place / "curated.csv"),
            "--quiet",
            *own,
        ],
        "whatif": ["whatif", str(run), "--where", "group == 'a'", "--sets", "2", "--quiet", *own],
    }
    found = []
    for command in asked.only:
        found.append(peak(commands[command]))
        print(found[-1], flush=True)
    print(pd.DataFrame(found).to_string(index=False))


if __name__ == "__main__":
    main()
