"""An encoder from settings: built, loaded from weights, or trained on the spot; or a kernel without one."""

from __future__ import annotations

import inspect
import logging
from pathlib import Path
from typing import Any

import torch
from torch import nn

from krepes import registry
from krepes.batches import Batch
from krepes.encoders import ConvNet, PretrainResult, build_encoder, load_encoder, pretrain
from krepes.encoders.loaded import LoadReport
from krepes.encoders.pretrain import make_twins
from krepes.encoders.recording import Recording
from krepes.encoders.training import Training, TrainingRecipe
from krepes.errors import InvalidInputError
from krepes.kernels import Kernel
from krepes.runs.adapting import adapter_options, has_weights, source_of
from krepes.runs.dataset import Dataset
from krepes.runs.losses import named_loss, require_loss
from krepes.runs.settings import Settings, flag
from krepes.views import ViewStream

logger = logging.getLogger("krepes")
SMALLEST_PICTURE = 16
WHITENED = 2000
"""Samples whose patches the first layer of a `ConvNet` whitens."""
MEDIAN_OF = 1000
"""Samples whose median distance is the width of an RBF kernel."""


def output_of(settings: Settings) -> int | str | None:
    """Return where in an encoder's result the embedding is: a position where the setting is a whole number.

    An encoder of another package is built with its pooling, and its result is the embedding.
    """
    if registry.adapter(settings.encoder) is not None:
        return None
    text = settings.output
    return int(text) if text is not None and text.lstrip("-").isdigit() else text


def encoder_choice(settings: Settings, dataset: Dataset, stream: ViewStream) -> tuple[str, dict[str, Any]]:
    """Return the name of the encoder and its arguments, sizes filled in from the data."""
    sample = stream.plain(torch.arange(1))
    name = settings.encoder or _suitable(dataset, sample)
    sizes: dict[str, Any] = {}
    if registry.adapter(name) is not None:
        return name, adapter_options(settings)
    _require_kind(name, dataset)
    if name in {"mlp", "resmlp"}:
        sizes = {"d": int(sample[0].numel())}
    elif name == "text":
        sizes = {"buckets": dataset.arrays.tokenizer.vocabulary.size}
    elif name == "convnet":
        sizes = {"in_channels": int(sample.shape[1])}
    elif name.startswith("resnet"):
        sizes = {"in_channels": int(sample.shape[1]), "width": 16}
    return name, sizes | settings.encoder_options


def _suitable(dataset: Dataset, sample: Batch) -> str:
    """Return the name of the encoder that is trained where none was named."""
    if dataset.kind == "text":
        return "text"
    picture = dataset.kind == "image" and min(sample.shape[2:]) >= SMALLEST_PICTURE
    return "resnet18" if picture else "mlp"


def _require_kind(name: str, dataset: Dataset) -> None:
    """Refuse an encoder of this package that takes another kind of samples."""
    if name in registry.ENCODERS and (name == "text") != (dataset.kind == "text"):
        takes = "texts" if name == "text" else "numbers or pixels"
        raise InvalidInputError(
            f"{flag('encoder')}: {name} takes {takes}, and the samples of {dataset.name} are "
            f"{'texts' if dataset.kind == 'text' else 'none'}. Leave it out for one that suits."
        )


def fresh_encoder(settings: Settings, dataset: Dataset, stream: ViewStream) -> nn.Module:
    """Return the encoder of some settings with its first weights, drawn from the seed."""
    name, options = encoder_choice(settings, dataset, stream)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        encoder = build_encoder(name, **options)
    if isinstance(encoder, ConvNet):
        encoder.whiten(stream.plain(torch.arange(min(WHITENED, stream.n))))
    return encoder.to(settings.device)


def open_encoder(
    settings: Settings, dataset: Dataset, stream: ViewStream, *, checkpoint: Path | None = None, progress: bool = True
) -> nn.Module | Kernel:
    """Return what the model explains.

    Args:
        settings: Which encoder and weights, or which kernel.
        dataset: The data.
        stream: Views of the training samples.
        checkpoint: Where training on the spot keeps its state; an interrupted one goes on from there.
        progress: Show a bar.

    Returns:
        The encoder: loaded, or trained on the spot where no weights are named; or a kernel without a network.
    """
    if settings.kernel in registry.KERNELS:
        return classic_kernel(settings, stream)
    if settings.weights is not None:
        name, options = encoder_choice(settings, dataset, stream)
        how: dict[str, Any] = {"prefix": settings.prefix, "strict": settings.strict}
        loaded = load_encoder(name, settings.weights, **how, **options)
        if loaded.report is not None:
            logger.info("weights: %s", _found_in(loaded.report))
        return loaded.encoder.to(settings.device)
    if has_weights(settings):
        return folder_encoder(settings)
    logger.info("no weights were given: training by %s for %d epochs", settings.training_loss, settings.epochs)
    return train_encoder(
        settings, dataset, stream, checkpoint=checkpoint, resume=checkpoint is not None, progress=progress
    ).encoder


def _found_in(report: LoadReport) -> str:
    """Return which tensors of a file were taken, and which others would have fitted: a teacher beside a student."""
    others = " or ".join(repr(prefix) for prefix in report.alternatives)
    return str(report).partition("\n")[0] + (f"; as good: --prefix {others}" if others else "")


def folder_encoder(settings: Settings) -> nn.Module:
    """Return the encoder of another package with the weights that lie in the folder it is named by."""
    found = source_of(settings)
    assert found is not None and found[0].load is not None
    return found[0].load(found[1], **adapter_options(settings)).to(settings.device)


def train_encoder(
    settings: Settings,
    dataset: Dataset,
    stream: ViewStream,
    *,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
) -> PretrainResult:
    """Train the encoder of some settings on views of their training samples.

    Args:
        settings: Which encoder, loss and schedule.
        dataset: The data.
        stream: Views of the training samples.
        checkpoint: As in `krepes.encoders.pretrain`.
        resume: Go on from the checkpoint; one that is finished is read and not trained again.
        progress: Show a bar.

    Returns:
        The encoder and its history.
    """
    return pretrain(
        fresh_encoder(settings, dataset, stream),
        stream,
        loss=named_loss(settings),
        loss_options=settings.loss_options,
        projector=settings.projector,
        epochs=settings.epochs,
        lr=settings.lr,
        weight_decay=settings.weight_decay,
        momentum=settings.momentum,
        seed=settings.seed,
        min_spread=settings.min_spread,
        output=output_of(settings),
        precision=settings.precision,
        checkpoint=checkpoint,
        save_every=settings.save_every,
        resume=resume,
        progress=progress,
    )


def record_encoder(settings: Settings, dataset: Dataset, stream: ViewStream) -> Recording:
    """Return the recording of the training of some settings, made from their seed without training."""
    recipe = TrainingRecipe(
        loss=settings.training_loss,
        loss_options=dict(settings.loss_options),
        projector=list(settings.projector),
        epochs=settings.epochs,
        lr=settings.lr,
        weight_decay=settings.weight_decay,
        momentum=settings.momentum,
        seed=settings.seed,
        batch_size=stream.batch_size,
        stream=stream.fingerprint(),
        output=output_of(settings),
        precision=settings.precision,
    )
    encoder, loss = fresh_encoder(settings, dataset, stream), require_loss(settings)
    with torch.random.fork_rng():
        torch.manual_seed(settings.seed)
        twins = make_twins(encoder, stream, loss, settings.projector, settings.momentum, recipe.output)
    return Recording.of(Training(twins, stream, recipe))


def classic_kernel(settings: Settings, stream: ViewStream) -> Kernel:
    """Return a kernel without a network; the width of an RBF is by default the median distance of some samples.

    Args:
        settings: Their ``kernel`` and ``kernel_options``.
        stream: Views of the training samples.

    Returns:
        The kernel.

    Raises:
        InvalidInputError: If the kernel does not take an option.
    """
    make = registry.load(registry.KERNELS[settings.kernel])
    if not settings.kernel_options and hasattr(make, "median"):
        sample = stream.plain(torch.arange(min(MEDIAN_OF, stream.n)))
        return make.median(sample, generator=torch.Generator().manual_seed(settings.seed))
    known = list(inspect.signature(make).parameters)
    unknown = sorted(set(settings.kernel_options) - set(known))
    if unknown:
        raise InvalidInputError(
            f"{flag('kernel_options')}: {unknown} do not fit kernel={settings.kernel!r}, which takes {known}."
        )
    return make(**settings.kernel_options)
