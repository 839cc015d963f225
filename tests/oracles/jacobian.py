"""The tangent kernel by the book: one autograd call a sample and head, the whole gradient written out in float64."""

import copy

import torch
from torch import Tensor, nn


def tangent_features(encoder: nn.Module, X, heads: Tensor, *, names=None, output=None) -> Tensor:
    """Gradients of ``heads @ encoder(x)`` and of the head itself, ``(n, P)``; ``heads`` is ``(r, d)``."""
    encoder = copy.deepcopy(encoder).double().eval()
    parameters = [p.requires_grad_() for name, p in encoder.named_parameters() if names is None or name in names]
    rows = []
    for i in range(length(X)):
        Z = call(encoder, single(X, i))
        Z = (Z if output is None else output(Z)).flatten(1)[0]
        features = []
        for w in heads.double():
            gradients = torch.autograd.grad(w @ Z, parameters, retain_graph=True, allow_unused=True)
            features += [
                (torch.zeros_like(p) if g is None else g).reshape(-1)
                for g, p in zip(gradients, parameters, strict=True)
            ]
        rows.append(torch.cat([*features, Z.detach(), torch.ones(1, dtype=torch.float64)]))
    return torch.stack(rows)


def call(encoder, X):
    if isinstance(X, dict):
        return encoder(**X)
    return encoder(*X) if isinstance(X, tuple) else encoder(X)


def length(X) -> int:
    return len(next(iter(X.values()))) if isinstance(X, dict) else len(X[0]) if isinstance(X, tuple) else len(X)


def single(X, i):
    def one(x):
        return x[i : i + 1].double() if x.is_floating_point() else x[i : i + 1]

    if isinstance(X, dict):
        return {key: one(x) for key, x in X.items()}
    return tuple(one(x) for x in X) if isinstance(X, tuple) else one(X)
