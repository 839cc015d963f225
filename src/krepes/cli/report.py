"""``krepes report`` and ``krepes diff``: what was found, on one page; and whether it stands in another run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from krepes import registry
from krepes.cli import options as o
from krepes.cli.explain import opened
from krepes.cli.flags import Gathered, takes_settings
from krepes.cli.show import console, notes, plain, say, show_json, show_rows
from krepes.errors import InvalidInputError
from krepes.runs.settings import flag

if TYPE_CHECKING:
    from krepes.audit.standing import Comparison
    from krepes.runs.workspace import Workspace

OF_A_RUN = ("label", "data_dir", "encoder")
"""Settings that a finished run can still be told."""
RUNGS = ("surrogate", "lazy", "warm", "replay", "auto")
Method = Annotated[
    str | None,
    typer.Option(
        help=f"How to follow training samples: {registry.listed(RUNGS)}; by default the rung that krepes prove found "
        "best for the run, if there is a proof and two minutes are enough, else lazy where it is possible."
    ),
]
Seeds = Annotated[
    int,
    typer.Option("--seeds", help="Fit so many runs with other seeds and mark every finding as stable or not.", min=1),
]
Against = Annotated[
    list[str] | None,
    typer.Option("--against", help="Another run of the same data to compare the findings with (repeatable)."),
]


@takes_settings
def report(
    gathered: Gathered,
    out: o.Out = "report.html",
    group: o.Groups = None,
    concept: o.Concepts = None,
    predictions: o.Predictions = None,
    counterfactual: Annotated[bool, typer.Option(help="Ask which training samples would change a sample.")] = True,
    method: Method = None,
    seeds: Seeds = 1,
    against: Against = None,
    moved: o.Moved = None,
    trust_code: o.Trust = False,
    allow_changed_data: o.Changed = False,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
) -> None:
    """Write one self-contained HTML report. DATA is a run folder, or data to fit first with any flag of fit.

    With --json everything that the page says is printed too, tables and all.

    Example: [bold]krepes report table.csv --label income --group sex[/]

    Example: [bold]krepes report table.csv --label income --sensitive sex --seeds 3[/]
    """
    from dataclasses import replace

    from krepes.report import report_of, write_report
    from krepes.runs.comparing import audited
    from krepes.storage.files import require_writable

    _require_possible(method, seeds, moved)
    require_writable(out, "--out")
    opening = (moved, *_encoder_of(gathered), trust_code, allow_changed_data)
    options: dict[str, Any] = {"groups": group or (), "predictions": predictions, "concepts": concept or ()}
    space = _space(gathered, out, options, opening, progress=not quiet)
    options["label"] = gathered.flags.get("label")
    others = _others(space, out, seeds, against or [], opening, progress=not quiet)
    found = audited(space, **options, counterfactual=counterfactual, method=method, by_proof=True)
    standing = _standing(found.results, others, options)
    asked = found.study if standing is None else replace(found.study, standing=standing)
    written = report_of(asked, results=found.found)
    path = write_report(written, out)
    tell = notes.print if as_json else console.print
    tell(plain(f"run: {space.folder}"), highlight=False, soft_wrap=True)
    tell(plain(str(path)), highlight=False, soft_wrap=True)
    if as_json:
        show_json(written.to_dict())


def diff(
    run: o.Run,
    other: Annotated[list[str], typer.Argument(help="One or more other runs of the same data.")],
    group: o.Groups = None,
    label: o.Label = None,
    concept: o.Concepts = None,
    everything: Annotated[bool, typer.Option("--all", help="Show what stands in no run too.")] = False,
    data: o.Moved = None,
    data_dir: o.DataDir = None,
    encoder: o.Own = None,
    trust_code: o.Trust = False,
    allow_changed_data: o.Changed = False,
    as_json: o.Json = False,
) -> None:
    """Which findings stand in two runs of the same data, and which do not? Encoders, seeds or settings may differ.

    Example: [bold]krepes diff runs/income runs/income-seed-1 --group sex[/]
    """
    from krepes.runs.comparing import named_runs, side_by_side

    opening = (data, data_dir, encoder, trust_code, allow_changed_data)
    spaces = {
        name: opened(folder, *opening) for name, folder in zip(named_runs([run, *other]), [run, *other], strict=True)
    }
    found = side_by_side(spaces, groups=group or (), label=label, concepts=concept or ())
    if as_json:
        show_json({"sentence": found.sentence(), "runs": found.runs, "findings": found.to_frame()})
        return
    say(found.sentence())
    _show(found, everything)


def _show(found: Comparison, everything: bool) -> None:
    rows = [
        (
            "not asked" if None in one.stands else "stable" if one.stable else "not stable",
            one.name,
            *("–" if estimate is None else f"{estimate}" for estimate in one.estimates),
            one.word + ("; intervals apart" if one.apart else ""),
        )
        for one in (found.standings if everything else (*found.found, *found.elsewhere))
    ]
    show_rows("findings", ["answer", "finding", *found.runs, "where"], rows, [])


def _space(gathered: Gathered, out: str, options: dict[str, Any], opening: Any, *, progress: bool) -> Workspace:
    """Return the run that was named, or one that is fitted now and lies beside the report."""
    from krepes.runs.fitting import fit as fit_run
    from krepes.runs.store import is_run

    if gathered.data is not None and is_run(gathered.data):
        _require_nothing_new(gathered)
        return opened(gathered.data, *opening)
    return fit_run(gathered.settings(), Path(out).with_suffix("") / "run", **options, progress=progress)


def _others(
    space: Workspace, out: str, seeds: int, against: list[str], opening: Any, *, progress: bool
) -> dict[str, Workspace]:
    """Return the runs that the findings are compared with, by name."""
    from krepes.runs.comparing import named_runs, repeated, require_same_data

    found = {} if seeds < 2 else repeated(space, Path(out).with_suffix(""), seeds, progress=progress)
    if against:
        found = found or {"this run": space}
        found |= {name: opened(folder, *opening) for name, folder in zip(named_runs(against), against, strict=True)}
        require_same_data(found)
    return found


def _standing(results: Any, others: dict[str, Workspace], options: dict[str, Any]) -> Comparison | None:
    """Return the findings of all runs side by side; the first is this one, which is audited already."""
    from krepes.audit.standing import compare
    from krepes.runs.comparing import audited

    if not others:
        return None
    first, *rest = others
    return compare({first: results, **{name: audited(others[name], **options).results for name in rest}})


def _require_possible(method: str | None, seeds: int, moved: str | None) -> None:
    """Refuse the name of a rung that is none, and other seeds of data that moved."""
    if seeds > 1 and moved is not None:
        raise InvalidInputError("--seeds fits again, on the data that the run names: it does not go with --data.")
    if method is not None and method not in RUNGS:
        raise InvalidInputError(f"--method: {method!r} is unknown. Choose one of {registry.listed(RUNGS)}.")


def _encoder_of(gathered: Gathered) -> tuple[str | None, str | None]:
    """Return the folder of data sets and the encoder that were named."""
    return gathered.flags.get("data_dir"), gathered.flags.get("encoder")


def _require_nothing_new(gathered: Gathered) -> None:
    """Refuse settings that a finished run cannot take any more."""
    stray = [flag(name) for name in gathered.flags if name not in OF_A_RUN] + ["--config"] * bool(gathered.config)
    if stray:
        raise InvalidInputError(f"{gathered.data} is fitted already: {', '.join(stray)} cannot change it.")
