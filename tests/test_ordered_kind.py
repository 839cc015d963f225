"""Columns whose values have an order: told by a schema or by pandas, one-hot for the encoder, places for audits."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from krepes.audit import FeatureSpace
from krepes.audit.features import agreement
from krepes.data.column import Column
from krepes.data.order import format_of, is_format, values_in
from krepes.data.schema import Schema
from krepes.data.tabular import TabularEncoder
from krepes.errors import InvalidInputError
from krepes.runs import Settings, fit, open_run, study
from krepes.runs.uses import column_uses

SIZES = ["S", "M", "L", "XL"]
TOLD = "ordered S < M < L < XL"


def clothes(n=80):
    rng = np.random.default_rng(0)
    return pd.DataFrame({"size": rng.choice(SIZES, n), "price": rng.normal(size=n), "worn": rng.choice(["M", "L"], n)})


@given(st.lists(st.text(max_size=5), max_size=5))
def test_an_order_is_read_as_it_is_written_or_not_written_at_all(levels):
    format = format_of(levels)
    assert format == "" or (is_format(format) and values_in(format) == tuple(levels))


def test_values_may_hold_the_mark_without_its_blanks():
    assert values_in("<18 < 18-64 < 65+") == ("<18", "18-64", "65+")


@pytest.mark.parametrize("told", ["ordered", "ordered S", "ordered S<M<L", "ordered S < S", "ordered S <  < L"])
def test_an_order_without_two_different_values_is_refused_saying_how_to_write_it(told):
    wanted = r"column 'size': .* does not list its values from low to high. .* between them: 'ordered S < M < L'"
    with pytest.raises(InvalidInputError, match=wanted):
        Schema.infer(clothes(), {"size": told})


def test_the_encoder_sees_categories_and_audits_see_places():
    frame = clothes()
    frame.loc[3, "size"] = None
    schema = Schema.infer(frame, {"size": TOLD})
    plain, told = (TabularEncoder(s).fit(frame) for s in (Schema.infer(frame), schema))
    assert plain.feature_names == told.feature_names
    assert torch.equal(plain.transform(frame), told.transform(frame))
    seen = schema.with_values(frame)
    assert seen["size"].cat.ordered and list(seen["size"].cat.categories) == SIZES and pd.isna(seen["size"][3])
    for how in ("indicator", "codes"):
        space = FeatureSpace.of(seen, agreement=how)
        X = space.encode(pd.DataFrame({"size": ["S", "M", "XL"], "price": 0.0, "worn": "M"}))[:, 0]
        torch.testing.assert_close(agreement(X[0], X), torch.tensor([1, 2 / 3, 0], dtype=torch.float64))


def test_a_value_that_is_not_listed_is_refused_with_its_row_and_the_list():
    frame = clothes().assign(size=[*SIZES * 19, "S", "XXL", "M", "XXL"])
    wanted = r"column 'size': 'XXL' in row 77 is not one of S < M < L < XL \(2 of 80 values are not\)"
    for read in (Schema.apply, Schema.with_values):
        with pytest.raises(InvalidInputError, match=wanted):
            read(Schema.infer(frame, {"size": TOLD}), frame)
    many = Column("x", "ordered", format=" < ".join(map(str, range(50))))
    with pytest.raises(InvalidInputError, match=r"'51.0' in row 1 is not one of 0 < 1 < .* < 18 < \.\.\. < 49 \("):
        many.read(pd.Series([3.0, 51.0, None]))


def test_pandas_own_order_is_taken_over_where_it_can_be_written():
    sizes = pd.CategoricalDtype(SIZES, ordered=True)
    frame = clothes().assign(size=lambda frame: frame["size"].astype(sizes), grade=pd.Categorical([2, 1] * 40, [2, 1]))
    schema = Schema.infer(frame.assign(grade=frame["grade"].cat.as_ordered()))
    assert schema.kinds == {"size": TOLD, "price": "numeric", "worn": "categorical", "grade": "ordered 2 < 1"}
    assert Schema.infer(frame).kinds["grade"] == "categorical"
    odd = pd.Categorical(["a < b", "c"] * 40, ["a < b", "c"], ordered=True)
    assert Schema.infer(frame.assign(size=odd)).kinds["size"] == "categorical"
    assert Schema.infer(frame.assign(size=pd.Categorical(["S"] * 80, SIZES, ordered=True))).used.keys() == {
        "price", "worn", "grade"
    }  # fmt: skip


def test_it_survives_every_way_of_writing_a_schema(tmp_path):
    schema = Schema.infer(clothes(), {"size": 'ordered "S" < M\\ < L < XL'} | {"worn": "ordered M < L"})
    (tmp_path / "kinds.toml").write_text(schema.to_toml())
    assert Schema.from_toml(tmp_path / "kinds.toml").kinds == schema.kinds
    assert Schema.from_dict(schema.to_dict()) == schema


def test_a_run_keeps_the_order_of_seen_and_hidden_columns(tmp_path):
    clothes().to_csv(tmp_path / "a.csv", index=False)
    (tmp_path / "kinds.toml").write_text(f'[columns]\nsize = "{TOLD}"\nworn = "ordered M < L"\n')
    where = {"data": str(tmp_path / "a.csv"), "schema": str(tmp_path / "kinds.toml")}
    fit(Settings(**where, exclude=("worn",), kernel="rbf", m=8, h=2), tmp_path / "run", progress=False)
    (tmp_path / "kinds.toml").unlink()
    space = open_run(tmp_path / "run")
    kinds = {use.name: (use.role, use.kind) for use in column_uses(space)}
    assert kinds == {"size": ("seen", "ordered"), "price": ("seen", "numeric"), "worn": ("hidden", "ordered")}
    assert study(space).space.placed == {"size", "worn"}
    assert "ordered" in str(space.data.encoding.schema)
