"""Bring your own objective: alignment and uniformity (Wang & Isola 2020) as two short functions, fitted on the digits.

    align = mean |u_A - u_B|²,      uniform = log mean exp(-2 |u_i - u_j|²) over pairs of a batch

A Gauss-Newton step needs a split ``outer(inner(Z))`` with a convex ``outer``. Here ``inner`` returns squared distances:
the mean is linear in them, the logarithm of a sum of exponentials convex. Everything else is autodiff.
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import Tensor

from krepes.init import principal_component_init
from krepes.kernels.classic import RBF
from krepes.objectives.custom import InnerOuter
from krepes.objectives.streaming import MemoryRows
from krepes.solvers import Solution, solve


def distances(Z: Tensor) -> Tensor:
    """From embeddings ``(2, b, h)`` to squared distances: first those of the pairs ``(b,)``, then all within a view."""
    U = Z / Z.norm(dim=2, keepdim=True)
    between = 2 - 2 * (U @ U.mT)[:, ~torch.eye(Z.shape[1], dtype=torch.bool)]
    return torch.cat([(U[0] - U[1]).square().sum(1)[None], between.reshape(-1, Z.shape[1])])


def align_and_spread(d: Tensor) -> Tensor:
    """Pairs close, everything else far apart."""
    return d[0].mean() + torch.logsumexp(-2 * d[1:].flatten(), dim=0) - torch.log(torch.tensor(d[1:].numel()))


def main() -> Solution:
    """Fit the loss on two noisy views of each digit and print what the step did."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    X = torch.from_numpy(load_digits().data).double() / 16
    views = X + 0.1 * torch.randn(2, *X.shape, dtype=torch.float64, generator=generator)
    landmarks = X[torch.randperm(len(X), generator=generator)[:100]]

    kernel = RBF(width=2.0)
    K = kernel(landmarks, landmarks)
    rows = MemoryRows.from_kernel(torch.stack([kernel(view, landmarks) for view in views]), K)
    theta0 = torch.nn.functional.pad(principal_component_init(K, h=16), (0, 0, 0, 1))

    objective = InnerOuter(distances, align_and_spread, name="align_and_spread", batch=128)
    solution = solve(objective, rows, theta0, steps=2, tol=1e-5)
    for number, step in enumerate(solution.steps, start=1):
        print(
            f"step {number}: loss {step.loss_before:.4f} -> {step.loss_after:.4f}, damping {step.damping:.2g}, "
            f"gain {step.gain:.2f}, {step.iterations} iterations"
        )
    return solution


if __name__ == "__main__":
    main()
