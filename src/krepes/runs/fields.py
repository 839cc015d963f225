"""The pieces of a settings field: its help and panel, the names it accepts, and the types that several share."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic.fields import FieldInfo

from krepes import registry
from krepes.budget import Budget

Plain = bool | int | float | str | list[int] | list[float] | list[str] | None
Options = dict[str, Plain]
PANELS = ("Data", "Encoder", "Training on the spot", "Views", "Kernel", "Model", "Machine")


def about(panel: str, help: str, **limits: Any) -> FieldInfo:
    """Return what is known of a field: the panel of the help page it stands in, its help, and its range."""
    return Field(description=help, json_schema_extra={"panel": panel}, **limits)


def one_of(known: tuple[str, ...], *, own: str = "") -> AfterValidator:
    """Return a check that a name is known; ``own`` is a mark, such as ``:``, that tells a name of the user's."""
    return AfterValidator(partial(_require_known, known=known, own=own))


def _require_known(name: str | None, *, known: tuple[str, ...], own: str) -> str | None:
    if name is None or name in known or (own and own in name):
        return name
    if name in registry.KERNELS:
        raise ValueError(f"{name!r} is a kernel without a network: pass it as kernel.")
    hint = registry.suggestion(name, known) or f" Choose one of {registry.listed(known)}."
    raise ValueError(f"{name!r} is unknown.{hint}")


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def require_bytes(size: str) -> str:
    """Return a size in bytes as it was written, or refuse it."""
    Budget.of(size)
    return size


def require_consistent(settings: Any) -> None:
    """Refuse settings that contradict one another.

    Args:
        settings: All of them.

    Raises:
        ValueError: With the contradiction.
    """
    mean, std = settings.mean, settings.std
    if len(mean) != len(std):
        raise ValueError(f"mean has {len(mean)} values and std {len(std)}: give one of each per channel.")
    if any(not value > 0 for value in std):
        raise ValueError(f"std={std} must be positive.")
    if settings.second_options and settings.second_augment is None:
        raise ValueError("second_options were given without second_augment: name the second view's augmentation.")


Texts = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]
Numbers = Annotated[tuple[float, ...], BeforeValidator(_as_tuple)]
Widths = Annotated[tuple[Annotated[int, Field(ge=1, le=2**17)], ...], BeforeValidator(_as_tuple)]
