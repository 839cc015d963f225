"""``krepes audit``, ``select``, ``report``, ``demo`` and ``info``."""

from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from torch import nn

from krepes.attribution import attribute
from krepes.audit import (
    FeatureSpace,
    alignment_gap,
    class_coverage,
    confidence_drop,
    cross_group,
    faithfulness,
    label_consistency,
    rankings,
    select_by_spectrum,
)
from krepes.cli import options as o
from krepes.cli.show import console, show_frame, show_json, show_pairs
from krepes.runs.settings import Settings
from krepes.runs.store import MANIFEST, versions
from krepes.runs.workspace import Workspace, open_run
from krepes.runs.workspace import fit as fit_run


def audit(
    run: o.Run,
    group: o.Groups = None,
    label: o.Label = None,
    data: o.Moved = None,
    as_json: o.Json = False,
) -> None:
    """Audit a run on its held-out rows: features, groups, label consistency, faithfulness, with baselines.

    Example: [bold]krepes audit runs/income --group sex --label income[/]
    """
    space = open_run(run, data=data)
    tables = audit_tables(space, group or [], label or space.settings.label)
    if as_json:
        show_json(tables)
        return
    for title, frame in tables.items():
        show_frame(frame, title)


def audit_tables(space: Workspace, groups: list[str], label: str | None) -> dict[str, Any]:
    """Return the tables of an audit by title; what lacks its input is left out."""
    model, X_test = space.model, space.samples(space.test)
    landmark_rows = space.train[model.landmarks_]
    found = rankings(model, X_test, k=10)
    tables: dict[str, Any] = {}
    columns = space.columns
    if space.source.encoding is not None and columns is not None:
        features = FeatureSpace.of(columns.iloc[space.train.numpy()])
        test, of_landmarks = columns.iloc[space.test.numpy()], columns.iloc[landmark_rows.numpy()]
        gap = alignment_gap(model, X_test, test, of_landmarks, features)
        tables["features that the latent space preserves (alignment gap)"] = gap.ranked()
    for column in groups:
        values = space.source.column(column)
        matrices = cross_group(found, values[landmark_rows.numpy()], values[space.test.numpy()])
        tables[f"groups by {column}: whose landmarks anchor whom"] = matrices["influence"].to_frame()
    if label is not None:
        values = space.source.column(label)
        of_landmarks, of_test = values[landmark_rows.numpy()], values[space.test.numpy()]
        tables["label consistency, beside baselines"] = label_consistency(found, of_landmarks, of_test)
        strength = attribute(model, X_test[:1]).omega
        covered = class_coverage(strength, of_landmarks, classes=values[space.train.numpy()])
        tables["class coverage"] = pd.DataFrame({"finding": [covered.verdict]})
        if isinstance(model.kernel, nn.Module):
            of_train = values[space.train.numpy()]
            tables["faithfulness"] = faithfulness(model, space.samples(space.train), of_train, X_test, of_test)
            voters = max(1, min(50, model.m - 10))
            drop = confidence_drop(model, X_test, of_landmarks, k=voters)
            tables[f"confidence drop of a {voters}-NN after deleting ten landmarks"] = drop
    return tables


def select(
    data: o.Data,
    over: Annotated[str, typer.Option(help="name=v1,v2,...: the objective's hyper-parameter to choose.")],
    out: o.Out = "runs/select",
    config: o.Config = None,
    objective: o.Objective = None,
    encoder: o.Encoder = None,
    weights: o.Weights = None,
    label: o.Label = None,
    m: o.M = None,
    h: o.H = None,
    seed: o.Seed = None,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
) -> None:
    """Choose a hyper-parameter without labels, by spectral entropy; RankMe stands beside it.

    Example: [bold]krepes select digits --over lam=0.0005,0.005,0.05,0.5[/]
    """
    flags = {
        "data": data,
        "objective": objective,
        "encoder": encoder,
        "weights": weights,
        "label": label,
        "m": m,
        "h": h,
        "seed": seed,
    }
    settings = Settings.gather(config, flags)
    name, _, listed = over.partition("=")
    models = {}
    for text in listed.split(","):
        options = {**settings.objective_options, name: o.value(text)}
        chosen = replace(settings, objective_options=options)
        models[text] = fit_run(chosen, Path(out) / f"{name}-{text}", progress=not quiet).model
    selection = select_by_spectrum(models)
    if as_json:
        show_json({"winner": selection.winner, "curve": selection.curve})
        return
    show_frame(selection.curve, f"{name}: normalised spectral entropy and RankMe")
    console.print(f"{name}={selection.winner} has the highest entropy")


def report(
    source: Annotated[str, typer.Argument(help="A run folder, or data to fit first.")],
    out: o.Out = "report.html",
    group: o.Groups = None,
    label: o.Label = None,
    id_column: o.IdColumn = None,
    exclude: o.Exclude = None,
    config: o.Config = None,
    data: o.Moved = None,
    quiet: o.Quiet = False,
) -> None:
    """Write one self-contained HTML report; from data it fits first.

    Example: [bold]krepes report table.csv --label income --group sex[/]
    """
    from krepes.report import build_report, write_report

    if (Path(source) / MANIFEST).exists():
        space = open_run(source, data=data)
    else:
        flags = {"data": source, "label": label, "id_column": id_column, "exclude": exclude}
        settings = Settings.gather(config, flags)
        space = fit_run(settings, Path(out).with_suffix("") / "run", progress=not quiet)
    label = label or space.settings.label
    table = space.columns
    content = build_report(
        space.model,
        X_test=space.samples(space.test),
        test_ids=space.test_ids,
        train_ids=space.train_ids,
        stream=space.stream,
        tables=None if table is None else (table.iloc[space.train.numpy()], table.iloc[space.test.numpy()]),
        groups={name: space.pair(name) for name in group or []} or None,
        labels=None if label is None else space.pair(label),
        inputs=space.source.kind,
        title=f"KREPES report on {Path(space.settings.data).name}",
    )
    console.print(str(write_report(content, out)))


def demo(out: o.Out = ".", quiet: o.Quiet = False) -> None:
    """Train, fit and audit two encoders offline, in a few minutes; report.html goes to the folder --out."""
    from krepes.runs.demo import run_demo

    console.print(str(run_demo(Path(out), progress=not quiet)))


def info(as_json: o.Json = False) -> None:
    """Show versions, and what can be named on the command line."""
    import torch

    from krepes.data import DATASETS
    from krepes.encoders import BUILT_IN
    from krepes.landmarks import SELECTORS
    from krepes.objectives import OBJECTIVES

    values = {
        **versions(),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.is_available(),
        "encoders": ", ".join(sorted(BUILT_IN)),
        "objectives": ", ".join(sorted(OBJECTIVES)),
        "landmarks": ", ".join(sorted(SELECTORS)),
        "data sets": ", ".join(sorted(["digits", "applicants", "adult_1m", *DATASETS])),
    }
    if as_json:
        show_json(values)
        return
    show_pairs(values, "krepes")
