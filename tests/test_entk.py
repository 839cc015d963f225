"""The tangent kernel against written-out Jacobians, network by network."""

import pytest
import torch
from networks import NETWORKS, make
from oracles.jacobian import tangent_features

from krepes.kernels.entk import EmpiricalNTK

# Relative to max |K|. float64: a few hundred roundings of 1e-16. float32: those of the forward and backward pass.
FLOAT64, FLOAT32 = 1e-12, 2e-6


def relative_error(K, reference):
    return float((K.double() - reference).abs().max() / reference.abs().max())


def oracle(kernel, encoder, X, Y, **kwargs):
    heads = kernel.tangent.cotangents
    return tangent_features(encoder, X, heads, **kwargs) @ tangent_features(encoder, Y, heads, **kwargs).T


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("heads", [1, 3])
def test_float64_kernel_is_the_jacobian_product(name, heads, generator):
    encoder, inputs = make(name)
    X, Y = to_double(inputs(5, generator)), to_double(inputs(4, generator))
    kernel = EmpiricalNTK(encoder.double(), heads=heads)
    K = kernel(X, Y)
    assert relative_error(K, oracle(kernel, encoder, X, Y)) <= FLOAT64


def to_double(X):
    if isinstance(X, dict):
        return {key: to_double(x) for key, x in X.items()}
    if isinstance(X, tuple):
        return tuple(to_double(x) for x in X)
    return X.double() if X.is_floating_point() else X
