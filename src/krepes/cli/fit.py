"""``krepes pretrain`` and ``krepes fit``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import pandas as pd
import typer

from krepes.cli import options as o
from krepes.cli.show import console, show_frame, show_json, show_pairs
from krepes.encoders import save_weights
from krepes.runs.dataset import Source, open_source, split
from krepes.runs.settings import Settings
from krepes.runs.workspace import Workspace, open_stream, train_encoder
from krepes.runs.workspace import fit as fit_run


def pretrain(
    data: o.Data,
    out: o.Out = "encoder.safetensors",
    config: o.Config = None,
    data_dir: o.DataDir = None,
    schema: o.Schema = None,
    label: o.Label = None,
    exclude: o.Exclude = None,
    size: o.Size = None,
    skip_broken: o.SkipBroken = None,
    encoder: o.Encoder = None,
    encoder_option: o.EncoderOption = None,
    loss: o.Loss = None,
    epochs: o.Epochs = None,
    augment: o.Augment = None,
    seed: o.Seed = None,
    resume: Annotated[bool, typer.Option(help="Go on from an interrupted training with the same --out.")] = False,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
) -> None:
    """Train an encoder without labels, with checkpoints.

    Example: [bold]krepes pretrain table.csv --label income --encoder resmlp --loss vicreg --epochs 50[/]
    """
    settings = Settings.gather(
        config,
        {
            "data": data,
            "data_dir": data_dir,
            "schema": schema,
            "label": label,
            "exclude": exclude,
            "size": size,
            "skip_broken": skip_broken,
            "encoder": encoder,
            "encoder_options": o.pairs(encoder_option),
            "pretrain": loss,
            "epochs": epochs,
            "augment": augment,
            "seed": seed,
        },
    )
    source = open_source(settings)
    _show_schema(source, as_json)
    stream = open_stream(settings, source, split(source.n, settings)[0])
    done = train_encoder(settings, source, stream, checkpoint=f"{out}.checkpoint", resume=resume, progress=not quiet)
    save_weights(done.encoder, out)
    history = pd.DataFrame([asdict(epoch) for epoch in done.history])
    if as_json:
        show_json({"weights": out, "history": history})
        return
    show_frame(history.tail(5), "last epochs")
    console.print(out)


def fit(
    data: o.Data,
    out: o.Out = "runs/latest",
    config: o.Config = None,
    data_dir: o.DataDir = None,
    schema: o.Schema = None,
    id_column: o.IdColumn = None,
    label: o.Label = None,
    exclude: o.Exclude = None,
    size: o.Size = None,
    skip_broken: o.SkipBroken = None,
    encoder: o.Encoder = None,
    encoder_option: o.EncoderOption = None,
    weights: o.Weights = None,
    loss: o.Loss = None,
    epochs: o.Epochs = None,
    augment: o.Augment = None,
    objective: o.Objective = None,
    objective_option: o.ObjectiveOption = None,
    m: o.M = None,
    h: o.H = None,
    landmarks: o.Landmarks = None,
    damping: Annotated[str | None, typer.Option(help="auto, or a number relative to the mean curvature.")] = None,
    steps: Annotated[int | None, typer.Option(help="Gauss-Newton steps; 1 is the paper's.")] = None,
    holdout: Annotated[float | None, typer.Option(help="Share of rows kept from the fit, to be explained.")] = None,
    seed: o.Seed = None,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
) -> None:
    """Fit the kernel model of an encoder; without weights an encoder is trained on the spot.

    Example: [bold]krepes fit table.csv --label income --out runs/income[/]

    Example: [bold]krepes fit photos/ --encoder mymodels:backbone --weights ssl.ckpt --objective simclr[/]
    """
    settings = Settings.gather(
        config,
        {
            "data": data,
            "data_dir": data_dir,
            "schema": schema,
            "id_column": id_column,
            "label": label,
            "exclude": exclude,
            "size": size,
            "skip_broken": skip_broken,
            "encoder": encoder,
            "encoder_options": o.pairs(encoder_option),
            "weights": weights,
            "pretrain": loss,
            "epochs": epochs,
            "augment": augment,
            "objective": objective,
            "objective_options": o.pairs(objective_option),
            "m": m,
            "h": h,
            "landmarks": landmarks,
            "damping": None if damping is None else o.value(damping),
            "steps": steps,
            "holdout": holdout,
            "seed": seed,
        },
    )
    run = fit_run(settings, out, progress=not quiet)
    if as_json:
        show_json({"run": out, **story(run)})
        return
    _show_schema(run.source, as_json)
    show_pairs(story(run), "the fit")
    console.print(out)


def story(run: Workspace) -> dict[str, Any]:
    """Return what a fit did, in a few values."""
    solution = run.model.solution_
    return {
        "samples fitted / held out": f"{len(run.train)} / {len(run.test)}",
        "kernel": str(run.model.kernel_choice_),
        "objective": run.model.objective_.name,
        "landmarks": f"{run.model.m} of {run.settings.landmarks}",
        "loss before": solution.loss_before,
        "loss after": solution.loss_after,
        "damping": solution.damping,
        "gain": solution.gain,
        "residual": solution.residual,
        "converged": solution.converged,
    }


def _show_schema(source: Source, as_json: bool) -> None:
    if source.encoding is not None and not as_json:
        show_frame(source.encoding.schema.to_frame(), "the table, as it was understood (override with --schema)")
