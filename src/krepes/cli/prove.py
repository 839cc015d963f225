"""``krepes prove``: does retraining bear out what a run says of its training samples?"""

from __future__ import annotations

from typing import Annotated

import typer

from krepes.cli import options as o
from krepes.cli.explain import opened
from krepes.cli.show import say, show_frame, show_json


def prove(
    run: o.Run,
    label: o.Label = None,
    minutes: Annotated[
        float,
        typer.Option(help="No half is begun after so many, no scores after half; called again, it goes on.", min=0),
    ] = 30.0,
    halves: Annotated[int, typer.Option(help="Random halves of the training samples, at most.", min=2)] = 60,
    retrainings: Annotated[int, typer.Option(help="Encoders trained on each half.", min=2)] = 2,
    members: Annotated[int, typer.Option(help="Trainings that a replay averages.", min=1)] = 4,
    seed: Annotated[int, typer.Option(help="Of outcomes, halves and their trainings.", min=0)] = 0,
    data: o.Moved = None,
    data_dir: o.DataDir = None,
    encoder: o.Own = None,
    trust_code: o.Trust = False,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
) -> None:
    """Can row-level causes be trusted here? Encoders are retrained on random halves of the run's own data.

    Every rung of `krepes influence` and every baseline predicts what becomes of held-out samples; LDS is the rank
    correlation with what did. With a label the outcome is a sample's margin to its class, without one the pull of its
    neighbours; the similarity of random pairs is always asked about. The result is kept in RUN.proof.

    Example: [bold]krepes prove runs/income --minutes 20[/]
    """
    from krepes.proof.result import counted
    from krepes.runs.proving import prove as prove_run

    space = opened(run, data, data_dir, encoder, trust_code, allow_changed_data=False)
    found = prove_run(
        space,
        label=label,
        minutes=minutes,
        halves=halves,
        retrainings=retrainings,
        members=members,
        seed=seed,
        progress=not quiet,
    )
    verdicts = {outcome: found.verdict(outcome) for outcome in found.outcomes}
    if as_json:
        told = {"halves": found.halves, "verdicts": verdicts, "left_out": dict(found.left_out)}
        show_json({**told, "table": found.table, "costs": found.costs()})
        return
    for outcome in found.outcomes:
        of = found.table[found.table["outcome"] == outcome].drop(columns="outcome")
        show_frame(
            of.rename(columns={"value": "LDS"}), f"{outcome}: {counted(found.halves)}, {retrainings} retrainings each"
        )
    show_frame(found.costs(), "seconds, beside one training")
    for name, why in found.left_out.items():
        say(f"left out, {name}: {why}")
    for outcome, words in verdicts.items():
        say(f"{outcome}: {words}")
