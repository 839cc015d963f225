r"""Why a linear probe on the surrogate decides as it does: which landmarks support the decision, and which oppose it.

    logit_c(x) - logit_c'(x) = Σ_l s_l + rest,     s_l = Σ_u k(z_l^u, x) <A_(l,u), w_c - w_c'>
    rest = <γ, w_c - w_c'> + b_c - b_c'            from the encoder: + <e(x), w_c - w_c'>

``c`` is the predicted class and ``c'`` the runner-up, the class that would win next: the margin to it is what has to
vanish for another decision, where a mean over all other classes could vanish without one. The sum is exact. It takes a
decision of the surrogate apart, so it tells of the encoder as far as a probe on that one decides alike (`Trust`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from krepes._checks import require_range
from krepes.attribution import Attribution
from krepes.attribution.result import id_array
from krepes.audit.labels import Labels, require_count, shared_codes
from krepes.audit.probes import LinearProbe
from krepes.audit.wording import count, percent
from krepes.batches import Batch, require_usable
from krepes.model import Krepes
from krepes.views.source import as_source


@dataclass(frozen=True)
class Trust:
    """How far a probe on the surrogate can stand for one on the encoder, on samples that neither was trained on.

    Attributes:
        samples: How many there were.
        surrogate: Accuracy of the probe on the surrogate; ``None`` without classes of those samples.
        encoder: Accuracy of one on the encoder's own embeddings; ``None`` also where there is no encoder.
        alike: Share of samples that both decide alike, or ``None``.
        majority: Accuracy of naming the most frequent training class each time, or ``None``.
    """

    samples: int
    surrogate: float | None
    encoder: float | None
    alike: float | None
    majority: float | None

    def __str__(self) -> str:
        if self.samples == 0:
            return "no held-out sample judges the probe"
        said = f"on {count(self.samples, 'held-out sample')}"
        if self.surrogate is not None and self.majority is not None:
            beside = "" if self.encoder is None else f", one on the encoder in {percent(self.encoder)}"
            said += (
                f" a probe on the surrogate is right in {percent(self.surrogate)}{beside}, naming the most frequent "
                f"class in {percent(self.majority)}"
            )
        else:
            said += " no class is known, so that nothing says how often the probe is right"
        return said if self.alike is None else f"{said}; both probes decide alike in {percent(self.alike)}"


@dataclass(frozen=True, eq=False)
class Decision:
    """The decisions of a probe for ``t`` samples as sums over ``m`` landmarks.

    Attributes:
        contributions: What each landmark adds to the margin, ``(t, m)``.
        rest: What no landmark adds, ``(t,)``.
        kernel: Kernel with each landmark, mean over its views, ``(t, m)``.
        predicted: The class decided for, one a sample.
        against: The runner-up.
        encoder_says: What a probe on the encoder decides for, or ``None`` without an encoder.
        landmark_labels: True classes of the landmarks.
        landmark_ids: Their ids.
        sample_ids: Ids of the samples.
        trust: How far the probe can stand for one on the encoder.
    """

    contributions: Tensor
    rest: Tensor
    kernel: Tensor
    predicted: Sequence[Any]
    against: Sequence[Any]
    encoder_says: Sequence[Any] | None
    landmark_labels: Sequence[Any]
    landmark_ids: Sequence[Any]
    sample_ids: Sequence[Any]
    trust: Trust

    @property
    def margin(self) -> Tensor:
        """Logit of the predicted class minus that of the runner-up, ``(t,)``."""
        return self.contributions.sum(1) + self.rest

    def to_frame(self, k: int = 5) -> pd.DataFrame:
        """Return the landmarks that support each decision most and those that oppose it most, ``k`` of each.

        Args:
            k: Landmarks of each sign, at most ``m``.

        Returns:
            One row each, supporting ones first: ``sample``, ``landmark``, ``class`` (true), ``contribution``,
            ``kernel`` and ``effect``. A landmark that supports is never listed as opposing.
        """
        require_range(k, "k", low=1, high=self.contributions.shape[1])
        rows = []
        ids = id_array(self.landmark_ids)
        for i, parts in enumerate(self.contributions):
            supporting, opposing = parts.topk(k).indices, parts.topk(k, largest=False).indices
            kept = torch.cat([supporting[parts[supporting] > 0], opposing[parts[opposing] < 0]])
            rows += [
                (
                    self.sample_ids[i],
                    ids[j],
                    self.landmark_labels[j],
                    float(parts[j]),
                    float(self.kernel[i, j]),
                    "supports" if parts[j] > 0 else "opposes",
                )
                for j in kept.tolist()
            ]
        return pd.DataFrame(rows, columns=["sample", "landmark", "class", "contribution", "kernel", "effect"])

    def summary(self, k: int = 5) -> pd.DataFrame:
        """Return each decision with its margin, and what is left of it without some landmarks.

        Args:
            k: Landmarks to leave out, at most ``m``.

        Returns:
            One row a sample: ``sample``, ``predicted``, ``against``, ``encoder_says``, ``margin``, ``supporting`` and
            ``opposing`` (sums over landmarks), ``rest``, and the margin without the ``k`` most supporting landmarks,
            without the ``k`` of largest kernel, and without ``k`` random ones (the mean over all choices). The probe is
            not trained again.
        """
        parts, m = self.contributions, self.contributions.shape[1]
        require_range(k, "k", low=1, high=m)
        margin, total = self.margin, parts.sum(1)
        nearest = self.kernel.topk(k, dim=1).indices
        return pd.DataFrame({
            "sample": id_array(self.sample_ids),
            "predicted": pd.Series(list(self.predicted), dtype=object),
            "against": pd.Series(list(self.against), dtype=object),
            "encoder_says": pd.Series(list(self.encoder_says or [None] * len(parts)), dtype=object),
            "margin": margin.numpy(),
            "supporting": parts.clamp_min(0).sum(1).numpy(),
            "opposing": parts.clamp_max(0).sum(1).numpy(),
            "rest": self.rest.numpy(),
            "without_supporting": (margin - parts.topk(k, dim=1).values.sum(1)).numpy(),
            "without_nearest": (margin - parts.gather(1, nearest).sum(1)).numpy(),
            "without_random": (margin - total * (k / m)).numpy(),
        })


def explain_decision(
    model: Krepes,
    X: Batch,
    train: tuple[Batch, Labels],
    landmark_labels: Labels,
    *,
    judged: tuple[Batch, Labels | None] | None = None,
    ids: Sequence[Any] | None = None,
) -> Decision:
    """Train a linear probe on a model's embeddings, and take its decisions apart.

    Args:
        model: A fitted model.
        X: Un-augmented samples whose decisions to explain, ``(t, ...)``.
        train: Samples that train the probe, ``(n, ...)``, and their classes; leave ``X`` out of them.
        landmark_labels: Classes of the landmarks, ``(m,)``.
        judged: Other samples and their classes, if known, by which to judge the probes.
        ids: Ids of ``X``; by default ``0..t-1``.

    Returns:
        The decisions.
    """
    X = model.samples(X)
    names_of = range(as_source(X)[0].n) if ids is None else ids
    known = {} if judged is None or judged[1] is None else {"judged": judged[1]}
    names, (codes, of_landmark, *truth) = shared_codes(training=train[1], landmarks=landmark_labels, **known)
    require_count(of_landmark, len(model.landmark_ids_), "landmark labels")
    probe, encoder = LinearProbe.fit(model.embed(train[0]), codes), model.encoder_
    own = None if encoder is None else LinearProbe.fit(encoder.encode(model.samples(train[0])), codes)
    contributions, rest, kernel, places = _margins(model, X, probe, names_of)
    predicted, against = ([names[int(probe.classes[c])] for c in column] for column in places.T)
    return Decision(
        contributions,
        rest,
        kernel,
        predicted,
        against,
        None if own is None or encoder is None else [names[int(c)] for c in own.decide(encoder.encode(X))],
        [names[int(c)] for c in of_landmark],
        model.landmark_ids_,
        names_of,
        _trust(model, probe, own, codes.mode().values, judged, truth),
    )


def _margins(model: Krepes, X: Batch, probe: LinearProbe, ids: Sequence[Any]) -> tuple[Tensor, ...]:
    """Return contributions ``(t, m)``, rest ``(t,)``, mean kernel ``(t, m)``, and first and second class ``(t, 2)``."""
    require_usable(X, "the samples to explain")
    rows, theta, q = model.model_rows(X), model.solution_.theta, len(model.A_)
    views = (model.p_, len(model.landmark_ids_))
    made = Attribution(
        K_tm=rows[:, :q].unflatten(1, views),
        dA=model.A_.unflatten(0, views),
        dgamma=model.gamma_,
        landmark_ids=model.landmark_ids_,
        sample_ids=ids,
    )
    beside = rows[:, q:].double() @ theta[q:-1] + theta[-1]  # (t, h): what no landmark brings into the embedding
    places = probe.logits(beside + rows[:, :q] @ model.A_).topk(2, dim=1).indices
    v = probe.weights[places[:, 0]] - probe.weights[places[:, 1]]
    rest = (beside * v).sum(1) + probe.bias[places[:, 0]] - probe.bias[places[:, 1]]
    return made.toward(v), rest, made.K_tm.mean(1), places


def _trust(
    model: Krepes,
    probe: LinearProbe,
    own: LinearProbe | None,
    most: Tensor,
    judged: tuple[Batch, Labels | None] | None,
    truth: list[Tensor],
) -> Trust:
    """Return how the probes do on other samples of codes ``truth``; ``most`` is the most frequent training class."""
    if judged is None:
        return Trust(0, None, None, None, None)
    X, encoder = model.samples(judged[0]), model.encoder_
    ours = probe.decide(model.embed(X))
    theirs = None if own is None or encoder is None else own.decide(encoder.encode(X))
    alike = None if theirs is None else float((ours == theirs).double().mean())
    if not truth:
        return Trust(len(ours), None, None, alike, None)
    require_count(truth[0], len(ours), "labels of judged samples")
    right = [None if found is None else float((found == truth[0]).double().mean()) for found in (ours, theirs, most)]
    return Trust(len(ours), right[0], right[1], alike, right[2])
