"""The demo: encoders of digits, of made-up applicants and of made-up reviews, trained on the spot, on one page."""

from __future__ import annotations

from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from krepes.concepts import ConceptVector
from krepes.data.reviews import reviews
from krepes.data.synthetic import applicants
from krepes.data.tokens import tokenized
from krepes.encoders import MLP, TextEncoder, pretrain
from krepes.model import Krepes
from krepes.report import Report, build_report, join, write_report
from krepes.views import GaussianNoise, RandomResizedCrop, ViewStream, word_views
from krepes.views.source import RowsOf

TITLE = "KREPES demo"
HELD_OUT = 300
REVIEWS_HELD_OUT = 150


def run_demo(out: Path, *, progress: bool = True) -> Path:
    """Train, explain and audit three encoders, and write one report.

    Same machine, same bytes.

    Args:
        out: Folder for ``report.html``; made if it is not there.
        progress: Show bars.

    Returns:
        Path of the report.
    """
    threads = torch.get_num_threads()
    # One thread: networks this small gain nothing from a second, and sums then have the same order everywhere.
    torch.set_num_threads(1)
    try:
        parts = [make(progress=progress) for make in (digits_report, applicants_report, reviews_report)]
    finally:
        torch.set_num_threads(threads)
    return write_report(join(TITLE, parts), out / "report.html")


def digits_report(*, n: int = 1497, epochs: int = 40, m: int = 200, progress: bool = True) -> Report:
    """Audit an MLP that Barlow Twins taught to recognise crops of the same handwritten digit.

    Args:
        n: Training images, of the 1497 that are not held out.
        epochs: Of the training.
        m: Landmarks.
        progress: Show bars.

    Returns:
        The report.
    """
    digits = load_digits()
    images = torch.tensor(digits.images / 16.0, dtype=torch.float32)[:, None]
    train, test = images[:-HELD_OUT][:n], images[-HELD_OUT:]
    labels = digits.target[:-HELD_OUT][:n].tolist(), digits.target[-HELD_OUT:].tolist()
    stream = ViewStream(train, RandomResizedCrop(scale=(0.7, 1.0)), seed=0)
    encoder = _trained(MLP(64, width=256, depth=2, out=64), stream, epochs, progress)
    model = Krepes(encoder, m=m, h=32, progress=progress).fit(stream)
    ideas = {"closed loop": {0, 6, 8, 9}, "straight stroke": {1, 4, 7}, "seven": {7}}
    concepts = [_concept(model, train, [y in digits_of for y in labels[0]], name) for name, digits_of in ideas.items()]
    return build_report(
        model,
        X_test=test,
        groups={"digit": labels},
        labels=labels,
        concepts=concepts,
        inputs="image",
        title="Handwritten digits",
    )


def applicants_report(*, n: int = 2000, epochs: int = 20, m: int = 200, progress: bool = True) -> Report:
    """Audit an MLP trained on applicants whose group it never saw; their district gives it away.

    Args:
        n: Training rows.
        epochs: Of the training.
        m: Landmarks.
        progress: Show bars.

    Returns:
        The report.
    """
    people = applicants(n + HELD_OUT, seed=0, encode_driver=False)
    train, test = people.X[:n], people.X[n:]
    tables = people.frame.iloc[:n], people.frame.iloc[n:]
    stream = ViewStream(train, GaussianNoise(people.jitter), seed=0)
    encoder = _trained(MLP(train.shape[1], width=128, depth=2, out=32), stream, epochs, progress)
    model = Krepes(encoder, m=m, h=16, progress=progress).fit(stream)
    housing = (tables[0]["housing"] == "owns").tolist()
    east = (tables[0]["district"] == "east").tolist()
    return build_report(
        model,
        X_test=test,
        tables=tables,
        groups={name: (tables[0][name].tolist(), tables[1][name].tolist()) for name in ("group", "district")},
        hidden=("group",),
        concepts=[_concept(model, train, east, "district east"), _concept(model, train, housing, "home owner")],
        inputs="table",
        title="Applicants whose group was hidden",
    )


def reviews_report(*, n: int = 450, epochs: int = 20, m: int = 100, progress: bool = True) -> Report:
    """Audit an encoder of short texts, of which some were paid for; it never saw which.

    Args:
        n: Reviews for training.
        epochs: Of the training.
        m: Landmarks.
        progress: Show bars.

    Returns:
        The report.
    """
    table = reviews(n + REVIEWS_HELD_OUT, seed=0)
    texts, beside = tokenized(table["review"].tolist()), table.drop(columns="review")
    train, test = torch.arange(n), torch.arange(n, len(table))
    stream = ViewStream(RowsOf(texts, train), word_views(texts.tokenizer.vocabulary), seed=0, batch_size=128)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        encoder = TextEncoder(out=32)
    pretrain(encoder, stream, loss="barlow_twins", epochs=epochs, progress=progress)
    model = Krepes(encoder, m=m, h=24, progress=progress).fit(stream)
    return build_report(
        model,
        X_test=texts.take(test),
        tables=(beside.iloc[:n], beside.iloc[n:]),
        groups={"paid": (beside["paid"][:n].tolist(), beside["paid"][n:].tolist())},
        labels=(beside["product"][:n].tolist(), beside["product"][n:].tolist()),
        hidden=tuple(beside.columns),
        inputs="text",
        texts=(list(texts.texts[:n]), list(texts.texts[n:])),
        tokenizer=texts.tokenizer,
        title="Reviews of which some were paid for",
    )


def _trained(encoder: nn.Module, stream: ViewStream, epochs: int, progress: bool) -> nn.Module:
    """Return the encoder, its start drawn again from a fixed seed, trained and in eval mode."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for module in encoder.modules():
            if isinstance(module, nn.Linear):
                module.reset_parameters()
    pretrain(encoder, stream, loss="barlow_twins", epochs=epochs, progress=progress)
    return encoder.eval()


def _concept(model: Krepes, X: Tensor, member: list[bool], name: str) -> ConceptVector:
    chosen = torch.tensor(member)
    return ConceptVector.fit(model, X[chosen][:150], X[~chosen][:600], name=name)
