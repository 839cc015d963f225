"""What a table's columns are taken for, how the user overrules it, and what a schema refuses."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from krepes.data import Schema, order, read_table
from krepes.data.column import Column
from krepes.data.kinds import KINDS
from krepes.data.tabular import TabularEncoder
from krepes.errors import InvalidInputError

CSV = """id,age,city,member,joined,unit,score,flag
17-a,31,Bonn,yes,2020-01-05,kg,1.5,0
18-b,?,Ulm,no,2021-07-01,kg,,1
19-c,52,,yes,,kg,2.5,1
20-d,44,Ulm,,2019-11-30,kg,0.5,0
"""
KINDS_OF_CSV = {
    "id": "categorical",
    "age": "numeric",
    "city": "categorical",
    "member": "boolean",
    "joined": "date",
    "unit": "constant",
    "score": "numeric",
    "flag": "boolean",
}


@pytest.fixture
def csv(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text(CSV)
    return path


KIND_CASES = {
    "floats": ([1.5, 2.5, None], "numeric"),
    "numbers as text": (["1", "2.5", "n/a"], "numeric"),
    "0 and 1": ([0, 1, 1], "boolean"),
    "0.0 and 1.0 with a gap": ([0.0, None, 1.0], "boolean"),
    "True and False": ([True, False, None], "boolean"),
    "a flag and gaps": (["yes", None, "yes"], "boolean"),
    "datetimes": (pd.to_datetime(["2020-01-01", None, "2021-01-01"]), "date"),
    "ISO texts": (["2020-01-01", "2020-01-01 10:30", None], "date"),
    "no ISO dates": (["1/2/2020", "3/4/2020", "5/6/2020"], "categorical"),
    "pandas categories": (pd.Categorical(["a", "b", "a"]), "categorical"),
    "a value and gaps": (["a", None, "a"], "categorical"),
    "pandas categories of numbers": (pd.Categorical([3, 1, 3]), "categorical"),
    "one value": (["a", "a", "a"], "constant"),
    "nothing": ([None, None, None], "constant"),
    "all different texts": ([f"person {i}" for i in range(30)], "identifier"),
    "row numbers": (list(range(5, 35)), "identifier"),
    "Int64 with missing values": (pd.array([1, None] * 20, dtype="Int64"), "boolean"),
    "numbers in order with gaps": (list(range(0, 60, 2)), "numeric"),
    "many codes": ([f"zip {i % 101}" for i in range(1000)], "categorical"),
    "a hundred codes": ([f"zip {i % 100}" for i in range(1000)], "categorical"),
}


@pytest.mark.parametrize("case", KIND_CASES)
def test_a_column_is_taken_for_what_it_holds(case):
    column, kind = KIND_CASES[case]
    frame = pd.DataFrame({"it": column})
    frame["other"] = np.linspace(0.0, 9.0, len(frame)) ** 2
    assert Schema.infer(frame).kinds == {"it": kind, "other": "numeric"}


def test_kinds_of_a_csv_file_are_those_a_reader_sees(csv):
    assert Schema.infer(csv).kinds == KINDS_OF_CSV


def test_dropped_columns_say_why(csv):
    notes = Schema.infer(csv).to_frame().set_index("column")["note"]
    assert notes["unit"] == "dropped: every value is 'kg'"
    assert "30 distinct texts in 30 values" in str(
        Schema.infer({"who": [f"p{i}" for i in range(30)], "x": [0.5, 2] * 15})
    )


def test_numbers_among_which_one_is_none_are_pointed_out():
    schema = Schema.infer({"x": [*map(str, range(5)), "five", *map(str, range(5))]})
    assert schema.columns[0] == Column("x", "categorical", "5 of 6 distinct values are numbers, but 'five' is not")


def test_numbers_with_a_decimal_comma_are_pointed_out(tmp_path):
    (tmp_path / "a.csv").write_text("x;y\n1,5;1\n2,5;7\n")
    assert "decimal comma" in Schema.infer(tmp_path / "a.csv").columns[0].note


def test_the_unnamed_column_of_row_numbers_is_dropped_from_small_files_too(tmp_path):
    pd.DataFrame({"x": [1.5, 2.5, 3.5]}).to_csv(tmp_path / "a.csv")
    assert Schema.infer(tmp_path / "a.csv").kinds == {"Unnamed: 0": "identifier", "x": "numeric"}


def test_complex_numbers_are_refused():
    with pytest.raises(InvalidInputError, match=r"'1j' in row 0 is not a real number"):
        Schema.from_dict({"x": "numeric"}).apply({"x": [1j, 2j]})


def test_an_override_wins_and_comes_from_toml(csv, tmp_path):
    (tmp_path / "schema.toml").write_text('[columns]\nid = "ignored"\nage = "categorical"\n')
    schema = Schema.infer(csv, override=Schema.from_toml(tmp_path / "schema.toml").kinds)
    assert schema.kinds == KINDS_OF_CSV | {"id": "ignored", "age": "categorical"}


names = st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=5, unique=True)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine
@given(names, st.data())
def test_a_schema_survives_toml_and_json(tmp_path_factory, columns, data):
    texts, kinds = st.text(st.characters(exclude_categories=["Cs"])), st.sampled_from(KINDS)
    orders = st.lists(texts, min_size=2, max_size=4).map(order.format_of).filter(bool) | st.just("S < M")
    drawn = [(name, data.draw(kinds), data.draw(texts)) for name in columns]
    schema = Schema(tuple(Column(*one, data.draw(orders) if one[1] == "ordered" else "") for one in drawn))
    path = tmp_path_factory.mktemp("schema") / "schema.toml"
    path.write_text(schema.to_toml(), encoding="utf-8", newline="")
    assert Schema.from_toml(path).kinds == schema.kinds
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema


def test_apply_returns_the_used_columns_in_order_and_typed(csv):
    frame = Schema.infer(csv).apply(csv)
    assert list(frame) == ["id", "age", "city", "member", "joined", "score", "flag"]
    assert frame["city"].tolist() == ["Bonn", "Ulm", "(missing)", "Ulm"]
    torch.testing.assert_close(
        torch.tensor(frame[["age", "member", "joined"]].to_numpy()),
        torch.tensor([[31, 1, 18266], [np.nan, 0, 18809], [52, 1, np.nan], [44, np.nan, 18230]], dtype=torch.float64),
        equal_nan=True,
    )


def test_reordered_columns_are_taken_by_name(csv):
    schema, frame = Schema.infer(csv), read_table(csv)
    pd.testing.assert_frame_equal(schema.apply(frame[frame.columns[::-1]]), schema.apply(frame))


def test_dropped_columns_may_be_absent_and_others_are_left_out_with_a_warning(csv):
    schema, frame = Schema.infer(csv), read_table(csv)
    with pytest.warns(UserWarning, match=r"does not know 1 columns.*\['new'\]"):
        applied = schema.apply(frame.drop(columns="unit").assign(new=1))
    pd.testing.assert_frame_equal(applied, schema.apply(frame))


REFUSED_VALUES = {
    "numeric": (["1", "two"], "'two' in row 1 is not a number"),
    "boolean": (["yes", "maybe"], "'maybe' in row 1 is not a flag"),
    "date": (["2020-01-01", "2020-02-30"], "'2020-02-30' in row 1 is not a date"),
}


@pytest.mark.parametrize("kind", REFUSED_VALUES)
def test_a_value_of_another_kind_is_named_with_column_and_row(kind, csv):
    column, message = REFUSED_VALUES[kind]
    with pytest.raises(InvalidInputError, match=f"column 'x': {message}"):
        Schema.from_dict({"x": kind}).apply({"x": column})


def test_infinity_is_no_number(tmp_path):
    (tmp_path / "a.csv").write_text("x\n1\ninf\n")
    with pytest.raises(InvalidInputError, match="column 'x': 'inf' in row 1 is not a finite number"):
        Schema.from_dict({"x": "numeric"}).apply(tmp_path / "a.csv")


def test_a_bare_number_is_no_date():
    with pytest.raises(InvalidInputError, match="'20200101' in row 0 is not a date"):
        Schema.from_dict({"x": "date"}).apply({"x": [20200101]})


def test_absent_columns_are_listed(csv):
    with pytest.raises(InvalidInputError, match=r"lacks 2 of 7 columns: \['age', 'flag'\]"):
        Schema.infer(csv).apply(read_table(csv).drop(columns=["age", "flag"]))


REFUSED_SCHEMAS = {
    "an override of no column": (lambda: Schema.infer({"a": [1, 5]}, {"b": "numeric"}), r"names columns \['b'\]"),
    "a kind that is none": (lambda: Schema.infer({"a": [1, 5]}, {"a": "numerical"}), "column 'a': .*'numerical'"),
    "only constants": (lambda: Schema.infer({"a": [1, 1], "b": ["x", "x"]}), "none of the 2 columns can be used"),
    "columns of two lengths": (lambda: Schema.infer({"a": [1], "b": [1, 2]}), "make no table"),
    "lists in cells": (lambda: Schema.infer({"a": [[1], [2]]}), "column 'a' holds a list in a cell"),
}


@pytest.mark.parametrize("case", REFUSED_SCHEMAS)
def test_schemas_that_cannot_be_are_refused(case):
    make, message = REFUSED_SCHEMAS[case]
    with pytest.raises(InvalidInputError, match=message):
        make()


@pytest.mark.parametrize("text", ["[columns", "[other]\na = 1\n", "[columns]\na = 1\n"])
def test_a_toml_file_without_columns_is_refused(text, tmp_path):
    (tmp_path / "schema.toml").write_text(text)
    with pytest.raises(InvalidInputError, match=r"schema\.toml"):
        Schema.from_toml(tmp_path / "schema.toml")


REFUSED_FILES = {
    "no bytes": ("", "is empty"),
    "no row": ("a,b\n", "header of 2 columns but no row"),
    "a name twice": ("a,b,a\n1,2,3\n", r"more than once: \['a'\]"),
    "too many fields": ("a,b\n1,2\n1,2,3\n", "separated by ',' after its header of 2 columns"),
    "an open quote": ('"a\nb,c\n1,2\n', "no readable header"),
    "blank lines": ("\n\n", "no readable header"),
}


@pytest.mark.parametrize("case", REFUSED_FILES)
def test_files_that_hold_no_table_are_refused(case, tmp_path):
    text, message = REFUSED_FILES[case]
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(InvalidInputError, match=message):
        read_table(tmp_path / "a.csv")


def test_text_that_is_not_utf8_is_refused(tmp_path):
    (tmp_path / "a.csv").write_bytes("a,b\nKöln,1\n".encode("latin-1"))
    with pytest.raises(InvalidInputError, match="UTF-8"):
        read_table(tmp_path / "a.csv")


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_the_delimiter_is_found_and_a_wrong_one_refused(mark, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(f'"a b"{mark}c\n1{mark}2\n')
    assert read_table(path).to_dict("list") == {"a b": [1], "c": [2]}
    with pytest.raises(InvalidInputError, match=r"has a single column.*Pass delimiter="):
        read_table(path, delimiter="," if mark != "," else ";")


def test_a_compressed_csv_reads_the_same(csv, tmp_path):
    read_table(csv).to_csv(tmp_path / "people.csv.gz", index=False)
    pd.testing.assert_frame_equal(read_table(tmp_path / "people.csv.gz"), read_table(csv))


def test_every_source_gives_the_same_table():
    X = np.array([[1.0, 2.0], [3.0, 4.0]])
    frame = pd.DataFrame(X, columns=["x0", "x1"])
    for source in (X, torch.tensor(X), frame, frame.to_dict("list"), np.rec.fromarrays(X.T, names="x0,x1")):
        pd.testing.assert_frame_equal(read_table(source), frame)


@pytest.mark.parametrize("source", [np.zeros(3), 3, np.zeros((0, 2)), pd.DataFrame([[1, 2]], columns=["a", "a"])])
def test_what_is_no_table_is_refused(source):
    with pytest.raises(InvalidInputError, match=r"\(n, d\)|0 rows|more than once"):
        read_table(source)


def test_parquet_reads_as_csv_does(csv, tmp_path):
    pytest.importorskip("pyarrow")
    frame = read_table(csv)
    frame.to_parquet(tmp_path / "people.parquet")
    pd.testing.assert_frame_equal(read_table(tmp_path / "people.parquet"), frame)
    assert Schema.infer(tmp_path / "people.parquet") == Schema.infer(csv)


def test_polars_frames_are_taken(csv):
    polars = pytest.importorskip("polars")
    pytest.importorskip("pyarrow")
    schema = Schema.infer(csv)
    frame = polars.read_csv(csv, null_values=["?"])
    pd.testing.assert_frame_equal(schema.apply(frame), schema.apply(csv))


def test_codes_stay_categories_and_say_so(tmp_path):
    rng = np.random.default_rng(0)
    codes = rng.integers(1000, 99999, size=150)
    rows = rng.integers(150, size=600)
    frame = pd.DataFrame({
        "where": [f"{code:05d}" for code in codes[rows]],
        "plz": codes[rows],
        "icd": [f"E{code % 97:02d}.{code % 10}" for code in codes[rows]],
        "count": rng.integers(0, 9000, size=600),
    })
    frame.to_csv(tmp_path / "codes.csv", index=False)
    for table in (frame, tmp_path / "codes.csv"):
        schema = Schema.infer(table)
        assert schema.kinds == {"where": "categorical", "plz": "categorical", "icd": "categorical", "count": "numeric"}
        notes = {column.name: column.note for column in schema.columns}
        assert "start with zero" in notes["where"] and "because of its name" in notes["plz"]
        assert "the 100 most frequent are told apart" in notes["icd"]
    assert Schema.infer(frame, {"plz": "numeric"}).kinds["plz"] == "numeric"


def test_rare_categories_of_a_column_with_many_are_taken_together():
    texts = [f"a{i:03d}" for i in range(100) for _ in range(3)] + [f"b{i}" for i in range(50)] * 2
    frame = pd.DataFrame({"code": texts, "x": np.arange(len(texts)) % 7 + 0.5})
    for unknown in ("error", "bucket"):
        encoder = TabularEncoder(Schema.infer(frame), unknown=unknown).fit(frame)
        groups = encoder.groups["code"]
        assert len(groups) == 101 and encoder.feature_names[groups[-1]] == "code=(unknown)"
        X = encoder.transform(frame)[:, groups]
        assert torch.equal(X.sum(1), torch.ones(len(X))) and X[-1, -1] == 1 and X[0, 0] == 1
