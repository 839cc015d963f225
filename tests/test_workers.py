"""Processes that decode images: the same bytes in the same order, the same errors, and none of them is left behind."""

import io
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import warnings

import numpy as np
import pytest
import torch
from PIL import Image

from krepes.data import image_folder
from krepes.data.decoding import pixels, serve
from krepes.data.workers import Workers, default_workers
from krepes.errors import InvalidInputError
from krepes.views import Identity, ViewStream


@pytest.fixture
def folder(tmp_path):
    draw = np.random.default_rng(0)
    for i in range(30):
        kind = (".png", ".jpg", ".bmp")[i % 3]
        shape = (9 + i, 20, 3) if i % 2 else (9 + i, 20)
        Image.fromarray(draw.integers(0, 256, shape, dtype=np.uint8)).save(tmp_path / f"{i:02d} ü\n{kind}")
    return tmp_path


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ended(pids):
    for _ in range(100):
        if not any(map(alive, pids)):
            return True
        time.sleep(0.05)
    return False


def test_the_same_bytes_in_the_same_order(folder):
    here, there = image_folder(folder, size=8), image_folder(folder, size=8, workers=2)
    assert here.ids == there.ids and here.workers is None
    order = torch.randperm(30, generator=torch.Generator().manual_seed(0))
    slow, fast = (ViewStream(images, Identity()).plain(order) for images in (here, there))
    assert slow.equal(fast)
    pids = [worker.process.pid for worker in there.workers._all]
    assert len(pids) == 2 and all(map(alive, pids))
    there.workers.close()
    assert ended(pids)
    assert ViewStream(there, Identity()).plain(order[:3]).equal(slow[:3]), "they are started again"


def test_broken_images_are_refused_in_the_same_words(folder):
    (folder / "00.png").write_bytes(b"no image")
    (folder / "zz.png").write_bytes((folder / "03 ü\n.png").read_bytes()[:60])
    told = []
    for workers in (0, 2):
        with pytest.raises(InvalidInputError) as caught:
            image_folder(folder, size=8, workers=workers)
        told.append(str(caught.value))
    assert told[0] == told[1] and told[0].startswith("2 of 32 images")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kept = image_folder(folder, size=8, workers=2, on_error="skip")
    assert len(kept) == 30
    with pytest.raises(InvalidInputError, match="workers"):
        image_folder(folder, size=8, workers=-1)


def test_a_process_that_died_is_replaced_by_decoding_here(folder):
    images = image_folder(folder, size=8, workers=1)
    images.workers._all[0].process.kill()
    images.workers._all[0].process.wait()
    assert torch.stack(images.__getitems__([4, 2, 9])).equal(torch.stack([images[i] for i in (4, 2, 9)]))


def test_no_process_outlives_a_parent_that_is_interrupted_or_killed(folder):
    code = f"""
        import signal
        from krepes.data import image_folder
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what is in its background without it
        images = image_folder({str(folder)!r}, size=8, workers=2)
        print(*[worker.process.pid for worker in images.workers._all], flush=True)
        while True:
            images.__getitems__(list(range(30)))
    """
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    runs = [subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], **how) for _ in range(2)]
    try:
        for run, way in zip(runs, (signal.SIGINT, signal.SIGKILL), strict=True):
            pids = [int(word) for word in run.stdout.readline().split()]
            assert len(pids) == 2 and all(map(alive, pids))
            os.kill(run.pid, way)
            run.communicate(timeout=30)
            assert ended(pids)
    finally:
        for run in runs:
            run.kill()


def test_requests_are_answered_in_turn(folder):
    names = sorted(folder.iterdir())[:2]
    lines = [json.dumps({"file": str(name), "size": 4, "channels": 3}) for name in [*names, folder / "absent.png"]]
    answers = io.BytesIO()
    serve(io.BytesIO("\n".join(lines).encode()), answers)
    answers.seek(0)
    for name in names:
        assert json.loads(answers.readline()) == {"bytes": 48}
        assert answers.read(48) == pixels(name, 4, 3).tobytes()
    assert json.loads(answers.readline()) == {"bytes": 0} and not answers.read()


def test_few_images_are_decoded_here(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(8), raising=False)
    assert default_workers(255) == 0 and default_workers(256) == 4
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(1), raising=False)
    assert default_workers(10_000) == 0
    assert Workers(3)._all == []
