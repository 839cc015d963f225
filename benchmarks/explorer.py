"""The explorer with 100,000 rows and m = 500: sample page, what-if, first paint, memory of the server.

The server runs in a process of its own, so that its memory is its own, and is asked as the page asks it. First paint is
measured in Chromium, where that and Playwright are installed: a browser that is open already gets the address.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from typing import Any

import numpy as np

ROWS, HELD, COLUMNS, M, H = 100_000, 2_000, 20, 500, 32
ASKED, REMOVALS = 200, 10
LIMITS = {
    "sample page p95 (ms)": 150.0,
    "what-if p95 (s)": 1.0,
    "first paint (s)": 2.0,
    "memory beside the model (GiB)": 1.0,
}
FLAGS = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist"]


def serve() -> None:
    """Fit a model, open its explorer, and say where it is; for the process of the server."""
    import pandas as pd
    import torch

    from krepes import Krepes
    from krepes.audit import Study
    from krepes.encoders import MLP
    from krepes.explore.server import Server
    from krepes.explore.subject import of_study
    from krepes.views import GaussianNoise, ViewStream

    torch.manual_seed(0)
    X = torch.randn(ROWS + HELD, COLUMNS) @ torch.randn(COLUMNS, COLUMNS)
    frame = pd.DataFrame(X.numpy().round(2), columns=[f"c{i}" for i in range(COLUMNS)])
    frame["group"] = np.where(X[:, 0].numpy() > 0, "a", "b")
    stream = ViewStream(X[:ROWS], GaussianNoise(0.3), seed=0)
    began = time.monotonic()
    model = Krepes(MLP(COLUMNS, width=64, out=32), m=M, h=H, progress=False).fit(stream)
    fitted, began = time.monotonic() - began, time.monotonic()
    labels = frame["group"].tolist()
    study = Study(
        model,
        X[ROWS:],
        tables=(frame.iloc[:ROWS], frame.iloc[ROWS:]),
        labels=(labels[:ROWS], labels[ROWS:]),
        test_ids=[f"t{i}" for i in range(HELD)],
        shown=1,
    )
    before = _resident()
    server = Server.of([of_study(study)], progress=False)
    told = {"address": server.address, "fit": fitted, "opening": time.monotonic() - began, "before": before}
    print(json.dumps(told), flush=True)
    server.run()


def _resident(pid: int | str = "self") -> float:
    """Return the resident memory of a process in GiB, private pages and mapped files."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) / 1024**2


class Asker:
    """Asks a server as the page does."""

    def __init__(self, address: str) -> None:
        self.base, self.token = address.split("/?token=")

    def seconds(self, path: str, body: Any = None) -> float:
        """Return how long an answer takes to arrive whole."""
        head = {"x-krepes-token": self.token, "content-type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        began = time.perf_counter()
        with urllib.request.urlopen(urllib.request.Request(f"{self.base}{path}", data, head)) as answer:
            answer.read()
        return time.perf_counter() - began


def first_paint(address: str) -> float | None:
    """Return the seconds until the page shows something, and is ready, in an open browser; ``None`` without one."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    if chromium is None:
        return None
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto("about:blank")
        page.goto(address)
        page.wait_for_selector("body[data-ready]", timeout=60_000)
        found: float = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime / 1000")
        browser.close()
    return found


def measured(asker: Asker, server: int) -> dict[str, float]:
    """Return every figure."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, ROWS + HELD, ASKED)
    pages = [asker.seconds(f"/api/a/samples/{row}") for row in rows]
    would = [asker.seconds(f"/api/a/samples/{row}/influence") for row in rows[:50]]
    conditions = [f"c0 < {value:.2f}" for value in np.linspace(-6, 6, REMOVALS)]
    moves = [asker.seconds("/api/a/whatif", {"remove": {"where": text}, "groups": ["group"]}) for text in conditions]
    half = {"positive": {"where": "c0 < 0"}}
    return {
        "sample page p50 (ms)": 1000 * float(np.quantile(pages, 0.5)),
        "sample page p95 (ms)": 1000 * float(np.quantile(pages, 0.95)),
        "would change p95 (ms)": 1000 * float(np.quantile(would, 0.95)),
        "what-if p95 (s)": float(np.quantile(moves, 0.95)),
        "concept (s)": asker.seconds("/api/a/concept", half),
        "points (s)": asker.seconds("/api/a/points"),
        "server memory (GiB)": _resident(server),
    }


def main() -> dict[str, Any]:
    """Start the server, measure, print the table."""
    command = [sys.executable, "-c", "from benchmarks.explorer import serve; serve()"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        assert server.stdout is not None
        told = json.loads(server.stdout.readline())
        paint = first_paint(told["address"])
        found = measured(Asker(told["address"]), server.pid)
    finally:
        server.terminate()
        server.wait(10)
    figures = {**found, **({} if paint is None else {"first paint (s)": paint})}
    figures["memory beside the model (GiB)"] = found["server memory (GiB)"] - told["before"]
    figures |= {"opening (s)": told["opening"], "fit (s)": told["fit"]}
    print(f"{ROWS:,} rows, m = {M}, h = {H}, one thread")
    for name, value in figures.items():
        limit = LIMITS.get(name)
        verdict = "" if limit is None else f"  at most {limit:g}: {'yes' if value <= limit else 'NO'}"
        print(f"{name:32} {value:10.3f}{verdict}")
    return {"figures": figures, "limits": LIMITS, "rows": ROWS, "m": M, "h": H}
