"""Packages of others: imported when they are needed, never reaching for the network, their names checked."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from krepes import registry
from krepes.data.files import foreign
from krepes.data.text import printable
from krepes.data.values import shown
from krepes.encoders.adapters.operators import USERS, mend_torchvision
from krepes.encoders.load import load_encoder
from krepes.encoders.loaded import LoadReport
from krepes.errors import InvalidInputError

OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}


def package(name: str, extra: str) -> Any:
    """Return an installed package; one that imports torchvision, also with a torchvision built for another torch.

    Args:
        name: What is imported.
        extra: The extra of this package that brings it.

    Returns:
        The module.

    Raises:
        InvalidInputError: If it is not installed, or its import fails.
    """
    advice = f"Install it: pip install 'krepes[{extra}]'"
    try:
        with offline(), foreign(f"the package {name} cannot be imported", f"{advice}."):
            if name in USERS and name not in sys.modules:
                mend_torchvision()
            try:
                return importlib.import_module(name)
            except ModuleNotFoundError as error:
                missing = str(error.name)
                needs = "" if missing == name else f", which {name} needs,"
                raise InvalidInputError(
                    f"the package {printable(missing)}{needs} is not installed. {advice}."
                ) from error
    except SystemExit as error:
        raise InvalidInputError(f"importing {name} tried to end the program. {advice}.") from error


@contextmanager
def offline() -> Generator[None, None, None]:
    """Tell packages, while they are imported and called, that there is no network; what they log is not shown.

    They would warn that a network is untrained, or suggest to log in somewhere.
    """
    before = {key: os.environ.get(key) for key in OFFLINE}
    os.environ.update(OFFLINE)
    shown_above = logging.root.manager.disable
    logging.disable(max(shown_above, logging.WARNING))
    try:
        yield
    finally:
        logging.disable(shown_above)
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


def require_name(name: str, known: Collection[str], what: str) -> None:
    """Refuse a name that a package does not know: an address on the network, or a slip of the pen.

    Args:
        name: What was asked for.
        known: What there is.
        what: What the names name, such as ``"model of timm"``.

    Raises:
        InvalidInputError: If it is unknown; the nearest name is suggested.
    """
    if name not in known:
        hint = registry.suggestion(name, known) or f" There are {len(known):,}, such as {', '.join(sorted(known)[:3])}."
        raise InvalidInputError(f"{shown(name)} is no {what}.{hint} Nothing is looked for on the network.")


def require_options(options: Mapping[str, Any], known: Collection[str], what: str) -> None:
    """Refuse options other than the ``known`` ones: some would download weights, or read them from a pickle."""
    for name in options:
        if name not in known:
            hint = registry.suggestion(name, known) or f" It takes {', '.join(sorted(known)) or 'none'}."
            raise InvalidInputError(f"{what} does not take the option {shown(name)} here.{hint}")


def filled(module: nn.Module, weights: str | Path | None, made_by: str, prefix: str = "auto") -> LoadReport | None:
    """Fill a network from a local file.

    Args:
        module: The network; in eval mode afterwards.
        weights: The file.
        made_by: Python code that makes the weights where there is a network, for the message.
        prefix: As in `load_encoder`.

    Returns:
        What was loaded.

    Raises:
        InvalidInputError: If no file was named, or it does not fit.
    """
    if weights is None:
        raise InvalidInputError(
            f"no weights were given, and none are ever downloaded. Pass weights=, a local safetensors file or "
            f"checkpoint. To make one where there is a network: save_file({made_by}.state_dict(), "
            f"'weights.safetensors'), with save_file of safetensors.torch. For an untrained network pass the module."
        )
    return load_encoder(module, weights, prefix=prefix).report
