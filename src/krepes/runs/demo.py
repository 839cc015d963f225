"""The demo: encoders of made-up people, of drawn pictures and of reviews, trained on the spot and audited on one page.

All have a planted truth. The people's sex is hidden from the encoder, and their occupation gives it away. The pictures
show an object before a ground, and an encoder that was never told what matters sorts them by the ground. Some of the
reviews were paid for, and their words say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from krepes.data.export import write_csv
from krepes.data.people import people
from krepes.data.reviews import reviews
from krepes.report import Report, join, report_of, write_report
from krepes.runs.answers import study
from krepes.runs.fitting import fit
from krepes.runs.settings import Settings

TITLE = "KREPES demo"
TABLE, TEXTS = "people.csv", "reviews.csv"


@dataclass(frozen=True)
class Case:
    """One encoder of the demo.

    Attributes:
        title: What it is about.
        settings: How it is trained and fitted.
        groups: Columns that the audit groups by.
        concepts: ``column=value`` to look for.
    """

    title: str
    settings: Settings
    groups: Sequence[str] = ()
    concepts: Sequence[str] = ()


@dataclass(frozen=True)
class Made:
    """What the demo leaves behind.

    Attributes:
        report: Path of the page.
        table: Path of the table of people.
        runs: Folders of the runs.
    """

    report: Path
    table: Path
    runs: tuple[Path, ...]


def cases(table: str, texts: str) -> dict[str, Case]:
    """Return the cases by the name of their run.

    Args:
        table: Path of the table of people.
        texts: Path of the reviews.

    Returns:
        The cases.
    """
    hidden = Settings(data=table, label="income", sensitive=("sex",), m=150, h=24, epochs=15)
    pictures = Settings(
        data="drawings",
        label="object",
        encoder="convnet",
        encoder_options={"width": 16, "out": 64},
        augment="images",
        m=150,
        h=24,
        epochs=12,
    )
    paid = Settings(
        data=texts, text_column="review", label="product", encoder_options={"out": 32}, m=100, h=24, epochs=20
    )
    return {
        "people": Case("People whose sex was hidden from the encoder", hidden, concepts=("occupation=nurse",)),
        "drawings": Case("Drawn pictures: object or ground?", pictures, ("ground",), ("ground=sea", "colour=red")),
        "reviews": Case("Reviews of which some were paid for", paid, ("paid",)),
    }


def run_demo(out: Path, *, progress: bool = True, smaller: float = 1.0) -> Made:
    """Train, explain and audit three encoders, and write one report.

    Same machine, same bytes.

    Args:
        out: Folder for ``report.html``, ``people.csv``, ``reviews.csv`` and ``runs/``; made if it is not there.
        progress: Show bars.
        smaller: Share of the rows, landmarks and epochs to take; less than 1 is for a quick look.

    Returns:
        Where everything lies.
    """
    threads = torch.get_num_threads()
    # One thread: networks this small gain nothing from a second, and sums then have the same order everywhere.
    torch.set_num_threads(1)
    try:
        table, texts = write_csv(people(), out / TABLE), write_csv(reviews(600), out / TEXTS)
        made = {
            name: _part(case, out / "runs" / f"demo-{name}", progress, smaller)
            for name, case in cases(str(table), str(texts)).items()
        }
    finally:
        torch.set_num_threads(threads)
    report = write_report(join(TITLE, list(made.values())), out / "report.html")
    return Made(report, table, tuple(out / "runs" / f"demo-{name}" for name in made))


def _part(case: Case, folder: Path, progress: bool, smaller: float) -> Report:
    settings = case.settings
    if smaller < 1:
        sizes = {name: max(2, round(smaller * getattr(settings, name))) for name in ("m", "h", "epochs")}
        settings = replace(settings, **sizes, max_rows=max(60, round(1500 * smaller)))
    space = fit(settings, folder, groups=case.groups, concepts=case.concepts, progress=progress)
    return report_of(replace(study(space, groups=case.groups, concepts=case.concepts), title=case.title))
