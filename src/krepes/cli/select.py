"""``krepes select``: choose a setting of the training or of the objective without labels."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from krepes.cli import options as o
from krepes.cli.flags import takes_settings, value
from krepes.cli.show import say, show_frame, show_json
from krepes.errors import InvalidInputError
from krepes.runs.settings import Settings

if TYPE_CHECKING:
    import pandas as pd

    from krepes.audit.selection import Selection

LIST = re.compile(r"[0-9.e+-]+(x[0-9.e+-]+)+")
"""A list of numbers as one value, such as 256x256 of --over projector."""

HEADS = {"entropy": "H(AᵀA)", "entropy_kernel": "H(AᵀKA)", "rankme": "RankMe", "encoder_rankme": "encoder RankMe"}


@takes_settings
def select(
    settings: Settings,
    over: Annotated[
        str,
        typer.Option(
            help="name=v1,v2,...: what to choose, such as lam, lr, epochs, loss_options.lam, or weights for given "
            "encoders. A list is written 256x256."
        ),
    ],
    by: Annotated[
        str | None,
        typer.Option(
            help="The criterion that picks: retrieval (default), encoder_rankme, entropy (the paper's), entropy_kernel "
            "or rankme."
        ),
    ] = None,
    out: o.Out = "runs/select",
    quiet: o.Quiet = False,
    as_json: o.Json = False,
) -> None:
    """Choose a setting without labels: one encoder per value, criteria side by side, no collapsed encoder.

    Example: [bold]krepes select digits --over lam=0.0005,0.005,0.05,0.5 --epochs 10[/]

    Example: [bold]krepes select photos/ --over weights=a.safetensors,b.safetensors --encoder mymodels:backbone[/]
    """
    from krepes.runs.selection import select as select_run

    name, values = grid(over)
    found = select_run(settings, name, values, out, by=by, progress=not quiet)
    words = sentence(found, name)
    if as_json:
        picks = {"over": name, "by": found.by, "winner": found.winner, "winners": found.winners}
        show_json({**picks, "curve": found.curve, "sentence": words, "out": out})
        return
    judged = "; probe has seen labels and only judges" if "probe" in found.curve else ""
    show_frame(_heads(found), f"{name}: criteria without labels, larger is better{judged}")
    say(words)
    say(out)


def _heads(found: Selection) -> pd.DataFrame:
    """Return the curve under short names, without what there is nothing to say of."""
    kept = [name for name in found.curve if name != "collapsed" or (found.curve[name] != "").any()]
    return found.curve[kept].rename(columns=HEADS)


def grid(over: str) -> tuple[str, list[Any]]:
    """Return what varies and its values from ``name=v1,v2,...``.

    Args:
        over: As it was typed.

    Returns:
        The name, and values as the settings want them.

    Raises:
        InvalidInputError: If it does not read so.
    """
    name, equals, listed = over.partition("=")
    texts = [text.strip() for text in listed.split(",") if text.strip()]
    if not equals or not name.strip() or not texts:
        raise InvalidInputError(f"--over {over!r} is not name=v1,v2,...: name what varies and its values.")
    name = name.strip().replace("-", "_")
    return name, [_value(name, text) for text in texts]


def _value(name: str, text: str) -> Any:
    if name == "weights":
        return text
    if name == "projector" and text == "none":
        return ()
    if LIST.fullmatch(text):
        return [value(part) for part in text.split("x")]
    found = value(text)
    return [found] if name == "projector" else found


def sentence(found: Selection, name: str) -> str:
    """Return the choice in words, what the other criteria would pick, and how many encoders collapsed."""
    from krepes.audit.selection import CRITERIA

    dead = int((found.curve["collapsed"] != "").sum())
    gone = f" {dead} of {len(found.curve)} encoders collapsed and cannot be picked." if dead else ""
    if found.winner is None:
        return f"no value of {name} can be picked.{gone}"
    others = [f"{CRITERIA[key]} {pick}" for key, pick in found.winners.items() if key != found.by and pick is not None]
    beside = f" Others would pick: {', '.join(others)}." if others else ""
    return f"{name}={found.winner} is picked by {CRITERIA[found.by]}.{beside}{gone}"
