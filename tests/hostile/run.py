"""One case run and judged, and the table by kind."""

import contextlib
import io
import logging
import os
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from hostile.case import Case
from hostile.watch import Watch, snapshot
from krepes.data.text import printable
from krepes.errors import KrepesError

SECONDS = 10.0
# On a busy machine the clock on the wall runs while others compute: a hang is what neither clock excuses.
WALL = 60
SHORTEST, LONGEST = 30, 4000
VERDICTS = ("read", "refused", "traceback", "slow", "touched", "bitten", "wrong")
CANARY = "KREPES_CANARY"
_watch = Watch()


class Hang(BaseException):
    """A case that did not come back; no ``except Exception`` catches it."""


@dataclass(frozen=True)
class Outcome:
    """What came of a case: a verdict, of which the first two are good, and what a reader needs to know."""

    case: Case
    verdict: str
    detail: str
    seconds: float

    @property
    def good(self) -> bool:
        return self.verdict in {"read", "refused"}

    def __str__(self) -> str:
        return f"{self.case.kind}: {printable(self.case.name)}: {self.verdict}: {self.detail}"


def judge(case: Case, root: Path) -> Outcome:
    """Run a case in a folder of its own below ``root`` and judge what came of it."""
    inside, outside = root / "inside", root / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "neighbour.csv").write_text("a,b\n1,2\n")
    os.environ[CANARY] = str(outside / "canary")
    case.files(inside)
    before, here, start = snapshot(outside), os.getcwd(), time.process_time()
    os.chdir(inside)
    try:
        with _watch.during(inside) as seen, _alarm(), warnings.catch_warnings(record=True):
            verdict, detail = _ran(case, inside)
    except Hang:
        verdict, detail, seen = "slow", f"no end after {WALL} s", []
    finally:
        os.chdir(here)
    seconds = time.process_time() - start
    if (outside / "canary").exists() or (inside / "canary").exists():
        verdict, detail = "bitten", "code from the file ran"
    elif seen or snapshot(outside) != before:
        verdict, detail = "touched", "; ".join(seen) or "the folder outside changed"
    elif seconds > SECONDS and verdict in {"read", "refused"}:
        verdict, detail = "slow", f"{seconds:.1f} s"
    return Outcome(case, verdict, detail, seconds)


def _ran(case: Case, folder: Path) -> tuple[str, str]:
    if isinstance(case.run, tuple):
        return _commanded(case, case.run)
    try:
        answer = case.run(folder)
    except KrepesError as error:
        return _refused(case, str(error))
    except Exception:
        return "traceback", traceback.format_exc(limit=-3)
    if case.expect == "refused":
        return "wrong", "accepted, and should have been refused"
    try:
        if case.check is not None:
            case.check(answer)
    except Exception as error:
        return "wrong", f"the answer is not the right one: {type(error).__name__}: {error}"
    return "read", ""


def _refused(case: Case, message: str) -> tuple[str, str]:
    if case.expect == "read":
        return "wrong", f"refused, and should have been read: {message}"
    if case.where not in message:
        return "wrong", f"the message does not say {case.where!r}: {message}"
    if printable(message, lines=True) != message or not SHORTEST <= len(message) <= LONGEST:
        return "wrong", f"a message of {len(message)} characters that steers or floods a terminal: {message[:200]!r}"
    return "refused", message


def _commanded(case: Case, arguments: tuple[str, ...]) -> tuple[str, str]:
    """Run a command in this process, as a shell would, and judge its exit code and what it printed."""
    from krepes.cli import main

    printed, code = io.StringIO(), 0
    kept = sys.argv, warnings.showwarning, logging.root.handlers[:]
    sys.argv = ["krepes", *arguments]
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            main()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except Exception:
        return "traceback", traceback.format_exc(limit=-3)
    finally:
        sys.argv, warnings.showwarning, logging.root.handlers[:] = kept
    said = printed.getvalue()
    if "Traceback (most recent call last)" in said or code not in {0, 2}:
        return "traceback", f"exit code {code}: {said[-500:]}"
    if code == 2:
        return _refused(case, said.strip())
    return ("wrong", "exit code 0, and should have been 2") if case.expect == "refused" else ("read", "")


@contextlib.contextmanager
def _alarm() -> Generator[None, None, None]:
    def ring(number: int, frame: FrameType | None) -> None:
        raise Hang

    earlier = signal.signal(signal.SIGALRM, ring)
    signal.alarm(WALL)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, earlier)


def table(outcomes: Iterable[Outcome]) -> str:
    """Return the outcomes by kind, one line each, for the reader of ``make slow``."""
    found = list(outcomes)
    counts = {
        kind: Counter(o.verdict for o in found if o.case.kind == kind)
        for kind in dict.fromkeys(o.case.kind for o in found)
    }
    slowest = {kind: max(o.seconds for o in found if o.case.kind == kind) for kind in counts}
    total = Counter(outcome.verdict for outcome in found)
    head = f"{'kind':<12}{'cases':>7}" + "".join(f"{verdict:>11}" for verdict in VERDICTS) + f"{'slowest s':>11}"
    lines = [
        f"{kind:<12}{sum(row.values()):>7}" + "".join(f"{row[verdict]:>11}" for verdict in VERDICTS) + f"{slow:>11.2f}"
        for kind, row, slow in [
            *((kind, counts[kind], slowest[kind]) for kind in counts),
            ("all", total, max(slowest.values(), default=0.0)),
        ]
    ]
    return "\n".join([head, *lines])
