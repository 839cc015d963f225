"""Numbers and dates as people write them: read in one way, or left as text with a note; files that bend; CSV out."""

import bz2
import csv
import datetime
import gzip
import io
import lzma
import zipfile

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krepes.data import Schema, TabularEncoder, dates, numerals, read_table
from krepes.data.export import harmless, write_csv
from krepes.data.text import printable
from krepes.data.values import groups
from krepes.errors import InvalidInputError

GERMAN = """Kunde;Umsatz;Datum;Menge;Anteil;Ort
17;1.234;31.12.2020;1,5;12 %;Köln
18;12;01.02.2021;2,25;3 %;Ulm
21;999;05.03.2021;7,0;50 %;Ulm
"""
AMERICAN = """id,pay,when,score,fee
7,"1,234",12/31/2020,1.5,$1.50
9,"12,000",01/02/2021,2.5,"-$1,200.00"
4,999,3/4/2021,3.5,$0
"""


def kinds(text, tmp_path, name="a.csv"):
    (tmp_path / name).write_text(text, encoding="utf-8")
    return Schema.infer(tmp_path / name)


def test_a_german_table_is_read_as_its_writer_meant_it(tmp_path):
    schema = kinds(GERMAN, tmp_path)
    comma = "numeric 1.234,5"
    assert schema.kinds == {
        "Kunde": comma, "Umsatz": comma, "Datum": "date dd.mm.yyyy", "Menge": comma, "Anteil": f"{comma} %",
        "Ort": "categorical",
    }  # fmt: skip
    frame = schema.apply(tmp_path / "a.csv")
    assert frame["Umsatz"].tolist() == [1234.0, 12.0, 999.0]
    assert frame["Menge"].tolist() == [1.5, 2.25, 7.0]
    assert frame["Anteil"].tolist() == [12.0, 3.0, 50.0]
    assert frame["Datum"].tolist() == [18627.0, 18659.0, 18691.0]
    notes = schema.to_frame().set_index("column")["note"]
    assert "decimal comma" in notes["Menge"] and notes["Datum"] == "read as dates: dd.mm.yyyy"


def test_an_american_table_too(tmp_path):
    schema = kinds(AMERICAN, tmp_path)
    assert schema.kinds == {
        "id": "numeric", "pay": "numeric 1,234.5", "when": "date mm/dd/yyyy", "score": "numeric",
        "fee": "numeric 1,234.5 $",
    }  # fmt: skip
    frame = schema.apply(tmp_path / "a.csv")
    assert frame["pay"].tolist() == [1234.0, 12000.0, 999.0]
    assert frame["fee"].tolist() == [1.5, -1200.0, 0.0]
    assert frame["when"].tolist() == [18627.0, 18629.0, 18690.0]


def test_later_rows_are_held_to_the_format_of_the_first(tmp_path):
    schema = kinds(GERMAN, tmp_path)
    later = "Kunde;Umsatz;Datum;Menge;Anteil;Ort\n1.019;2.500;01.01.2022;3;4 %;Ulm\n"
    (tmp_path / "later.csv").write_text(later)
    frame = schema.apply(read_table(tmp_path / "later.csv"))
    assert frame[["Kunde", "Umsatz"]].iloc[0].tolist() == [1019.0, 2500.0]
    (tmp_path / "later.csv").write_text(later.replace("2.500", "2.5"))
    with pytest.raises(InvalidInputError, match=r"column 'Umsatz': '2.5' in row 0 is not a number written 1.234,5"):
        schema.apply(read_table(tmp_path / "later.csv").astype({"Umsatz": str}))


def test_what_can_be_read_in_two_ways_is_not_guessed_and_the_user_decides(tmp_path):
    text = 'pay,when\n"1,234",1/2/2020\n"12,000",2/3/2021\n999,3/4/2021\n'
    schema = kinds(text, tmp_path)
    assert schema.kinds == {"pay": "categorical", "when": "categorical"}
    assert "'numeric 1.234,5' or 'numeric 1,234.5'" in schema.columns[0].note
    assert "'date dd/mm/yyyy'" in schema.columns[1].note
    told = {"pay": "numeric 1.234,5", "when": "date mm/dd/yyyy"}
    frame = Schema.infer(tmp_path / "a.csv", told).apply(tmp_path / "a.csv")
    assert frame["pay"].tolist() == [1.234, 12.0, 999.0] and frame["when"].tolist() == [18263.0, 18661.0, 18690.0]
    for column, kind in (("pay", "numeric"), ("when", "date")):
        with pytest.raises(InvalidInputError, match=f"column '{column}' is said to be {kind}, but holds .*Say which"):
            Schema.infer(tmp_path / "a.csv", {column: kind})


def test_points_alone_are_decimals_with_a_note(tmp_path):
    schema = kinds("x;y\n1.234;a\n12.500;b\n3;a\n", tmp_path)
    assert schema.kinds["x"] == "numeric" and "'numeric 1.234,5' reads thousands" in schema.columns[0].note
    assert schema.apply(tmp_path / "a.csv")["x"].tolist() == [1.234, 12.5, 3.0]


NUMERALS = {
    ("1,5", "2,75"): "1.234,5",
    ("0,123", "1,234"): "1.234,5",
    ("1.234.567", "5"): "1.234,5",
    ("1,234,567", "5"): "1,234.5",
    ("1 234", "5"): "1,234.5",
    ("1\u202f234,5", "5"): "1.234,5",
    ("1'234.50", "5"): "1,234.5",
    ("12%", "3 %"): "1,234.5 %",
    ("\u22125", "3"): "1,234.5",
    ("EUR 5", "-7 EUR"): "1,234.5 EUR",
    ("5", "-2e3"): "",
    ("12 %", "0.12"): None,
    ("5 €", "5 $"): None,
    ("1,23,456", "5"): None,
    ("١٢", "5"): None,
    ("1,5", "1.5"): None,
}


@pytest.mark.parametrize("texts", NUMERALS)
def test_the_format_of_numbers_is_found(texts):
    found = numerals.detect(texts)
    assert found == (None if NUMERALS[texts] is None else (NUMERALS[texts], True))


@settings(deadline=None)
@given(st.decimals(-(10**12), 10**12, places=3), st.sampled_from([numerals.POINT, numerals.COMMA]), st.booleans())
def test_written_numbers_read_back(number, style, grouped):
    english = f"{number:,}" if grouped else f"{number}"
    text = english if style == numerals.POINT else english.translate(str.maketrans(",.", ".,"))
    assert numerals.parse([text], style)[0] == float(number)


@given(st.dates(min_value=datetime.date(1, 1, 1)), st.sampled_from(["", *dates.FORMATS]))
def test_days_are_those_of_the_calendar(day, format):
    text = day.isoformat() if not format else format.replace("yyyy", f"{day.year:04}")
    text = text.replace("mm", f"{day.month:02}").replace("dd", f"{day.day:02}")
    assert dates.parse([text], format)[0] == day.toordinal() - datetime.date(1970, 1, 1).toordinal()


@given(st.datetimes(timezones=st.timezones()))
@settings(deadline=None)
def test_moments_are_those_of_the_clock(moment):
    if moment.utcoffset().seconds % 60:
        moment = moment.replace(tzinfo=datetime.UTC)
    expected = (moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) / datetime.timedelta(days=1)
    assert dates.parse([moment.isoformat()])[0] == pytest.approx(expected, abs=1e-9, rel=1e-12)


def test_dates_of_every_century_are_read(tmp_path):
    schema = kinds("when,x\n0001-01-01,1\n1066-10-14,5\n9999-12-31,3\n", tmp_path)
    assert schema.kinds["when"] == "date"
    X = TabularEncoder(schema).fit(tmp_path / "a.csv").transform(tmp_path / "a.csv")
    assert np.isfinite(X.numpy()).all()
    frame = pd.DataFrame({"d": [datetime.date(1500, 1, 1), datetime.date(2500, 1, 1), None]})
    days = [(day - datetime.date(1970, 1, 1)).days for day in frame["d"][:2]]
    assert Schema.infer(frame).apply(frame)["d"].tolist()[:2] == days


@pytest.mark.parametrize(
    "text", ["30.02.2020", "2020-13-01", "2020-01-01 24:00", "12/12/20", "0000-01-01", "1.1.20201"]
)
def test_what_is_no_day_is_no_date(text):
    assert all(np.isnan(dates.parse([text], format)[0]) for format in ("", *dates.FORMATS))


def test_numbers_of_any_size_are_standardised():
    for size in (1e308, 1e-308, 1e200, 1.0):
        frame = pd.DataFrame({"x": [size, -size, size / 2, None]})
        X = TabularEncoder(Schema.from_dict({"x": "numeric"})).fit(frame).transform(frame)
        plain = pd.DataFrame({"x": [1.0, -1.0, 0.5, None]})
        np.testing.assert_allclose(X, TabularEncoder(Schema.from_dict({"x": "numeric"})).fit(plain).transform(plain))
    encoder = TabularEncoder(Schema.from_dict({"x": "numeric"})).fit({"x": [1.0, 2.0]})
    with pytest.raises(InvalidInputError, match=r"column 'x': 1e\+300 in row 1 is too far from training"):
        encoder.transform({"x": [1.0, 1e300]})


def test_the_cost_of_a_schema_grows_with_its_columns():
    import time

    def seconds(columns):
        rng = np.random.default_rng(0)
        makers = (lambda: rng.normal(size=50), lambda: rng.choice(["a", "b", "c"], 50), lambda: rng.integers(0, 99, 50))
        frame = pd.DataFrame({f"x{j}": makers[j % 3]() for j in range(columns)})
        start = time.process_time()
        assert len(Schema.infer(frame).columns) == columns
        return time.process_time() - start

    seconds(50)
    assert seconds(2000) < 100 * seconds(
        200
    )  # linear is 10 times; the merge of dicts per column was 100 times and more


PACKERS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}


@pytest.mark.parametrize("packer", PACKERS)
def test_packed_tables_are_read_whatever_their_name_and_refused_when_cut(packer, tmp_path):
    content = PACKERS[packer](GERMAN.encode() * 1)
    (tmp_path / "a.csv").write_bytes(content)
    assert read_table(tmp_path / "a.csv")["Ort"].tolist() == ["Köln", "Ulm", "Ulm"]
    (tmp_path / "a.csv").write_bytes(content[:-9])
    with pytest.raises(InvalidInputError, match=r"a\.csv is damaged or cut off"):
        read_table(tmp_path / "a.csv")


def zipped(*names):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, GERMAN)
    return buffer.getvalue()


def test_a_zip_holds_one_table(tmp_path):
    (tmp_path / "a.csv").write_bytes(zipped("t.csv"))
    assert len(read_table(tmp_path / "a.csv")) == 3
    (tmp_path / "a.csv").write_bytes(zipped("xl/workbook.xml", "b"))
    with pytest.raises(InvalidInputError, match="Excel workbook"):
        read_table(tmp_path / "a.csv")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_tells_the_encoding(encoding, tmp_path):
    (tmp_path / "a.csv").write_bytes(GERMAN.encode(encoding))
    assert list(read_table(tmp_path / "a.csv")) == ["Kunde", "Umsatz", "Datum", "Menge", "Anteil", "Ort"]


BENT = {
    "a NUL byte": (b"a,b\n1,2\n1,\x00\n", "holds NUL bytes"),
    "UTF-16 without mark": (GERMAN.encode("utf-16-le"), "holds NUL bytes"),
    "a short line": (b"a,b,c\n1,2,3\n4,5\n", "fewer fields than the header of 3 columns, the first at line 3 with 2"),
    "a short last line": (b"a,b,c\n1,2,3\n4", "the first at line 3 with 1"),
    "a Parquet file": (b"PAR1xxxxPAR1", "is a Parquet file: name it .parquet"),
    "an SQLite file": (b"SQLite format 3\0", "export the table"),
}


@pytest.mark.parametrize("case", BENT)
def test_bent_files_are_refused(case, tmp_path):
    content, message = BENT[case]
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(InvalidInputError, match=message):
        read_table(tmp_path / "a.csv")


def test_a_bomb_is_not_unpacked(tmp_path):
    line = b"1,2\n" * 2**20
    bomb = io.BytesIO()
    with lzma.open(bomb, "wb", preset=0) as archive:
        archive.write(b"a,b\n")
        for _ in range(9):
            archive.write(line)
    (tmp_path / "a.csv").write_bytes(bomb.getvalue())
    with pytest.raises(InvalidInputError, match="unpacks to more than 200 times"):
        read_table(tmp_path / "a.csv")


def test_the_index_of_a_parquet_file_is_kept_as_a_column(tmp_path):
    frame = pd.DataFrame({"x": [1.5, 2.5]}, index=pd.Index(["p", "q"], name="who"))
    frame.to_parquet(tmp_path / "a.parquet")
    assert read_table(tmp_path / "a.parquet").to_dict("list") == {"who": ["p", "q"], "x": [1.5, 2.5]}
    frame.rename_axis(None).to_parquet(tmp_path / "a.parquet")
    assert read_table(tmp_path / "a.parquet").to_dict("list") == {"x": [1.5, 2.5]}


def test_a_schema_reads_the_numbers_and_dates_of_a_table_for_audits(tmp_path):
    frame = kinds(GERMAN, tmp_path).with_values(tmp_path / "a.csv")
    assert frame["Umsatz"].tolist() == [1234.0, 12.0, 999.0]
    assert frame["Datum"].astype(str).tolist() == ["2020-12-31", "2021-02-01", "2021-03-05"]
    assert list(frame) == ["Kunde", "Umsatz", "Datum", "Menge", "Anteil", "Ort"]


def test_a_missing_group_is_a_group():
    column = pd.Series(["a", None, "b", np.nan, "", "a"])
    assert groups(column).tolist() == ["a", "(missing)", "b", "(missing)", "(missing)", "a"]
    assert groups(pd.Series([1.0, np.nan, 2.0])).tolist() == ["1", "(missing)", "2"]
    assert groups(pd.Categorical(["x", None])).tolist() == ["x", "(missing)"]
    assert groups(np.array([True, False])).tolist() == ["True", "False"]


FORMULAS = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "＝1", " =1", "-", "+", "=", "--5"]


def test_no_cell_of_a_written_table_starts_a_formula(tmp_path):
    frame = pd.DataFrame({"=name": [*FORMULAS, "plain", "-5", "+2.5e3"], "n": [-1.5, *range(14)]})
    write_csv(frame, tmp_path / "out" / "a.csv")
    with (tmp_path / "out" / "a.csv").open(newline="", encoding="utf-8") as handle:
        header, *rows = list(csv.reader(handle))
    assert header == ["'=name", "n"]
    assert [row[0] for row in rows] == [f"'{cell}" for cell in FORMULAS] + ["plain", "-5", "+2.5e3"]
    assert rows[0][1] == "-1.5"


@given(st.text())
def test_a_harmless_cell_is_the_cell_or_quoted(text):
    safe = harmless(text)
    assert safe in {text, f"'{text}"}
    assert not safe.startswith(("=", "@", "\t", "\r")) and (not safe.startswith(("+", "-")) or float(safe) is not None)


@given(st.text(st.characters()))
def test_printable_text_shows_no_control_character(text):
    import unicodedata

    shown = printable(text)
    assert all(unicodedata.category(c) not in {"Cc", "Cs", "Zl", "Zp"} for c in shown)
    assert not set("\u202e\u2066\u2069\u200f\u061c\u200b\ufeff") & set(shown)
    assert printable(text, lines=True).count("\n") == text.count("\n")


@pytest.mark.filterwarnings("error")
def test_huge_numbers_are_read_without_a_warning(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1e308,a\n-1e308,b\n5,c\n")
    assert read_table(tmp_path / "a.csv")["x"].tolist() == [1e308, -1e308, 5.0]
