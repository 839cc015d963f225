"""``krepes audit`` and ``krepes report``: the same audits, in the terminal and on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from krepes import registry
from krepes.cli import options as o
from krepes.cli.explain import opened
from krepes.cli.flags import Gathered, takes_settings
from krepes.cli.show import console, notes, plain, say, show_json, show_view
from krepes.errors import InvalidInputError
from krepes.runs.settings import flag

OF_A_RUN = ("label", "data_dir", "encoder")
"""Settings that a finished run can still be told."""

Only = Annotated[
    list[str] | None,
    typer.Option("--only", help=f"Ask only this (repeatable): {registry.listed(registry.AUDITS)}."),
]

RUNGS = ("surrogate", "lazy", "warm", "auto")
Method = Annotated[
    str | None,
    typer.Option(
        help=f"How to follow training samples: {registry.listed(RUNGS)}; by default lazy where it is possible."
    ),
]


def audit(
    run: o.Run,
    group: o.Groups = None,
    label: o.Label = None,
    concept: o.Concepts = None,
    predictions: o.Predictions = None,
    only: Only = None,
    everything: Annotated[bool, typer.Option("--all", help="Show the tables behind the findings too.")] = False,
    data: o.Moved = None,
    data_dir: o.DataDir = None,
    encoder: o.Own = None,
    trust_code: o.Trust = False,
    allow_changed_data: o.Changed = False,
    as_json: o.Json = False,
) -> None:
    """Audit a run on its held-out samples: features, groups, proxies, labels, faithfulness, with baselines.

    Example: [bold]krepes audit runs/income --group sex --label income[/]
    """
    from krepes.audit.base import run_audits
    from krepes.runs.answers import study

    audits = registry.chosen(registry.AUDITS, only, "--only")
    space = opened(run, data, data_dir, encoder, trust_code, allow_changed_data)
    asked = study(space, groups=group or (), label=label, predictions=predictions, concepts=concept or ())
    found, missing = run_audits(asked, audits)
    if as_json:
        results = {name: result.to_dict() for name, result in found.items()}
        show_json({"notes": space.notes, "audits": results, "missing": missing})
        return
    for result in found.values():
        mark = {"good": "[green]good[/]", "bad": "[red]look[/]", "neutral": "[blue]note[/]"}[result.verdict]
        console.print(f"{mark} [bold]{plain(result.title)}[/]", highlight=False)
        say(result.sentence)
        for warning in result.warnings:
            notes.print(f"[yellow]warning[/] {plain(warning)}", highlight=False)
        for view in result.views if everything else ():
            show_view(view)
    for name, reason in missing.items():
        console.print(f"[dim]{plain(name)}: {plain(reason)}[/]", highlight=False)
    if not everything:
        console.print("[dim]The tables behind these findings, with their baselines: --all, or --json[/]")


@takes_settings
def report(
    gathered: Gathered,
    out: o.Out = "report.html",
    group: o.Groups = None,
    concept: o.Concepts = None,
    predictions: o.Predictions = None,
    counterfactual: Annotated[bool, typer.Option(help="Ask which training samples would change a sample.")] = True,
    method: Method = None,
    moved: o.Moved = None,
    trust_code: o.Trust = False,
    allow_changed_data: o.Changed = False,
    quiet: o.Quiet = False,
) -> None:
    """Write one self-contained HTML report. DATA is a run folder, or data to fit first with any flag of fit.

    Example: [bold]krepes report table.csv --label income --group sex[/]
    """
    from krepes.report import report_of, write_report
    from krepes.runs.answers import study
    from krepes.runs.fitting import fit as fit_run
    from krepes.runs.store import is_run
    from krepes.storage.files import require_writable

    _require_rung(method)
    require_writable(out, "--out")
    options: dict[str, Any] = {"groups": group or (), "predictions": predictions, "concepts": concept or ()}
    if gathered.data is not None and is_run(gathered.data):
        space = opened(gathered.data, moved, *_of_a_run(gathered), trust_code, allow_changed_data)
    else:
        folder = Path(out).with_suffix("") / "run"
        space = fit_run(gathered.settings(), folder, **options, progress=not quiet)
        say(f"run: {folder}")
    options |= {"label": gathered.flags.get("label"), "counterfactual": counterfactual, "method": method}
    asked = study(space, **options)
    say(str(write_report(report_of(asked), out)))


def _require_rung(method: str | None) -> None:
    """Refuse the name of a rung that is none."""
    if method is not None and method not in RUNGS:
        raise InvalidInputError(f"--method: {method!r} is unknown. Choose one of {registry.listed(RUNGS)}.")


def _of_a_run(gathered: Gathered) -> tuple[str | None, str | None]:
    """Return the folder of data sets and the encoder that were named for a finished run; nothing else can change it."""
    stray = [flag(name) for name in gathered.flags if name not in OF_A_RUN] + ["--config"] * bool(gathered.config)
    if stray:
        raise InvalidInputError(f"{gathered.data} is fitted already: {', '.join(stray)} cannot change it.")
    return gathered.flags.get("data_dir"), gathered.flags.get("encoder")
