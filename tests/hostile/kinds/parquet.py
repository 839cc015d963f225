"""Tables as Parquet: every type of column, forged metadata, damage."""

import datetime
import decimal
import io
import json
from collections.abc import Iterator
from random import Random

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from hostile.case import Case, writes
from hostile.kinds import tables
from hostile.mutate import damaged

FILE = "table.parquet"
DAYS = [datetime.date(1, 1, 1), datetime.date(1500, 6, 1), None, datetime.date(9999, 12, 31)]
COLUMNS = {
    "numeric": {
        "int8": pa.array([1, 2, None, 4], pa.int8()),
        "uint64": pa.array([1, 2**64 - 1, 3, None], pa.uint64()),
        "float16": pa.array([1.5, 2.5, None, 4], pa.float32()).cast(pa.float16()),
        "float32": pa.array([1.5, 2.5, None, 4], pa.float32()),
        "decimal": pa.array([decimal.Decimal("1.50"), decimal.Decimal("2.25"), None, decimal.Decimal("-3")]),
        "decimal256": pa.array([decimal.Decimal(10) ** 60, decimal.Decimal(2), None, None], pa.decimal256(70, 2)),
        "texts of numbers": pa.array(["1.5", "2.5", None, "n/a"]),
        "texts of decimal commas": pa.array(["1,5", "2,5", None, "3"]),
    },
    "date": {
        "date32": pa.array(DAYS, pa.date32()),
        "timestamp s": pa.array([-62135596800, 0, None, 253402300799], pa.timestamp("s")),
        "timestamp ns": pa.array([0, 10**18, None, 5 * 10**17], pa.timestamp("ns")),
        "timestamp with a zone": pa.array([0, 10**9, None, 5 * 10**8], pa.timestamp("s", tz="Europe/Berlin")),
    },
    "boolean": {"bool": pa.array([True, False, None, True])},
    "constant": {"null": pa.nulls(4), "equal": pa.array(["a"] * 4)},
    "categorical": {
        "dictionary": pa.array(["a", "b", None, "a"]).dictionary_encode(),
        "large text": pa.array(["a", "b", None, "c"], pa.large_string()),
        "bytes": pa.array([b"a", b"\xff\x00", None, b"c"]),
        "time of day": pa.array([1, 2, None, 4], pa.time32("s")),
        "control characters": pa.array(["\x00", "\x1b[31m", None, "\u202e"]),
    },
}
REFUSED = {
    "list": pa.array([[1], [2, 3], None, []]),
    "struct": pa.array([{"a": 1}, {"a": 2}, None, {"a": 3}]),
    "map": pa.array([[("a", 1)], [("b", 2)], None, []], pa.map_(pa.string(), pa.int64())),
    "list of structs": pa.array([[{"a": 1}], [], None, [{"a": 3}]]),
    "infinity": pa.array([1.0, float("inf"), 2.0, 3.0]),
}


def stored(columns: dict[str, pa.Array], metadata: dict[str, object] | None = None, **options) -> bytes:
    table, buffer = pa.table(columns), io.BytesIO()
    if metadata is not None:
        table = table.replace_schema_metadata({"pandas": json.dumps(metadata)})
    pq.write_table(table, buffer, **options)
    return buffer.getvalue()


PLAIN = pa.array([1.5, 2.5, 3.5, 7.0])
FORGED = {
    "an index that does not exist": {"index_columns": ["nothing"], "columns": [], "column_indexes": []},
    "an index of another sort": {"index_columns": 7, "columns": "x", "column_indexes": None},
    "an endless range": {
        "index_columns": [{"kind": "range", "name": None, "start": 0, "stop": 10**18, "step": 1}],
        "columns": [],
    },
    "a range of step zero": {
        "index_columns": [{"kind": "range", "name": None, "start": 0, "stop": 4, "step": 0}],
        "columns": [],
    },
    "an unknown type": {
        "index_columns": [],
        "columns": [{"name": "x", "pandas_type": "evil", "numpy_type": "os.system"}],
    },
    "an object to unpickle": {
        "index_columns": [],
        "columns": [{"name": "x", "pandas_type": "object", "numpy_type": "object"}],
    },
    "no metadata at all": {},
    "a list": [1, 2],
}


def opened(folder):
    """Read the table in all the steps that a fit takes."""
    frame = tables.read_table(folder / FILE)
    schema = tables.Schema.infer(frame)
    X = tables.TabularEncoder(schema).fit(frame).transform(frame)
    assert bool(tables.torch.isfinite(X).all()) and len(X) == len(frame)
    return schema, schema.apply(frame), X


def cases(rng: Random) -> Iterator[Case]:
    for kind, columns in COLUMNS.items():
        for name, array in columns.items():
            content = stored({"x": array, "plain": PLAIN}, compression=rng.choice(["none", "snappy", "gzip", "zstd"]))

            def check(answer, kind=kind):
                assert answer[0].kinds["x"].split()[0] == kind, answer[0].kinds["x"]

            yield Case("parquet", name, writes(FILE, content), opened, "read", check)
    for name, array in REFUSED.items():
        yield Case("parquet", name, writes(FILE, stored({"x": array, "plain": PLAIN})), opened, "refused", where="'x'")
    for name, metadata in FORGED.items():
        content = stored({"x": PLAIN, "plain": PLAIN}, metadata)
        yield Case("parquet", f"metadata: {name}", writes(FILE, content), opened)
    twice = io.BytesIO()
    pq.write_table(pa.Table.from_arrays([PLAIN, PLAIN], names=["a", "a"]), twice)
    yield Case("parquet", "a name twice", writes(FILE, twice.getvalue()), opened, "refused")
    empty = stored({"x": PLAIN[:0], "plain": PLAIN[:0]})
    yield Case("parquet", "no row", writes(FILE, empty), opened, "refused")
    for name, content in {
        "no byte": b"", "only magic": b"PAR1", "magic twice": b"PAR1PAR1", "encrypted": b"PARE" + b"\0" * 60 + b"PARE",
        "a footer of 4 GB": b"PAR1" + b"\0" * 60 + b"\xff\xff\xff\xffPAR1", "CSV": b"a,b\n1,2\n", "zeros": b"\0" * 1000,
    }.items():  # fmt: skip
        yield Case("parquet", name, writes(FILE, content), opened, "refused", where=FILE)
    index = pd.DataFrame({"x": [1.5, 2.5]}, index=pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["g", None]))
    buffer = io.BytesIO()
    index.to_parquet(buffer)
    yield Case("parquet", "an index of two levels", writes(FILE, buffer.getvalue()), opened)
    whole = stored({"x": COLUMNS["numeric"]["float32"], "w": COLUMNS["categorical"]["large text"], "plain": PLAIN})
    for name, changed in damaged(whole, rng, 196):
        yield Case("parquet", name, writes(FILE, changed), opened)
