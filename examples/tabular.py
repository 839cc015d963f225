"""A table from CSV to report, step by step: the encoder never sees the group, its district tells.

The people are made up: each group lives mostly in a district of its own. Everything is written to a temporary folder.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from krepes import Krepes, attribute
from krepes.audit import FeatureSpace, alignment_gap, cross_group, rankings
from krepes.data import Schema, TabularEncoder, applicants, read_table
from krepes.encoders import MLP, pretrain
from krepes.influence import influence_of, similarity
from krepes.report import build_report, write_report
from krepes.views import Compose, FeatureDrop, GaussianNoise, ViewStream

TRAIN = 500


def main(folder: Path) -> Path:
    """Run every step on a table in ``folder`` and return the path of the report."""
    applicants(650, seed=0).frame.to_csv(folder / "people.csv", index=False)
    people = read_table(folder / "people.csv")
    train, test = people.iloc[:TRAIN], people.iloc[TRAIN:]
    schema = Schema.infer(train, override={"group": "ignored"})
    print(schema, end="\n\n")

    encoding = TabularEncoder(schema).fit(train)
    X, X_test = encoding.transform(train), encoding.transform(test)
    augment = Compose(FeatureDrop(0.2, groups=list(encoding.groups.values())), GaussianNoise(0.1))
    stream = ViewStream(X, augment, seed=0)
    torch.manual_seed(0)
    encoder = pretrain(MLP(X.shape[1], width=64, out=32), stream, epochs=10, progress=False).encoder
    model = Krepes(encoder, m=80, h=16, progress=False).fit(stream)

    print("made of:", attribute(model, X_test[:1]).to_frame(k=3), sep="\n", end="\n\n")
    pair = similarity(model, X_test[:1], X_test[1:2], name="test rows 0 and 1 alike")
    print("would change:", influence_of(model, pair, progress=False).top(3, by="magnitude"), sep="\n", end="\n\n")

    landmarks = train.iloc[model.landmarks_.numpy()]
    gap = alignment_gap(model, X_test, test, landmarks, FeatureSpace.of(train))
    print(gap.ranked()[["column", "estimate", "low", "high"]], end="\n\n")
    groups = cross_group(rankings(model, X_test, k=1), landmarks["group"], test["group"])["influence"].to_frame()
    print(groups[groups["group"] == groups["landmark_group"]][["group", "share", "expected", "lift"]], end="\n\n")

    pairs = {"group": (train["group"].tolist(), test["group"].tolist())}
    report = build_report(model, X_test=X_test, tables=(train, test), groups=pairs, inputs="table")
    return write_report(report, folder / "report.html")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        print(f"report of {main(Path(place)).stat().st_size:,} bytes")
