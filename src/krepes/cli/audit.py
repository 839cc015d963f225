"""``krepes audit``: what was found, one line each; the tables behind it on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from krepes import registry
from krepes.cli import options as o
from krepes.cli.explain import opened
from krepes.cli.show import console, notes, plain, say, show_json, show_view

if TYPE_CHECKING:
    from krepes.audit.base import AuditResult
    from krepes.audit.study import Study

MARKS = {"good": "[green]good[/]", "bad": "[red]look[/]", "neutral": "[blue]note[/]"}
COLOURS = {"green": "green", "amber": "yellow", "red": "red", "grey": "blue"}

Only = Annotated[
    list[str] | None,
    typer.Option("--only", help=f"Ask only this (repeatable): {registry.listed(registry.AUDITS)}."),
]


def audit(
    run: o.Run,
    group: o.Groups = None,
    label: o.Label = None,
    concept: o.Concepts = None,
    predictions: o.Predictions = None,
    only: Only = None,
    everything: Annotated[bool, typer.Option("--all", help="Show every audit in full, with its tables.")] = False,
    data: o.Moved = None,
    data_dir: o.DataDir = None,
    encoder: o.Own = None,
    trust_code: o.Trust = False,
    allow_changed_data: o.Changed = False,
    as_json: o.Json = False,
) -> None:
    """Audit a run on its held-out samples: may it be trusted, and what was found, one line each, most news first.

    Example: [bold]krepes audit runs/income --group sex --label income[/]
    """
    from krepes.audit.base import run_audits
    from krepes.audit.wording import drawn
    from krepes.runs.answers import study

    audits = registry.chosen(registry.AUDITS, only, "--only")
    space = opened(run, data, data_dir, encoder, trust_code, allow_changed_data)
    asked = study(space, groups=group or (), label=label, predictions=predictions, concepts=concept or ())
    found, missing = run_audits(asked, audits)
    if as_json:
        looked = drawn(asked.t, asked.drawn_from)
        results = {name: result.to_dict() for name, result in found.items()}
        show_json({"notes": space.notes, "test samples": looked, "audits": results, "missing": missing})
        return
    _show_findings(asked, found)
    if everything:
        _show_all(found)
    for name, reason in missing.items():
        console.print(f"[dim]{plain(name)}: {plain(reason)}[/]", highlight=False, soft_wrap=True)
    if not everything:
        console.print("[dim]The tables behind these findings, with their baselines: --all, or --json[/]")


def _show_findings(asked: Study, found: dict[str, AuditResult]) -> None:
    """Print the light and one line for each audit, most news first."""
    from krepes.audit.light import WORDS, light_of, rules
    from krepes.audit.wording import drawn

    if asked.drawn_from is not None:
        say(f"Held-out samples that were looked at: {drawn(asked.t, asked.drawn_from)}.")
    held = rules(asked, found)
    if held:
        light = light_of(held)
        console.print(f"[bold {COLOURS[light]}]{WORDS[light]}[/]", highlight=False)
        for rule in held:
            if rule.light in {"amber", "red"}:
                say(f"  {rule.asks}: {rule.measured}. {rule.remedy}")
    for result in sorted(found.values(), key=lambda one: -one.news):
        console.print(
            f"{MARKS[result.verdict]} [bold]{result.name:12}[/] {plain(result.plain)}", highlight=False, soft_wrap=True
        )
        for warning in result.warnings:
            notes.print(f"[yellow]warning[/] {plain(warning)}", highlight=False, soft_wrap=True)


def _show_all(found: dict[str, AuditResult]) -> None:
    """Print every audit in full: its sentence, what it does not say, and its tables."""
    for result in sorted(found.values(), key=lambda one: -one.news):
        console.print(f"\n{MARKS[result.verdict]} [bold]{plain(result.title)}[/]", highlight=False)
        say(result.sentence)
        console.print(f"[dim]{plain(result.caveat)}[/]", highlight=False)
        for view in result.views:
            show_view(view)
