"""Kill real processes at random moments and call them again: the end must be the same bytes. ``make chaos``.

rounds of SIGKILL, SIGTERM and SIGINT over fits (each objective), pre-training, influence and report,
rounds of two writers to one place: one wins, one is refused, nothing is lost,
a disk that is full (a small tmpfs, where it can be mounted): the old state or the new one, exit code 2.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

KREPES = (sys.executable, "-c", "from krepes.cli import main; main()")
SMALL = ("-m", "30", "-h", "6", "--epochs", "3", "--save-every", "1", "--batch-size", "32", "--quiet")
MOMENTS = ("barlow_twins", "vicreg", "spectral", "simple", "kpca", "kae")
ROWS = ("simclr", "byol", "spectral_triplets")


@dataclass(frozen=True)
class Scenario:
    """A command, what it needs, and the files whose bytes count."""

    name: str
    command: tuple[str, ...]
    results: tuple[str, ...]


def scenarios() -> list[Scenario]:
    """Return what is killed."""
    fits = [
        Scenario(f"fit {name}", ("fit", "t.csv", "--objective", name, "--out", "out", *SMALL), ("out",))
        for name in (*MOMENTS, *ROWS)
    ]
    training = (
        "pretrain",
        "t.csv",
        "--out",
        "w.safetensors",
        "--epochs",
        "6",
        "--save-every",
        "1",
        "--batch-size",
        "32",
        "--quiet",
    )
    pair = ("influence", "run", "--row", "3", "--row", "5", "--quiet", "--json")
    page = ("report", "run", "--out", "r.html", "--quiet")
    return [
        *fits,
        Scenario("pretrain", training, ("w.safetensors",)),
        Scenario("influence", pair, ("stdout",)),
        Scenario("report", page, ("r.html",)),
    ]


def prepare(folder: Path) -> None:
    """Write a table and a finished run."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"x{i}": rng.normal(size=400) for i in range(6)})
    frame.assign(kind=rng.choice(["a", "b", "c"], 400)).to_csv(folder / "t.csv", index=False)
    subprocess.run([*KREPES, "fit", "t.csv", "--out", "run", *SMALL], cwd=folder, check=True, capture_output=True)


def start(scenario: Scenario, folder: Path) -> subprocess.Popen[bytes]:
    """Start a command in a folder; what it prints goes to the file ``stdout``."""
    with (folder / "stdout").open("wb") as out:
        return subprocess.Popen([*KREPES, *scenario.command], cwd=folder, stdout=out, stderr=subprocess.DEVNULL)


def digest(scenario: Scenario, folder: Path) -> str:
    """Return a hash of the results' names and bytes."""
    sha = hashlib.sha256()
    for name in scenario.results:
        place = folder / name
        files = sorted(p for p in place.rglob("*") if p.is_file() and p.name != ".lock") if place.is_dir() else [place]
        for path in files:
            sha.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return sha.hexdigest()


def calm(scenario: Scenario, base: Path, place: Path) -> tuple[str, float]:
    """Run undisturbed; return the hash and the seconds it takes."""
    shutil.copytree(base, place)
    began = time.monotonic()
    code = start(scenario, place).wait()
    if code:
        raise SystemExit(f"{scenario.name} undisturbed left with code {code}")
    return digest(scenario, place), time.monotonic() - began


def disturbed(
    scenario: Scenario, place: Path, seconds: float, signals: list[signal.Signals], rng: random.Random
) -> bool:
    """Kill the command once per signal at random moments, call it again each time, then let it finish."""
    for one in signals:
        process = start(scenario, place)
        time.sleep(rng.uniform(0.0, 1.1 * seconds))
        process.send_signal(one)
        process.wait()
    return start(scenario, place).wait() == 0


def kills(args: argparse.Namespace, base: Path, root: Path, rng: random.Random) -> Iterator[tuple[str, str, int]]:
    """Yield scenario, verdict and how many signals it survived."""
    wanted = [signal.SIGKILL] * args.kills + [signal.SIGTERM] * args.terms + [signal.SIGINT] * args.ints
    rng.shuffle(wanted)
    chosen = scenarios()
    shares = [wanted[i :: len(chosen)] for i in range(len(chosen))]
    for number, (scenario, share) in enumerate(zip(chosen, shares, strict=True)):
        expected, seconds = calm(scenario, base, root / f"calm{number}")
        for part, few in enumerate(share[i : i + 5] for i in range(0, len(share), 5)):
            place = root / f"killed{number}-{part}"
            shutil.copytree(base, place)
            done = disturbed(scenario, place, seconds, few, rng)
            same = done and digest(scenario, place) == expected
            yield scenario.name, "same bytes" if same else "OTHER BYTES" if done else "DID NOT FINISH", len(few)
            shutil.rmtree(place)


def writers(rounds: int, base: Path, root: Path) -> Counter[str]:
    """Let two processes write to one place; one must win and one be refused, or both finish one after the other."""
    found: Counter[str] = Counter()
    for number in range(rounds):
        place = root / f"two{number}"
        shutil.copytree(base, place)
        (place / "out").mkdir()
        command = [*KREPES, "fit", "t.csv", "--out", "out", *SMALL]
        both = [
            subprocess.Popen(command, cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(2)
        ]
        codes = sorted(process.wait() for process in both)
        whole = subprocess.run([*KREPES, "verify", "out"], cwd=place, capture_output=True).returncode == 0
        found["one won, one was refused" if codes == [0, 2] and whole else f"codes {codes}, whole {whole}"] += 1
        shutil.rmtree(place)
    return found


def full_disk(base: Path, root: Path) -> str:
    """Fit onto a disk with no room; the run that was there must survive."""
    small = root / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", small], capture_output=True).returncode:
        return "not tried: a small disk cannot be mounted here"
    try:
        shutil.copytree(base / "run", small / "run")
        (small / "fill").write_bytes(b"\0" * max(0, shutil.disk_usage(small).free - 40_000))
        command = [*KREPES, "fit", "t.csv", "--seed", "7", "--out", str(small / "run"), *SMALL]
        done = subprocess.run(command, cwd=base, capture_output=True, text=True)
        whole = subprocess.run([*KREPES, "verify", str(small / "run")], capture_output=True).returncode == 0
        return f"exit code {done.returncode}, the old run is {'whole' if whole else 'BROKEN'}: {done.stderr.strip()[-160:]}"
    finally:
        subprocess.run(["umount", small], capture_output=True)


def main() -> None:
    """Run everything and print a table; exit code 1 if anything was lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("kills", 200), ("terms", 50), ("ints", 50), ("rounds", 20), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    table: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "base").mkdir()
        prepare(root / "base")
        for name, verdict, signals in kills(args, root / "base", root, random.Random(args.seed)):
            table.setdefault(name, Counter())[verdict] += signals
            print(f"{name}: {signals} signals, {verdict}", flush=True)
        two, disk = writers(args.rounds, root / "base", root), full_disk(root / "base", root)
    for name, row in table.items():
        print(f"{name:<24}" + ", ".join(f"{count} signals: {verdict}" for verdict, count in row.items()))
    print(f"two writers: {dict(two)}\nfull disk: {disk}")
    bad = any(verdict != "same bytes" for row in table.values() for verdict in row) or "BROKEN" in disk
    raise SystemExit(int(bad or any(not text.startswith("one won") for text in two)))


if __name__ == "__main__":
    main()
