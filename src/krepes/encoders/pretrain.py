"""Pre-training of any encoder on two views of its data: seeded, resumable, and it notices collapse."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from tqdm import tqdm

from krepes._checks import require_range
from krepes.encoders.interrupts import deferred_interrupt
from krepes.encoders.losses import LOSSES, Loss
from krepes.encoders.recording import Recording
from krepes.encoders.training import Epoch, Settings, Training
from krepes.encoders.twins import Bootstrap, Twins
from krepes.errors import InvalidInputError
from krepes.views import ViewStream

BYOL = "byol"


@dataclass(frozen=True)
class PretrainResult:
    """A trained encoder and how it came about.

    Attributes:
        encoder: In eval mode, without the projector.
        history: Loss and spread of each epoch; ``pandas.DataFrame(history)`` is a table.
        recording: What a replay needs, or ``None`` if it was not asked for.
    """

    encoder: nn.Module
    history: tuple[Epoch, ...]
    recording: Recording | None = None


def pretrain(
    encoder: nn.Module,
    stream: ViewStream,
    *,
    loss: str | Loss = "barlow_twins",
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
    record: bool = False,
    progress: bool = True,
) -> PretrainResult:
    """Train ``encoder`` on two views of each sample by AdamW, a tenth of warm-up and a cosine down to zero.

    Each epoch draws its own views: the stream's, with another seed. Same seeds, same machine, same number of threads
    give the same weights, however often the training was interrupted and resumed. The last incomplete batch of an epoch
    is left out, since these losses are batch statistics. A loss that is no longer finite, or embeddings that became one
    point, end the training with an error. Ctrl-C finishes the step under way and saves the checkpoint.

    Args:
        encoder: Trained in place; ``(b, ...) -> (b, d)``.
        stream: Its first two views are compared; its batch size is the training batch.
        loss: A name of `LOSSES`, ``"byol"``, or a function of two projections ``(b, h)`` (and of row weights ``(b,)``,
            if its trainings are to be replayed).
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
    settings = Settings(
        loss=loss if isinstance(loss, str) else getattr(loss, "__qualname__", type(loss).__qualname__),
        projector=list(projector),
        epochs=epochs,
        lr=lr,
        weight_decay=weight_decay,
        momentum=momentum,
        seed=seed,
        batch_size=stream.batch_size,
        stream=None if checkpoint is None else stream.fingerprint(),
    )
    path = None if checkpoint is None else Path(checkpoint)
    _require_place(path, resume)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        training = Training(make_twins(encoder, stream, loss, projector, momentum), stream, settings)
        recording = Recording.of(training) if record else None
        if path is not None and path.exists():
            training.restore(path)
        _run(training, min_spread, path, save_every, progress)
    return PretrainResult(encoder.eval(), tuple(training.history), recording)


def _run(training: Training, min_spread: float, path: Path | None, save_every: int, progress: bool) -> None:
    """Take the steps that are left, and save where it is due."""
    training.twins.train()
    with (
        deferred_interrupt() as interrupted,
        tqdm(initial=training.step, total=training.steps, disable=not progress, desc="pretrain") as bar,
    ):
        for views in training.batches():
            loss, spread = training.advance(views, min_spread)
            bar.set_postfix(loss=f"{loss:.4g}", spread=f"{spread:.2g}", refresh=False)
            bar.update()
            done = training.step == training.steps
            due = not training.measured and len(training.history) % save_every == 0
            stop = interrupted()
            if path is not None and (due or done or stop):
                training.save(path)
            if stop:
                raise KeyboardInterrupt


def _require_place(path: Path | None, resume: bool) -> None:
    if resume and path is None:
        raise InvalidInputError("resume=True needs the checkpoint to resume from. Pass checkpoint=.")
    if path is not None and path.exists() and not resume:
        raise InvalidInputError(f"{path} exists. Pass resume=True to go on from it, or another file to start afresh.")


def make_twins(
    encoder: nn.Module, stream: ViewStream, loss: str | Loss, projector: tuple[int, ...], momentum: float
) -> Twins:
    """Return what is trained: the encoder with heads that torch's generator draws, and a loss.

    Args:
        encoder: ``(b, ...) -> (b, d)``.
        stream: One of its samples tells ``d``.
        loss: A name, or a function of two projections.
        projector: Widths of the head that the loss sees.
        momentum: Of BYOL's target.

    Returns:
        The networks.

    Raises:
        InvalidInputError: If the loss is unknown, or the encoder does not return ``(b, d)``.
    """
    if isinstance(loss, str) and loss not in {*LOSSES, BYOL}:
        raise InvalidInputError(f"loss={loss!r} is unknown. Pass one of {', '.join([*LOSSES, BYOL])}, or a function.")
    with torch.no_grad():
        Y = encoder.eval()(stream.plain(torch.tensor([0])))
    if Y.ndim != 2:
        raise InvalidInputError(
            f"the encoder must return (b, d), got {tuple(Y.shape)} for one sample. Pool or flatten."
        )
    if loss == BYOL:
        return Bootstrap(encoder, Y, projector, momentum)
    return Twins(encoder, Y, projector, LOSSES[loss] if isinstance(loss, str) else loss)
