"""Landmark selection one pick at a time on explicit matrices. Slow; its only virtue is being obvious."""

import itertools

import torch


def plain_rpcholesky(K, m, generator):
    """Randomly pivoted Cholesky, one pivot at a time, on the whole kernel matrix (n, n)."""
    F, d, pivots = torch.zeros(len(K), 0, dtype=K.dtype), K.diagonal().clone(), []
    for _ in range(m):
        s = int(torch.multinomial(d, 1, generator=generator))
        g = (K[:, s] - F @ F[s]) / d[s].sqrt()
        F, d = torch.cat([F, g[:, None]], dim=1), (d - g.square()).clamp_min(0)
        d[s] = 0
        pivots.append(s)
    return torch.tensor(pivots)


def rpcholesky_weights(K, chosen):
    """Residual diagonal given the chosen pivots, by the pseudo-inverse."""
    if not chosen:
        return K.diagonal()
    c = list(chosen)
    return (K - K[:, c] @ torch.linalg.pinv(K[c][:, c], hermitian=True) @ K[c]).diagonal().clamp_min(0)


def kmeans_weights(X, chosen):
    """Squared distance to the nearest of the chosen points (uniform at the start)."""
    if not chosen:
        return torch.ones(len(X), dtype=X.dtype)
    return (X[:, None] - X[list(chosen)]).square().sum(2).amin(1)


def subset_probabilities(weights, n, m):
    """Probability of each sorted subset when picks follow ``weights(chosen)``, summed over all orders."""
    total = {}
    for order in itertools.permutations(range(n), m):
        p = 1.0
        for i, s in enumerate(order):
            w = weights(order[:i]).clone()
            w[list(order[:i])] = 0
            p *= float(w[s] / w.sum())
        key = tuple(sorted(order))
        total[key] = total.get(key, 0.0) + p
    return total


def nystrom_trace_error(K, chosen):
    """trace(K - K_nm K_mm⁺ K_mn) / trace(K)."""
    C = K[:, chosen]
    return float(1 - torch.trace(C @ torch.linalg.pinv(C[chosen], hermitian=True) @ C.T) / K.trace())


def leverage_scores(K, damping):
    """diag(K (K + damping I)⁻¹)."""
    return torch.linalg.solve(K + damping * torch.eye(len(K), dtype=K.dtype), K).diagonal()


def nystrom_leverage(K, columns, damping):
    """Leverage scores of the Nystrom approximation on the columns, plus r / (r + damping) for its residual r."""
    C = K[:, columns]
    approximation = C @ torch.linalg.pinv(C[columns], hermitian=True) @ C.T
    residual = (K - approximation).diagonal().clamp_min(0)
    return leverage_scores(approximation, damping) + residual / (residual + damping)
