"""Adapters of low rank, written by hand: the kernel sees them alone, the rest alone, or both, by patterns of names."""

import torch
from torch import nn

from krepes import EmpiricalNTK
from oracles.jacobian import tangent_features


class LoRA(nn.Module):
    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base
        self.lora_A = nn.Parameter(torch.randn(rank, base.in_features))
        self.lora_B = nn.Parameter(torch.randn(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + x @ self.lora_A.T @ self.lora_B.T


def test_patterns_choose_the_adapters_the_base_or_all_of_it():
    torch.manual_seed(0)
    encoder = nn.Sequential(LoRA(nn.Linear(6, 8)), nn.Tanh(), LoRA(nn.Linear(8, 4))).double()
    encoder.requires_grad_(False)  # a frozen base is no reason to leave it out
    X, Y = torch.randn(5, 6, dtype=torch.float64), torch.randn(4, 6, dtype=torch.float64)
    every = list(dict(encoder.named_parameters()))
    for patterns in (["*.lora_*"], ["*.base.*"], ["0.lora_A", "2.base.*"], ["*"]):
        kernel = EmpiricalNTK(encoder, parameters=patterns)
        names = {
            ("*.lora_*",): [name for name in every if "lora" in name],
            ("*.base.*",): [name for name in every if "base" in name],
            ("0.lora_A", "2.base.*"): ["0.lora_A", "2.base.weight", "2.base.bias"],
            ("*",): every,
        }[tuple(patterns)]
        K, heads = kernel(X, Y), kernel.tangent.cotangents
        wanted = (tangent_features(encoder, Z, heads, names=names) for Z in (X, Y))
        torch.testing.assert_close(K, next(wanted) @ next(wanted).T, rtol=1e-10, atol=1e-10)
        left = {entry.parameter for entry in kernel.coverage() if entry.rule == "left out"}
        assert left == set(every) - set(names)
