"""An encoder that is only looked at: samples in, embeddings out, and not a bit or a mode of it changed.

embed(X) = e(x_1..x_n), (n, d), with its graph          encode(X) = the same, streamed, float64 on the CPU
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from krepes import batches
from krepes._autodiff import with_parameters
from krepes.batches import Batch
from krepes.encoders.call import call, cast, evaluation, home, unwrapped
from krepes.encoders.duplicate import duplicate
from krepes.encoders.outputs import Output, describe_output, require_output
from krepes.errors import InvalidInputError, PrecisionWarning, UnsupportedEncoderError
from krepes.views.source import Source, as_source

HELD = 2**27
"""Bytes that samples and what a network makes of them may take where nobody gives a number of samples."""
INSIDE = 32
"""Times a sample's own bytes that a network holds of it at a time, about: the first layers of one for images."""
LONGEST = 1024


class FrozenEncoder:
    """An encoder as the rest of the package sees it: samples in, embeddings ``(n, d)`` out, nothing changed.

    Weights in half precision are computed with in float32 (float64 if some of them are), and a `PrecisionWarning` says
    so: a tangent kernel in eight bits of mantissa is noise. That, and another device, takes a copy of the module, made
    once and kept here; otherwise the module itself is used.

    Args:
        module: The network, or one inside `DataParallel` or `DistributedDataParallel`.
        output: Where in its result the embedding is: a position, a key or dotted path, or a function; ``None`` if the
            result is the embedding.
        device: Where to compute; by default where the module is.

    Attributes:
        module: What is computed with.
        device: Of its first parameter: samples are moved there.
        dtype: Of its first parameter: floating-point samples are cast to it; ``None`` leaves them.
        samples: How many went forward through the module so far.
        watch: Is told of each batch how many, while somebody watches.

    Example:
        >>> pair = nn.Bilinear(3, 4, 5)
        >>> FrozenEncoder(pair).encode((torch.zeros(2, 3), torch.zeros(2, 4))).shape
        torch.Size([2, 5])
    """

    def __init__(self, module: nn.Module, *, output: Output = None, device: str | torch.device | None = None) -> None:
        require_output(output)
        self.output = output
        self.module = _computable(unwrapped(module), None if device is None else torch.device(device))
        self.device, self.dtype = home(self.module)
        self.samples = 0
        self.watch: Callable[[int], Any] | None = None
        self._inside = False

    @classmethod
    def of(cls, encoder: nn.Module | FrozenEncoder, output: Output = None) -> FrozenEncoder:
        """Return the encoder, frozen; one that is frozen already has its output and takes no other."""
        if not isinstance(encoder, FrozenEncoder):
            return cls(encoder, output=output)
        if output is not None:
            raise InvalidInputError(
                f"output={describe_output(output)} was given for a FrozenEncoder, which picks "
                f"{describe_output(encoder.output)}. Give the output where it is made."
            )
        return encoder

    @property
    def parameters(self) -> dict[str, nn.Parameter]:
        """Parameters by name, in the module's order."""
        return dict(self.module.named_parameters())

    @contextmanager
    def evaluating(self) -> Generator[None, None, None]:
        """Hold the module in `evaluation` over several calls; inside, a call changes no mode, which `vmap` forbids."""
        if self._inside:
            yield
            return
        with evaluation(self.module):
            self._inside = True
            try:
                yield
            finally:
                self._inside = False

    def cast(self, X: Batch) -> Batch:
        """Return the batch on the encoder's device, floating-point parts in the encoder's type."""
        return cast(X, self.device, self.dtype)

    def count(self, n: int) -> None:
        """Note that ``n`` samples go forward through the module."""
        self.samples += n
        if self.watch is not None:
            self.watch(n)

    def embed(self, X: Batch, parameters: dict[str, Tensor] | None = None) -> Tensor:
        """Return the embeddings with their graph.

        Args:
            X: Samples, ``(n, ...)``.
            parameters: By name, to be used instead of the module's own: gradients flow to them. Such calls may be of
                many samples that look like one (`vmap`), so whoever makes them counts them.

        Returns:
            ``(n, d)``, further axes flattened, on the encoder's device and in its type.
        """
        function = self.module if parameters is None else with_parameters(self.module, parameters)
        if parameters is None:
            self.count(batches.count(X))
        with self.evaluating(), torch.enable_grad():
            return call(function, self.cast(X), self.output).flatten(1)

    def encode(self, X: Batch, *, size: int | None = None) -> Tensor:
        """Return the embeddings of any number of samples, without gradients.

        Args:
            X: Samples, ``(t, ...)``, in memory or mapped from disk, or a Dataset of them.
            size: Samples per call; by default at most 1024, and fewer the larger a sample is.

        Returns:
            ``(t, d)``, float64, on the CPU.
        """
        source, _ = as_source(X)
        with self.evaluating(), torch.no_grad():
            found = []
            for some in in_pieces(source, size):
                self.count(batches.count(some))
                found.append(call(self.module, self.cast(some), self.output).flatten(1).cpu().double())
        return torch.cat(found)

    def describe(self) -> dict[str, Any]:
        """Return what fixes the embeddings, with a fingerprint of the weights, as plain JSON values."""
        digest = hashlib.sha256()
        for name, value in self.module.state_dict().items():
            digest.update(name.encode())
            digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        return {
            "encoder": type(self.module).__name__,
            "weights_sha256": digest.hexdigest(),
            "output": describe_output(self.output),
        }


def in_pieces(source: Source, size: int | None = None) -> Iterator[Batch]:
    """Yield all samples of a source, ``size`` at a time, or as many as a network holds within some 100 MiB."""
    if source.n and size is None:
        each = INSIDE * batches.sample_bytes(source.take(torch.arange(1)))
        size = min(LONGEST, max(1, HELD // max(each, 1)))
    for rows in torch.arange(source.n).split(size or 1):
        yield source.take(rows)


def _computable(module: nn.Module, device: torch.device | None) -> nn.Module:
    """Return the module, or a copy of it in at least float32 and on the device, where it is not so itself."""
    tensors = [*module.parameters(), *module.buffers()]
    types = {tensor.dtype for tensor in tensors}
    narrow = sorted(str(dtype) for dtype in types if dtype.is_floating_point and dtype.itemsize < 4)
    away = device is not None and any(not _on(tensor, device) for tensor in tensors)
    if not narrow and not away:
        return module
    wide = torch.float64 if torch.float64 in types else torch.float32
    try:
        other = duplicate(module)
    except (RuntimeError, TypeError) as error:
        raise UnsupportedEncoderError(
            f"{type(module).__name__} cannot be copied ({error}), which its weights in {', '.join(narrow) or 'place'} "
            f"make necessary. Pass it in float32 and on the device to compute on."
        ) from error
    if narrow:
        warnings.warn(
            f"{type(module).__name__} has weights in {', '.join(narrow)}: it is computed with in {wide}, in a copy. "
            f"The weights are the same numbers; activations and gradients keep more of their digits.",
            PrecisionWarning,
            stacklevel=3,
        )
    return other.to(device=device, dtype=wide if narrow else None)


def _on(tensor: Tensor, device: torch.device) -> bool:
    return tensor.device.type == device.type and device.index in {None, tensor.device.index}
