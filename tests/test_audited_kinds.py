"""What audits take columns for: dates and numbers of a CSV, seen or hidden, and whatever measures time."""

import datetime

import numpy as np
import pandas as pd
import pytest
import torch
from torch.testing import assert_close

import krepes
from krepes.audit import FeatureSpace
from krepes.audit.columns import uses_of
from krepes.audit.features import agreement
from krepes.data.column import Column
from krepes.data.schema import Schema
from krepes.data.tabular import TabularEncoder
from krepes.errors import InvalidInputError
from krepes.kernels import RBF
from krepes.runs import Settings, fit, open_run, study
from krepes.runs.uses import column_uses

N = 60
QUICK = {"kernel": "rbf", "m": 8, "h": 2}
START = pd.Timestamp("2020-01-01")
TIMES = {
    "duration": pd.to_timedelta([0, 2, 1, None], unit="h"),
    "below a second": START + pd.to_timedelta([0, 20, 10, None], unit="us"),
    "zoned": (START + pd.to_timedelta([0, 20, 10, None], unit="ms")).tz_localize("Europe/Berlin"),
    "time of day": [datetime.time(8), datetime.time(10), datetime.time(9), None],
    "microseconds of a day": [datetime.time(8, 0, 0, i) for i in (0, 20, 10)] + [None],
    "date object": [datetime.date(1500, 1, 1), datetime.date(1500, 1, 21), datetime.date(1500, 1, 11), None],
    "month": pd.PeriodIndex(["2020-01", "2020-03", "2020-02", None], freq="M"),
}


@pytest.mark.parametrize("name", TIMES)
def test_whatever_measures_time_has_a_distance(name):
    frame = pd.DataFrame({"x": TIMES[name]})
    X = FeatureSpace.of(frame).encode(frame)
    v = agreement(X[:, None], X)[..., 0]
    wanted = [[1, 0, 0.5, 0], [0, 1, 0.5, 0], [0.5, 0.5, 1, 0], [0, 0, 0, 1]]
    assert_close(v, torch.tensor(wanted, dtype=torch.float64))
    assert uses_of(frame, (), {})[0].kind in {"numeric", "date"}


def test_other_objects_stay_categories():
    frame = pd.DataFrame({"x": ["a", datetime.time(8), "b"], "y": [True, False, True]})
    assert FeatureSpace.of(frame).ranges == {}


@pytest.mark.parametrize("text", ["2020-01-01 10:00:00.000025", "1999-12-31 23:59:59.999999", "9999-12-31 23:59:59"])
def test_dates_of_texts_keep_their_microseconds(text):
    found = Column("x", "date").audited(pd.Series([text, None]))
    assert found.dtype == "datetime64[us]" and str(found[0]) == text and pd.isna(found[1])


def people():
    """Rows whose date is all that tells them apart, and a number that follows it."""
    rng = np.random.default_rng(0)
    days = rng.permutation(N)
    dates = pd.Series(START + pd.to_timedelta(days, unit="D"))
    return pd.DataFrame({"born": dates.dt.strftime("%d.%m.%Y"), "income": days * 10.0, "noise": rng.normal(size=N)})


def gap_of(table, **options):
    found = krepes.explain(RBF(1.0), table, m=16, h=2, progress=False, **options)
    frame = found.audits["features"].table
    return found, frame[frame["column"] == "born"]["estimate"].iloc[0]


def test_one_call_sees_the_dates_of_a_csv(tmp_path):
    people().to_csv(tmp_path / "a.csv", index=False)
    texts = pd.read_csv(tmp_path / "a.csv")
    typed = texts.assign(born=pd.to_datetime(texts["born"], format="%d.%m.%Y"))
    (found, by_text), (_, by_date) = gap_of(texts), gap_of(typed)
    assert found.study.tables[0]["born"].dtype == "datetime64[us]"
    assert by_text == pytest.approx(by_date) and by_text > 0.05  # 0.0 as categories, which never repeat


def hidden_run(tmp_path, schema=None, **columns):
    people().assign(**columns).to_csv(tmp_path / "a.csv", index=False)
    told = {}
    if schema is not None:
        (tmp_path / "kinds.toml").write_text(schema)
        told = {"schema": str(tmp_path / "kinds.toml")}
    return Settings(data=str(tmp_path / "a.csv"), sensitive=("born",), exclude=("wage",), **told, **QUICK)


def test_hidden_dates_and_numbers_of_a_csv_are_dates_and_numbers(tmp_path):
    settings = hidden_run(tmp_path, wage=[f"{i}.000,5" for i in range(1, N + 1)])
    fit(settings, tmp_path / "run", progress=False)
    space = open_run(tmp_path / "run")
    for table in space.tables:
        assert table["born"].dtype == "datetime64[us]" and table["wage"].dtype == "float64"
    kinds = {use.name: (use.role, use.kind) for use in column_uses(space)}
    assert kinds["born"] == ("hidden", "date") and kinds["wage"] == ("hidden", "numeric")
    assert study(space).space.ranges.keys() == {"born", "wage", "income", "noise"}


def test_a_run_that_did_not_look_at_hidden_columns_looks_now(tmp_path):
    space = fit(hidden_run(tmp_path, wage=range(N)), tmp_path / "run", progress=False)
    space.data.encoding.beside = Schema(())
    assert space.schema.kinds["born"] == "date dd.mm.yyyy"


def test_a_schema_file_names_hidden_columns_too(tmp_path):
    wage = [f"1,{100 + i}" for i in range(N)]
    schema = '[columns]\nwage = "numeric 1,234.5"\nborn = "categorical"\n'
    fit(hidden_run(tmp_path, schema, wage=wage), tmp_path / "run", progress=False)
    (tmp_path / "kinds.toml").unlink()
    train = open_run(tmp_path / "run").tables[0]
    assert train["wage"].between(1100, 1159).all() and train["born"].dtype != "datetime64[us]"


def test_a_wrong_kind_of_a_hidden_column_is_refused_before_the_fit(tmp_path):
    settings = hidden_run(tmp_path, '[columns]\nborn = "numeric"\n', wage=range(N))
    with pytest.raises(InvalidInputError, match=r"column 'born': .* in row 0 is not a number \(60 of 60"):
        fit(settings, tmp_path / "run", progress=False)
    settings = hidden_run(tmp_path, '[columns]\nbron = "date"\n', wage=range(N))
    with pytest.raises(InvalidInputError, match=r"the override names columns \['bron'\]"):
        fit(settings, tmp_path / "run", progress=False)


def test_an_encoding_keeps_the_kinds_beside_it():
    frame = pd.DataFrame({"x": [1.0, 2.5, 3.0], "born": ["2020-01-01", "2020-01-02", "2020-01-05"]})
    encoder = TabularEncoder(Schema.infer(frame[["x"]]), beside=Schema.look(frame[["born"]])).fit(frame[["x"]])
    again = TabularEncoder.from_dict(encoder.to_dict())
    assert again.beside == encoder.beside and again.beside.kinds == {"born": "date"}
    assert "beside" not in TabularEncoder(Schema.infer(frame)).fit(frame).to_dict()
