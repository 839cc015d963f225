"""``krepes demo``, ``info``, ``sign`` and ``verify``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from krepes import registry
from krepes.cli import options as o
from krepes.cli.show import say, show_json, show_pairs
from krepes.preset import presets


def demo(out: o.Out = ".", quiet: o.Quiet = False) -> None:
    """Train, fit and audit three encoders offline, in a few minutes; report.html goes to the folder --out."""
    from krepes.runs.demo import run_demo

    say(str(run_demo(Path(out), progress=not quiet)))


def info(as_json: o.Json = False) -> None:
    """Show versions, and what can be named on the command line."""
    import platform

    import torch

    from krepes.runs.store import versions

    values = {
        **versions(),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.is_available(),
        "encoders": registry.listed(registry.ENCODERS),
        "losses": registry.listed(registry.LOSSES),
        "kernels": registry.listed([*registry.TANGENT, *registry.KERNELS]),
        "objectives": registry.listed(registry.OBJECTIVES),
        "landmarks": registry.listed(registry.LANDMARKS),
        "views": registry.listed(registry.AUGMENTATIONS),
        "presets": registry.listed(presets),
        "audits": registry.listed(registry.AUDITS),
        "data sets": registry.listed(sorted([*registry.EMBEDDED, "adult_1m", *registry.DATASETS])),
    }
    if as_json:
        show_json(values)
        return
    show_pairs(values, "krepes")


def sign(
    run: o.Run,
    key: Annotated[str, typer.Option(help="File of an Ed25519 private key (PEM); made if it does not exist.")],
) -> None:
    """Sign a run, so that others can verify who made it; the public key goes beside the private one.

    Example: [bold]krepes sign runs/income --key mine.pem[/]
    """
    from krepes.runs.signing import sign_run

    say(f"signed; others verify with {sign_run(run, key)}")


def verify(
    run: o.Run,
    key: Annotated[str | None, typer.Option(help="File of the signer's public key (PEM).")] = None,
) -> None:
    """Check every hash of a run, and its signature if a public key is given.

    Example: [bold]krepes verify runs/income --key mine.pem.pub[/]
    """
    from krepes.runs.signing import verify_run

    say(verify_run(run, key))
