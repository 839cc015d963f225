"""The folder of a selection: what it is about, the encoders it trained, and the criteria of every finished value."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from krepes.errors import RunFolderError
from krepes.runs.grid import VARIED, Variant
from krepes.runs.settings import Settings
from krepes.storage.files import make_folder, publish_bytes

BEGUN = "select.json"
"""Says what a folder selects; a folder that holds anything and not this is not ours."""


@dataclass(frozen=True, eq=False)
class Shelf:
    """The folder of one selection.

    Attributes:
        folder: Where everything lies.
        encoders: Files of trained encoders by what decides their training: values that share a training share a file.
    """

    folder: Path
    encoders: dict[str, Path] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: str | Path, settings: Settings, name: str, stream: str) -> Shelf:
        """Return the shelf of a selection, made or found again.

        Args:
            folder: New, empty, or of the same selection.
            settings: What all values share.
            name: What varies.
            stream: Fingerprint of the training samples.

        Returns:
            The shelf.

        Raises:
            RunFolderError: If the folder is not ours, belongs to another selection, or cannot be written to.
        """
        folder = Path(folder)
        shared = {
            key: value for key, value in settings.to_dict().items() if key not in {"data_dir", "device", "memory"}
        }
        if name in VARIED:
            shared.pop(name)
        begun = {"over": name, "stream": stream, **shared}
        note = folder / BEGUN
        if note.is_file():
            _require_same(begun, _read(note), folder)
            return cls(folder)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise RunFolderError(f"--out: {folder} exists and is no selection of ours. Choose another place.")
        try:
            make_folder(folder)
        except OSError as error:
            raise RunFolderError(f"--out: {folder} cannot be made: {error.strerror or error}.") from error
        publish_bytes(note, _json(begun))
        return cls(folder)

    def weights(self, variant: Variant, training: dict[str, Any]) -> Path:
        """Return the file of a value's encoder: its own, or that of an earlier value with the same training."""
        key = json.dumps(training, sort_keys=True)
        return self.encoders.setdefault(key, self.folder / f"{variant.slug}.safetensors")

    def finished(self, variant: Variant) -> dict[str, Any] | None:
        """Return the criteria of a value that was finished before, or ``None``."""
        path = self._place(variant)
        if not path.is_file():
            return None
        kept = _read(path)
        if kept.get("settings") != _plain(variant.settings.to_dict()) or kept.get("weights") != _digest(variant):
            return None
        return {name: math.nan if value is None else value for name, value in kept["row"].items()}

    def keep(self, variant: Variant, row: dict[str, Any]) -> None:
        """Keep the criteria of a finished value."""
        kept = {"settings": variant.settings.to_dict(), "weights": _digest(variant), "row": row}
        publish_bytes(self._place(variant), _json(kept))

    def _place(self, variant: Variant) -> Path:
        return self.folder / f"{variant.slug}.json"


def _digest(variant: Variant) -> str | None:
    """Return the hash of given weights, by which a changed file is noticed."""
    path = variant.settings.weights
    return None if path is None else hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _require_same(now: dict[str, Any], then: dict[str, Any], folder: Path) -> None:
    now = _plain(now)
    changed = [key for key in now if now[key] != then.get(key)]
    if changed:
        words = ["the data" if key == "stream" else f"{key}={now[key]!r} (was {then.get(key)!r})" for key in changed]
        raise RunFolderError(
            f"--out: {folder} holds a selection that differs in {', '.join(words)}. Call it as it was begun, or choose "
            f"another place."
        )


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{path} cannot be read: {error}. Remove it, or choose another place.") from error
    if not isinstance(found, dict):
        raise RunFolderError(f"{path} is not a file of a selection. Remove it, or choose another place.")
    return found


def _plain(value: Any) -> Any:
    """Return a value as JSON gives it back; what is not a number is ``None``."""
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _json(values: dict[str, Any]) -> bytes:
    return json.dumps(_plain(values), indent=2, sort_keys=True).encode() + b"\n"
