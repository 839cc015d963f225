"""The moment objectives as their papers write them: on the embeddings of all samples, pair by pair where need be.

Each objective has its loss and the residuals ``r`` whose Gauss-Newton matrix ``2 JᵀJ`` the package claims; autodiff
does the rest. Nothing here knows of moments.
"""

import torch
from torch.func import grad, jacrev


def embed(Kbar, theta):
    return Kbar @ theta


def flat(*parts):
    return torch.cat([part.reshape(-1) for part in parts])


def off_diagonal(S):
    return S[~torch.eye(len(S), dtype=torch.bool)]


def rkhs_root(K, theta):
    """Residual whose square is tr(AᵀKA)."""
    return torch.linalg.cholesky(K).T @ theta[:-1]


def gram(K, theta):
    return theta[:-1].T @ K @ theta[:-1]


def barlow_residual(problem, theta, *, lam, centre, eps=0.0):
    Z_a, Z_b = embed(problem.Kbar, theta)
    if centre:
        Z_a, Z_b = Z_a - Z_a.mean(0), Z_b - Z_b.mean(0)
    Z_a = Z_a / (Z_a.square().mean(0) + eps).sqrt()
    Z_b = Z_b / (Z_b.square().mean(0) + eps).sqrt()
    C = Z_a.T @ Z_b / len(Z_a)
    return flat(C.diagonal() - 1, lam**0.5 * off_diagonal(C))


def barlow_loss(problem, theta, **options):
    return barlow_residual(problem, theta, **options).square().sum()


def vicreg_terms(problem, theta, *, inv=25.0, var=25.0, cov=1.0, nh=False, halved=False, target=1.0, eps=1e-4):
    Z = embed(problem.Kbar, theta)
    n, h = Z.shape[1:]
    invariance = (inv / n / (h if nh else 1)) ** 0.5 * (Z[0] - Z[1])
    covariances = flat(*[(cov / h) ** 0.5 * off_diagonal(torch.cov(z.T)) for z in Z])
    slack = torch.stack([target - (z.var(0) + eps).sqrt() for z in Z])
    return invariance, covariances, slack, var / h / (2 if halved else 1)


def vicreg_loss(problem, theta, **options):
    invariance, covariances, slack, weight = vicreg_terms(problem, theta, **options)
    return invariance.square().sum() + covariances.square().sum() + weight * slack.clamp_min(0).sum()


def vicreg_residual(problem, theta, *, irls, **options):
    """With irls, an active hinge x is replaced by x² / (2 x0) at its own value x0: same slope, positive curvature."""
    invariance, covariances, slack, weight = vicreg_terms(problem, theta, **options)
    here = slack.detach()
    hinge = torch.where(here > 0, (weight / (2 * here.clamp_min(1e-3))) ** 0.5, 0) * slack
    return flat(invariance, covariances, hinge) if irls else flat(invariance, covariances)


def spectral_residual(problem, theta, *, rho, pooled):
    """Z_A Z_Bᵀ/n - I over pairs; pooled, F Fᵀ - adjacency over the 2n vertices of the augmentation graph."""
    Z_a, Z_b = embed(problem.Kbar, theta)
    n = len(Z_a)
    if pooled:
        F = torch.cat([Z_a, Z_b]) / (2 * n) ** 0.5
        adjacency = torch.eye(n, dtype=Z_a.dtype).repeat(2, 2)
        adjacency = adjacency - torch.eye(2 * n, dtype=Z_a.dtype)
        pairs = F @ F.T - adjacency
    else:
        pairs = Z_a @ Z_b.T / n - torch.eye(n, dtype=Z_a.dtype)
    return flat(pairs, rho**0.5 * rkhs_root(problem.K, theta))


def spectral_loss(problem, theta, *, rho, pooled):
    Z_a, Z_b = embed(problem.Kbar, theta)
    positives = -2 * (Z_a * Z_b).sum(1).mean()
    both = torch.cat([Z_a, Z_b])
    negatives = (both @ both.T if pooled else Z_a @ Z_b.T).square().mean()
    return positives + negatives + rho * gram(problem.K, theta).trace()


def simple_loss(problem, theta, *, rho, pen):
    """Every sample's second view is the negative of every sample."""
    Z_a, Z_b = embed(problem.Kbar, theta)
    O = gram(problem.K, theta)
    contrast = (Z_a @ Z_b.T).mean() - (Z_a * Z_b).sum(1).mean()
    return contrast + rho * O.trace() + pen * (O - torch.eye(len(O), dtype=O.dtype)).square().sum()


def simple_residual(problem, theta, *, rho, pen):
    """½|z - z⁺|² and ½|z + z⁻|² of the centred embeddings, over all pairs for the second."""
    Z_a, Z_b = (z - z.mean(0) for z in embed(problem.Kbar, theta))
    n = len(Z_a)
    positives = (Z_a - Z_b) / (2 * n) ** 0.5
    negatives = (Z_a[:, None] + Z_b[None]) / (2 * n * n) ** 0.5
    O = gram(problem.K, theta)
    orthogonal = pen**0.5 * (O - torch.eye(len(O), dtype=O.dtype))
    return flat(positives, negatives, rho**0.5 * rkhs_root(problem.K, theta), orthogonal)


def triplets_loss(problem, theta, *, rho):
    """Simple contrastive with the third view as the negative."""
    Z, Z_plus, Z_minus = embed(problem.Kbar, theta)
    return (Z * (Z_minus - Z_plus)).sum(1).mean() + rho * gram(problem.K, theta).trace()


def triplets_residual(problem, theta, *, rho):
    Z, Z_plus, Z_minus = embed(problem.Kbar, theta)
    pairs = torch.stack([Z - Z_plus, Z + Z_minus]) / (2 * len(Z)) ** 0.5
    return flat(pairs, rho**0.5 * rkhs_root(problem.K, theta))


def kpca_residual(problem, theta, *, rho):
    """φ_x - Φ_m A Aᵀ k_x in the explicit features of a linear kernel, over all views alike."""
    Phi, landmarks, A = problem.X.flatten(0, 1), problem.landmarks, theta[:-1]
    k = Phi @ landmarks.T
    reconstruction = k @ A @ A.T @ landmarks
    return flat((Phi - reconstruction) / len(Phi) ** 0.5, rho**0.5 * rkhs_root(problem.K, theta))


def kpca_loss(problem, theta, *, rho):
    return kpca_residual(problem, theta, rho=rho).square().sum()


def kae_residual(problem, theta, *, l2, rho):
    """x - Bᵀz with B the ridge regression of the inputs on the embeddings, all views alike."""
    Z, X = embed(problem.Kbar, theta).flatten(0, 1), problem.X.flatten(0, 1)
    n, h = Z.shape
    B = torch.linalg.solve(Z.T @ Z / n + l2 * torch.eye(h, dtype=Z.dtype), Z.T @ X / n)
    return flat((X - Z @ B) / n**0.5, l2**0.5 * B, rho**0.5 * rkhs_root(problem.K, theta))


def kae_loss(problem, theta, *, l2, rho):
    return kae_residual(problem, theta, l2=l2, rho=rho).square().sum()


def gradient(loss, problem, theta):
    return grad(lambda t: loss(problem, t))(theta)


def gauss_newton(residual, problem, theta):
    """2 JᵀJ, (size, size), for a loss |r|²."""
    J = jacrev(lambda t: residual(problem, t))(theta).reshape(-1, theta.numel())
    return 2 * J.T @ J
