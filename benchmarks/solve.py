"""Solving from moments against streaming the rows in every iteration, for Barlow Twins, in one run.

The streamed reference is the paper's Algorithm 1 with the exact global loss: a Gauss-Newton product by jvp and vjp that
goes over all rows twice, once for the change of the correlation and once to pull it back. Rows are synthetic, drawn
chunk by chunk from a seed, and the drawing is not timed. ``q = 500`` landmark points (250 pairs), ``h = 128``; times
are CPU seconds on one thread.

One streamed product is measured in full and multiplied by the iterations that plain conjugate gradients need to the
tolerance of the solve: the operator is the same (the run checks it), so these are counted on the moments.

Beside it, the whole search for a damping at q = 2000 (m = 1000 in two views) and h = 256, on all threads.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from krepes import _autodiff
from krepes.engine.init import principal_component_init
from krepes.engine.linear import solve_linear
from krepes.engine.moments import Moments, MomentSum
from krepes.engine.solvers import Solution, solve
from krepes.objectives.barlow_twins import BarlowTwins
from krepes.objectives.streaming import pull_back

CHUNK, TOL = 10_000, 1e-8


@dataclass(frozen=True)
class SyntheticRows:
    """Rows of ``n`` samples in two views: a decaying low-rank part that the views share but for noise, and noise."""

    n: int
    q: int
    rank: int = 250
    seed: int = 0

    @property
    def factors(self) -> Tensor:
        """``(rank, q)``, rows of decreasing size."""
        F = torch.randn(self.rank, self.q, dtype=torch.float64, generator=torch.Generator().manual_seed(self.seed))
        return F * torch.arange(1, self.rank + 1, dtype=torch.float64)[:, None] ** -0.5

    @property
    def K(self) -> Tensor:
        """A landmark kernel with the same factors, ``(q, q)``."""
        return self.factors.T @ self.factors + 1e-2 * torch.eye(self.q, dtype=torch.float64)

    def chunks(self) -> Iterator[Tensor]:
        """Yield ``(2, b, q + 1)``, the same on every pass."""
        F = self.factors
        for start in range(0, self.n, CHUNK):
            b = min(CHUNK, self.n - start)
            generator = torch.Generator().manual_seed(self.seed + 1 + start)
            G = torch.randn(1, b, self.rank, dtype=torch.float64, generator=generator)
            G = G + 0.5 * torch.randn(2, b, self.rank, dtype=torch.float64, generator=generator)
            K = G @ F + 0.1 * torch.randn(2, b, self.q, dtype=torch.float64, generator=generator)
            yield torch.nn.functional.pad(K, (0, 1), value=1.0)


class Stopwatch:
    """CPU seconds spent inside its ``with`` blocks: on one thread, blind to what else the machine does."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> None:
        self._start = time.process_time()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.process_time() - self._start


class StreamedBarlowTwins:
    """``H v`` of centred Barlow Twins from the rows; embeddings at ``theta`` and their sums are kept in memory."""

    def __init__(self, rows: SyntheticRows, theta: Tensor, lam: float) -> None:
        self.rows, self.lam = rows, lam
        self.Z = [Kbar @ theta for Kbar in rows.chunks()]
        # The sums are linear and quadratic in Z, so their own derivative along Z gives them back.
        self.sums = torch.stack([_sums_along(Z, 0.5 * Z, Z.sum(1)) for Z in self.Z]).sum(0) / rows.n
        # The first call of the autodiff machinery loads it, which would be charged to the first product.
        self._through_residual(torch.zeros_like(self.sums))

    def product(self, v: Tensor, watch: Stopwatch) -> Tensor:
        """Return ``H v`` after two passes over the rows, timed without drawing them."""
        dsums, Hv = torch.zeros_like(self.sums), torch.zeros_like(v)
        for Z, Kbar in zip(self.Z, self.rows.chunks(), strict=True):
            with watch:
                dZ = Kbar @ v
                dsums += _sums_along(Z, dZ, dZ.sum(1)) / self.rows.n
        with watch:
            cotangent = self._through_residual(dsums)
        for Z, Kbar in zip(self.Z, self.rows.chunks(), strict=True):
            with watch:
                Hv += pull_back(Kbar, _cotangent_of_rows(Z, cotangent)) / self.rows.n
        return Hv

    def _through_residual(self, dsums: Tensor) -> Tensor:
        _, dr = _autodiff.jvp(self._residual, self.sums, dsums)
        return _autodiff.vjp(self._residual, self.sums)[1](2 * dr)

    def _residual(self, sums: Tensor) -> Tensor:
        """``W o (C - I)`` from the sums over samples, ``(h, h)``."""
        means, squares, cross = _split(sums, self.Z[0].shape[2])
        a, b = (squares - means.square()).sqrt()
        eye = torch.eye(len(a), dtype=sums.dtype)
        W = eye + self.lam**0.5 * (1 - eye)
        return W * ((cross - torch.outer(means[0], means[1])) / torch.outer(a, b) - eye)


def _sums_along(Z: Tensor, dZ: Tensor, dmeans: Tensor) -> Tensor:
    """Change of the sums ``z``, ``z²`` and ``z_A z_Bᵀ`` over the samples along ``dZ`` ``(2, b, h)``, in one vector."""
    cross = dZ[0].T @ Z[1] + Z[0].T @ dZ[1]
    return torch.cat([dmeans.flatten(), 2 * (Z * dZ).sum(1).flatten(), cross.flatten()])


def _cotangent_of_rows(Z: Tensor, cotangent: Tensor) -> Tensor:
    """Pull a cotangent on those sums back to the rows, ``(2, b, h)``."""
    means, squares, cross = _split(cotangent, Z.shape[2])
    return means[:, None] + 2 * squares[:, None] * Z + torch.stack([Z[1] @ cross.T, Z[0] @ cross])


def _split(sums: Tensor, h: int) -> tuple[Tensor, Tensor, Tensor]:
    return sums[: 2 * h].view(2, h), sums[2 * h : 4 * h].view(2, h), sums[4 * h :].view(h, h)


def collect(rows: SyntheticRows) -> tuple[Moments, float]:
    """Return the moments and the seconds that accumulating them took."""
    total, watch = MomentSum(rows.K), Stopwatch()
    for Kbar in rows.chunks():
        with watch:
            total.add(Kbar)
    return total.moments(), watch.seconds


def start(rows: SyntheticRows, h: int) -> Tensor:
    """Return the principal component start with no shift, ``(q + 1, h)``."""
    return torch.nn.functional.pad(principal_component_init(rows.K, h), (0, 0, 0, 1))


def time_solves(moments: list[Moments], theta: Tensor, damping: float, repeats: int) -> list[tuple[Solution, float]]:
    """Return solution and median seconds for each; the runs alternate, so that a change of pace meets all alike."""
    times: list[list[float]] = [[] for _ in moments]
    solutions: list[Solution] = []
    for _ in range(repeats):
        solutions = []
        for each, data in zip(times, moments, strict=True):
            watch = Stopwatch()
            with watch:
                solutions.append(solve(BarlowTwins(), data, theta, damping=damping, tol=TOL))
            each.append(watch.seconds)
    return [(solution, statistics.median(each)) for solution, each in zip(solutions, times, strict=True)]


def measure_streamed(rows: SyntheticRows, moments: Moments, theta: Tensor, solution: Solution) -> dict[str, float]:
    """Return what the same step costs by streaming, and how far the two operators and steps agree."""
    lin = BarlowTwins().linearise(moments, theta)
    plain = solve_linear(
        replace(lin, solve=None, preconditioner=None),
        -lin.gradient,
        solution.damping_absolute,
        tol=TOL,
        max_iterations=10_000,
    )
    watch, v = Stopwatch(), plain.x / plain.x.norm()
    Hv = StreamedBarlowTwins(rows, theta, BarlowTwins().lam).product(v, watch)
    return {
        "streamed_product_s": watch.seconds,
        "iterations": plain.iterations,
        "iterated_residual": plain.residual,
        "streamed_solve_s": watch.seconds * plain.iterations,
        "operator_difference": float((Hv - lin.H @ v).norm() / (lin.H @ v).norm()),
        "step_difference": float((solution.theta - theta - plain.x).norm() / plain.x.norm()),
    }


def run(sizes: tuple[int, ...] = (20_000, 200_000), *, q: int = 500, h: int = 128, repeats: int = 7) -> dict[str, Any]:
    """Return one record per ``n``, all at the damping that the search picks for the smallest."""
    sources = [SyntheticRows(n, q) for n in sizes]
    theta = start(sources[0], h)
    collected = [collect(rows) for rows in sources]
    moments = [data for data, _ in collected]
    watch = Stopwatch()
    with watch:
        damping = solve(BarlowTwins(), moments[0], theta, tol=TOL).damping
    records = []
    solves = time_solves(moments, theta, damping, repeats)
    for rows, (data, collecting), (solution, solving) in zip(sources, collected, solves, strict=True):
        record = {"n": rows.n, "collect_s": collecting, "solve_s": solving, "residual": solution.residual}
        record |= measure_streamed(rows, data, theta, solution)
        record["streamed_over_solve"] = record["streamed_solve_s"] / solving
        record["streamed_over_collect_and_solve"] = record["streamed_solve_s"] / (collecting + solving)
        records.append(record)
    return {
        "q": q,
        "h": h,
        "damping": damping,
        "search_s": watch.seconds,
        "tol": TOL,
        "threads": torch.get_num_threads(),
        "records": records,
        "solve_time_ratio": records[-1]["solve_s"] / records[0]["solve_s"],
    }


def search(q: int = 2000, h: int = 256, *, n: int = 6000) -> dict[str, float]:
    """Return what a solve with its search for damping takes at full size, from moments that are there.

    Multiplications and additions of its matrix products are counted in a second run, and set against the rate of one
    large product in float64, per CPU second.
    """
    rows = SyntheticRows(n, q, rank=800)
    moments, _ = collect(rows)
    theta, watch, begun = start(rows, h), Stopwatch(), time.perf_counter()
    with watch:
        found = solve(BarlowTwins(), moments, theta)
    seconds = time.perf_counter() - begun
    with FlopCounterMode(display=False) as counted:
        solve(BarlowTwins(), moments, theta)
    rate, gflop = product_rate(q), counted.get_total_flops() / 1e9
    return {
        "q": q,
        "h": h,
        "dampings": len(found.steps[0].grid),
        "residual": found.residual,
        "cpu_s": watch.seconds,
        "seconds": seconds,
        "gflop": gflop,
        "gflop_per_cpu_s": gflop / watch.seconds,
        "product_gflop_per_cpu_s": rate,
        "of_product_rate": gflop / watch.seconds / rate,
        "threads": torch.get_num_threads(),
    }


def product_rate(size: int, *, repeats: int = 3) -> float:
    """Return billions of operations per CPU second of a product of two square matrices, float64."""
    A, watch = torch.randn(size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), Stopwatch()
    A @ A
    with watch:
        for _ in range(repeats):
            A @ A
    return repeats * 2 * size**3 / watch.seconds / 1e9


def main() -> dict[str, Any]:
    """Print the tables."""
    large = search()
    torch.set_num_threads(1)
    result = run() | {"search": large}
    print(pd.DataFrame(result["records"]).set_index("n").T.to_string(float_format="{:.3g}".format))
    print(f"q={result['q']}, h={result['h']}, damping {result['damping']:.2g} found in {result['search_s']:.1f} s")
    print(f"solve time, largest over smallest n: {result['solve_time_ratio']:.2f}")
    print(
        f"q={large['q']}, h={large['h']}, {large['dampings']} dampings: {large['seconds']:.1f} s, "
        f"{large['cpu_s']:.1f} CPU s on {large['threads']} threads, {large['gflop']:.0f} GFLOP: "
        f"{large['gflop_per_cpu_s']:.1f} of the {large['product_gflop_per_cpu_s']:.1f} GFLOP a CPU second of one large "
        f"product, {large['of_product_rate']:.2f}"
    )
    return result


if __name__ == "__main__":
    main()
