"""Row objectives written out: the loss sample by sample, the curvature as a dense matrix. Slow and obvious."""

import torch
from torch.autograd.functional import hessian, jacobian


def direction(z):
    return z / z.norm(dim=-1, keepdim=True)


def batches(Kbar, size):
    return [Kbar[:, start : start + size] for start in range(0, Kbar.shape[1], size)]


def simclr_inner(Kbar, theta, size, tau):
    """The logits of every batch, each row without its own column, in one vector."""
    pieces = []
    for K in batches(Kbar, size):
        u = torch.cat([direction(K[0] @ theta), direction(K[1] @ theta)])
        rows = u.shape[0]
        pieces += [(u[i] @ u[j] / tau).reshape(1) for i in range(rows) for j in range(rows) if j != i]
    return torch.cat(pieces)


def simclr_outer(logits, n, size):
    """Cross entropy of each row against the column of its pair, a batch weighted by its share of the samples."""
    total, start = 0.0, 0
    for first in range(0, n, size):
        b = min(size, n - first)
        for i in range(2 * b):
            others = [j for j in range(2 * b) if j != i]
            row = logits[start : start + len(others)]
            start += len(others)
            pair = others.index((i + b) % (2 * b))
            total = total + (b / n) * -torch.log(row[pair].exp() / row.exp().sum()) / (2 * b)
    return total


def byol_inner(Kbar, theta, W):
    return torch.stack([direction(K @ theta @ W) for K in Kbar])


def byol_outer(u, targets):
    u = u.reshape(targets.shape)
    return sum(((u[a] - targets[1 - a]) ** 2).sum(1).mean() for a in (0, 1))


def ridge_predictor(Kbar, theta, ridge):
    Z = torch.cat([Kbar[0] @ theta, Kbar[1] @ theta])
    T = direction(torch.cat([Kbar[1] @ theta, Kbar[0] @ theta]))
    G = Z.T @ Z / len(Z)
    return torch.linalg.inv(G + ridge * G.diagonal().mean() * torch.eye(len(G), dtype=G.dtype)) @ Z.T @ T / len(Z)


def triplet_loss(Kbar, theta, K, rho):
    total = 0.0
    for k0, kp, kn in zip(*Kbar, strict=True):
        z, zp, zn = k0 @ theta, kp @ theta, kn @ theta
        total = total - 2 * z @ zp + (z @ zn) ** 2
    return total / Kbar.shape[1] + rho * torch.trace(theta[:-1].T @ K @ theta[:-1])


def triplet_residuals(Kbar, theta, K, rho):
    """``|residuals|²`` carries the curvature that is kept; the concave rest of the loss has none."""
    z, zp, zn = (Kv @ theta for Kv in Kbar)
    n = len(z)
    weighted = torch.linalg.cholesky(K).T @ theta[:-1]
    return torch.cat([(z * zn).sum(1) / n**0.5, (z - zp).flatten() / n**0.5, rho**0.5 * weighted.flatten()])


def dense_ggn(inner, outer, theta):
    """J^T Q J with J and Q written out by autodiff."""
    u = inner(theta).detach()
    J = jacobian(inner, theta).reshape(u.numel(), theta.numel())
    Q = hessian(outer, u).reshape(u.numel(), u.numel())
    return J.T @ Q @ J


def autograd_gradient(loss, theta):
    theta = theta.detach().requires_grad_()
    return torch.autograd.grad(loss(theta), theta)[0]
