"""What was audited: data, encoder, objective, kernel, seeds and versions, so that anyone can repeat it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from krepes.report.content import Facts, Section
from krepes.report.evidence import Evidence
from krepes.report.wording import count, text
from krepes.runs.store import versions


def provenance(evidence: Evidence) -> Section:
    """Return the section on what was audited."""
    model, encoder = evidence.model, evidence.encoder
    kernel = model.base_kernel_.describe()
    what = f"the {kernel.get('name')} kernel" if encoder is None else f"an encoder ({_network(encoder)})"
    finding = (
        f"A kernel model of {count(evidence.m, 'landmark')} explains {what} from "
        f"{count(evidence.n, 'training row')} and no labels; {count(evidence.t, 'test sample')} "
        f"{'is' if evidence.t == 1 else 'are'} explained here."
    )
    items = [
        ("Training data", _data(evidence)),
        ("Test samples", f"{evidence.t:,}"),
        ("Encoder", _encoder(evidence, kernel.get("weights_sha256", ""))),
        ("Kernel", _settings(kernel, skip={"weights_sha256", "encoder", "parameter_count"})),
        ("Why this kernel", str(model.kernel_choice_)),
        ("Transforms", _transforms(evidence)),
        ("Objective", _settings(model.objective_.describe())),
        ("Landmarks", f"{evidence.m:,} by {_selector(evidence)}, {count(model.p_, 'view')} each"),
        ("Embedding", f"{model.h} dimensions, start: {model.init}"),
        ("Seed", f"{model.seed}"),
        ("Versions", ", ".join(f"{name} {version}" for name, version in versions().items())),
    ]
    return Section(
        "audited",
        "What was audited",
        finding,
        "Everything below is about this encoder, this data and these settings; another seed or another set of "
        "landmarks gives other numbers.",
        (Facts(tuple(items)),),
    )


def _network(encoder: nn.Module) -> str:
    return f"{type(encoder).__name__}, {sum(p.numel() for p in encoder.parameters()):,} parameters"


def _encoder(evidence: Evidence, sha: str) -> str:
    if evidence.encoder is None:
        return "none: the kernel was given"
    return f"{_network(evidence.encoder)}, weights {sha[:16]}"


def _data(evidence: Evidence) -> str:
    if evidence.data is None:
        return f"{count(evidence.n, 'row')}; not at hand when this report was built"
    about = evidence.data.describe()
    return (
        f"{count(evidence.n, 'row')} of {_shape(about['sample'])}, {count(about['p'], 'view')} each by "
        f"{_settings(about['augment'])}, seed {about['seed']}, fingerprint {evidence.data.fingerprint()[:16]}"
    )


def _shape(sample: Any) -> str:
    """Return the shape of a sample in words, where it is a single tensor."""
    if isinstance(sample, dict) and "shape" in sample:
        return f"{' × '.join(map(str, sample['shape'])) or 'single'} numbers"
    return str(sample)


def _transforms(evidence: Evidence) -> str:
    centre, cosine = evidence.model.centre, evidence.model.cosine
    parts = ["centred at the mean of a reference sample"] * centre + ["normalised to k(x, x) = 1"] * cosine
    return " and ".join(parts) or "none: with the raw kernel no influence is negative"


def _selector(evidence: Evidence) -> str:
    selector = evidence.model.landmarks
    return selector if isinstance(selector, str) else repr(selector)


def _settings(settings: Mapping[str, Any], skip: set[str] | frozenset[str] = frozenset()) -> str:
    """Return a description as words: the name first, then its settings."""
    name = settings.get("name", settings.get("kernel", ""))
    rest = {key: value for key, value in settings.items() if key not in {"name", "kernel"} | skip}
    shown = ", ".join(f"{key} {text(value)}" for key, value in rest.items() if _is_plain(value))
    return f"{name} ({shown})" if shown else str(name)


def _is_plain(value: Any) -> bool:
    return value is not None and not isinstance(value, (dict, list))
