"""The application: its commands, its errors and its exit codes.

0: done. 2: something about the input; the message says what to do. 130: interrupted; a fit resumes when called again.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable
from typing import Any

import typer
from rich.markup import escape

from krepes.cli import audit, explain, fit, reproduction
from krepes.cli.show import notes
from krepes.errors import KrepesError

app = typer.Typer(
    name="krepes",
    help="Why does a self-supervised encoder put this sample here, and which training data put it there?",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help"]},
)
COMMANDS: tuple[Callable[..., None], ...] = (
    fit.pretrain,
    fit.fit,
    explain.explain,
    explain.influence,
    audit.audit,
    audit.select,
    audit.report,
    reproduction.reproduce,
    audit.demo,
    audit.info,
)
for command in COMMANDS:
    app.command()(command)


def main() -> None:
    """Run the command line and leave with its exit code."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    logging.getLogger("matplotlib").setLevel(logging.WARNING)
    warnings.showwarning = _say
    try:
        app()
    except KrepesError as error:
        notes.print(f"[bold red]error[/] {escape(str(error))}", highlight=False)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        notes.print("interrupted: what was finished is kept; call the same command again to go on")
        raise SystemExit(130) from None


def _say(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    notes.print(f"[yellow]{category.__name__}[/] {escape(str(message))}", highlight=False)
