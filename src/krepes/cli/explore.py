"""``krepes explore``: a live page on one run, or on two side by side."""

from __future__ import annotations

from typing import Annotated

import typer

from krepes.cli import options as o
from krepes.cli.explain import opened
from krepes.cli.show import say


def explore(
    run: o.Run,
    run2: Annotated[str | None, typer.Argument(help="A second run of the same samples, to compare with.")] = None,
    group: o.Groups = None,
    label: o.Label = None,
    port: Annotated[int, typer.Option(help="To listen on; 0 for any that is free.", min=0, max=65535)] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
    data: o.Moved = None,
    data_dir: o.DataDir = None,
    encoder: o.Own = None,
    trust_code: o.Trust = False,
    allow_changed_data: o.Changed = False,
    quiet: o.Quiet = False,
) -> None:
    """Explore a run in the browser: map, samples, concepts, what-if, groups. Served to this machine alone.

    Example: [bold]krepes explore runs/income --group sex[/]

    Example: [bold]krepes explore runs/one runs/other --no-browser[/]
    """
    from krepes.explore.server import Server, require_packages
    from krepes.explore.subject import of_workspace

    require_packages()
    folders = [run] if run2 is None else [run, run2]
    spaces = [opened(folder, data, data_dir, encoder, trust_code, allow_changed_data) for folder in folders]
    subjects = [of_workspace(space, groups=group or (), label=label) for space in spaces]
    server = Server.of(subjects, port=port, progress=not quiet)
    say(server.address)
    say("Only this machine can open it, with this address. Ctrl-C ends it.")
    if browser:
        import webbrowser

        webbrowser.open(server.address)
    server.run()
