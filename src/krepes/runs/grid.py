"""A grid of settings: one name, several values, and where each value goes."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from krepes import registry
from krepes.encoders.losses import LOSSES
from krepes.encoders.pretrain import options_of
from krepes.errors import InvalidInputError
from krepes.runs.adapting import has_weights
from krepes.runs.losses import is_own_loss, named_loss
from krepes.runs.settings import FIELDS, Settings, flag, panel

OPTIONS = ("loss_options", "objective_options", "encoder_options", "augment_options", "second_options")
"""Settings whose single entries can be varied, as ``loss_options.lam``."""
OF_TRAINING = tuple(
    name
    for name in FIELDS
    if panel(name) in {"Training on the spot", "Views"} and name not in {*OPTIONS, "save_every", "min_spread"}
)
VARIED = (*OF_TRAINING, "encoder", "weights", "objective")
"""Settings that decide the encoder or the objective: the ones a selection is about."""
VICREG = {"inv_weight": 0, "var_weight": 1, "cov_weight": 2}
"""Weights of the objective, and their places in the option ``weights`` of the loss of the same name."""
LONGEST = 60


@dataclass(frozen=True)
class Variant:
    """One value of a grid.

    Attributes:
        value: As it was given; a list as text, such as ``256x256``.
        settings: With the value where it belongs.
        slug: A name for its files.
    """

    value: Any
    settings: Settings
    slug: str


def make_grid(settings: Settings, name: str, values: Sequence[Any]) -> tuple[Variant, ...]:
    """Return settings for each value of one name.

    Args:
        settings: What all values share.
        name: One of `VARIED`; an entry of options, such as ``loss_options.lam``; or a hyper-parameter of the loss or of
            the objective, such as ``lam``, which goes to both where both take it.
        values: At least one, none twice.

    Returns:
        One variant per value, in their order.

    Raises:
        InvalidInputError: If the name is unknown or decides nothing here, or a value cannot be used.
    """
    if not values or len({_text(value) for value in values}) < len(values):
        raise InvalidInputError(f"--over {name}: give at least one value, and none twice; got {list(values)}.")
    _require_training(settings, name)
    return tuple(Variant(_shown(value), _varied(settings, name, value), _slug(name, value)) for value in values)


def is_trained(settings: Settings) -> bool:
    """Say whether an encoder is trained for some settings, not given and not left out for a kernel."""
    return not has_weights(settings) and settings.kernel not in registry.KERNELS


def _require_training(settings: Settings, name: str) -> None:
    """Refuse to vary a training where nothing is trained."""
    if name in {"weights", "encoder"} and settings.kernel in registry.KERNELS:
        raise InvalidInputError(
            f"--over {name}: {flag('kernel')} {settings.kernel} has no encoder. Leave {flag('kernel')} out."
        )
    of_training = name in OF_TRAINING or name.split(".")[0] in {"loss_options", "encoder_options"}
    if of_training and not is_trained(settings):
        given = f"{flag('weights')} was given" if has_weights(settings) else f"{flag('kernel')} has no encoder"
        raise InvalidInputError(f"--over {name} varies the training, and nothing is trained: {given}. Leave it out.")


def _varied(settings: Settings, name: str, value: Any) -> Settings:
    part, _, key = name.partition(".")
    try:
        if name in VARIED:
            return replace(settings, **{name: value})
        if part in OPTIONS and key:
            entry: dict[str, Any] = {part: {**getattr(settings, part), key: value}}
            return replace(settings, **entry)
        return _with_option(settings, name, value)
    except InvalidInputError as error:
        raise InvalidInputError(f"--over {name}={_text(value)}: {error}") from error


def _with_option(settings: Settings, name: str, value: Any) -> Settings:
    """Return settings whose loss and objective have a hyper-parameter, as far as they take it."""
    made = registry.load(registry.OBJECTIVES[settings.objective])
    objective = [entry.name for entry in dataclasses.fields(made)]
    loss = _loss_options(settings) if is_trained(settings) else []
    if name not in {*objective, *loss}:
        known = list(dict.fromkeys([*loss, *objective, *VARIED, *(f"{part}.NAME" for part in OPTIONS)]))
        raise InvalidInputError(
            f"there is nothing of that name to vary.{registry.suggestion(name, known)} Known are {', '.join(known)}."
        )
    changes: dict[str, Any] = {}
    if name in objective:
        changes["objective_options"] = {**settings.objective_options, name: value}
    if name in loss:
        changes["loss_options"] = {**settings.loss_options, **_loss_entry(settings, name, value)}
    return replace(settings, **changes)


def _loss_options(settings: Settings) -> list[str]:
    loss = settings.training_loss
    compare = named_loss(settings) if is_own_loss(settings) else LOSSES.get(loss)
    own = [] if compare is None or isinstance(compare, str) else options_of(compare)
    return [*own, *VICREG] if loss == "vicreg" else own


def _loss_entry(settings: Settings, name: str, value: Any) -> dict[str, Any]:
    """Return a hyper-parameter as the loss takes it: VICReg's three weights are one option there."""
    if settings.training_loss != "vicreg" or name not in VICREG:
        return {name: value}
    given = settings.loss_options.get("weights")
    weights = list(given) if isinstance(given, list) else [25.0, 25.0, 1.0]
    weights[VICREG[name]] = value
    return {"weights": weights}


def _slug(name: str, value: Any) -> str:
    """Return a name for files: the value as it is where it can be, else with a hash that tells it from others."""
    raw = f"{name}-{_text(value)}"
    plain = re.sub(r"[^A-Za-z0-9_.+-]", "_", raw)
    if plain == raw and len(raw) <= LONGEST:
        return raw
    return f"{plain[-LONGEST:].lstrip('._-')}-{hashlib.sha256(raw.encode()).hexdigest()[:8]}"


def _shown(value: Any) -> Any:
    return _text(value) if isinstance(value, (list, tuple)) else value


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "x".join(map(str, value)) or "none"
    return str(value)
