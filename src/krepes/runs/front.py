"""The front door: one call from an encoder and its data to an explanation that answers the first questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from krepes import batches
from krepes.attribution import Attribution, attribute
from krepes.audit.base import AuditResult, run_audits
from krepes.audit.decision import Decision, explain_decision
from krepes.audit.features import FeatureSpace
from krepes.audit.probes import PROBE_ROWS
from krepes.audit.study import Study
from krepes.batches import Batch
from krepes.data.tokens import TokenizedTexts, tokenized
from krepes.encoders.adapters.tokenizers import as_tokenizer
from krepes.encoders.text import TextEncoder
from krepes.errors import InvalidInputError
from krepes.influence import Influence, influence_of, similarity
from krepes.kernels import Kernel
from krepes.model import Krepes
from krepes.preset import presets
from krepes.registry import AUDITS, load, loaded
from krepes.report import Report, report_of, write_report
from krepes.runs.suiting import model_arguments
from krepes.views.source import RowsOf, as_source, evenly_spaced


@dataclass(frozen=True, eq=False)
class Explanation:
    """A fitted model with samples that were kept from it: ask it, or look at its report.

    Attributes:
        model: The fitted model.
        study: What audits and report see.
    """

    model: Krepes
    study: Study

    def of(self, X: Batch, *, ids: Sequence[Any] | None = None) -> Attribution:
        """Return which landmarks samples ``X`` ``(t, ...)`` are made of."""
        return attribute(self.model, X, ids=ids)

    def decision(self, X: Batch, *, ids: Sequence[Any] | None = None) -> Decision:
        """Return which landmarks support and which oppose what a linear probe decides for samples ``X`` ``(t, ...)``.

        Args:
            X: Samples, not augmented; training samples among them train the probe too.
            ids: Of the samples.

        Returns:
            The decisions, judged by the samples that were kept from the fit.

        Raises:
            InvalidInputError: If there are no labels.
        """
        study = self.study
        if study.label_of is None or study.data is None:
            raise InvalidInputError("a decision is one for a class: pass labels=, one per sample.")
        train, test = study.label_of
        rows = evenly_spaced(study.n, PROBE_ROWS)
        return explain_decision(
            self.model,
            X,
            (study.train(rows), [train[row] for row in rows.tolist()]),
            study.of_landmarks(train),
            judged=(study.X_test, test),
            ids=ids,
        )

    def influence(self, first: Batch, second: Batch, **options: Any) -> Influence:
        """Return which training samples bring two samples together or apart, ``(1, ...)`` each."""
        return influence_of(self.model, similarity(self.model, first, second), **options)

    @cached_property
    def audits(self) -> dict[str, AuditResult]:
        """Every audit that the material allows, by name."""
        return run_audits(self.study, loaded(AUDITS))[0]

    @cached_property
    def report(self) -> Report:
        """The whole report."""
        return report_of(self.study)

    def explore(self, **options: Any) -> Any:
        """Show the explorer in a notebook; options are those of `krepes.explore.notebook.show`."""
        return load("krepes.explore.notebook:show")(self.study, **options)

    def save(self, path: str | Path) -> Path:
        """Write the report as one HTML file, and return its path."""
        return write_report(self.report, path)

    def __str__(self) -> str:
        return "\n".join(f"{result.title}\n  {result.sentence}" for result in self.audits.values())

    def _repr_html_(self) -> str:
        return self.report._repr_html_()


def explain(
    encoder: nn.Module | Kernel,
    data: Any,
    *,
    holdout: float = 0.2,
    labels: Sequence[Any] | None = None,
    groups: Mapping[str, Sequence[Any]] | None = None,
    ids: Sequence[Any] | None = None,
    tokenizer: Any = None,
    seed: int = 0,
    report: Mapping[str, Any] | None = None,
    preset: str | None = None,
    **settings: Any,
) -> Explanation:
    """Fit the kernel model of an encoder on most of the data, and explain the rest.

    Args:
        encoder: A frozen encoder, or a kernel.
        data: Samples: a tensor, array, dict or tuple of them, a DataFrame, a map-style Dataset, or a list of texts.
        holdout: Share of the samples that is kept from the fit and explained.
        labels: One class per sample, to judge by; they never reach the fit.
        groups: Columns with one group per sample, by name, for audits.
        ids: Your own ids, one per sample; by default ``0..n-1``.
        tokenizer: Of a list of texts: one of transformers, or like `krepes.data.HashedTokenizer`, the default, which
            suits a `krepes.encoders.TextEncoder`.
        seed: Of the split and of everything else random.
        report: Further material of the report, as `krepes.audit.Study` takes it.
        preset: Settings under one name, see `krepes.presets`, as in `krepes.runs.Settings`: arguments of `Krepes`, the
            views of plain samples, and how two categories of a table agree in audits. What you pass yourself beats it,
            and where the data do not allow its sizes, landmarks or views, others are taken and said.
        **settings: Arguments of `Krepes`: ``augment``, ``objective``, ``m``, ``h``, ...

    Returns:
        The explanation.

    Raises:
        InvalidInputError: If there are fewer than two samples, or not one label, group or id for each, or no such
            preset.

    Example:
        >>> from krepes.kernels import RBF
        >>> from krepes.views import GaussianNoise
        >>> X = torch.randn(120, 4, generator=torch.Generator().manual_seed(0))
        >>> found = explain(RBF(2.0), X, augment=GaussianNoise(0.1), m=20, h=4, progress=False)
        >>> found.of(X[:1]).to_frame(k=1)["effect"].tolist()
        ['attracts']
    """
    table = data if isinstance(data, pd.DataFrame) else None
    data = _texts(encoder, data, tokenizer)
    n = len(table) if table is not None else as_source(data)[0].n
    if not 0 < holdout < 1 or n < 2:
        raise InvalidInputError(f"holdout={holdout} of {n} samples: a share between 0 and 1 of at least two is needed.")
    columns = {"ids": ids, "labels": labels, **{f"group {name}": values for name, values in (groups or {}).items()}}
    for name, values in columns.items():
        if values is not None and len(values) != n:
            raise InvalidInputError(f"{name} has {len(values)} entries for {n} samples: there must be one for each.")
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    held = min(max(1, round(n * holdout)), n - 1)
    train, test = order[held:], order[:held].sort().values
    known = list(range(n)) if ids is None else list(ids)
    if preset is not None:
        settings = model_arguments(preset, encoder, data, n - held, settings)
    model = Krepes(encoder, seed=seed, **settings).fit(_part(data, train), ids=_taken(known, train))
    material: dict[str, Any] = {
        "test_ids": _taken(known, test),
        "train_ids": _taken(known, train),
        "labels": None if labels is None else (_taken(labels, train), _taken(labels, test)),
        "groups": {name: (_taken(values, train), _taken(values, test)) for name, values in (groups or {}).items()},
        "k": min(5, len(model.landmark_ids_)),
        "shown": min(12, held),
    }
    if table is not None:
        assert model.encoding_ is not None
        read = model.encoding_.schema.with_values(table)
        material |= {"tables": (_part(read, train), _part(read, test)), "inputs": "table"}
        if preset is not None:
            agreement = presets[preset].values["agreement"]
            material["features"] = FeatureSpace.of(material["tables"][0], agreement=agreement)
    if isinstance(data, TokenizedTexts):
        material |= {"texts": (_taken(data.texts, train), _taken(data.texts, test)), "inputs": "text"}
        material["tokenizer"] = data.tokenizer
    return Explanation(model, Study(model, model.samples(_part(data, test)), **{**material, **(report or {})}))


def _texts(encoder: nn.Module | Kernel, data: Any, tokenizer: Any) -> Any:
    """Return a list of texts as samples, anything else as it is."""
    if not isinstance(data, (list, tuple)) or not data or not isinstance(data[0], str):
        return data
    if tokenizer is None and not isinstance(encoder, TextEncoder):
        raise InvalidInputError(
            f"the texts must become tokens as the encoder knows them: pass tokenizer=, that of your "
            f"{type(encoder).__name__}. Only a krepes.encoders.TextEncoder needs none."
        )
    made = None if tokenizer is None else as_tokenizer(tokenizer)
    return tokenized(data, made, one_width=not isinstance(encoder, TextEncoder))


def _part(data: Any, rows: Tensor) -> Any:
    if isinstance(data, pd.DataFrame):
        return data.iloc[rows.numpy()].reset_index(drop=True)
    return batches.take(data, rows) if isinstance(data, Tensor) else RowsOf(data, rows)


def _taken(values: Sequence[Any], rows: Tensor) -> list[Any]:
    plain = values.tolist() if hasattr(values, "tolist") else list(values)
    return [plain[i] for i in rows.tolist()]
