"""What was audited: data, encoder, objective, kernel, seeds and versions, so that anyone can repeat it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from krepes.audit.columns import ROLES
from krepes.audit.questions.features import AGREED
from krepes.audit.study import Study
from krepes.audit.wording import count, drawn, listing, text
from krepes.encoders.frozen import FrozenEncoder
from krepes.report.blocks import Block, Cell, Facts, Table, Warnings
from krepes.report.content import Section
from krepes.report.wording import heads
from krepes.runs.store import versions


def provenance(study: Study) -> Section:
    """Return the section on what was audited."""
    model, encoder = study.model, study.encoder
    kernel = model.base_kernel_.describe()
    what = f"the {kernel.get('name')} kernel" if encoder is None else f"an encoder ({_network(encoder)})"
    seen = [text(use.name) for use in study.uses if use.role == "seen"]
    looks = f" The encoder saw {count(len(seen), 'column')}: {listing(seen[:8])}{_rest(seen)}." if seen else ""
    finding = (
        f"A kernel model of {count(study.m, 'landmark')} explains {what} from "
        f"{count(study.n, 'training row')} and no labels; {count(study.t, 'test sample')} "
        f"{'is' if study.t == 1 else 'are'} explained here.{looks}"
    )
    items = [
        ("Training data", _data(study)),
        ("Test samples", drawn(study.t, study.drawn_from)),
        ("Encoder", _encoder(study, kernel.get("weights_sha256", ""))),
        ("Kernel", _settings(kernel, skip={"weights_sha256", "encoder", "parameter_count"})),
        ("Why this kernel", str(model.kernel_choice_)),
        ("Transforms", _transforms(study)),
        ("Objective", _settings(model.objective_.describe())),
        ("Landmarks", f"{study.m:,} by {_selector(study)}, {count(model.p_, 'view')} each"),
        ("Embedding", f"{model.h_} dimensions, start: {model.init}"),
        ("Seed", f"{model.seed}"),
        ("Versions", ", ".join(f"{name} {version}" for name, version in versions().items())),
    ]
    if study.preset is not None:
        items.insert(0, ("Preset", f"{study.preset}; what was passed beside it beats it"))
    if study.space is not None:
        items.append(("Agreement", AGREED[study.space.agreement]))
    return Section(
        "audited",
        "What was audited",
        finding,
        "Everything below is about this encoder, this data and these settings; another seed or another set of "
        "landmarks gives other numbers.",
        (*([Warnings(study.notes)] if study.notes else []), *_columns(study), Facts(tuple(items))),
    )


def _columns(study: Study) -> list[Block]:
    """Return what became of every column: seen, hidden, judging only, dropped and why."""
    if not study.uses:
        return []
    uses = sorted(study.uses, key=lambda use: ROLES.index(use.role))
    rows = tuple((Cell(text(use.name)), Cell(use.role), Cell(use.kind), Cell(text(use.why, 200))) for use in uses)
    counts = [f"{n} {role}" for role in ROLES if (n := sum(use.role == role for use in uses))]
    how = ""
    if any(use.told for use in uses):
        how = '; to change one, write a line such as [columns] zip = "categorical" into a file and pass it by --schema'
    return [Table(f"Columns: {', '.join(counts)}{how}", heads("column", "use", "read as", "why"), rows)]


def _rest(names: list[str]) -> str:
    return f" and {len(names) - 8} more" if len(names) > 8 else ""


def _network(encoder: FrozenEncoder) -> str:
    return f"{type(encoder.module).__name__}, {sum(p.numel() for p in encoder.parameters.values()):,} parameters"


def _encoder(study: Study, sha: str) -> str:
    if study.encoder is None:
        return "none: the kernel was given"
    return f"{_network(study.encoder)}, weights {sha[:16]}"


def _data(study: Study) -> str:
    if study.data is None:
        return f"{count(study.n, 'row')}; not at hand when this report was built"
    about = study.data.describe()
    return (
        f"{count(study.n, 'row')} of {_shape(about['sample'])}, {count(about['p'], 'view')} each by "
        f"{_settings(about['augment'])}, seed {about['seed']}, fingerprint {study.data.fingerprint()[:16]}"
    )


def _shape(sample: Any) -> str:
    """Return the shape of a sample in words; of several tensors by name, those of each shape together."""
    if not isinstance(sample, dict):
        return str(sample)
    if "shape" in sample:
        return f"{' × '.join(map(str, sample['shape'])) or 'single'} numbers"
    names: dict[str, list[str]] = {}
    for name, part in sample.items():
        names.setdefault(_shape(part), []).append(str(name))
    return "; ".join(f"{shape} ({', '.join(alike)})" for shape, alike in names.items())


def _transforms(study: Study) -> str:
    centre, cosine = study.model.transforms_
    parts = ["centred at the mean of a reference sample"] * centre + ["normalised to k(x, x) = 1"] * cosine
    return " and ".join(parts) or "none: with the raw kernel no influence is negative"


def _selector(study: Study) -> str:
    selector = study.model.landmarks
    return selector if isinstance(selector, str) else repr(selector)


def _settings(settings: Mapping[str, Any], skip: set[str] | frozenset[str] = frozenset()) -> str:
    """Return a description as words: the name first, then its settings."""
    name = settings.get("name", settings.get("kernel", ""))
    rest = {key: value for key, value in settings.items() if key not in {"name", "kernel"} | skip}
    shown = ", ".join(f"{key} {text(value)}" for key, value in rest.items() if _is_plain(value))
    return f"{name} ({shown})" if shown else str(name)


def _is_plain(value: Any) -> bool:
    return value is not None and not isinstance(value, (dict, list))
