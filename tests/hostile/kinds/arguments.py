"""Arguments: every flag with values that no flag wants, commands that are none, names from nowhere."""

from collections.abc import Iterator
from random import Random

from hostile.case import Case, writes
from krepes.cli.flags import _kind
from krepes.runs.settings import FIELDS, flag

TABLE = "who,x,y,kind\n" + "".join(f"p{i},{i * 37 % 17}.5,{i * 11 % 7},{'ab'[i % 2]}\n" for i in range(40))
FIT = ("fit", "t.csv", "--kernel", "rbf", "-m", "8", "-h", "2", "--quiet", "--out", "run")
VALUES = (
    "",
    "abc",
    "0",
    "-1",
    "nan",
    "1e400",
    "9" * 25,
    "\x1b[31mred",
    "gekündigt",
    "$x^2$",
    "a=b=c",
    "..",
    "--",
    "💥",
)
COMMANDS = (
    ("explain", "nowhere", "--row", "1"),
    ("explain", "t.csv", "--row", "1"),
    ("explain", ".", "--row", "1"),
    ("influence", ".", "--row", "1", "--row", "2"),
    ("audit", "\x1b[2J"),
    ("report", "nowhere.csv"),
    ("report", "t.csv", "--label", "nothing"),
    ("report", "t.csv", "--group", "nothing"),
    ("report", "t.csv", "--concept", "nothing"),
    ("report", "t.csv", "--out", "."),
    ("report", "t.csv", "--out", "t.csv/r.html"),
    ("fit", "t.csv", "--out", "t.csv"),
    ("fit", "t.csv", "--out", "../outside/run/../neighbour.csv/x"),
    ("fit", "t.csv", "--id-column", "kind"),
    ("fit", "t.csv", "--config", "nowhere.toml"),
    ("fit", "t.csv", "--config", "t.csv"),
    ("fit", "t.csv", "--no-such-flag"),
    ("fit",),
    ("pretrain", "t.csv", "--out", "t.csv"),
    ("pretrain", "t.csv", "--out", "."),
    ("select", "t.csv", "--over", "lam"),
    ("select", "t.csv", "--over", "=1,2"),
    ("select", "t.csv", "--over", "nothing=1,2"),
    ("sign", ".", "--key", "t.csv"),
    ("verify", "."),
    ("verify", "nowhere", "--key", "t.csv"),
    ("whatif", "."),
    ("whatif", "nowhere", "--where", "x > 1"),
    ("whatif", ".", "--where", "__import__('os').system('touch canary')"),
    ("whatif", ".", "--remove", "t.csv", "--where", "x > 1"),
    ("whatif", ".", "--remove", "t.csv", "--out", "t.csv"),
    ("curate", ".", "--outcome", "nothing"),
    ("curate", "nowhere", "--outcome", "pair 1 2", "--drop", "500%"),
    ("curate", ".", "--outcome", "pair 1 2", "--weight", "1"),
    ("curate", ".", "--outcome", "pair 1 2", "--out", "t.csv/x"),
    ("prove", "nowhere"),
    ("prove", "."),
    ("prove", ".", "--minutes", "nan"),
    ("prove", ".", "--halves", "1"),
    ("influence", ".", "--outcome", "\x1b[2J"),
    ("influence", ".", "--outcomes", "t.csv"),
    ("reproduce", "nothing"),
    ("reproduce", "planted", "--seeds", "0"),
    ("reproduce", "intervention", "--only", "nothing"),
    ("reproduce", "encoders", "--without", "replay"),
    ("reproduce", "page", "--scale", "huge"),
    ("nothing",),
    ("", ""),
)


def table(folder):
    return writes("t.csv", TABLE)(folder)


def cases(rng: Random) -> Iterator[Case]:
    yield Case("arguments", "a good fit", table, FIT, "read")
    for name in FIELDS:
        if name in {"data", "kernel", "m", "h"}:
            continue
        for value in VALUES:
            given = () if _kind(name) is bool else (value,)
            what = f"{flag(name)} {value[:12]!r}"
            yield Case("arguments", what, table, (*FIT, flag(name), *given), heavy=name in {"epochs", "device"})
    for arguments in COMMANDS:
        yield Case("arguments", " ".join(arguments)[:60], table, arguments, "refused")
    for value in VALUES:
        yield Case("arguments", f"data {value[:12]!r}", table, ("fit", value, *FIT[2:]), "refused")
        yield Case(
            "arguments",
            f"m {value[:12]!r}",
            table,
            ("fit", "t.csv", "--kernel", "rbf", "--quiet", "-m", value),
            "refused",
        )
