"""The encoder of tables against scikit-learn and by hand; what training rows did not show."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from krepes.data import Schema, TabularEncoder
from krepes.errors import InvalidInputError, NotFittedError

ROUND = dict(rtol=1e-6, atol=1e-6)  # the encoder returns float32


@pytest.fixture
def people():
    rng = np.random.default_rng(0)
    n = 200
    return pd.DataFrame({
        "age": np.where(rng.random(n) < 0.1, np.nan, rng.integers(18, 80, n)),
        "income": rng.lognormal(10, 1, n),
        "city": rng.choice(["Bonn", "Ulm", "Kiel", None], n),
        "member": rng.choice(["yes", "no"], n),
        "joined": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D"),
    })


def encoder_of(frame, **options):
    return TabularEncoder(Schema.infer(frame), **options).fit(frame)


def test_encoding_equals_scikit_learn(people):
    encoder = encoder_of(people)
    filled = people.fillna({"age": people["age"].median(), "city": "(missing)"})
    joined = (filled["joined"] - pd.Timestamp(0)).dt.days
    scaled = StandardScaler().fit_transform(filled[["age", "income"]].assign(joined=joined))
    city = OneHotEncoder(sparse_output=False).fit_transform(filled[["city"]])
    member = (filled[["member"]] == "yes").to_numpy(float)
    missing = people[["age"]].isna().to_numpy(float)
    expected = np.hstack([scaled[:, :1], missing, scaled[:, 1:2], city, member, scaled[:, 2:]])
    X = encoder.transform(people)
    assert X.dtype == torch.float32
    torch.testing.assert_close(X, torch.tensor(expected, dtype=torch.float32), **ROUND)


def test_names_groups_and_ranges_belong_to_the_columns(people):
    encoder = encoder_of(people)
    assert encoder.feature_names == [
        "age", "age is missing", "income", "city=(missing)", "city=Bonn", "city=Kiel", "city=Ulm", "member", "joined",
    ]  # fmt: skip
    assert encoder.groups == {"age": [0, 1], "income": [2], "city": [3, 4, 5, 6], "member": [7], "joined": [8]}
    assert encoder.ranges["income"] == (people["income"].min(), people["income"].max())
    assert encoder.ranges["age"] == (people["age"].min(), people["age"].max())


def test_groups_are_what_the_augmentations_take(people):
    from krepes.views.tabular import feature_of_column

    encoder = encoder_of(people)
    features = feature_of_column(len(encoder.feature_names), list(encoder.groups.values()))
    assert features.tolist() == [0, 0, 1, 2, 2, 2, 2, 3, 4]


def test_statistics_come_from_training_rows_alone(people):
    train, test = people[:100], people[100:].assign(income=lambda frame: frame["income"] * 1000)
    encoder = encoder_of(train)
    before = encoder.to_dict()
    whole = encoder.transform(pd.concat([train, test]))
    assert encoder.to_dict() == before
    torch.testing.assert_close(whole, torch.cat([encoder.transform(train), encoder.transform(test)]), rtol=0, atol=0)
    assert whole[100:, 2].mean() > 100


def test_row_and_column_order_do_not_matter(people):
    encoder = encoder_of(people)
    order = np.random.default_rng(1).permutation(len(people))
    shuffled = people.iloc[order, ::-1]
    torch.testing.assert_close(encoder.transform(shuffled), encoder.transform(people)[order], rtol=0, atol=0)


def test_a_fitted_encoder_survives_json(people):
    encoder = encoder_of(people, unknown="bucket")
    again = TabularEncoder.from_dict(json.loads(json.dumps(encoder.to_dict())))
    torch.testing.assert_close(again.transform(people), encoder.transform(people), rtol=0, atol=0)
    assert (again.groups, again.ranges, again.feature_names) == (encoder.groups, encoder.ranges, encoder.feature_names)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine
@given(st.lists(st.sampled_from(["a", "b", "(missing)", "(unknown)", "1", "1.0", None]), min_size=2, max_size=30))
def test_every_row_has_exactly_one_category(column):
    frame = pd.DataFrame({"x": pd.Series(column, dtype=object)})
    for unknown in ("error", "bucket"):
        X = TabularEncoder(Schema.from_dict({"x": "categorical"}), unknown=unknown).fit(frame).transform(frame)
        torch.testing.assert_close(X.sum(dim=1), torch.ones(len(frame)))


def test_whole_numbers_are_one_category_whatever_their_type():
    encoder = TabularEncoder(Schema.from_dict({"x": "categorical"})).fit({"x": [3, 7, 3]})
    for column in ([7.0], ["7"], np.array([7], dtype=np.int8)):
        assert encoder.transform({"x": column}).tolist() == [[0.0, 1.0]]


def test_an_unknown_category_is_named_with_column_and_row(people):
    other = people.assign(city=["Bonn", "Ulm", "Rome", *["Ulm"] * 197])
    with pytest.raises(InvalidInputError, match="column 'city': 'Rome' in row 2 is no category.*1 of 200"):
        encoder_of(people).transform(other)


def test_an_unknown_category_falls_into_the_bucket_if_asked():
    encoder = encoder_of(pd.DataFrame({"city": ["Bonn", "Ulm", "Ulm"]}), unknown="bucket")
    assert encoder.feature_names == ["city=Bonn", "city=Ulm", "city=(unknown)"]
    assert encoder.transform({"city": ["Rome", None, "Ulm"]}).tolist() == [[0, 0, 1], [0, 0, 1], [0, 1, 0]]


def test_a_gap_where_training_had_none_is_refused_or_filled_with_a_warning():
    frame = pd.DataFrame({"x": [1.0, 2.0, 6.0]})
    gap = pd.DataFrame({"x": [6.0, None]})
    with pytest.raises(InvalidInputError, match="column 'x': 1 values are missing, the first in row 1"):
        encoder_of(frame).transform(gap)
    bucket = encoder_of(frame, unknown="bucket")
    with pytest.warns(UserWarning, match="the median 2 stands in"):
        torch.testing.assert_close(bucket.transform(gap), bucket.transform({"x": [6.0, 2.0]}))


def test_a_gap_in_a_flag_takes_the_more_frequent_and_is_indicated():
    encoder = encoder_of(pd.DataFrame({"x": ["yes", "yes", "no", None]}))
    assert encoder.transform({"x": [None, "no"]}).tolist() == [[1.0, 1.0], [0.0, 0.0]]


def test_a_column_without_spread_in_training_is_finite():
    encoder = TabularEncoder(Schema.from_dict({"x": "numeric"})).fit({"x": [5.0, 5.0]})
    assert encoder.transform({"x": [5.0, 6.0]}).tolist() == [[0.0], [1.0]]


def test_the_callers_frame_is_left_as_it_was(people):
    before = people.copy(deep=True)
    encoder_of(people).transform(people)
    pd.testing.assert_frame_equal(people, before)


def test_what_cannot_be_encoded_is_refused(people):
    schema = Schema.infer(people)
    with pytest.raises(NotFittedError, match=r"Call fit\(table\) first"):
        TabularEncoder(schema).transform(people)
    with pytest.raises(InvalidInputError, match="unknown='skip' is not one of error, bucket"):
        TabularEncoder(schema, unknown="skip")
    with pytest.raises(InvalidInputError, match="all 2 training values are missing"):
        TabularEncoder(Schema.from_dict({"x": "numeric"})).fit({"x": [None, None]})
    with pytest.raises(InvalidInputError, match="none of the 1 columns can be used"):
        TabularEncoder(Schema.from_dict({"x": "ignored"}))


@pytest.mark.slow
def test_a_million_rows_cost_no_more_a_row_than_a_hundred_thousand(people, tmp_path):
    import time

    many = people.sample(1_000_000, replace=True, random_state=0, ignore_index=True)
    many.to_csv(tmp_path / "many.csv", index=False)
    many[:100_000].to_csv(tmp_path / "some.csv", index=False)
    encoder, seconds = encoder_of(people), {}
    for name in ("some", "many", "some", "many"):
        start = time.perf_counter()
        X = encoder.transform(tmp_path / f"{name}.csv")
        seconds[name] = time.perf_counter() - start
    assert X.shape == (1_000_000, 9)
    print(f"\n1,000,000 rows from CSV: {seconds['many'] / seconds['some']:.1f} times the time of 100,000")
    assert seconds["many"] < 20 * seconds["some"]
