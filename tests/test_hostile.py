"""Hostile input: a part of the cases by default, all of them by ``make slow``; see `hostile`."""

import os

import pytest
import torch

from hostile.case import Case, writes
from hostile.kinds import KINDS, generated
from hostile.run import judge, table
from krepes.errors import InvalidInputError

SEED = int(os.environ.get("KREPES_HOSTILE_SEED", "0"))
PART = 8


def judged(cases, folder):
    outcomes = []
    for number, case in enumerate(cases):
        root = folder / str(number)
        root.mkdir()
        outcomes.append(judge(case, root))
    return outcomes


def bad(outcomes):
    return "\n".join(str(outcome) for outcome in outcomes if not outcome.good)


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_of_hostile_input_is_read_or_refused(kind, tmp_path):
    outcomes = judged([case for case in generated(kind) if not case.heavy][::PART], tmp_path)
    assert not bad(outcomes)


@pytest.mark.slow
def test_all_hostile_input_is_read_or_refused(tmp_path):
    outcomes = []
    for kind in KINDS:
        (tmp_path / kind).mkdir()
        outcomes += judged(generated(kind, SEED), tmp_path / kind)
    print(f"\nhostile input, seed {SEED}\n{table(outcomes)}")
    assert not bad(outcomes)


def nothing(folder):
    return None


def raises(folder):
    raise KeyError("raw")


def refuses(message):
    def run(folder):
        raise InvalidInputError(message)

    return run


def touches(folder):
    (folder.parent / "outside" / "neighbour.csv").write_text("gone")


def starts(folder):
    os.system("true")


def bites(folder):
    open(os.environ["KREPES_CANARY"], "w").close()


def computes(folder):
    while torch.rand(()) >= 0:
        pass


GOOD = "table.csv cannot be read at line 3. Repair the line."
PLANTED = {
    "traceback": Case("planted", "a raw error", nothing, raises),
    "touched": Case("planted", "a write outside", nothing, touches),
    "touched by a program": Case("planted", "a program", nothing, starts),
    "bitten": Case("planted", "the canary", nothing, bites),
    "wrong: accepted": Case("planted", "accepted", nothing, nothing, "refused"),
    "wrong: refused": Case("planted", "refused", nothing, refuses(GOOD), "read"),
    "wrong: nowhere": Case("planted", "no place", nothing, refuses(GOOD), "refused", where="other.csv"),
    "wrong: steers": Case("planted", "escape", nothing, refuses(f"{GOOD} \x1b[31m"), "refused"),
    "wrong: answer": Case("planted", "answer", nothing, lambda folder: 4, "read", lambda answer: 1 // (answer - 4)),
    "slow": Case("planted", "endless", nothing, computes),
    "wrong: exit code": Case("planted", "help", nothing, ("--help",), "refused"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_the_judge_sees_what_must_not_happen(name, tmp_path, monkeypatch):
    monkeypatch.setattr("hostile.run.WALL", 1)
    assert judge(PLANTED[name], tmp_path).verdict == name.split()[0].rstrip(":")


def test_the_judge_lets_good_cases_pass(tmp_path):
    case = Case("planted", "refused", writes("table.csv", "x"), refuses(GOOD), "refused", where="table.csv")
    assert judge(case, tmp_path).verdict == "refused"


def test_a_seed_gives_the_same_cases():
    for kind in ("npy", "factory"):
        assert [case.name for case in generated(kind, 3)] == [case.name for case in generated(kind, 3)]
