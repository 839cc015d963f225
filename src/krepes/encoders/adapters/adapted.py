"""What an adapter gives: an encoder that returns embeddings, and how its samples must be prepared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from krepes.encoders.loaded import LoadReport
from krepes.errors import InvalidInputError, UnsupportedEncoderError
from krepes.views import Augmentation, Compose, Normalise

POOLED = ("cls", "mean", "max")
"""Ways to make one embedding of the states of all tokens; any other name is a part of what the network returns."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """How images are prepared for a network.

    Attributes:
        size: Side in pixels, or ``None`` if the network does not say.
        mean: Subtracted from each channel of pixels in [0, 1]; empty if the network does not say.
        std: Then divided by.
    """

    size: int | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Adapted(Inputs):
    """An encoder of another package, with what its own configuration says of its samples.

    Attributes:
        encoder: In eval mode; it returns embeddings ``(n, d)`` and can be passed to `krepes.Krepes`.
        output: How the embedding is made of what the network returns.
        tokenizer: Of a text encoder, else ``None``.
        report: What was loaded from a file of weights, or ``None`` if there was none.
    """

    encoder: nn.Module
    output: str
    tokenizer: Any = None
    report: LoadReport | None = None

    @property
    def module(self) -> nn.Module:
        """The network as its package made it, without our pooling."""
        return self.encoder.backbone if isinstance(self.encoder, Embedding) else self.encoder

    def normalised(self, augment: Augmentation | None = None) -> Augmentation:
        """Return an augmentation of pixels in [0, 1], followed by the normalisation that the network expects."""
        last = [Normalise(self.mean, self.std)] if self.mean else []
        return Compose(*([] if augment is None else [augment]), *last)

    def tokens(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Return texts as the encoder takes them.

        Args:
            texts: ``n`` texts; long ones are cut where the network ends.

        Returns:
            Tensors ``(n, length)`` by name, padded to the longest.

        Raises:
            InvalidInputError: If this is no text encoder.
        """
        if self.tokenizer is None:
            raise InvalidInputError("this encoder has no tokenizer: pass it samples as it was trained with.")
        found = self.tokenizer(list(texts), padding=True, truncation=True, return_tensors="pt")
        return {name: found[name] for name in found}


@dataclass(frozen=True)
class Source:
    """A package that ``--encoder PREFIX:NAME`` names.

    Attributes:
        build: From a name and options to an untrained encoder that returns embeddings.
        inputs: From a name and options to what its configuration says of images.
        load: From a name and options to the encoder with the weights that lie behind the name; ``None`` if there lie
            none, so that they come from a file or from training.
        output: From a name and what was asked for to the pooling that is used; ``None`` if there is no choice.
    """

    build: Callable[..., nn.Module]
    inputs: Callable[..., Inputs]
    load: Callable[..., nn.Module] | None = None
    output: Callable[..., str] | None = None


class Embedding(nn.Module):
    """A network and one embedding a sample of what it returns.

    Args:
        backbone: Takes what it takes.
        pooling: ``"cls"`` (first token), ``"mean"`` or ``"max"`` (over tokens, where an ``attention_mask`` is given
            over those it keeps), or the name of a part of the result, such as ``"pooler_output"``.
        after: Applied to the embeddings, such as the dense layers of a sentence encoder.
    """

    def __init__(self, backbone: nn.Module, pooling: str, after: Sequence[nn.Module] = ()) -> None:
        super().__init__()
        self.backbone, self.pooling = backbone, pooling
        self.after = nn.Sequential(*after)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return the embeddings, ``(n, d)``."""
        result = self.backbone(*args, **kwargs)
        part = "last_hidden_state" if self.pooling in POOLED else self.pooling
        Y = getattr(result, part, None)
        if not isinstance(Y, Tensor):
            raise UnsupportedEncoderError(
                f"output={part!r} is not among what {type(self.backbone).__name__} returns: {', '.join(result)}. "
                f"Pass one of these, or {', '.join(POOLED)} where it returns the states of tokens."
            )
        if self.pooling in POOLED:
            Y = pooled(Y, self.pooling, kwargs.get("attention_mask"))
        return self.after(Y.flatten(1))


def pooled(H: Tensor, pooling: str, mask: Tensor | None = None) -> Tensor:
    """Return one embedding a sample.

    Args:
        H: States of tokens, ``(n, length, d)``, or of pixels, ``(n, d, height, width)``.
        pooling: One of `POOLED`.
        mask: ``(n, length)``, one where a token counts; by default all count.

    Returns:
        ``(n, d)``.
    """
    if H.ndim == 4:
        H, mask = H.flatten(2).mT, None
    if pooling == "cls":
        return H[:, 0]
    if mask is None:
        return H.mean(1) if pooling == "mean" else H.amax(1)
    kept = mask.unsqueeze(-1)
    if pooling == "max":
        return H.masked_fill(kept == 0, float("-inf")).amax(1)
    weights = kept.to(H.dtype)
    return (H * weights).sum(1) / weights.sum(1).clamp(min=1)
