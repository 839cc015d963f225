"""Landmark selectors side by side: CPU seconds and relative Nystrom trace error on clustered data, one thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from krepes.kernels.base import Kernel
from krepes.kernels.classic import Linear
from krepes.landmarks import KMeansPlusPlus, LeverageHutchinson, LeverageNystrom, RPCholesky, Uniform
from krepes.linalg import top_eigenpairs


def clustered(n: int, d: int, *, clusters: int, seed: int) -> Tensor:
    """Return ``(n, d)`` points of clusters with Zipf sizes, each spread along ten directions of its own."""
    generator = torch.Generator().manual_seed(seed)
    sizes = 1 / torch.arange(1, clusters + 1, dtype=torch.float64)
    label = torch.multinomial(sizes, n, replacement=True, generator=generator)
    X = 0.01 * torch.randn(n, d, generator=generator)
    for c in range(clusters):
        rows = (label == c).nonzero().flatten()
        directions = torch.randn(10, d, generator=generator) / 10**0.5
        X[rows] += torch.randn(d, generator=generator)
        X[rows] += 0.1 * torch.randn(len(rows), 10, generator=generator) @ directions
    return X


def trace_error(kernel: Kernel, X: Tensor, chosen: Tensor) -> float:
    """Return ``1 - trace(K_nm K_mm⁺ K_mn) / trace(K)``, accumulated in float64."""
    points = X[chosen].double()
    eigenvalues, U = top_eigenpairs(kernel(points, points), rcond=1e-12)
    W = U / eigenvalues.sqrt()
    explained = sum(float((kernel(x.double(), points) @ W).square().sum()) for x in X.split(5000))
    return 1 - explained / float(kernel.diagonal(X).double().sum())


def one_at_a_time(X: Tensor, m: int, *, kernel: Kernel | None, generator: torch.Generator) -> Tensor:
    """Return the picks of plain k-means++ with one trial, one matrix-vector product per pick: the rival to beat."""
    squares = X.square().sum(1)
    chosen = [int(torch.randint(len(X), (1,), generator=generator))]
    nearest = torch.full_like(squares, float("inf"))
    while len(chosen) < m:
        distance = (squares + squares[chosen[-1]] - 2 * (X @ X[chosen[-1]])).clamp_(min=0)
        nearest = nearest.minimum(distance)
        nearest[chosen] = 0
        chosen.append(int(torch.multinomial(nearest, 1, generator=generator)))
    return torch.tensor(chosen)


def run(n: int = 50_000, d: int = 1024, m: int = 500, *, clusters: int = 300, seeds: int = 2) -> dict[str, Any]:
    """Return CPU seconds and trace error of each selector, averaged over seeds, and the ratios that matter."""
    torch.set_num_threads(1)
    X, kernel = clustered(n, d, clusters=clusters, seed=0), Linear()
    selectors: dict[str, Callable[..., Tensor]] = {
        "uniform": Uniform(),
        "k-means++, one pick per pass": one_at_a_time,
        "k-means++": KMeansPlusPlus(),
        "k-means++ (kernel distance)": KMeansPlusPlus(space="kernel"),
        "RPCholesky": RPCholesky(),
        "leverage (Nystrom)": LeverageNystrom(),
        "leverage (Hutchinson, 32 probes)": LeverageHutchinson(),
    }
    table = {}
    for name, selector in selectors.items():
        seconds, errors = 0.0, 0.0
        for seed in range(seeds):
            start = time.process_time()
            chosen = selector(X, m, kernel=kernel, generator=torch.Generator().manual_seed(seed))
            seconds += (time.process_time() - start) / seeds
            errors += trace_error(kernel, X, chosen) / seeds
        table[name] = {"seconds": seconds, "error": errors}
    ours, rival = table["RPCholesky"], table["k-means++, one pick per pass"]
    return {
        "setting": {"n": n, "d": d, "m": m, "clusters": clusters, "seeds": seeds},
        "selectors": table,
        "rpcholesky_time_over_plain_kmeans": ours["seconds"] / rival["seconds"],
        "rpcholesky_time_over_own_kmeans": ours["seconds"] / table["k-means++"]["seconds"],
        "rpcholesky_error_over_plain_kmeans": ours["error"] / rival["error"],
    }


def main() -> dict[str, Any]:
    """Print the table."""
    result = run()
    print("landmarks:", ", ".join(f"{key}={value}" for key, value in result["setting"].items()))
    print(f"{'selector':38s}{'CPU s':>8s}{'trace error':>14s}")
    for name, row in result["selectors"].items():
        print(f"{name:38s}{row['seconds']:8.2f}{row['error']:14.5f}")
    for key, value in result.items():
        if isinstance(value, float):
            print(f"{key}: {value:.2f}")
    return result


if __name__ == "__main__":
    main()
