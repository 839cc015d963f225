"""The application: its commands, its errors and its exit codes.

0: done. 2: something about the input; the message says what to do. 130: interrupted; a fit resumes when called again.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Annotated, Any

import typer

import krepes
from krepes.cli import audit, curate, explain, explore, fit, prove, report, reproduction, select, tools, whatif
from krepes.cli.show import notes, plain
from krepes.errors import InvalidInputError, KrepesError

app = typer.Typer(
    name="krepes",
    help="Why does a self-supervised encoder put this sample here, and which training data put it there?",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["--help"]},
)
COMMANDS: tuple[Callable[..., None], ...] = (
    fit.pretrain,
    fit.fit,
    fit.merge,
    explain.explain,
    explain.influence,
    whatif.whatif,
    curate.curate,
    prove.prove,
    audit.audit,
    report.report,
    report.diff,
    explore.explore,
    select.select,
    reproduction.reproduce,
    tools.demo,
    tools.info,
    tools.sign,
    tools.verify,
)
for command in COMMANDS:
    app.command()(command)
SHARED = ("fit", "pretrain", "explain", "influence")
"""Commands whose work several processes can share; what of it they cannot is refused where it is asked for."""
ASIDE = ("matplotlib", "filelock", "PIL", "fontTools")
"""Packages whose notes to their own developers are not for our reader."""


def _version(asked: bool) -> None:
    if asked:
        print(f"krepes {krepes.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Take the options that stand before a command."""


def main() -> None:
    """Run the command line and leave with its exit code."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    for name in ASIDE:
        logging.getLogger(name).setLevel(logging.WARNING)
    warnings.showwarning = _say
    debug = "--debug" in sys.argv[1:]
    if debug:
        sys.argv.remove("--debug")
    try:
        _run()
    except KeyboardInterrupt:
        notes.print("interrupted: call the same command again; it goes on from whatever is kept on the way")
        raise SystemExit(130) from None
    except Exception as error:
        if debug:
            raise
        notes.print(f"[bold red]error[/] {_worded(error)}", highlight=False, soft_wrap=True)
        raise SystemExit(2) from None


def _run() -> None:
    """Run the command: alone, or as one of the processes that torchrun started, of which the first speaks."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or "TORCHELASTIC_RUN_ID" not in os.environ:
        app()
        return
    from krepes.processes import connected

    command = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    if command not in SHARED:
        raise InvalidInputError(
            f"krepes {command} runs in one process, and torchrun started {os.environ['WORLD_SIZE']}. Call it without "
            f"torchrun; {', '.join(SHARED)} can share their work."
        )
    with connected() as us:
        if not us.first:
            logging.getLogger("krepes").setLevel(logging.WARNING)
            with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
                app()
        app()


def _worded(error: Exception) -> str:
    """Return an error for a person: ours as it is, any other with its kind and how to see more."""
    if isinstance(error, KrepesError):
        return plain(error)
    if isinstance(error, OSError):
        where = f" {error.filename}" if error.filename else ""
        return plain(f"the system refused{where}: {error.strerror or error}. Check the path, its rights and the disk.")
    if isinstance(error, MemoryError):
        return plain(
            "the memory of the machine did not suffice. Pass a smaller --memory, fewer landmarks or --max-rows."
        )
    return plain(
        f"{type(error).__name__}: {error}. This is unexpected: run krepes --debug ... to see where it came from."
    )


def _say(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    notes.print(f"[yellow]{category.__name__}[/] {plain(message)}", highlight=False, soft_wrap=True)
