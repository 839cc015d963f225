"""Pre-training of any encoder on two views of its data: seeded, resumable, and it notices collapse."""

from __future__ import annotations

import inspect
import platform
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from tqdm import tqdm

from krepes._checks import require_range
from krepes.encoders.call import call, cast, evaluation, home, unwrapped
from krepes.encoders.interrupts import deferred_interrupt
from krepes.encoders.losses import LOSSES, Loss
from krepes.encoders.outputs import Output, describe_output, require_output
from krepes.encoders.recording import Recording
from krepes.encoders.training import Epoch, Training, TrainingRecipe
from krepes.encoders.twins import Bootstrap, Twins
from krepes.errors import InvalidInputError, PrecisionWarning
from krepes.linalg import without_autocast
from krepes.processes import current
from krepes.views import ViewStream

BYOL = "byol"
PRECISIONS = {"bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class PretrainResult:
    """A trained encoder and how it came about.

    Attributes:
        encoder: The one that was given, in eval mode, without the projector.
        history: Loss and spread of each epoch; ``pandas.DataFrame(history)`` is a table.
        recording: What a replay needs, or ``None`` if it was not asked for.
    """

    encoder: nn.Module
    history: tuple[Epoch, ...]
    recording: Recording | None = None


@without_autocast()
def pretrain(
    encoder: nn.Module,
    stream: ViewStream,
    *,
    loss: str | Loss = "barlow_twins",
    loss_options: Mapping[str, Any] | None = None,
    projector: tuple[int, ...] = (256, 256),
    epochs: int = 20,
    lr: float = 1e-3,
    weight_decay: float = 1e-4,
    momentum: float = 0.99,
    seed: int = 0,
    min_spread: float = 1e-3,
    checkpoint: str | Path | None = None,
    save_every: int = 10,
    resume: bool = False,
    output: Output = None,
    precision: str | None = None,
    record: bool = False,
    progress: bool = True,
) -> PretrainResult:
    """Train ``encoder`` on two views of each sample by AdamW, a tenth of warm-up and a cosine down to zero.

    Each epoch draws its own views: the stream's, with another seed. Same seeds, same machine, same number of threads
    give the same weights, however often the training was interrupted and resumed. The last incomplete batch of an epoch
    is left out, since these losses are batch statistics. A loss that is no longer finite, or embeddings that became one
    point, end the training with an error. Ctrl-C finishes the step under way and saves the checkpoint. Processes that
    ``torchrun`` connected share every step: each takes its rows of the batch, and loss and batch norms see all of them.

    Args:
        encoder: Trained in place, on its device and in its type; ``(b, ...) -> (b, d)``. What `DataParallel` wraps is
            trained without it.
        stream: Its first two views are compared; its batch size is the training batch.
        loss: A name of `LOSSES`, ``"byol"``, or a function of two projections ``(b, h)`` (and of row weights ``(b,)``,
            if its trainings are to be replayed).
        loss_options: Hyper-parameters of the loss that it takes by keyword alone, such as ``{"lam": 0.01}``.
        projector: Widths of the head that the loss sees; empty to train on the embedding itself.
        epochs: Passes over the data.
        lr: Peak learning rate.
        weight_decay: Of AdamW.
        momentum: Of BYOL's target at the start; it rises to one.
        seed: Of the head's weights, the order of samples, the views and the encoder's own dropout.
        min_spread: Training stops with an error when the embeddings' mean standard deviation over a batch falls below
            this part of their root mean square.
        checkpoint: A safetensors file, written whole or not at all; it also serves as weights for `load_encoder`.
        save_every: Epochs between checkpoints; the last epoch always makes one.
        resume: Go on from the checkpoint if it is there; it must have been made with the same settings and data.
        output: Where in the encoder's result the embedding is; see `FrozenEncoder`.
        precision: ``"bfloat16"`` computes the encoder's layers in it, but for processors that have no instructions for
            it, which say so; weights, heads, loss and the steps keep their type. Such a training cannot be replayed.
        record: Keep the weights before the first step and the settings, from which the training can be replayed.
        progress: Show a bar with loss and spread.

    Returns:
        The encoder and the history.
    """
    require_range(stream.p, "the number of views p", low=2)
    require_range(min(stream.batch_size, stream.n), "samples in a batch", low=2)
    for name, number, high in (("momentum", momentum, 1.0), ("seed", seed, float("inf"))):
        require_range(number, name, low=0, high=high)
    for name, count in (("epochs", epochs), ("save_every", save_every)):
        require_range(count, name, low=1)
    require_output(output)
    _require_precision(precision, record)
    computed_in = _computed_in(precision, home(encoder)[0])
    chosen = chosen_loss(loss, loss_options or {})
    recipe = TrainingRecipe(
        loss=loss_name(loss),
        loss_options=dict(loss_options or {}),
        projector=list(projector),
        epochs=epochs,
        lr=lr,
        weight_decay=weight_decay,
        momentum=momentum,
        seed=seed,
        batch_size=stream.batch_size,
        stream=None if checkpoint is None else stream.fingerprint(),
        output=describe_output(output),
        precision=None if computed_in is None else precision,
    )
    path = None if checkpoint is None else Path(checkpoint)
    _require_place(path, resume)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        twins = make_twins(encoder, stream, chosen, projector, momentum, output)
        twins.precision = computed_in
        us = current()
        twins.load_state_dict(us.share(twins.state_dict()))
        training = Training(twins, stream, recipe, us)
        recording = Recording.of(training) if record else None
        if path is not None and path.exists():
            training.restore(path)
        _run(training, min_spread, path, save_every, progress)
    return PretrainResult(encoder.eval(), tuple(training.history), recording)


def _run(training: Training, min_spread: float, path: Path | None, save_every: int, progress: bool) -> None:
    """Take the steps that are left, and save where it is due."""
    training.twins.train()
    us = current()
    with (
        deferred_interrupt() as interrupted,
        tqdm(initial=training.step, total=training.steps, disable=not (progress and us.first), desc="pretrain") as bar,
    ):
        for views in training.batches():
            loss, spread = training.advance(views, min_spread)
            bar.set_postfix(loss=f"{loss:.4g}", spread=f"{spread:.2g}", refresh=False)
            bar.update()
            done = training.step == training.steps
            due = not training.measured and len(training.history) % save_every == 0
            stop = us.any(interrupted())
            if path is not None and (due or done or stop) and us.first:
                training.save(path)
            if stop:
                raise KeyboardInterrupt


def _require_precision(precision: str | None, record: bool) -> None:
    if precision is not None and precision not in PRECISIONS:
        raise InvalidInputError(f"precision={precision!r} is unknown: pass {', '.join(PRECISIONS)}, or none.")
    if precision is not None and record:
        raise InvalidInputError(
            f"a training in {precision} cannot be replayed, since its rounding has no derivative: record=True needs "
            f"precision=None."
        )


def has_bfloat16() -> bool:
    """Say whether the processor computes in bfloat16 itself; imitated, a product took 40 times as long as float32."""
    if platform.machine() in {"x86_64", "AMD64"}:
        asked = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
        return any(has is not None and has() for has in asked)
    return bool(torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _computed_in(precision: str | None, device: torch.device) -> torch.dtype | None:
    """Return the type of a precision; none, and a warning, on a processor that only imitates it."""
    if precision is None:
        return None
    if device.type == "cpu" and not has_bfloat16():
        warnings.warn(
            f"this processor has no instructions for {precision} and takes many times as long in it: the training "
            f"keeps the type of the weights and is recorded so. It gives other weights than in {precision}.",
            PrecisionWarning,
            stacklevel=3,
        )
        return None
    return PRECISIONS[precision]


def _require_place(path: Path | None, resume: bool) -> None:
    if resume and path is None:
        raise InvalidInputError("resume=True needs the checkpoint to resume from. Pass checkpoint=.")
    if path is not None and path.exists() and not resume:
        raise InvalidInputError(f"{path} exists. Pass resume=True to go on from it, or another file to start afresh.")


def chosen_loss(loss: str | Loss, options: Mapping[str, Any]) -> Loss | None:
    """Return a loss with its options filled in; ``None`` for BYOL, which is no function of two projections alone.

    Args:
        loss: A name, or a function of two projections ``(b, h)``.
        options: Hyper-parameters of the loss, passed by keyword.

    Returns:
        The function.

    Raises:
        InvalidInputError: If the name is unknown, or the loss does not take an option.
    """
    if isinstance(loss, str) and loss not in {*LOSSES, BYOL}:
        raise InvalidInputError(f"loss={loss!r} is unknown. Pass one of {', '.join([*LOSSES, BYOL])}, or a function.")
    compare = LOSSES.get(loss) if isinstance(loss, str) else loss
    known = [] if compare is None else options_of(compare)
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise InvalidInputError(
            f"loss_options {unknown} do not fit loss={loss_name(loss)!r}, which takes {known or 'none'}."
        )
    return partial(compare, **options) if compare is not None and options else compare


def loss_name(loss: str | Loss) -> str:
    """Return the name of a loss, or ``module:name`` of its function, by which trainings are told apart."""
    if isinstance(loss, str):
        return loss
    made = loss if hasattr(loss, "__qualname__") else type(loss)
    return f"{made.__module__}:{made.__qualname__}"


def options_of(loss: Loss) -> list[str]:
    """Return the hyper-parameters of a loss: its parameters that are passed by keyword alone."""
    found = inspect.signature(loss).parameters.values()
    return [parameter.name for parameter in found if parameter.kind is parameter.KEYWORD_ONLY]


def make_twins(
    encoder: nn.Module,
    stream: ViewStream,
    loss: str | Loss | None,
    projector: tuple[int, ...],
    momentum: float,
    output: Output = None,
) -> Twins:
    """Return what is trained: the encoder with heads that torch's generator draws, and a loss.

    Args:
        encoder: ``(b, ...) -> (b, d)``.
        stream: One of its samples tells ``d``.
        loss: A name, a function of two projections, or ``None`` for BYOL.
        projector: Widths of the head that the loss sees.
        momentum: Of BYOL's target.
        output: Where in the encoder's result the embedding is.

    Returns:
        The networks.

    Raises:
        InvalidInputError: If the encoder does not return ``(b, d)``, or has weights of half precision.
    """
    encoder = unwrapped(encoder)
    device, dtype = home(encoder)
    if dtype is not None and dtype.itemsize < 4:
        raise InvalidInputError(
            f"the encoder's weights are {dtype}, in which most steps of a training round to nothing. Train "
            f"encoder.float(), and lower the weights afterwards."
        )
    with evaluation(encoder), torch.no_grad():
        Y = call(encoder, cast(stream.plain(torch.tensor([0])), device, dtype), output)
    if Y.ndim != 2:
        raise InvalidInputError(
            f"the encoder must return (b, d), got {tuple(Y.shape)} for one sample. Pool or flatten."
        )
    compare = chosen_loss(loss, {}) if isinstance(loss, str) else loss
    if compare is None:
        return Bootstrap(encoder, Y, projector, momentum, output)
    return Twins(encoder, Y, projector, compare, output)
