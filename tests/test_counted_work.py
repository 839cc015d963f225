"""Work that is counted, not timed: bytes that a fit writes, and samples through the encoder for each answer."""

import pytest
import torch
from torch import nn

from krepes import Krepes
from krepes.attribution import attribute, attribute_stream
from krepes.engine.rows import SUMS
from krepes.influence import How, influence_of, similarity
from krepes.storage import files
from krepes.views import GaussianNoise, ViewStream

N, M = 260, 12


@pytest.fixture
def written(monkeypatch):
    """Bytes of every file that was published."""
    sizes, flush = [], files._flush

    def counted(path):
        if path.is_file():
            sizes.append(path.stat().st_size)
        flush(path)

    monkeypatch.setattr(files, "_flush", counted)
    return sizes


def fitted(objective="barlow_twins", workdir=None, batch=65, **changes):
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 6))
    seen = []
    encoder.register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))
    X = torch.randn(N, 5, generator=torch.Generator().manual_seed(1))
    stream = ViewStream(X, GaussianNoise(0.1), seed=1, batch_size=batch)
    model = Krepes(encoder, objective=objective, m=M, h=4, q=64, damping=0.1, progress=False, **changes)
    return model.fit(stream, workdir=workdir), seen


def test_a_pass_keeps_one_file_of_moments_whatever_its_shards(written, tmp_path):
    fitted(workdir=tmp_path, batch=2)  # 130 batches: three shards of the pass
    (kept,) = (tmp_path / "moments").iterdir()
    each = 8 * (2 * (2 * M + 1)) ** 2
    assert kept.name == SUMS and each < kept.stat().st_size < each + 2048
    assert len(written) == 3 and sum(written) < 3 * (each + 2048), "once for every shard of 64 batches"


def test_rows_are_written_once_and_a_run_once(written, tmp_path):
    model, _ = fitted("simclr", tmp_path / "work")
    rows = 4 * N * 2 * 2 * M
    assert rows < sum(written) < rows + 8192 + 8 * (2 * M) ** 2, "kernel rows in float32, their list, and K"
    written.clear()
    model.save(tmp_path / "run", rows=tmp_path / "work" / "rows")
    held = sum(file.stat().st_size for file in (tmp_path / "run").rglob("*") if file.is_file())
    assert sum(written) <= held - rows + 8192, "rows are moved into the run, not written again"


@pytest.mark.parametrize("kind", ["exact", "sketch"])
def test_answers_look_at_each_sample_once(kind):
    model, seen = fitted(kernel_kind=kind)
    X = torch.randn(30, 5)
    for ask in (lambda: attribute(model, X), lambda: attribute_stream(model, X, k=3)):
        seen.clear()
        ask()
        assert sum(seen) == len(X)
    outcome = similarity(model, X[:1], X[1:2])
    seen.clear()
    influence_of(model, outcome, progress=False)
    assert sum(seen) == 2 * N, "both views of every row, for the surrogate"
    seen.clear()
    influence_of(model, outcome, method="lazy", how=How(steps=3, draws=1), progress=False)
    # One pass over both views; the points, the two samples of the outcome, and one to learn the width.
    assert sum(seen) == 2 * N + 2 * M + 3
    many = [similarity(model, X[i : i + 1], X[i + 1 : i + 2]) for i in range(20)]
    seen.clear()
    influence_of(model, many, method="lazy", how=How(steps=3, draws=1), progress=False)
    assert sum(seen) == 2 * N + 2 * M + 1 + 40, "twenty outcomes share the pass"
