"""Files that are read in pieces give the table that reading them at once gives: same values, same types."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from krepes.audit.features import FeatureSpace
from krepes.data import csvfile, spill
from krepes.data.chosen import ChosenIds, in_place
from krepes.data.csvfile import read_csv
from krepes.data.frames import read_table
from krepes.data.kept import held_bytes, is_kept, kept, one_by_one, rows_of
from krepes.data.schema import Schema
from krepes.errors import InvalidInputError
from krepes.runs.dataset import open_dataset
from krepes.runs.fingerprint import Fingerprint
from krepes.runs.settings import Settings
from krepes.storage import mapped
from peak import peak_rise

FIELDS = st.sampled_from(
    ["1", "-2", "0", "007", "3.5", "1.234", "12", "", "NA", "?", "True", "false", "TRUE", "a", "b c", '"x,y"', '"NA"']
    + ["9007199254740993", "9223372036854775807", "18446744073709551615", "99999999999999999999", "1e3", "inf", "nan"]
    + ['" 7"', '"a ""quoted"" one"', '"two\nlines"', "0x10", "+4", "yes", "2020-01-31", "ü"]
)
PLAIN = st.lists(FIELDS, min_size=2, max_size=2, unique=True)


@st.composite
def tables(draw):
    """Lines of a CSV file whose columns hold a few fields each, so that pieces of one differ in type."""
    columns = draw(st.integers(1, 4))
    rows = draw(st.integers(1, 12))
    fields = [draw(st.lists(FIELDS, min_size=1, max_size=3)) for _ in range(columns)]
    body = [[draw(st.sampled_from(fields[j])) for j in range(columns)] for _ in range(rows)]
    return [[f"c{j}" for j in range(columns)] + ["end"], *([*line, str(i)] for i, line in enumerate(body))]


def read_at_once(path, **options):
    before, csvfile.CELLS = csvfile.CELLS, 2**40
    try:
        return read_csv(path, None, ("?",), **options)
    finally:
        csvfile.CELLS = before


@given(lines=tables(), cells=st.integers(1, 30), mark=st.sampled_from([",", ";"]), small=st.booleans())
@settings(max_examples=150, deadline=None)
def test_pieces_give_the_table_of_the_whole_file(tmp_path_factory, lines, cells, mark, small):
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_text("\n".join(mark.join(line) for line in lines), encoding="utf-8")
    whole = read_at_once(path)
    before, csvfile.CELLS = csvfile.CELLS, cells
    try:
        found = read_csv(path, None, ("?",), **({"budget": csvfile.Budget(1)} if small else {}))
    finally:
        csvfile.CELLS = before
    pd.testing.assert_frame_equal(found, whole, check_exact=True)
    assert [type(x) for x in found.iloc[0]] == [type(x) for x in whole.iloc[0]]


@pytest.mark.parametrize(
    ("fields", "dtype"),
    [
        (["1", "2", "3", ""], "float64"),
        (["1", "2", "3", "x"], "str"),
        (["9007199254740993", "1", "2.5", "3"], "float64"),
        (["True", "False", "", "True"], "object"),
        (["", "", "", "x"], "str"),
        (["01", "02", "x", "y"], "str"),
        (["1", "2", "18446744073709551615", "4"], "uint64"),
    ],
)
def test_a_column_whose_pieces_differ(tmp_path, monkeypatch, fields, dtype):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "".join(f"{field},{i}\n" for i, field in enumerate(fields)))
    whole = read_at_once(path)
    monkeypatch.setattr(csvfile, "CELLS", 4)
    found = read_csv(path, None, ())
    pd.testing.assert_frame_equal(found, whole, check_exact=True)
    if pd.__version__ >= "3":
        assert str(found["a"].dtype) == dtype


@pytest.mark.parametrize("text", ["a,b\n1,2\n3,4\n5,6,7\n", 'a,b\n1,2\n3,4\n5,"6\n', "a,b\n1,2\n3,4\n5\n", "a,b\n"])
def test_broken_lines_are_refused_in_the_same_words(tmp_path, monkeypatch, text):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(InvalidInputError) as whole:
        read_at_once(path)
    monkeypatch.setattr(csvfile, "CELLS", 2)
    with pytest.raises(InvalidInputError) as found:
        read_csv(path, None, ())
    assert str(found.value) == str(whole.value)


def mixed(n=2000):
    draw = np.random.default_rng(0)
    return pd.DataFrame({
        "whole": draw.integers(0, 9, n),
        "decimal": np.where(draw.random(n) < 0.1, np.nan, draw.normal(size=n)),
        "flag": draw.random(n) < 0.5,
        "when": pd.to_datetime(draw.integers(0, 9000, n), unit="D"),
        "zoned": pd.to_datetime(draw.integers(0, 9000, n), unit="D", utc=True),
        "text": pd.Series(draw.choice(["a", "bb", None], n)),
        "empty": pd.Series([None] * n, dtype=object),
        "kind": pd.Categorical(draw.choice(["x", "y"], n), categories=["y", "x"], ordered=True),
        "nullable": pd.array(draw.integers(0, 3, n), dtype="Int32"),
        "small": draw.normal(size=n).astype(np.float32),
    })


def test_a_kept_table_is_the_table():
    frame = mixed()
    found = kept(frame.items())
    pd.testing.assert_frame_equal(found, frame, check_exact=True)
    assert is_kept(found) and not is_kept(frame)
    assert held_bytes(found) < held_bytes(frame) / 2
    rows = np.random.default_rng(1).permutation(len(frame))[:700]
    pd.testing.assert_frame_equal(rows_of(found, rows), frame.iloc[rows].reset_index(drop=True), check_exact=True)
    pd.testing.assert_frame_equal(found.iloc[100:200], frame.iloc[100:200], check_exact=True)
    for name, column in one_by_one(found):  # pages that were let go come back
        pd.testing.assert_series_equal(column, frame[name])
    mapped.release_tables()
    pd.testing.assert_frame_equal(found, frame, check_exact=True)
    assert Schema.infer(found) == Schema.infer(frame)


def test_the_file_of_a_table_goes_with_it():
    before = len(mapped._TABLES)
    found = kept(mixed().items())
    column = found["text"]
    assert len(mapped._TABLES) == before + 1
    del found
    assert column.iloc[0] == mixed()["text"].iloc[0]
    del column
    assert len(mapped._TABLES) == before


def test_chosen_ids_are_read_by_their_place():
    ids = [f"r{i}" for i in range(10)]
    found = ChosenIds(ids, torch.tensor([7, 2, 5]))
    assert (list(found), found[-1], found[1:], len(found)) == (["r7", "r2", "r5"], "r5", ["r2", "r5"], 3)
    assert found.index("r2") == 1 and "r9" not in found
    assert in_place(found) is found and in_place(pd.Series(["a", "b"], index=[1, 0]))[0] == "a"
    assert [type(id) for id in ChosenIds(range(10), torch.tensor([3]))] == [int], "what JSON can hold"
    with pytest.raises(IndexError):
        found[3]


@pytest.mark.parametrize("index", [None, "id", "unnamed"])
def test_parquet_column_by_column(tmp_path, index):
    frame = mixed()
    if index is not None:
        frame.index = pd.Index([f"r{i}" for i in range(len(frame))], name="id" if index == "id" else None)
    path = tmp_path / "t.parquet"
    frame.to_parquet(path)
    whole = read_table(path)
    found = read_table(path, memory_budget=1000)
    assert is_kept(found) and not is_kept(whole)
    pd.testing.assert_frame_equal(found, whole, check_exact=True)


def test_parquet_whose_columns_cannot_be_asked_for_one_by_one(tmp_path):
    path = tmp_path / "t.parquet"
    pd.DataFrame({"a.b": [1, 2], "c": [{"d": 1}, {"d": 2}]}).to_parquet(path)
    pd.testing.assert_frame_equal(read_table(path, memory_budget=1), read_table(path))


def test_a_large_file_takes_a_part_of_what_its_table_takes(tmp_path):
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({f"x{j}": draw.normal(size=300_000).round(3) for j in range(8)})
    frame.assign(city=draw.choice(["Bonn", "Ulm"], len(frame))).to_csv(tmp_path / "t.csv", index=False)
    code = """
        import sys
        import pyarrow.parquet
        from krepes.data.frames import read_table
        with measured():
            table = read_table(sys.argv[1], memory_budget=sys.argv[2])
    """
    pieces, whole = (peak_rise(code, tmp_path / "t.csv", budget) for budget in ("32M", "8G"))
    assert pieces < 48e6 < whole


def test_a_run_sees_the_same_data_whatever_the_budget(tmp_path, monkeypatch):
    frame = mixed().drop(columns=["zoned", "nullable", "empty"])
    frame["score"] = [f"{i % 7},{i % 10}" for i in range(len(frame))]
    frame.to_csv(tmp_path / "t.csv", index=False)
    plain = Settings(data=str(tmp_path / "t.csv"), label="kind", memory="1G")
    monkeypatch.setattr(csvfile, "CELLS", 3000)
    monkeypatch.setattr(spill, "PIECE", 300)
    whole, small = (open_dataset(replace(plain, memory=memory)) for memory in ("1G", "100K"))
    assert is_kept(small.table) and not is_kept(whole.table) and small.held < whole.held
    assert small.encoding.to_dict() == whole.encoding.to_dict()
    assert isinstance(small.samples, np.memmap) and isinstance(whole.samples, torch.Tensor)
    np.testing.assert_array_equal(small.samples, whole.samples.numpy())
    assert small.column("kind").tolist() == whole.column("kind").tolist() == frame["kind"].tolist()
    prints = [Fingerprint.of(found) for found in (small, whole)]
    assert prints[0].difference(prints[1], whole.ids) is None and prints[0].columns == prints[1].columns
    spaces = [FeatureSpace.of(found.table) for found in (small, whole)]
    assert torch.equal(spaces[0].encode(small.table), spaces[1].encode(whole.table))
