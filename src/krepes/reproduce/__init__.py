"""Tables and figures of the paper from real data, one file each: ``krepes reproduce NAME --scale quick``."""

from krepes.errors import InvalidInputError
from krepes.reproduce.ablations import INIT, LANDMARKS
from krepes.reproduce.alignment import ALIGNMENT
from krepes.reproduce.base import Findings, Target, begin, reproduce
from krepes.reproduce.consistency import CONSISTENCY
from krepes.reproduce.coverage import COVERAGE
from krepes.reproduce.demographics import GROUPS
from krepes.reproduce.encoders import ENCODERS
from krepes.reproduce.faithfulness import FAITHFULNESS
from krepes.reproduce.intervention import INTERVENTION
from krepes.reproduce.outliers import PLANTED_OUTLIERS
from krepes.reproduce.page import write_page
from krepes.reproduce.parts import crew
from krepes.reproduce.pictures import REPULSIVE, SAMPLES
from krepes.reproduce.planted import PLANTED
from krepes.reproduce.recipes import recipe
from krepes.reproduce.scalability import SCALABILITY
from krepes.reproduce.scale import SCALES, Scale
from krepes.reproduce.sea import CONCEPT
from krepes.reproduce.spectral import SPECTRAL
from krepes.reproduce.trial import Experiment, Trial

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        ENCODERS,
        COVERAGE,
        INIT,
        LANDMARKS,
        CONSISTENCY,
        ALIGNMENT,
        GROUPS,
        CONCEPT,
        FAITHFULNESS,
        SCALABILITY,
        SPECTRAL,
        SAMPLES,
        REPULSIVE,
        INTERVENTION,
        PLANTED,
        PLANTED_OUTLIERS,
    )
}
"""What can be reproduced, by name."""

__all__ = [
    "SCALES",
    "TARGETS",
    "Experiment",
    "Findings",
    "Scale",
    "Target",
    "Trial",
    "begin",
    "crew",
    "find_target",
    "recipe",
    "reproduce",
    "write_page",
]


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
        raise InvalidInputError(f"{name!r} cannot be reproduced: choose one of {', '.join(TARGETS)}.")
    return TARGETS[name]
