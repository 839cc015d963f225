"""The product: settings in, a workspace of data, encoder and model, a run folder out. Names are imported when used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from krepes.registry import load

if TYPE_CHECKING:
    from krepes.runs.answers import study
    from krepes.runs.fitting import fit
    from krepes.runs.opening import open_run
    from krepes.runs.selection import select
    from krepes.runs.settings import Settings
    from krepes.runs.signing import sign_run, verify_run
    from krepes.runs.workspace import Workspace

_HOMES = {
    "Settings": "krepes.runs.settings:Settings",
    "Workspace": "krepes.runs.workspace:Workspace",
    "fit": "krepes.runs.fitting:fit",
    "open_run": "krepes.runs.opening:open_run",
    "select": "krepes.runs.selection:select",
    "sign_run": "krepes.runs.signing:sign_run",
    "study": "krepes.runs.answers:study",
    "verify_run": "krepes.runs.signing:verify_run",
}

__all__ = ["Settings", "Workspace", "fit", "open_run", "select", "sign_run", "study", "verify_run"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'krepes.runs' has no attribute {name!r}")
    return load(_HOMES[name])


def __dir__() -> list[str]:
    return __all__
