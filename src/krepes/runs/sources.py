"""Files that settings are written in."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from krepes.errors import InvalidInputError


def read_settings(path: str | Path) -> dict[str, Any]:
    """Return the plain values of a settings file, TOML or JSON.

    Args:
        path: The file.

    Returns:
        Values by key.

    Raises:
        InvalidInputError: If it cannot be read, or does not hold keys and values.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        values = json.loads(text) if Path(path).suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"the settings file {path} cannot be read: {error}.") from error
    if not isinstance(values, dict):
        raise InvalidInputError(f"the settings file {path} holds a {type(values).__name__}, not keys and values.")
    return values
