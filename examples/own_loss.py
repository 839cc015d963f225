"""Bring your own objective: alignment and uniformity (Wang & Isola 2020) as two short functions, fitted on the digits.

    align = mean |u_A - u_B|²,      uniform = log mean exp(-2 |u_i - u_j|²) over pairs of a batch

A Gauss-Newton step needs a split ``outer(inner(Z))`` with a convex ``outer``. Here ``inner`` returns squared distances:
the mean is linear in them, the logarithm of a sum of exponentials convex. Everything else is autodiff.
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import Tensor

from krepes import Krepes
from krepes.engine.solution import Solution
from krepes.kernels.classic import RBF
from krepes.objectives import InnerOuter
from krepes.views import GaussianNoise


def distances(Z: Tensor) -> Tensor:
    """From embeddings ``(2, b, h)`` to squared distances: first those of the pairs ``(b,)``, then all within a view."""
    U = Z / Z.norm(dim=2, keepdim=True)
    between = 2 - 2 * (U @ U.mT)[:, ~torch.eye(Z.shape[1], dtype=torch.bool)]
    return torch.cat([(U[0] - U[1]).square().sum(1)[None], between.reshape(-1, Z.shape[1])])


def align_and_spread(d: Tensor) -> Tensor:
    """Pairs close, everything else far apart."""
    return d[0].mean() + torch.logsumexp(-2 * d[1:].flatten(), dim=0) - torch.log(torch.tensor(d[1:].numel()))


def main() -> Solution:
    """Fit the loss on two noisy views of each digit and print what the steps did."""
    X = torch.from_numpy(load_digits().data[:600]).float() / 16
    objective = InnerOuter(distances, align_and_spread, name="align_and_spread", batch=128)
    model = Krepes(RBF(width=2.0), objective=objective, m=40, h=8, augment=GaussianNoise(0.1), steps=2, tol=1e-4)
    solution: Solution = model.fit(X).solution_
    for number, step in enumerate(solution.steps, start=1):
        print(
            f"step {number}: loss {step.loss_before:.4f} -> {step.loss_after:.4f}, damping {step.damping:.2g}, "
            f"gain {step.gain:.2f}, {step.iterations} iterations"
        )
    return solution


if __name__ == "__main__":
    main()
