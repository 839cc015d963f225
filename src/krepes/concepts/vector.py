r"""A concept as a direction of the latent space: the unit normal of a linear SVM between its samples and others.

    v_c = normalised mean over draws of negatives of  w / |w|,      w = LinearSVC on Z = K A (or K dA)

A normal always exists, also between two random halves of one set. So a concept is fitted against many draws of
negatives, and its held-out accuracy is compared with that of random concepts, whose labels are shuffled.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Literal

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import train_test_split
from sklearn.svm import LinearSVC
from torch import Tensor

from krepes._checks import require_finite, require_range
from krepes.attribution.stream import attributions
from krepes.batches import Batch
from krepes.budget import MemoryBudget
from krepes.concepts.significance import Significance
from krepes.errors import InvalidInputError
from krepes.model import Krepes

# The held-out third of fewer samples says nothing about accuracy.
FEWEST = 9


@dataclass(frozen=True)
class ConceptSettings:
    """How a concept is fitted.

    Attributes:
        space: ``"A"`` for the embedding ``K A`` (from the encoder, ``e + K A``), ``"dA"`` for what the objective adds,
            ``K dA``.
        standardise: Give every coordinate unit spread before the fit, so that ``C`` means the same in every space. The
            direction is mapped back, but it is not the one that a fit without it finds.
        resamples: Draws of negatives, at least 20.
        random_concepts: At least 20; by rank, p is never below ``1 / (random_concepts + 1)``.
        C: Inverse regularisation of the SVM.
        seed: Of all draws.
    """

    space: Literal["A", "dA"] = "A"
    standardise: bool = True
    resamples: int = 20
    random_concepts: int = 50
    C: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse settings that fix no concept."""
        if self.space not in {"A", "dA"}:
            raise InvalidInputError(f"space={self.space!r} is unknown: choose 'A' (the embedding) or 'dA' (the shift).")
        require_range(self.resamples, "resamples", low=20)
        require_range(self.random_concepts, "random_concepts", low=20)
        require_range(self.C, "C", low=np.finfo(float).tiny)


DEFAULTS = ConceptSettings()


@dataclass(frozen=True, eq=False)
class ConceptVector:
    """A direction of the latent space that points to the samples of a concept.

    Attributes:
        name: What it is called in tables.
        v: Unit vector, ``(h,)``.
        directions: Unit normals, one per draw of negatives, ``(r, h)``; ``v`` is along their mean.
        accuracies: Balanced accuracy on the held-out third, one per draw, ``(r,)``; 0.5 is chance.
        random_directions: Unit normals of random concepts, ``(s, h)``.
        random_accuracies: Their held-out accuracies, ``(s,)``.
        sizes: Positives, negatives in the pool, negatives in a draw.
        settings: How it was fitted.
    """

    name: str
    v: Tensor
    directions: Tensor
    accuracies: Tensor
    random_directions: Tensor
    random_accuracies: Tensor
    sizes: tuple[int, int, int]
    settings: ConceptSettings

    @classmethod
    def fit(
        cls,
        model: Krepes,
        positives: Batch,
        negatives: Batch,
        *,
        name: str = "concept",
        settings: ConceptSettings = DEFAULTS,
        memory_budget: MemoryBudget | None = None,
    ) -> ConceptVector:
        """Fit a concept in the latent space of a model.

        Args:
            model: A fitted model.
            positives: Samples of the concept, un-augmented, ``(a, ...)``.
            negatives: A pool of other samples, ``(b, ...)``, from which each fit draws.
            name: What it is called in tables.
            settings: How to fit.
            memory_budget: For the kernel rows of a piece of samples; by default the model's.

        Returns:
            The concept.
        """
        A = model.A_ if settings.space == "A" else model.dA_
        beside = model.encoder_ if settings.space == "A" and model.init == "encoder" else None

        def embed(X: Batch) -> Tensor:
            pieces = attributions(model, X, memory_budget=memory_budget)
            Z = torch.cat([piece.K_tm.flatten(1) @ A for _, piece in pieces])
            return Z if beside is None else Z + beside.encode(model.samples(X))

        return cls.of_embeddings(embed(positives), embed(negatives), name=name, settings=settings)

    @classmethod
    def of_embeddings(
        cls, Z_positive: Tensor, Z_negative: Tensor, *, name: str = "concept", settings: ConceptSettings = DEFAULTS
    ) -> ConceptVector:
        """Fit a concept to embeddings.

        Each fit draws half of the pool, but no more negatives than there are positives, and holds out a third of both.
        A random concept is such a fit with the labels shuffled: a random set of the samples stands for the concept.

        Args:
            Z_positive: Embeddings of the concept's samples, ``(a, h)``.
            Z_negative: Embeddings of the pool of negatives, ``(b, h)``.
            name: What it is called in tables.
            settings: How to fit; ``space`` is only recorded.

        Returns:
            The concept.
        """
        for Z, what in ((Z_positive, "positive"), (Z_negative, "negative")):
            _require_samples(Z, what, h=Z_positive.shape[-1])
        drawn = min(len(Z_positive), max(len(Z_negative) // 2, FEWEST))
        positives, pool = Z_positive.double().numpy(), Z_negative.double().numpy()
        y = np.repeat([1, 0], [len(positives), drawn])
        rng = np.random.default_rng(settings.seed)

        def fits(number: int, *, shuffled: bool) -> tuple[Tensor, Tensor]:
            found = []
            for _ in range(number):
                Z = np.concatenate([positives, pool[rng.choice(len(pool), drawn, replace=False)]])
                found.append(_fit(Z, rng.permutation(y) if shuffled else y, settings, rng))
            return torch.from_numpy(np.stack([w for w, _ in found])), torch.tensor([a for _, a in found]).double()

        directions, accuracies = fits(settings.resamples, shuffled=False)
        random_directions, random_accuracies = fits(settings.random_concepts, shuffled=True)
        v = torch.nn.functional.normalize(directions.mean(0), dim=0)
        sizes = (len(positives), len(pool), drawn)
        return cls(name, v, directions, accuracies, random_directions, random_accuracies, sizes, settings)

    @property
    def accuracy(self) -> Significance:
        """Mean held-out accuracy, against that of random concepts."""
        return Significance(self.accuracies.mean(), self.random_accuracies)

    @property
    def stability(self) -> float:
        """Mean cosine between the directions of two draws of negatives: 1 if the draw does not matter."""
        r = len(self.directions)
        # |Σ w|² is the sum of all r² cosines, r of them of a direction with itself.
        return float((self.directions.sum(0).square().sum() - r) / (r * (r - 1)))

    def _repr_html_(self) -> str:
        found, chance = self.accuracy, float(self.random_accuracies.mean())
        return (
            f"<h4>concept {escape(self.name)}</h4><p>Held-out samples are told apart in {float(found.value):.1%} of "
            f"cases; random concepts reach {chance:.1%} (p = {float(found.p_value):.2g}). "
            f"Directions of other draws agree with a cosine of {self.stability:.2f}.</p>"
        )

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each fit: ``concept``, ``kind``, ``draw``, held-out ``accuracy``, ``cosine`` to ``v``."""
        directions = torch.cat([self.directions, self.random_directions])
        r, s = len(self.accuracies), len(self.random_accuracies)
        return pd.DataFrame({
            "concept": self.name,
            "kind": np.repeat(["fitted", "random"], [r, s]),
            "draw": np.concatenate([np.arange(r), np.arange(s)]),
            "accuracy": torch.cat([self.accuracies, self.random_accuracies]).numpy(),
            "cosine": (directions @ self.v).numpy(),
        })


def _require_samples(Z: Tensor, what: str, *, h: int) -> None:
    if Z.ndim != 2 or len(Z) < FEWEST or Z.shape[1] != h:
        raise InvalidInputError(
            f"the {what} embeddings have shape {tuple(Z.shape)}: a concept needs positives and negatives, at least "
            f"{FEWEST} of each because a third is held out, as rows (n, {h}). Add samples."
        )
    require_finite(Z, f"the {what} embeddings")


def _fit(Z: np.ndarray, y: np.ndarray, settings: ConceptSettings, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """Return the unit normal towards ``y = 1``, ``(h,)``, fitted to two thirds, and its accuracy on the other."""
    seed = int(rng.integers(2**31))
    # Centred, because the solver penalises the intercept: the direction would depend on where the origin lies.
    Z = Z - Z.mean(0)
    Z_fit, Z_held, y_fit, y_held = train_test_split(Z, y, test_size=1 / 3, stratify=y, random_state=seed)
    spread = Z_fit.std(0) if settings.standardise else np.ones(Z.shape[1])
    spread = np.where(spread > 0, spread, 1.0)
    svm = LinearSVC(C=settings.C, dual="auto", class_weight="balanced", random_state=seed, max_iter=10_000)
    svm.fit(Z_fit / spread, y_fit)
    w = svm.coef_[0] / spread
    norm = np.linalg.norm(w)
    if not norm > 0:
        raise InvalidInputError(
            f"the SVM finds no direction among {len(Z)} embeddings: their largest spread is {Z.std(0).max():.1e}. "
            f"Positives and negatives must differ."
        )
    return w / norm, float(balanced_accuracy_score(y_held, svm.predict(Z_held / spread)))
