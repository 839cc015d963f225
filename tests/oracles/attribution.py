"""The decomposition of an embedding's shift, landmark by landmark and view by view, straight from the definitions.

``K`` is ``(t, q)`` and ``dA`` ``(q, h)``; row ``u m + l`` is view ``u`` of landmark ``l``.
"""

import torch


def contribution(K, dA, *, t, l, m):
    """c_tl = sum over views of k dA."""
    return sum(K[t, row] * dA[row] for row in range(l, len(dA), m))


def score(K, dA, *, t, l, m):
    """The paper's score of one view, k |dA|, summed over the views of a landmark."""
    return sum(float(K[t, row]) * float(dA[row].norm()) for row in range(l, len(dA), m))


def scores(K, dA, m):
    return torch.tensor([[score(K, dA, t=t, l=l, m=m) for l in range(m)] for t in range(len(K))], dtype=torch.float64)


def toward(K, dA, m, v):
    """<c_tl, v_t> with one v a sample, (t, h)."""
    return torch.stack([
        torch.stack([contribution(K, dA, t=t, l=l, m=m) @ v[t] for l in range(m)]) for t in range(len(K))
    ])


def psi(K, dA, m, v, k):
    """The k landmarks of highest score, found by sorting in plain Python; then their contributions along v."""
    found = []
    for t in range(len(K)):
        order = sorted(range(m), key=lambda l, t=t: -score(K, dA, t=t, l=l, m=m))
        found.append(sum(float(contribution(K, dA, t=t, l=l, m=m) @ v) for l in order[:k]))
    return torch.tensor(found, dtype=torch.float64)
