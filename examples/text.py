"""Sentences from a list to marked landmarks: made-up reviews, of which some were paid for."""

from __future__ import annotations

import torch

from krepes import Krepes, attribute
from krepes.attribution import agreements
from krepes.audit import label_consistency, rankings
from krepes.data import tokenized
from krepes.data.reviews import reviews
from krepes.encoders import TextEncoder, pretrain
from krepes.views import ViewStream, word_views
from krepes.views.source import RowsOf

TEST = 50


def main() -> None:
    """Train a small encoder of texts, and print held-out reviews beside the landmarks they are made of."""
    table = reviews(250, seed=0)
    texts, labels = tokenized(table["review"].tolist()), table["product"].tolist()
    train, test = torch.arange(TEST, 250), torch.arange(TEST)
    stream = ViewStream(RowsOf(texts, train), word_views(texts.tokenizer.vocabulary), seed=0, batch_size=100)
    torch.manual_seed(0)
    encoder = pretrain(TextEncoder(width=32, out=16), stream, epochs=10, progress=False).encoder
    model = Krepes(encoder, m=50, h=12, progress=False).fit(stream, ids=train.tolist())

    top = attribute(model, texts.take(test[:2]), ids=[0, 1]).top(2)
    rows = train[model.landmarks_]
    pairs = [(i, int(l)) for i in range(2) for l in top.indices[i]]
    samples = (texts.take(test[:2]), texts.texts[:2])
    others = (texts.take(rows), [texts.texts[row] for row in rows.tolist()])
    found = agreements(model, texts.tokenizer, samples, others, pairs)
    for place, (i, landmark) in enumerate(pairs):
        print(f"{i}: {found.samples[i]}\n   landmark {int(rows[landmark])}: {found.others[place]}")

    ranked = rankings(model, texts.take(test), k=5)
    of_landmarks = [labels[row] for row in rows.tolist()]
    judged = label_consistency(ranked, of_landmarks, labels[:TEST], depths=[5])
    print(judged[judged["metric"] == "precision"][["method", "estimate", "low", "high"]])


if __name__ == "__main__":
    main()
