r"""The tangent features of an encoder: which rule serves which parameter, proven on the first samples.

With ``r`` random scalar heads ``f_j(x) = w_j·encoder(x) + b_j`` the feature of a sample is the gradient of all heads,

    φ(x) = r^{-1/2} [∇_θ f_1(x), …, ∇_θ f_r(x)],      k(x, x') = <φ(x), φ(x')>,

in every tracked parameter and in the head itself. On the first batch the rules' gradients, summed with random weights
over three samples, are compared with autograd's, parameter by parameter: a rule that does not fit (an unusual batch
layout, a parameter also used elsewhere) is replaced by per-sample gradients there, and nothing is left out.
"""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import CheckpointError

from krepes import batches
from krepes.batches import Batch
from krepes.encoders.frozen import FrozenEncoder
from krepes.encoders.outputs import Output
from krepes.errors import NotFittedError, UnsupportedEncoderError
from krepes.kernels.capture import Call, Captured, capture
from krepes.kernels.forms import Form, Vector, take
from krepes.kernels.groups import Group, Pass, gradient_form
from krepes.kernels.kept import capture_and_count
from krepes.kernels.layers import BatchLayout
from krepes.kernels.per_sample import PerSample
from krepes.kernels.refusals import RECOMPUTES, require_batch_free, require_supported
from krepes.kernels.settle import PROBE, settle

LOOKED_AT = 64
"""Samples among which the most varied are taken for it: on blank ones every layout of tokens agrees with autograd."""


@dataclass(frozen=True)
class ParameterRule:
    """One parameter of the encoder (or the head) and what served it."""

    parameter: str
    size: int
    rule: str


class Tangent:
    """The tangent features of an encoder, as gradient forms.

    Args:
        encoder: Any module returning embeddings ``(n, d, ...)``, or one that is frozen already.
        heads: Number ``r`` of random scalar heads.
        seed: Seed of the heads.
        parameters: ``"*"`` for all, ``"last"`` for the last layer, or glob patterns of parameter names.
        include_frozen: Whether parameters with ``requires_grad=False`` count. A frozen encoder has only such.
        output: Where in the encoder's result the embedding is; see `FrozenEncoder`.
    """

    def __init__(
        self,
        encoder: nn.Module | FrozenEncoder,
        *,
        heads: int = 1,
        seed: int = 0,
        parameters: str | Sequence[str] = "*",
        include_frozen: bool = True,
        output: Output = None,
    ) -> None:
        self.encoder, self.heads, self.seed = FrozenEncoder.of(encoder, output), heads, seed
        require_supported(self.encoder.module)
        self.parameters = [parameters] if isinstance(parameters, str) else list(parameters)
        self.tracked = _choose(self.encoder.parameters, self.parameters, include_frozen)
        assert self.encoder.dtype is not None
        self.dtype, self.device = self.encoder.dtype, self.encoder.device
        self.groups: list[Group] | None = None
        self.spent, self.include_frozen = [0.0, 0.0], include_frozen
        self.normed = any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in self.encoder.module.modules())

    def forms(self, X: Batch) -> list[Form]:
        """Return one form a group for ``n`` samples: the layers', the loose parameters' if any, the head's."""
        self.probe(X)
        X = self.encoder.cast(X)
        batches.require_usable(X, "the input of the encoder")
        n = batches.count(X)
        if n == 1 and self.normed:  # torch's batch norm goes back wrongly through one, laid out otherwise in memory
            return [take(form, slice(0, 1)) for form in self.forms(batches.take(X, torch.zeros(2, dtype=torch.long)))]
        started = time.process_time()
        with self.encoder.evaluating():
            captured = capture(self.encoder, X, self._names(), self.cotangents, self.singles)
            self._require_same_calls(captured, n)
            assert self.groups is not None
            seen = Pass(captured.calls, self.layouts, n, self.heads)
            forms = [gradient_form(group, seen) for group in self.groups]
            between = time.process_time()
            if self.per_sample is not None:
                forms.append(Vector(self.per_sample(X, self.cotangents).detach()))
        self.spent = [self.spent[0] + between - started, self.spent[1] + time.process_time() - between]
        forms.append(Vector(torch.nn.functional.pad(captured.Z, (0, 1), value=1.0)))
        return forms

    def coverage(self) -> list[ParameterRule]:
        """Return each parameter of the encoder with the rule that served it, and the head.

        Returns:
            One entry a parameter, in the encoder's order, then the head's weight and bias.

        Raises:
            NotFittedError: Before any sample was seen.
        """
        if self.groups is None:
            raise NotFittedError("the rules are chosen on the first samples: call the kernel on some data first.")
        served = {name: group.rule for group in self.groups for name in group.names}
        if self.per_sample is not None:
            how = "per-sample gradients" + ("" if self.per_sample.vectorised else ", one sample at a time")
            share = self.spent[1] / max(sum(self.spent), 1e-9)
            served |= dict.fromkeys(self.per_sample.names, f"{how}: together {share:.0%} of the time so far")
        rows = []
        for name, parameter in self.encoder.parameters.items():
            rule = served.get(name, "unused: the output does not depend on it" if name in self.tracked else "left out")
            rows.append(ParameterRule(name, parameter.numel(), rule))
        d = self.cotangents.shape[1]
        return [
            *rows,
            ParameterRule("head.weight", self.heads * d, "head"),
            ParameterRule("head.bias", self.heads, "head"),
        ]

    def settings(self) -> dict[str, Any]:
        """Return settings and a fingerprint of the weights, as plain JSON values."""
        return {
            **self.encoder.describe(),
            "heads": self.heads,
            "head_seed": self.seed,
            "head_init": "uniform(-1/sqrt(d), 1/sqrt(d))",
            "parameters": self.parameters,
            "include_frozen": self.include_frozen,
            "parameter_count": sum(p.numel() for p in self.tracked.values()),
        }

    def _names(self) -> dict[int, str]:
        return {id(parameter): name for name, parameter in self.tracked.items() if name in self.watched}

    def probe(self, X: Batch) -> None:
        """Choose the rules on three of the first samples of ``X``; nothing happens if that was done before.

        Args:
            X: Samples.

        Raises:
            UnsupportedEncoderError: If the encoder has no well-defined tangent kernel, or it cannot be watched.
        """
        if self.groups is None:
            first = batches.take(X, slice(0, LOOKED_AT))
            batches.require_usable(first, "the input of the encoder")
            first = self.encoder.cast(_three(first))
            try:
                with self.encoder.evaluating():
                    self._choose_rules(first)
            except CheckpointError as error:
                raise UnsupportedEncoderError(RECOMPUTES) from error

    def _choose_rules(self, X: Batch) -> None:
        """Choose the groups and each call's layout on three samples, against autograd."""
        require_batch_free(self.encoder.embed, X)
        d = self.encoder.embed(batches.take(X, slice(0, 1))).shape[1]
        draw = torch.Generator().manual_seed(self.seed)
        w = (2 * torch.rand(self.heads, d, generator=draw, dtype=torch.float64) - 1) / d**0.5
        self.cotangents = (w / self.heads**0.5).to(self.device, self.dtype)
        c = torch.rand(PROBE, generator=draw, dtype=torch.float64).to(self.device, self.dtype) + 0.5
        self.watched = set(self.tracked)
        plan: list[bool] | None = None if self.heads == 1 else []  # heads stand side by side behind each third
        look = partial(capture_and_count, self.encoder, X, cotangents=self.cotangents, singles=plan)
        captured, taken = look(self._names())
        expected = self._autograd(X, c)
        self.idle = {name for name, gradient in expected.items() if gradient is None}
        self._require_gradients(captured.switched_off)
        while True:
            groups, layouts = settle(captured.calls, c, expected, self.idle)
            served = {name for group in groups for name in group.names}
            if self.watched <= served | self.idle:
                break
            self.watched = served | self.idle  # nothing is spent on parameters that no rule serves
            captured, taken = look(self._names())
        self.singles, self.groups, self.layouts = captured.singles, groups, layouts
        self.signature = [call.signature for call in captured.calls]
        self.tables = _tables(captured.calls, layouts, PROBE, self._by_tables())
        free = [name for name in self.tracked if name not in self.watched]
        self.per_sample = PerSample(self.encoder, list(free)) if free else None
        free += [name for group in groups for name in group.mixed]
        written = 2 * self.heads * sum(self.tracked[name].numel() for name in free)
        self.bytes_per_sample = taken / PROBE + written * self.cotangents.element_size()

    def _by_tables(self) -> set[int]:
        """Return the calls in which parameters are used as they stand, or by parts."""
        return {i for group in self.groups or () if not group.mixed for i in group.calls}

    def _require_gradients(self, switched_off: set[str]) -> None:
        if names := [name for name in self.tracked if name in switched_off & self.idle]:
            raise UnsupportedEncoderError(
                f"the layer of '{names[0]}' runs with gradients switched off (torch.no_grad or torch.inference_mode "
                f"inside the forward pass), so it has no tangent. Switch them on there, or name the other parameters: "
                f"EmpiricalNTK(encoder, parameters=[...])."
            )

    def _autograd(self, X: Batch, c: Tensor) -> dict[str, Tensor | None]:
        """Return the gradient of ``Σ c_i f_1(x_i)`` in each tracked parameter, by plain autograd."""
        leaves = {name: value.detach().requires_grad_() for name, value in self.tracked.items()}
        self.encoder.count(batches.count(X))
        out = (self.encoder.embed(X, leaves) @ self.cotangents[0]) @ c
        if not out.requires_grad:
            return dict.fromkeys(leaves)
        return dict(zip(leaves, torch.autograd.grad(out, list(leaves.values()), allow_unused=True), strict=True))

    def _require_same_calls(self, captured: Captured, n: int) -> None:
        """Raise if the forward pass of a batch is not that of the first samples."""
        calls = captured.calls
        found = [call.signature for call in calls]
        if captured.singles != self.singles:
            raise UnsupportedEncoderError(
                "an attention of the encoder met one token a sample on the first samples and meets several on this "
                "batch. Pad all batches to one length; krepes.data.tokenized(texts, one_width=True) does."
            )
        if found != self.signature:
            raise UnsupportedEncoderError(
                f"the encoder made {len(found)} layer calls on this batch and {len(self.signature)} on the first one, "
                f"or in another order: its forward pass depends on the data. A tangent kernel needs one fixed network."
            )
        for i, table in _tables(calls, self.layouts, n, self._by_tables()).items():
            if table != self.tables.get(i, table):
                raise UnsupportedEncoderError(
                    f"'{calls[i].names[0]}' meets this batch as {list(table)} and met the first samples as "
                    f"{list(self.tables[i])}: a table of positions. Pad all batches to one length; "
                    f"krepes.data.tokenized(texts, one_width=True) does."
                )
        used = {i for group in self.groups or () for i in group.calls}
        for i, (call, layout) in enumerate(zip(calls, self.layouts, strict=True)):
            if i in used and not layout.fits(call.site.rule.lead(call.site), n):
                raise UnsupportedEncoderError(
                    f"the layer of '{call.names[0]}' got {tuple(call.site.x.shape)} from a batch of {n} samples, and "
                    f"on the first samples a fixed number of rows each: which samples reach it depends on the data. "
                    f"A tangent kernel needs one fixed network; leave that layer out with parameters=[...]."
                )
            if i not in used and call.gradients and set(call.names) <= self.idle:
                raise UnsupportedEncoderError(
                    f"'{call.names[0]}' takes part in this batch's embeddings and took none in those of the first "
                    f"samples: the forward pass depends on the data. A tangent kernel needs one fixed network."
                )


def _tables(calls: list[Call], layouts: list[BatchLayout], n: int, used: set[int]) -> dict[int, torch.Size]:
    """Return the shapes of values made of parameters that meet ``n`` samples without a layer's rule, of some calls."""
    return {
        i: call.site.rule.value(call.site, call.weight.value.detach(), n, layout).shape
        for i, (call, layout) in enumerate(zip(calls, layouts, strict=True))
        if i in used and call.fresh is not None and call.weight is not None
    }


def _choose(every: dict[str, nn.Parameter], patterns: list[str], include_frozen: bool) -> dict[str, nn.Parameter]:
    """Return the parameters that the patterns name, in the encoder's order."""
    if patterns == ["last"]:
        module = list(every)[-1].rpartition(".")[0]
        patterns = [f"{module}.*" if module else list(every)[-1]]
    chosen = {
        name: parameter
        for name, parameter in every.items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
        and (include_frozen or parameter.requires_grad)
    }
    if not chosen:
        raise UnsupportedEncoderError(
            f"no parameter is left: patterns {patterns} and include_frozen={include_frozen} match none of the "
            f"{len(every)} parameters ({', '.join(list(every)[:3])}, ...). Widen the patterns, or include frozen ones."
        )
    return chosen


def _three(X: Batch) -> Batch:
    """Return the three most varied samples; of fewer, repeats with slightly scaled values, so that no two are alike."""
    n = batches.count(X)
    if n >= PROBE:
        leaves = [leaf for leaf in pytree.tree_leaves(X) if isinstance(leaf, Tensor) and leaf.numel()]
        spread = sum(leaf.double().reshape(n, -1).std(1, correction=0).cpu() for leaf in leaves)
        assert isinstance(spread, Tensor)
        return batches.take(X, spread.argsort(descending=True, stable=True)[:PROBE].sort().values)
    X = batches.take(X, torch.arange(PROBE) % n)
    scale = torch.linspace(1.0, 1.1, PROBE)

    def vary(leaf: Tensor) -> Tensor:
        if not leaf.is_floating_point():
            return leaf
        return leaf * scale.to(leaf.device, leaf.dtype).reshape(-1, *[1] * (leaf.ndim - 1))

    return batches.map_tensors(vary, X)
