"""One small network behind every way an encoder can be called; each entry of `CALLINGS` gives it its own interface.

All of them compute ``core(x)`` of the same rows ``x`` ``(n, 6)``, so whatever is computed through one must be what the
plain network gives.
"""

import copy
from collections import OrderedDict, UserDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from krepes.views import Augmentation, GaussianNoise
from networks import Lambda

WIDTH = 6


def core(seed=0):
    torch.manual_seed(seed)
    layers = nn.Sequential(nn.Linear(WIDTH, 12), nn.BatchNorm1d(12), nn.Tanh(), nn.Dropout(0.3), nn.Linear(12, 5))
    layers[1].running_mean.copy_(torch.linspace(-0.3, 0.3, 12))
    layers[1].running_var.copy_(torch.linspace(0.5, 1.5, 12))
    return layers


class BatchEncoding(UserDict):
    """What a tokenizer returns: a mapping that is no dict."""


class ModelOutput(OrderedDict):
    """What a HuggingFace model returns: keys that are attributes too; an absent one is not a key."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


@dataclass
class Heads:
    pooled: Tensor
    logits: Tensor | None = None


def transformer(core):
    """Padding counts as zero; the mask is of integers and must stay so."""

    def forward(self, inputs_embeds, attention_mask=None, return_dict=True):
        assert attention_mask.dtype == torch.int64
        hidden = inputs_embeds * attention_mask[..., None]
        return ModelOutput(last_hidden_state=hidden, pooler_output=self.core(hidden.flatten(1)))

    return Lambda(forward, core=core)


def distributed(core):
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    return nn.parallel.DistributedDataParallel(core)


@dataclass(frozen=True)
class Calling:
    """A way to call: the module around the core, rows to its samples and back, where its embedding is."""

    module: Callable[[nn.Module], nn.Module]
    pack: Callable[[Tensor], Any] = lambda x: x
    unpack: Callable[[Any], Tensor] = lambda samples: samples
    output: Any = None
    dtype: torch.dtype = torch.float32
    """Of the computation."""

    def truth(self):
        """Return the plain network with the very weights, in the type that is computed in."""
        own, plain = self.module(core()).state_dict(), core().to(self.dtype)
        for name, value in plain.state_dict().items():
            value.copy_(next(found for key, found in own.items() if key.endswith(name)))
        return plain


def tokens(x):
    return BatchEncoding(inputs_embeds=x.unflatten(1, (3, 2)), attention_mask=torch.ones(len(x), 3, dtype=torch.int64))


CALLINGS = {
    "tensor": Calling(lambda net: net),
    "tuple": Calling(
        lambda net: Lambda(lambda self, x, y: self.core(torch.cat([x, y], 1)), core=net),
        lambda x: (x[:, :4], x[:, 4:]),
        lambda pair: torch.cat(list(pair), 1),
    ),
    "dict": Calling(
        lambda net: Lambda(lambda self, *, left, right: (self.core(torch.cat([left, right], 1)),), core=net),
        lambda x: {"right": x[:, 4:], "left": x[:, :4]},
        lambda fields: torch.cat([fields["left"], fields["right"]], 1),
        output=0,
    ),
    "float64": Calling(lambda net: net.double(), dtype=torch.float64),
    "bfloat16": Calling(lambda net: net.bfloat16()),
    "float16": Calling(lambda net: net.half()),
    "data parallel": Calling(lambda net: nn.DataParallel(net)),
    "distributed": Calling(distributed),
    "hugging face": Calling(
        transformer, tokens, lambda fields: fields["inputs_embeds"].flatten(1), output="pooler_output"
    ),
    "nested": Calling(
        lambda net: Lambda(lambda self, x: {"heads": [Heads(self.core(x))], "loss": x.sum()}, core=net),
        output="heads.0.pooled",
    ),
    "function": Calling(
        lambda net: Lambda(lambda self, x: Heads(x, self.core(x)), core=net), output=lambda h: h.logits
    ),
}


@dataclass(frozen=True)
class Jitter(Augmentation):
    """The noise of the plain rows, whatever they are packed in: views of all callings are the same."""

    name: str

    def __call__(self, X, noise):
        calling = CALLINGS[self.name]
        return calling.pack(GaussianNoise(0.2)(calling.unpack(X), noise))


def make(name):
    """Return the encoder in a mixed state: training, but its BatchNorm is frozen and one weight is not trained."""
    encoder = CALLINGS[name].module(copy.deepcopy(core())).train()
    norm = next(module for module in encoder.modules() if isinstance(module, nn.BatchNorm1d)).eval()
    norm.weight.requires_grad_(False)
    return encoder


def state(module):
    """Return all that a call must leave alone."""
    return (
        [part.training for part in module.modules()],
        [parameter.requires_grad for parameter in module.parameters()],
        [parameter.grad for parameter in module.parameters()],
        {name: value.clone() for name, value in module.state_dict().items()},
    )


def assert_untouched(module, before):
    after = state(module)
    assert after[:2] == before[:2] and after[2] == before[2]
    assert after[3].keys() == before[3].keys()
    assert all(
        torch.equal(after[3][name], value) and after[3][name].dtype == value.dtype for name, value in before[3].items()
    )
