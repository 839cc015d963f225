"""Tables and figures of the paper from real data, one file each: ``krepes reproduce NAME --scale quick``."""

from krepes.errors import InvalidInputError
from krepes.reproduce.base import SCALES, Scale, Target, reproduce
from krepes.reproduce.consistency import CONSISTENCY
from krepes.reproduce.faithfulness import FAITHFULNESS
from krepes.reproduce.spectral import SPECTRAL

TARGETS: dict[str, Target] = {target.name: target for target in (CONSISTENCY, FAITHFULNESS, SPECTRAL)}

__all__ = ["SCALES", "TARGETS", "Scale", "Target", "find_target", "reproduce"]


def find_target(name: str) -> Target:
    """Return the target of a name.

    Args:
        name: As on the command line.

    Returns:
        The target.

    Raises:
        InvalidInputError: If there is none.
    """
    if name not in TARGETS:
        raise InvalidInputError(f"{name!r} cannot be reproduced yet: choose one of {', '.join(TARGETS)}.")
    return TARGETS[name]
