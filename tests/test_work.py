"""How much work a pass is, counted and not timed: forward passes, kernel rows and multiply-adds, against a formula."""

import torch
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from krepes.encoders.resmlp import ResMLP
from krepes.engine import moments
from krepes.engine.known import KnownRows
from krepes.engine.rows import collect_moments
from krepes.kernels.entk import EmpiricalNTK
from krepes.kernels.transforms import default_transform
from krepes.views import GaussianNoise, ViewStream

D, WIDTH, OUT, M, N = 12, 64, 20, 40, 96


def added(into, a, b, *_, **__):
    """Products that are added in place, which torch's counter leaves out."""
    return 2 * a[0] * a[1] * b[1]


def ready(generator, dtype=torch.float32):
    encoder = ResMLP(D, out=OUT, width=WIDTH, B=2).to(dtype)
    X = torch.randn(N, D, generator=generator, dtype=dtype)
    stream = ViewStream(X, GaussianNoise(0.1), seed=0, batch_size=32)
    kernel = default_transform(EmpiricalNTK(encoder), X[:16])
    prepared, rows = kernel.enter(stream.views_of(torch.arange(M)).flatten(0, 1), gram=True, diagonal=True)
    return encoder, stream, kernel, prepared, rows.K


def formula(encoder, q, panel):
    """Multiply-adds of one sample in two views, by what each layer must do once."""
    shapes = [p.shape for name, p in encoder.named_parameters() if p.ndim == 2 and "in_proj" not in name]
    shapes.append(torch.Size([WIDTH, WIDTH]))  # values alone: queries and keys of one token have no say
    weights, first = sum(shape.numel() for shape in shapes), encoder.project_in.weight.numel()
    vectors = 2 * WIDTH + OUT + 1  # the norm's and the head's gradients
    sides = sum(sum(shape) for shape in shapes) + vectors
    side = 2 * (q + 1)
    halves = sum(min(panel, side - start) * (side - start) for start in range(0, side, panel))
    return 2 * (weights + (weights - first) + weights + vectors + q * sides) + halves


def test_a_pass_multiplies_as_often_as_the_formula_says(generator, monkeypatch):
    """Once forward, once backward, once for the mean; inputs plus outputs a pair; half of the symmetric moments."""
    monkeypatch.setattr(moments, "PANEL", 16)
    encoder, stream, kernel, prepared, K = ready(generator)
    seen = kernel.kernel.kernel.tangent.encoder
    before = seen.samples
    with FlopCounterMode(display=False, custom_mapping={torch.ops.aten.addmm_: added}) as counter:
        collect_moments(stream, kernel, prepared, K, progress=False)
    assert seen.samples - before == 2 * N  # each view of each sample goes through the network once
    assert counter.get_total_flops() == 2 * N * formula(encoder, 2 * M, 16)


def test_rows_of_landmarks_are_not_computed_again(generator):
    encoder, stream, kernel, prepared, K = ready(generator)
    seen = kernel.kernel.kernel.tangent.encoder
    known = KnownRows(torch.arange(M), K.unflatten(0, (2, M)))
    before = seen.samples
    found = collect_moments(stream, kernel, prepared, K, known=known, progress=False)
    assert seen.samples - before == 2 * (N - M)
    assert_close(found.M, collect_moments(stream, kernel, prepared, K, progress=False).M, rtol=1e-4, atol=1e-5)


def test_moments_of_float32_rows_are_those_of_float64_products(generator, monkeypatch):
    """Panels, mirroring and the shift change nothing but the order of sums, whatever the width of a panel."""
    rows = torch.nn.functional.pad(torch.randn(2, 70, 33, generator=generator) + 3, (0, 1), value=1.0)
    wide = rows.double()
    expected = torch.einsum("pbi,rbj->prij", wide, wide) / 70
    for panel in (5, 34, 512):
        monkeypatch.setattr(moments, "PANEL", panel)
        M = moments.moments_of(rows, torch.eye(33)).M
        assert_close(M, expected, rtol=1e-12, atol=1e-12)
        assert all(torch.equal(M[u, v], M[v, u].T) for u in range(2) for v in range(2))
