"""The command line: arguments that are none, settings files and run folders of others.

Cases give ``run`` a tuple of arguments. They are run in the folder of the case, and pass if they leave with code 0 or 2
as ``expect`` says and print no traceback; a refusal must say ``where``.
"""

from collections.abc import Iterator
from random import Random

from hostile.case import Case


def cases(rng: Random) -> Iterator[Case]:
    yield Case("arguments", "help", lambda folder: None, ("--help",), "read")
    for place in ("nothing", "no\x1b[31m", "-", "a" * 300, "."):
        yield Case("arguments", f"a run at {place[:20]!r}", lambda folder: None, ("info", place), "refused")
