"""Influence the slow way: change one row's weight, take the update again, difference the outcome.

Losses are written out with a weight for every row, sample by sample; nothing here knows of adjoints or projections.
"""

import torch
from torch.func import grad, jacrev

from oracles.rows import direction


def embedded(Kbar, theta):
    return [K @ theta for K in Kbar]


def weighted_mean(w, Z):
    return (w[:, None] * Z).sum(0)


def weighted_moment(w, Z_a, Z_b):
    return Z_a.T @ (w[:, None] * Z_b)


def barlow(problem, theta, w, *, lam=0.0051, centre=True):
    Z_a, Z_b = embedded(problem.Kbar, theta)
    if centre:
        Z_a, Z_b = Z_a - weighted_mean(w, Z_a), Z_b - weighted_mean(w, Z_b)
    a, b = (weighted_moment(w, Z, Z).diagonal().sqrt() for Z in (Z_a, Z_b))
    return barlow_penalty(weighted_moment(w, Z_a, Z_b) / torch.outer(a, b), lam)


def barlow_penalty(C, lam):
    """The paper's Phi(C)."""
    off = C - torch.diag(C.diagonal())
    return (C.diagonal() - 1).square().sum() + lam * off.square().sum()


def vicreg(problem, theta, w):
    Z = embedded(problem.Kbar, theta)
    n, h = Z[0].shape
    total = 25 * (w[:, None] * (Z[0] - Z[1]).square()).sum()
    for z in Z:
        z = z - weighted_mean(w, z)
        S = weighted_moment(w, z, z) * n / (n - 1)
        off = S - torch.diag(S.diagonal())
        total = total + 25 / h * (1 - (S.diagonal() + 1e-4).sqrt()).clamp_min(0).sum() + off.square().sum() / h
    return total


def spectral(problem, theta, w, *, rho=0.0):
    Z_a, Z_b = embedded(problem.Kbar, theta)
    pairs = torch.outer(w, w) * (Z_a @ Z_b.T).square()
    return -2 * (w * (Z_a * Z_b).sum(1)).sum() + pairs.sum() + rho * rkhs(problem, theta).trace()


def simple(problem, theta, w, *, rho=1e-2):
    Z_a, Z_b = embedded(problem.Kbar, theta)
    contrast = (torch.outer(w, w) * (Z_a @ Z_b.T)).sum() - (w * (Z_a * Z_b).sum(1)).sum()
    return contrast + rho * rkhs(problem, theta).trace()


def kpca(problem, theta, w):
    """Reconstruction error of the features up to the constant E k(x, x), over all views alike."""
    A = theta[:-1]
    total = 0.0
    for K in problem.Kbar:
        Z = K[:, :-1] @ A
        total = total + (w * ((Z @ rkhs(problem, theta) * Z).sum(1) - 2 * Z.square().sum(1))).sum()
    return total / len(problem.Kbar)


def kae(problem, theta, w, *, l2=1e-3):
    """The best ridge decoder for these weights, found anew."""
    Z, X = torch.cat(embedded(problem.Kbar, theta)), problem.X.flatten(0, 1)
    w = w.repeat(len(problem.Kbar)) / len(problem.Kbar)
    eye = torch.eye(Z.shape[1], dtype=Z.dtype)
    B = torch.linalg.inv(weighted_moment(w, Z, Z) + l2 * eye) @ weighted_moment(w, Z, X)
    return (w * (X - Z @ B).square().sum(1)).sum() + l2 * B.square().sum()


def byol(problem, theta, w):
    total = 0.0
    for i in range(problem.Kbar.shape[1]):
        k_a, k_b = problem.Kbar[:, i]
        t_a, t_b = direction(k_a @ problem.theta0), direction(k_b @ problem.theta0)
        near = (direction(k_a @ theta) - t_b).square().sum() + (direction(k_b @ theta) - t_a).square().sum()
        total = total + w[i] * near
    return total


def simclr(problem, theta, w, *, size, tau):
    """A sample of weight w is w times an anchor and w times a negative; batches are those of the loss."""
    total, n = 0.0, problem.Kbar.shape[1]
    for start in range(0, n, size):
        batch = range(start, min(start + size, n))
        u = {(i, view): direction(problem.Kbar[view, i] @ theta) for i in batch for view in (0, 1)}
        for i, view in u:
            others = [(w[j[0]] * (u[i, view] @ u[j] / tau).exp()) for j in u if j != (i, view)]
            positive = u[i, view] @ u[i, 1 - view] / tau
            total = total + w[i] * (torch.stack(others).sum().log() - positive) / 2
    return total


def triplets(problem, theta, w):
    Z, Z_plus, Z_minus = embedded(problem.Kbar, theta)
    return (w * ((Z * Z_minus).sum(1).square() - 2 * (Z * Z_plus).sum(1))).sum()


def rkhs(problem, theta):
    return theta[:-1].T @ problem.K @ theta[:-1]


def toward_row(w, i, step):
    """The weights moved a step towards having row i alone."""
    return (1 - step) * w + step * torch.eye(len(w), dtype=w.dtype)[i]


def one_update(loss, theta, *, w, H):
    """One Gauss-Newton update from theta that answers the change of the gradient alone; H is dense and held."""
    uniform = torch.full_like(w, 1 / len(w))
    change = grad(loss)(theta, w) - grad(loss)(theta, uniform)
    return theta - torch.linalg.solve(H, change.reshape(-1)).reshape(theta.shape)


def finite_differences(outcomes, resolve, n, i, step=1e-5):
    """d outcome / d w_i along e_i - w, by the middle difference of two re-solved problems, ``(outcomes,)``."""
    w = torch.full((n,), 1 / n, dtype=torch.float64)
    up, down = (resolve(w=toward_row(w, i, sign * step)) for sign in (1, -1))
    return torch.stack([(outcome.value(up) - outcome.value(down)) / (2 * step) for outcome in outcomes]).detach()


def proximal_minimum(loss, theta, *, w, damping, iterations):
    """The minimiser of loss + damping/2 |. - theta|², by Newton with the exact Hessian."""
    x = theta.clone()

    def gradient(x):
        return grad(loss)(x, w) + damping * (x - theta)

    for _ in range(iterations):
        H = jacrev(gradient)(x).reshape(x.numel(), x.numel())
        x = x - torch.linalg.solve(H, gradient(x).reshape(-1)).reshape(x.shape)
    return x


def paper_barlow_influence(problem, theta, i, H, lam):
    """IF(z; theta, P) of the paper's appendix, C = E[u vᵀ] uncentred: eqs. for C-dot and J-dot, then -H⁻¹ of them."""

    def C(theta, rows):
        U, V = (problem.Kbar[u][rows] @ theta for u in (0, 1))
        return U.T @ V / len(rows)

    everyone, z = list(range(problem.Kbar.shape[1])), [i]
    A = grad(lambda C: barlow_penalty(C, lam))
    A_dot = jacrev(A)(C(theta, everyone))
    C_dot = C(theta, z) - C(theta, everyone)
    J, J_z = (jacrev(C)(theta, rows) for rows in (everyone, z))
    F_dot = torch.einsum("ijkh,ij->kh", J_z - J, A(C(theta, everyone)))
    F_dot = F_dot + torch.einsum("ijkh,ij->kh", J, torch.einsum("ijkl,kl->ij", A_dot, C_dot))
    return -torch.linalg.solve(H, F_dot.reshape(-1)).reshape(theta.shape)
