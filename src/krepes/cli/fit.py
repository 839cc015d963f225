"""``krepes pretrain`` and ``krepes fit``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from krepes.cli import options as o
from krepes.cli.flags import takes_settings
from krepes.cli.show import say, show_frame, show_json, show_pairs
from krepes.errors import InvalidInputError
from krepes.runs.settings import Settings

if TYPE_CHECKING:
    from krepes.runs.dataset import Dataset
    from krepes.runs.workspace import Workspace


@takes_settings
def pretrain(
    settings: Settings, out: o.Out = "encoder.safetensors", quiet: o.Quiet = False, as_json: o.Json = False
) -> None:
    """Train an encoder without labels, with checkpoints; called again, an interrupted training goes on.

    Example: [bold]krepes pretrain table.csv --label income --encoder resmlp --loss vicreg --epochs 50[/]
    """
    from krepes.runs.training import pretrain_run

    done, finished = pretrain_run(settings, out, progress=not quiet, seen=lambda data: _show_schema(data, as_json))
    if as_json:
        show_json({"weights": out, "trained_before": finished, "history": done})
        return
    show_frame(done.tail(5), "last epochs")
    say(f"{out} was finished before: nothing was trained" if finished else out)


@takes_settings
def fit(
    settings: Settings,
    out: o.Out = "runs/latest",
    dry_run: o.DryRun = False,
    gpus: o.Gpus = None,
    shard: o.Shard = None,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
) -> None:
    """Fit the kernel model of an encoder; without weights an encoder is trained on the spot.

    Example: [bold]krepes fit table.csv --label income --out runs/income[/]

    Example: [bold]krepes fit photos/ --encoder mymodels:backbone --weights ssl.ckpt --objective simclr[/]
    """
    from krepes.runs.fitting import fit as fit_run

    counts = _numbers_of_gpus(gpus, dry_run)
    if dry_run:
        _show_forecast(settings, counts, as_json)
        return
    if shard is not None:
        _fit_part(settings, out, shard, quiet, as_json)
        return
    _show_run(fit_run(settings, out, progress=not quiet), out, as_json)


def _fit_part(settings: Settings, out: str, shard: str, quiet: bool, as_json: bool) -> None:
    from krepes.runs.queue import fit_part, shard_of

    job = shard_of(shard)
    fit_part(settings, out, job, progress=not quiet)
    if as_json:
        show_json({"part": out, "shard": shard})
        return
    say(f"{out}: part {shard} of the pass is done. When all are: krepes merge PART ... --out RUN")


def merge(
    parts: Annotated[list[str], typer.Argument(help="Folders that krepes fit --shard wrote.")],
    out: o.Out = "runs/latest",
    trust_code: o.Trust = False,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
) -> None:
    """Put the parts of a fit together that jobs of a queue did, solve, and write the run.

    Example: [bold]krepes merge parts/1 parts/2 parts/3 parts/4 --out runs/income[/]
    """
    from krepes.runs.queue import merge_parts

    _show_run(merge_parts(parts, out, trust_code=trust_code, progress=not quiet), out, as_json)


def _show_run(run: Workspace, out: str, as_json: bool) -> None:
    if as_json:
        show_json({"run": out, **summary(run)})
        return
    _show_schema(run.data, as_json)
    show_pairs(summary(run), "the fit")
    say(out)


def summary(run: Workspace) -> dict[str, Any]:
    """Return what a fit did, in a few values."""
    solution, spent, unit = run.model.solution_, getattr(run.model, "work_", {}), run.settings.damping_unit
    sampled = {}
    if solution.curvature_error is not None:
        off = f"the step is off by about {100 * solution.curvature_error:.3g} %"
        sampled = {"curvature": f"of {solution.curvature_rows} of {len(run.train)} rows: {off}"}
    return {
        "samples fitted / held out": f"{len(run.train)} / {len(run.test)}",
        "kernel": str(run.model.kernel_choice_),
        "objective": run.model.objective_.name,
        "landmarks": f"{run.model.m} by {run.settings.landmarks}",
        "loss before": solution.loss_before,
        "loss after": solution.loss_after,
        "damping": solution.damping if unit == "relative" else solution.damping_absolute,
        "gain": solution.gain,
        "residual": solution.residual,
        "converged": solution.converged,
        **sampled,
        **({"seconds": ", ".join(f"{name} {cost.seconds:.3g}" for name, cost in spent.items())} if spent else {}),
    }


def _numbers_of_gpus(gpus: str | None, dry_run: bool) -> list[int]:
    """Return what ``--gpus`` says, or nothing."""
    if gpus is None:
        return []
    words = [word.strip() for word in gpus.split(",")]
    if not dry_run or not all(word.isdigit() and int(word) > 0 for word in words):
        raise InvalidInputError(f"--gpus {gpus}: numbers with commas are wanted, such as 1,8,32, with --dry-run.")
    return [int(word) for word in words]


def _show_forecast(settings: Settings, gpus: list[int], as_json: bool) -> None:
    from krepes.runs.forecast import forecast
    from krepes.runs.scaling import READERS, faster, on_gpus

    found = forecast(settings)
    speed = faster(found.rates)
    spread = on_gpus(found.parts, gpus, speed) if gpus else None
    if as_json:
        told = {"phases": found.table, "kernel": str(found.kernel), "counts_exact": found.exact}
        show_json(told if spread is None else {**told, "gpus": spread, "gpu_speed": speed})
        return
    if spread is not None:
        title = f"hours, if a GPU is {speed:.0f} times this machine and {READERS} processes read for it"
        show_frame(spread.round(3), title)
    show_frame(found.table.round({"seconds": 1, "memory MiB": 0, "disk MiB": 1}), "what the fit will cost")
    seconds, memory = float(found.table["seconds"].sum()), float(found.table["memory MiB"].max())
    say(f"together about {seconds:.0f} s, at most {memory:.0f} MiB beside the program itself; kernel: {found.kernel}")
    if not found.exact:
        say("the selector asks the exact kernel as often as it needs: its count is an estimate")
    say("nothing was written")


def _show_schema(dataset: Dataset, as_json: bool) -> None:
    if dataset.encoding is not None and not as_json:
        show_frame(dataset.encoding.schema.to_frame(), "the table, as it was understood (override with --schema)")
