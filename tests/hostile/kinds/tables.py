"""Tables as text: encodings, delimiters, line ends, archives, ragged lines, and what people write into cells."""

import bz2
import datetime
import gzip
import io
import lzma
import os
import zipfile
from collections.abc import Iterator
from random import Random

import numpy as np
import torch

from hostile.case import Case, writes
from hostile.mutate import damaged
from krepes.data import Schema, TabularEncoder, read_table

FILE = "table.csv"
ROWS = [
    (31, "Bonn", "yes", "2020-01-05", 1.5),
    (44, "Ulm", "no", "2021-07-01", 2.25),
    (52, "Kiel", "yes", "1999-12-31", -3.0),
]
NAMES = ("age", "city", "member", "joined", "score")


def text(rows=ROWS, names=NAMES, mark=",", end="\n") -> str:
    return end.join(mark.join(str(cell) for cell in row) for row in [names, *rows]) + end


def encoded(folder):
    """Read a table in all the steps that a fit takes, and back again from what they print."""
    frame = read_table(folder / FILE)
    schema = Schema.infer(frame)
    assert Schema.from_dict(schema.to_dict()) == schema
    (folder / "schema.toml").write_text(schema.to_toml(), encoding="utf-8", newline="")
    assert Schema.from_toml(folder / "schema.toml").kinds == schema.kinds
    encoder = TabularEncoder(schema).fit(frame)
    X = encoder.transform(frame)
    assert bool(torch.isfinite(X).all()) and X.shape == (len(frame), len(encoder.feature_names)), X
    return schema, schema.apply(frame), X


def kinds_are(**expected):
    def check(answer):
        found = {name: kind for name, kind in answer[0].kinds.items() if name in expected}
        assert found == expected, f"{found} != {expected}"

    return check


def values_are(name, *expected):
    def check(answer):
        np.testing.assert_allclose(answer[1][name].to_numpy(float), expected)

    return check


AS_WRITTEN = kinds_are(age="numeric", city="categorical", member="boolean", joined="date", score="numeric")
PACKERS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}


def zipped(**members: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "/"), content)
    return buffer.getvalue()


def day(date: tuple[int, int, int]) -> int:
    return (datetime.date(*date) - datetime.date(1970, 1, 1)).days


def column(*cells: object, name: str = "x", mark: str = ";") -> str:
    """Return a table of one interesting column beside a plain one."""
    return "".join(f"{a}{mark}{b}\n" for a, b in zip([name, *cells], ["plain", *"abababab"], strict=False))


COLUMNS = {
    "decimal commas": (column("1,5", "2,75", "-3,0"), values_are("x", 1.5, 2.75, -3.0)),
    "German thousands": (column("1.234,5", "12", "1.000.000"), values_are("x", 1234.5, 12, 1e6)),
    "English thousands": (column("1,234.5", "12", "1,000,000"), values_are("x", 1234.5, 12, 1e6)),
    "spaces between thousands": (column("1 234", "12", "1 000 000"), values_are("x", 1234, 12, 1e6)),
    "percent": (column("12 %", "3,5 %", "0 %"), values_are("x", 12, 3.5, 0)),
    "euros": (column("1.234,50 €", "-3 €", "0"), values_are("x", 1234.5, -3, 0)),
    "dollars": (column("$1,234.50", "-$3", "0"), values_are("x", 1234.5, -3, 0)),
    "two currencies": (column("5 €", "5 $", "7 €"), kinds_are(x="categorical")),
    "a comma nobody can place": (column("1,234", "2,345", "999"), kinds_are(x="categorical")),
    "German dates": (column("31.12.2020", "01.02.2021", "5.3.1969"), values_are("x", 18627, 18659, -302)),
    "American dates": (column("12/31/2020", "01/02/2021", "3/5/1969"), values_are("x", 18627, 18629, -302)),
    "British dates": (column("31/12/2020", "01/02/2021", "5/3/1969"), values_are("x", 18627, 18659, -302)),
    "dates nobody can place": (column("1/2/2020", "3/4/2020", "5/6/2020"), kinds_are(x="categorical")),
    "dates before 1677": (
        column("0001-01-01", "1492-10-12", "1066-10-14"),
        values_are("x", *map(day, ((1, 1, 1), (1492, 10, 12), (1066, 10, 14)))),
    ),
    "dates after 2262": (column("9999-12-31", "2263-01-01", "2500-06-15"), kinds_are(x="date")),
    "days that do not exist": (column("30.02.2020", "31.04.2021", "01.13.2020"), kinds_are(x="categorical")),
    "years of two digits": (column("31.12.20", "01.02.21", "05.03.69"), kinds_are(x="categorical")),
    "time zones": (column("2020-01-01T00:00:00+02:00", "2020-01-01", "2020-01-02Z"), None),
    "cells of 1e308": (column("1e308", "-1e308", "5e307"), values_are("x", 1e308, -1e308, 5e307)),
    "cells of 1e-308": (column("1e-308", "-1e-308", "3e-308"), values_are("x", 1e-308, -1e-308, 3e-308)),
    "integers of thirty digits": (column("1" * 30, "2" * 30, "3"), kinds_are(x="numeric")),
    "integers of 64 bits": (column(2**64 - 1, 2**63, 0), values_are("x", 2.0**64, 2.0**63, 0)),
    "true, maybe": (column("true", "maybe", "false"), kinds_are(x="categorical")),
    "numbers and words": (column("1", "2", "three"), kinds_are(x="categorical")),
    "formulas": (column("=1+1", "@SUM(A1)", "-cmd|' /C calc'!A0"), kinds_are(x="categorical")),
    "escapes": (column("\x1b[31m", "a\u202eb", "\u200b"), kinds_are(x="categorical")),
    "markup": (column("<script>alert(1)</script>", "&lt", "$x_1^2$"), kinds_are(x="categorical")),
    "emoji and Arabic digits": (column("👩‍🔬", "١٢٣", "中文"), kinds_are(x="categorical")),
    "a cell of a megabyte": (column("a" * 10**6, "b", "c"), kinds_are(x="categorical")),
    "nothing but gaps": (column("", "NA", "?"), kinds_are(x="constant")),
    "a gap": (column("1.5", "", "2.5"), None),
    "underscores in numbers": (column("1_000", "2_000", "3"), None),
    "hexadecimal": (column("0x10", "0x20", "0x30"), kinds_are(x="categorical")),
    "the word nan": (column("nan", "NaN", "1.5"), None),
}
REFUSED = {
    "no byte": b"",
    "blank lines": b"\n\n\n",
    "blanks": b"   \n",
    "only a header": b"a,b,c\n",
    "a name twice": b"a,b,a\n1,2,3\n",
    "an open quote": b'"a,b\n1,2\n',
    "an open quote at the end": b'a,b\n1,"2\n3,4\n',
    "too many fields": b"a,b\n1,2\n3,4,5\n",
    "too few fields": b"a,b,c\n1,2,3\n4,5\n",
    "too few fields at the end": b"a,b,c\n1,2,3\n4,",
    "a NUL byte": b"a,b\n1,\x002\n3,4\n",
    "a NUL byte late": b"a,b\n" + b"1,2\n" * 100_000 + b"\0,4\n",
    "Latin-1": "a,b\nKöln,1\nUlm,2\n".encode("latin-1"),
    "Latin-1 late": b"a,b\n" + b"x,2\n" * 100_000 + "Köln,1\n".encode("latin-1"),
    "Shift-JIS": "名,b\n東京,1\n大阪,2\n".encode("shift-jis"),
    "UTF-16 without a mark": text().encode("utf-16-le"),
    "half of a UTF-16 letter": text().encode("utf-16")[:-1],
    "infinity": column("inf", "1", "2").encode(),
    "1e400": column("1e400", "1", "2").encode(),
    "all rows equal": b"a,b\n1,x\n1,x\n1,x\n",
    "an Excel workbook": zipped(xl__workbook_xml="x", other="y").replace(b"workbook_xml", b"workbook.xml"),
    "a zip of two": zipped(a="a,b\n1,2\n", b="a,b\n1,2\n"),
    "an empty zip": zipped(),
    "a zip of a folder": zipped(folder__=""),
    "a PDF": b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n",
    "a PNG": b"\x89PNG\r\n\x1a\n" + bytes(range(256)),
    "SQLite": b"SQLite format 3\0" + b"\0" * 100,
    "zstd": b"\x28\xb5\x2f\xfd" + b"\0" * 100,
    "a Parquet file": b"PAR1" + b"\0" * 100 + b"PAR1",
}
HEADERS = [
    "=cmd()", "\x1b[2J", "a\u202eb", "$x$", "<b>", "_x", "a" * 5000, "ж", "日本", "a b",
    '"a;b"', "1", "1.5", "nan", "True", "\\n",
    "Unnamed: 0", "x.1", "../x", "{0}", "%s", "%(name)s", "'", "None", "\ufeffx", "\u00a0",
]  # fmt: skip
NO_FILES = {
    "a pipe": lambda folder: os.mkfifo(folder / FILE),
    "a folder": lambda folder: (folder / FILE).mkdir(),
    "a link to itself": lambda folder: os.symlink(FILE, folder / FILE),
    "an endless device": lambda folder: os.symlink("/dev/zero", folder / FILE),
    "no file": lambda folder: None,
}


def cases(rng: Random) -> Iterator[Case]:
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-32", "ascii"):
        for mark in ",;\t|":
            end = rng.choice(["\n", "\r\n", "\r"])
            content = text(mark=mark, end=end).encode(encoding)
            yield Case("table", f"{encoding} {mark!r} {end!r}", writes(FILE, content), encoded, "read", AS_WRITTEN)
    for name, (content, check) in COLUMNS.items():
        for encoding in ("utf-8", "utf-16"):
            yield Case("table", f"{name}, {encoding}", writes(FILE, content.encode(encoding)), encoded, "read", check)
    for name, content in REFUSED.items():
        yield Case("table", name, writes(FILE, content), encoded, "refused")
    for name, make in NO_FILES.items():
        yield Case("table", name, make, encoded, "refused", where=FILE)
    for head in HEADERS:
        yield Case("table", f"a column named {head[:20]!r}", writes(FILE, column(1, 5, 3, name=head)), encoded)
    yield from _archives(rng)
    yield from _sizes()
    for content in (text().encode(), text(mark=";").replace(".", ",").encode(), text().encode("utf-16")):
        for name, changed in damaged(content, rng, 56):
            yield Case("table", name, writes(FILE, changed), encoded)


def _archives(rng: Random) -> Iterator[Case]:
    for packer, pack in PACKERS.items():
        packed = pack(text().encode())
        yield Case("table", packer, writes(FILE, packed), encoded, "read", AS_WRITTEN)
        for place in sorted(rng.sample(range(3, len(packed) - 1), 6)):
            cut = packed[:place]
            yield Case(
                "table", f"{packer} cut at {place} of {len(packed)}", writes(FILE, cut), encoded, "refused", where=FILE
            )
        for name, changed in damaged(packed, rng, 14):
            yield Case("table", f"{packer} {name}", writes(FILE, changed), encoded)
        if packer != "gz":  # gzip packs a thousand to one at most, and is let through up to a limit

            def bomb(folder, pack=pack):
                (folder / FILE).write_bytes(pack(b"a,b\n" + b"1,2\n" * 10**7))

            yield Case("table", f"a {packer} that unpacks to 40 MB", bomb, encoded, "refused", where=FILE, heavy=True)
    yield Case("table", "zip", writes(FILE, zipped(t=text())), encoded, "read", AS_WRITTEN)
    for name, changed in damaged(zipped(t=text()), rng, 21):
        yield Case("table", f"zip {name}", writes(FILE, changed), encoded)


def _sizes() -> Iterator[Case]:
    wide = ",".join(f"x{j}" for j in range(5000)) + "\n"
    wide += "".join(",".join(str((i * 7 + j) % 11) for j in range(5000)) + "\n" for i in range(12))
    yield Case("table", "5,000 columns", writes(FILE, wide), encoded, "read")
    same = ",".join("x" for _ in range(5000)) + "\n" + ",".join("1" for _ in range(5000)) + "\n"
    yield Case("table", "5,000 columns of one name", writes(FILE, same), encoded, "refused", where=FILE)
    yield Case("table", "one row", writes(FILE, "a,b\n1,2\n"), encoded, "refused")
    long = "a,b\n" + "".join(f"{i % 97},w{i}\n" for i in range(60_000))
    yield Case(
        "table", "60,000 distinct words", writes(FILE, long), encoded, "read", kinds_are(a="numeric", b="identifier")
    )
    yield Case("table", "a line of a megabyte", writes(FILE, "a" * 10**6 + "\n1\n2\n3\n"), encoded)
    yield Case("table", "a hundred thousand commas", writes(FILE, "," * 10**5 + "\n"), encoded, "refused", where=FILE)
    yield Case("table", "quotes in quotes", writes(FILE, 'a,b\n"""",1\n"""""",2\n"x",3\n'), encoded, "read")
