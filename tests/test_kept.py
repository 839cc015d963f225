"""The memory that a pass is said to take: no tensor counted twice, and near the peak of a process."""

import torch
from torch import nn

from krepes.encoders.frozen import FrozenEncoder
from krepes.kernels.entk import EmpiricalNTK
from krepes.kernels.kept import BESIDE, capture_and_count
from peak import peak_rise


def counted(module, X, heads=1):
    frozen = FrozenEncoder.of(module.eval(), None)
    d = frozen.embed(X).shape[1]
    names = {id(parameter): name for name, parameter in frozen.parameters.items()}
    with frozen.evaluating():
        return capture_and_count(frozen, X, names, torch.ones(heads, d))[1] / BESIDE


def test_inputs_and_output_gradients_are_counted_once():
    X = torch.randn(5, 6)
    layers = nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 2))
    held = X.numel() + 5 * 7  # the input, and the output of tanh, which tanh keeps and the second layer is given
    assert counted(layers, X) == 4 * (held + 5 * 7 + 5 * 2)
    assert counted(layers, X, heads=3) == 4 * (held + 3 * (5 * 7 + 5 * 2))


def test_layers_that_read_one_tensor_hold_it_once():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(300, 1), nn.Linear(300, 1)

        def forward(self, x):
            return torch.cat([self.one(x), self.two(x)], dim=1)

    X = torch.randn(5, 300)
    assert counted(Twice(), X) == 4 * (X.numel() + 2 * 5)


def test_weights_are_not_counted():
    X = torch.randn(5, 1)
    assert counted(nn.Sequential(nn.Linear(1, 1000), nn.ReLU(), nn.Linear(1000, 1)), X) < 4 * 5 * 5000


PEAK = """
import torch
from torch import nn
from krepes.kernels.entk import EmpiricalNTK

torch.set_num_threads(1)
layers = [nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()]
for _ in range(6):
    layers += [nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(inplace=True)]
kernel = EmpiricalNTK(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()))
X = torch.randn(48, 3, 32, 32)
kernel.tangent.probe(X[:3])
kernel.tangent.forms(X[:4])
with measured():
    kernel.tangent.forms(X)
"""


def test_the_peak_of_a_process_is_near_what_is_said():
    layers = [nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()]
    for _ in range(6):
        layers += [nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(inplace=True)]
    kernel = EmpiricalNTK(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()))
    kernel.tangent.probe(torch.randn(3, 3, 32, 32))
    said = 48 * kernel.tangent.bytes_per_sample
    assert 0.5 < peak_rise(PEAK) / said < 1.1
