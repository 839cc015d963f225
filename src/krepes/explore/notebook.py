"""The explorer inside a notebook: served in the background of this process, shown in a frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from krepes.audit.study import Study
from krepes.batches import Batch
from krepes.errors import InvalidInputError
from krepes.explore.server import Server
from krepes.explore.subject import of_study
from krepes.model import Krepes
from krepes.views.source import evenly_spaced

HEIGHT = 760
"""Pixels of the frame."""
LOOKED_AT = 500
"""Training samples that stand in for samples to explain, where none are given."""


@dataclass(frozen=True)
class Inline:
    """An explorer that a notebook shows as the value of a cell.

    Attributes:
        address: Where it is, with its token: open it in a browser on this machine.
        height: Of the frame, in pixels.
    """

    address: str = field(repr=False)
    height: int
    _server: Server = field(repr=False)

    def stop(self) -> None:
        """Stop serving; the frame no longer answers."""
        self._server.stop()

    def _repr_html_(self) -> str:
        return (
            f'<iframe src="{self.address}" width="100%" height="{self.height}" title="KREPES explorer" '
            f'style="border: 1px solid #d9dee4; border-radius: 8px"></iframe>'
        )


def show(study: Study, *, height: int = HEIGHT, port: int = 0) -> Inline:
    """Serve the explorer of a study in the background.

    Args:
        study: A fitted model, samples that are explained, and whatever is known about them.
        height: Of the frame, in pixels.
        port: To listen on; 0 for any that is free.

    Returns:
        What a notebook shows.
    """
    server = Server.of([of_study(study)], port=port, framed=True, progress=study.model.progress)
    server.start()
    return Inline(server.address, height, server)


def show_model(
    model: Krepes,
    X: Batch | None = None,
    *,
    ids: Sequence[Any] | None = None,
    height: int = HEIGHT,
    port: int = 0,
    **material: Any,
) -> Inline:
    """Serve the explorer of a fitted model in the background.

    Args:
        model: Fitted.
        X: Samples to explain, un-augmented, ``(t, ...)``; by default some of the training samples.
        ids: Of the samples ``X``.
        height: Of the frame, in pixels.
        port: To listen on; 0 for any that is free.
        **material: Whatever else `krepes.audit.Study` takes: ``train_ids``, ``labels``, ``groups``, ``tables``, ...

    Returns:
        What a notebook shows.

    Raises:
        InvalidInputError: If the training data are not at hand, or labels were given without the samples they are of.
    """
    stream = material.get("stream") or getattr(model, "stream_", None)
    if stream is None:
        raise InvalidInputError(
            "a loaded model does not hold its training data: pass stream=, the ViewStream of the fit."
        )
    if X is None:
        known = [name for name in ("labels", "groups", "tables") if material.get(name)]
        if known:
            raise InvalidInputError(f"{known[0]} belong to training samples and samples to explain: pass X too.")
        chosen = evenly_spaced(stream.n, LOOKED_AT)
        X, ids = stream.plain(torch.as_tensor(chosen)), [f"{int(i)} again" for i in chosen]
    few = {"k": min(5, len(model.landmark_ids_)), "shown": 1}
    return show(Study(model, X, test_ids=ids, **{**few, **material}), height=height, port=port)
