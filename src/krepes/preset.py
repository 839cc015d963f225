"""Settings under one name. Defaults are ours; ``paper`` is what the KREPES paper's own text says, as far as it goes.

What a person passes beats a preset, and what a preset alone says gives way to the data (`krepes.runs.suiting`).
Importing this imports no torch, for settings and help need it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from krepes import registry
from krepes.errors import InvalidInputError

ARGUMENTS = {"kernel": "kernel_kind"}
"""Settings that `krepes.Krepes` calls by another name; ``damping_unit`` becomes ``relative``."""
NOT_OF_A_MODEL = ("augment", "agreement")
"""Settings of views and audits: in Python these are objects of their own."""


class PresetName(str):
    """The name of a preset in settings, with what it gave them: a copy of the settings tells it from what people gave.

    Attributes:
        gave: Values by the name of the setting; options of the objective are those that it added.
    """

    gave: Mapping[str, Any]

    def __new__(cls, name: str, gave: Mapping[str, Any] | None = None) -> PresetName:
        """Return the name; without ``gave`` that of a preset whose values were all given by a person."""
        made = super().__new__(cls, name)
        made.gave = gave or {}
        return made


@dataclass(frozen=True)
class Preset:
    """Values of settings, each with the place that it was taken from.

    Attributes:
        name: Of the preset.
        values: Settings by name.
        objectives: Options of each objective, by its name.
        sources: Where the paper says so, for every setting, and for an objective's options as ``objective NAME``.
    """

    name: str
    values: Mapping[str, Any]
    objectives: Mapping[str, Mapping[str, Any]]
    sources: Mapping[str, str]

    def merged(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of the preset, overridden by those that were given.

        Args:
            given: Settings by name; a value of ``None`` means not given. In a copy of settings, what the preset gave
                the first ones is not given either, so that another objective gets the options for it.

        Returns:
            All of them. Options of the objective are merged one by one. What a given setting leaves without meaning is
            left out: a dimension of our own where the encoder's is taken, the first view's recipe where a second view
            is named. The name of the preset knows what it gave.
        """
        told = _told(given)
        chosen = {name: value for name, value in told.items() if value is not None}
        mine = dict(self.values)
        if chosen.get("init") == "encoder":
            del mine["h"]
        if chosen.get("second_augment") or chosen.get("augment_options"):
            del mine["augment"]
        found = {**told, **mine, **chosen}
        gave = {name: value for name, value in mine.items() if name not in chosen}
        options = self.objectives.get(found.get("objective", "barlow_twins"), {})
        own = chosen.get("objective_options", {})
        if isinstance(own, dict):
            gave["objective_options"] = {name: value for name, value in options.items() if name not in own}
            found["objective_options"] = {**options, **own}
        return {**found, "preset": PresetName(self.name, gave)}

    def objective(self, name: str, **options: Any) -> Any:
        """Return the objective with the preset's options, overridden by ``options``."""
        if name not in registry.OBJECTIVES:
            raise InvalidInputError(f"objective={name!r} is unknown: choose one of {sorted(registry.OBJECTIVES)}.")
        return registry.load(registry.OBJECTIVES[name])(**{**self.objectives.get(name, {}), **options})

    def arguments(self, objective: str = "barlow_twins", **given: Any) -> dict[str, Any]:
        """Return arguments of `krepes.Krepes`.

        Args:
            objective: Its name.
            **given: Arguments that beat the preset.

        Returns:
            Arguments by name, the objective made with its options. Views are not among them: pass ``augment``.

        Example:
            >>> found = presets["paper"].arguments("vicreg", m=300)
            >>> found["m"], found["h"], found["relative"], found["objective"].hinge_curvature
            (300, 250, False, 'none')
        """
        values = {ARGUMENTS.get(name, name): value for name, value in self.values.items() if name not in NOT_OF_A_MODEL}
        values["relative"] = values.pop("damping_unit") == "relative"
        if given.get("init") == "encoder":
            del values["h"]
        return {**values, "objective": self.objective(objective), **given}


PAPER = Preset(
    name="paper",
    values={
        "kernel": "exact",
        "heads": 1,
        "centre": False,
        "cosine": False,
        "m": 1000,
        "h": 250,
        "landmarks": "kmeans++",
        "candidates": 10_000_000,
        "init": "pca",
        "damping": "auto",
        "damping_unit": "absolute",
        "steps": 1,
        "augment": "paper",
        "agreement": "codes",
    },
    objectives={
        "barlow_twins": {"centre": False, "eps": 0.0},
        "vicreg": {"inv_reduction": "n", "var_halved": False, "hinge_curvature": "none"},
        "simclr": {"reduction": "sum"},
        "byol": {"reduction": "sum", "predictor": "identity"},
    },
    sources={
        "kernel": "appendix A: inner products of gradients, in parallel; nothing is sketched",
        "heads": "appendix A: K is computed from one randomly initialised output head",
        "centre": "appendix A: the kernel is the plain inner product",
        "cosine": "appendix A: the kernel is the plain inner product",
        "m": "appendix on downstream accuracy: m = 1000 for all data sets but ImageNet (2000)",
        "h": "the same appendix: h = 250 (512 for some losses on CIFAR-10, 1024 on ImageNet)",
        "landmarks": "section 4.3: k-means++ in input space, or leverage scores (leverage-hutchinson)",
        "candidates": "section 4.3: drawn among all samples",
        "init": "section 4.1: principal components",
        "damping": "section 4.2: H + λ I, and no value of λ; so that of lowest loss",
        "damping_unit": "section 4.2: λ is added to H as it is, so a number that you pass is λ itself",
        "steps": "section 4.2: one step",
        "augment": "appendix on data: solo-learn's asymmetric pair for images, noise and dropped features for tables",
        "agreement": "section 3.2: v = 1 - min(|difference| / range, 1); categories are encoded numerically",
        "objective barlow_twins": "appendix on the Nyström form: sums of products over sums of squares, means left in",
        "objective vicreg": "appendix on curvature: invariance over n, both views' hinges added, without curvature",
        "objective simclr": "appendix on curvature: cross entropy summed over the 2n rows",
        "objective byol": "appendix on curvature: squared length of all residuals, both directions",
    },
)
presets = {preset.name: preset for preset in (PAPER,)}
"""Presets by name."""


def _told(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings without those that the preset gave before, in the settings that these are a copy of."""
    gave = given_by(given.get("preset"))
    told = {name: value for name, value in given.items() if name not in gave or value != gave[name]}
    options, added = told.get("objective_options"), gave.get("objective_options", {})
    if isinstance(options, dict):
        told["objective_options"] = {
            name: value for name, value in options.items() if name not in added or value != added[name]
        }
    return told


def given_by(preset: str | None) -> Mapping[str, Any]:
    """Return what the preset of some settings gave them, by the name of the setting: no person asked for it."""
    return preset.gave if isinstance(preset, PresetName) else {}


def construct(init: Callable[..., None], made: Any, values: Mapping[str, Any]) -> None:
    """Construct settings with the values of the preset that they name, if they name one that there is.

    Args:
        init: The constructor.
        made: What it fills.
        values: As they were given.
    """
    name = values.get("preset")
    found = presets[name].merged(values) if isinstance(name, str) and name in presets else dict(values)
    init(made, **found)
    if isinstance(found.get("preset"), PresetName):  # validation makes plain text of it
        object.__setattr__(made, "preset", found["preset"])
