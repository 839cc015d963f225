"""What came of loading weights: which tensors fitted, which did not, and what else the file holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from krepes.data.files import named
from krepes.data.text import printable


@dataclass(frozen=True)
class LoadReport:
    """What was loaded from where.

    Attributes:
        path: The file.
        layout: How the file names the parameters.
        prefix: Container and prefix of the tensors that were used, such as ``state_dict/backbone.``.
        alternatives: Other prefixes in the file that fit as well, such as those of a momentum encoder.
        loaded: Names, in the encoder, of the tensors that were loaded.
        missing: Names that the encoder has and the file has not.
        unexpected: Names that the file has below the prefix and the encoder has not.
        mismatched: Name, shape in the file, shape in the encoder, where these differ.
        left_out: Tensors of heads, other networks and optimisers, which an encoder does not need.
    """

    path: Path
    layout: str
    prefix: str
    alternatives: tuple[str, ...]
    loaded: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    mismatched: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]
    left_out: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether every parameter came from the file, and the file had no other for this encoder."""
        return not (self.missing or self.unexpected or self.mismatched)

    def __str__(self) -> str:
        """Return one line for what was found, and one for each thing that does not fit."""
        lines = [f"{len(self.loaded)} tensors of {named(self.path)} fit, prefix {self.prefix!r}, {self.layout}"]
        lines += [f"as good: prefix {prefix!r}" for prefix in self.alternatives]
        shapes = [f"{key} is {found} in the file, {own} in the encoder" for key, found, own in self.mismatched]
        for what, items in (("missing", self.missing), ("unexpected", self.unexpected), ("of other shape", shapes)):
            if items:
                lines.append(f"{len(items)} {what}: {some(items)}")
        if self.left_out:
            lines.append(f"{len(self.left_out)} left out: {some(self.left_out)}")
        return "\n".join(lines)


def some(items: list[str] | tuple[str, ...], most: int = 4) -> str:
    """Return the first of some names as they may stand in a message."""
    return ", ".join(printable(item) for item in items[:most]) + (
        f", and {len(items) - most} more" if len(items) > most else ""
    )
