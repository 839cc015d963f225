"""Everything that decides a run, as one type for Python, TOML, the command line and the run folder.

Each field says its type, range and help once: flags, help texts, checks and the reference page are made from it. Names
are checked against `krepes.registry`: nothing here imports torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass
from pydantic.fields import FieldInfo

from krepes import registry
from krepes.errors import InvalidInputError
from krepes.preset import construct, presets
from krepes.runs.fields import PANELS, Numbers, Options, Texts, Widths, about, one_of, require_bytes, require_consistent
from krepes.runs.refusals import explained
from krepes.runs.sources import read_settings

DATA, ENCODER, TRAINING, VIEWS, KERNEL, MODEL, MACHINE = PANELS
STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, validate_default=True)
AUGMENTATIONS = registry.listed(registry.AUGMENTATIONS)
OTHERS = "timm:NAME, torchvision:NAME, openclip:NAME, hf:FOLDER, st:FOLDER"
SIZE = 32


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Settings:
    """Everything that decides a run; see the help of each field, which is also that of its flag."""

    data: Annotated[
        str,
        about(DATA, "CSV, Parquet, .txt, .jsonl, .npy, images (a folder or .tar), or a data set's name.", min_length=1),
    ]
    data_dir: Annotated[str | None, about(DATA, "Folder of the named data sets; by default KREPES_DATA.")] = None
    schema: Annotated[str | None, about(DATA, "TOML file that overrides the kinds of a table's columns.")] = None
    delimiter: Annotated[
        str | None, about(DATA, "What separates the columns of a CSV file; by default found out.", max_length=1)
    ] = None
    id_column: Annotated[str | None, about(DATA, "Column of a table with the ids; by default row numbers.")] = None
    label: Annotated[
        str | None, about(DATA, "Column that judges, or 'label' for a data set's own; the encoder never sees it.")
    ] = None
    exclude: Annotated[Texts, about(DATA, "Columns that the encoder must not see.")] = ()
    sensitive: Annotated[
        Texts, about(DATA, "Columns hidden from the encoder and audited: what still gives them away?")
    ] = ()
    text_column: Annotated[
        str | None, about(DATA, "Column with texts: they are what the encoder sees, other columns only judge.")
    ] = None
    tokenizer: Annotated[
        str | None, about(DATA, "Of texts: a local folder, or module:factory; by default that of the encoder.")
    ] = None
    max_tokens: Annotated[int, about(DATA, "Tokens of a text that are read, at most.", ge=1, le=8192)] = 128
    size: Annotated[
        int | None, about(DATA, "Side of images in pixels; by default that of the encoder, or 32.", ge=1, le=4096)
    ] = None
    channels: Annotated[Literal[1, 3], about(DATA, "Channels of images in a folder: 1 for grey, 3 for colour.")] = 3
    skip_broken: Annotated[bool, about(DATA, "Leave out images that cannot be read instead of refusing.")] = False
    workers: Annotated[int | None, about(DATA, "Processes that decode images; 0 for none. Default: some.", ge=0)] = None
    mean: Annotated[
        Numbers, about(DATA, "Subtracted from each channel of an image; by default as the encoder says.")
    ] = ()
    std: Annotated[Numbers, about(DATA, "Then divided by, one for each channel.")] = ()
    max_rows: Annotated[int | None, about(DATA, "At most so many samples, drawn at random; by default all.", ge=2)] = (
        None
    )
    agreement: Annotated[
        Literal["indicator", "codes"],
        about(DATA, "When two categories of a column agree in audits: if equal, or the nearer their numbers."),
    ] = "indicator"
    holdout: Annotated[float, about(DATA, "Share of the samples kept from the fit, to be explained.", gt=0, lt=1)] = 0.2

    encoder: Annotated[
        str | None,
        one_of(tuple(registry.ENCODERS), own=":"),
        about(ENCODER, f"{registry.listed(registry.ENCODERS)}; {OTHERS}; or module:factory. By default what suits."),
    ] = None
    encoder_options: Annotated[Options, about(ENCODER, "Arguments of the encoder's factory.")] = dataclasses.field(
        default_factory=dict
    )
    weights: Annotated[
        str | None, about(ENCODER, "Its weights: safetensors or a torch checkpoint. Without, it is trained here.")
    ] = None
    prefix: Annotated[str, about(ENCODER, "Which tensors of the weights to use; auto finds them.")] = "auto"
    strict: Annotated[bool, about(ENCODER, "Refuse weights that do not fit entirely.")] = True
    output: Annotated[
        str | None, about(ENCODER, "Picks the embedding of what the encoder returns: index, key or dotted attribute.")
    ] = None
    parameters: Annotated[
        Texts, about(ENCODER, "Parameters that the tangent kernel sees: patterns such as layer4.*, or last.")
    ] = ("*",)

    loss: Annotated[
        str | None,
        one_of(tuple(registry.LOSSES), own=":"),
        about(TRAINING, f"{registry.listed(registry.LOSSES)}; or module:function. By default the objective's."),
    ] = None
    loss_options: Annotated[Options, about(TRAINING, "Its hyper-parameters.")] = dataclasses.field(default_factory=dict)
    epochs: Annotated[int, about(TRAINING, "Passes over the data.", ge=1, le=1_000_000)] = 20
    batch_size: Annotated[int, about(TRAINING, "Samples in a batch.", ge=2)] = 256
    lr: Annotated[float, about(TRAINING, "Peak learning rate.", gt=0)] = 1e-3
    weight_decay: Annotated[float, about(TRAINING, "Of AdamW.", ge=0)] = 1e-4
    momentum: Annotated[float, about(TRAINING, "Of BYOL's target at the start.", ge=0, le=1)] = 0.99
    projector: Annotated[Widths, about(TRAINING, "Widths of the head that the loss sees; none trains without.")] = (
        256,
        256,
    )
    precision: Annotated[
        Literal["bfloat16"] | None,
        about(TRAINING, "Compute the encoder's layers so, where that is faster; such a training cannot be replayed."),
    ] = None
    min_spread: Annotated[float, about(TRAINING, "Spread of the embeddings below which training stops.", ge=0)] = 1e-3
    save_every: Annotated[int, about(TRAINING, "Epochs between checkpoints.", ge=1)] = 10

    augment: Annotated[
        str | None,
        one_of(tuple(registry.AUGMENTATIONS)),
        about(VIEWS, f"{AUGMENTATIONS}; by default what suits the data."),
    ] = None
    augment_options: Annotated[dict[str, float], about(VIEWS, "Its strengths, such as crop=0.5.")] = dataclasses.field(
        default_factory=dict
    )
    second_augment: Annotated[
        str | None,
        one_of(tuple(registry.AUGMENTATIONS)),
        about(VIEWS, "Augmentation of the second view, for asymmetric pairs; by default as the first."),
    ] = None
    second_options: Annotated[dict[str, float], about(VIEWS, "Its strengths.")] = dataclasses.field(
        default_factory=dict
    )

    kernel: Annotated[
        str,
        one_of((*registry.TANGENT, *registry.KERNELS)),
        about(
            KERNEL,
            f"Tangent kernel of the encoder ({registry.listed(registry.TANGENT)}), or one without a network: "
            f"{registry.listed(registry.KERNELS)}.",
        ),
    ] = "auto"
    kernel_options: Annotated[
        Options, about(KERNEL, "Of a kernel without a network, such as width=2; by default from the data.")
    ] = dataclasses.field(default_factory=dict)
    heads: Annotated[int, about(KERNEL, "Random heads that are averaged.", ge=1, le=1024)] = 1
    features: Annotated[int, about(KERNEL, "Features of the sketched kernel.", ge=2, le=2**22)] = 4096
    centre: Annotated[
        bool | None,
        about(KERNEL, "Centre the kernel; without it nothing repels. By default, but not from the encoder."),
    ] = None
    cosine: Annotated[
        bool | None, about(KERNEL, "Normalise the kernel to k(x, x) = 1. By default, but not from the encoder.")
    ] = None
    reference: Annotated[int, about(KERNEL, "Samples whose mean is the centre.", ge=1)] = 512

    preset: Annotated[
        str | None,
        one_of(tuple(presets)),
        about(MODEL, f"Settings under one name: {registry.listed(presets)}. What you pass yourself beats it."),
    ] = None
    objective: Annotated[
        str, one_of(tuple(registry.OBJECTIVES)), about(MODEL, f"{registry.listed(registry.OBJECTIVES)}.")
    ] = "barlow_twins"
    objective_options: Annotated[Options, about(MODEL, "Its hyper-parameters, such as lam=0.01.")] = dataclasses.field(
        default_factory=dict
    )
    m: Annotated[
        int | None, about(MODEL, "Landmarks; by default 200, or half of a small data set.", ge=1, le=100_000)
    ] = None
    h: Annotated[
        int | None,
        about(
            MODEL,
            "Embedding dimension; by default 32, or a quarter of a small m. From the encoder: its own.",
            ge=1,
            le=100_000,
        ),
    ] = None
    landmarks: Annotated[
        str,
        one_of((*registry.LANDMARKS, "all")),
        about(MODEL, f"How landmarks are chosen: {registry.listed(registry.LANDMARKS)}, or all samples."),
    ] = "rpcholesky"
    candidates: Annotated[int, about(MODEL, "Landmarks are chosen among so many random samples.", ge=1)] = 10_000
    init: Annotated[
        Literal["pca", "kaiming", "encoder"],
        about(MODEL, "Start: principal components, noise, or the encoder's own embeddings."),
    ] = "pca"
    damping: Annotated[
        Literal["auto"] | Annotated[float, Field(ge=0)], about(MODEL, "auto for the lowest loss, or a number.")
    ] = "auto"
    damping_unit: Annotated[
        Literal["relative", "absolute"], about(MODEL, "Whether that number is relative to the mean curvature.")
    ] = "relative"
    steps: Annotated[int, about(MODEL, "Gauss-Newton steps; 1 is the paper's.", ge=1, le=1000)] = 1
    tol: Annotated[float, about(MODEL, "Relative residual of the linear solve.", gt=0, lt=1)] = 1e-8
    curvature_rows: Annotated[
        int | None, about(MODEL, "Rows whose curvature simclr and byol take; the gradient is of all. 65536.", ge=1)
    ] = None

    seed: Annotated[int, about(MACHINE, "Seed of everything random.", ge=0, lt=2**63)] = 0
    device: Annotated[
        str,
        Field(pattern=r"^(cpu|cuda|mps|xpu)(:\d+)?$"),
        about(MACHINE, "Where the encoder runs: cpu, cuda, cuda:1, mps."),
    ] = "cpu"
    memory: Annotated[str, AfterValidator(require_bytes), about(MACHINE, "Bytes for each part, such as 2G.")] = "1G"

    def __post_init__(self) -> None:
        """Refuse settings that contradict one another; the side of images is told now unless an encoder tells it."""
        if self.size is None and registry.adapter(self.encoder) is None:
            object.__setattr__(self, "size", SIZE)
        require_consistent(self)

    @property
    def training_loss(self) -> str:
        """The loss of training on the spot: as told, else that of the objective, else Barlow Twins."""
        return self.loss or (self.objective if self.objective in registry.LOSSES else "barlow_twins")

    @property
    def hidden(self) -> tuple[str, ...]:
        """Columns that the encoder never sees: ids, the label, what is excluded and what is sensitive."""
        named = (self.id_column, self.label, *self.exclude, *self.sensitive)
        return tuple(dict.fromkeys(name for name in named if name is not None))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], source: str = "settings") -> Settings:
        """Return settings from plain values, such as a file's; errors name the key and the ``source``."""
        return _build(values, lambda key: f"{source}, key {key!r}")

    @classmethod
    def gather(cls, path: str | Path | None, flags: Mapping[str, Any]) -> Settings:
        """Return the settings of a file, if there is one, overridden by the flags that were given.

        Args:
            path: A TOML file, the JSON that runs and reproductions keep, or ``None``.
            flags: Values by name; ``None`` means not given.

        Returns:
            The settings.
        """
        given = {name: value for name, value in flags.items() if value is not None}
        values = {} if path is None else read_settings(path)
        return _build({**values, **given}, lambda key: f"{path}, key {key!r}" if key not in given else flag(key))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, for the run folder."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}


FIELDS: dict[str, FieldInfo] = vars(Settings)["__pydantic_fields__"]
"""Type, range, help and panel of each setting, by name."""


def flag(name: str) -> str:
    """Return the flag of a setting; the data are an argument without one."""
    return "the argument DATA" if name == "data" else f"--{name.replace('_', '-')}"


def panel(name: str) -> str:
    """Return the panel of the help page that a setting stands in."""
    extra = FIELDS[name].json_schema_extra
    assert isinstance(extra, dict)
    return str(extra["panel"])


def _build(values: Mapping[str, Any], place: Callable[[str], str]) -> Settings:
    try:
        return _constructed(**values)
    except ValidationError as error:
        raise InvalidInputError(explained(error, values, tuple(FIELDS), place)) from error


_init = Settings.__init__


@wraps(_init)
def _explained_init(self: Settings, **values: Any) -> None:
    """Raise our own error, with the names of arguments, where pydantic would raise its own."""
    try:
        construct(_init, self, values)
    except ValidationError as error:
        raise InvalidInputError(explained(error, values, tuple(FIELDS), lambda key: f"argument {key}")) from error


def _constructed(**values: Any) -> Settings:
    """Return settings by pydantic's own constructor, whose errors the caller words."""
    made = object.__new__(Settings)
    construct(_init, made, values)
    return made


Settings.__init__ = _explained_init  # type: ignore[method-assign]
