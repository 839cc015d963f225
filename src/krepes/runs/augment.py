"""Views from settings: a name and its strengths become an augmentation that suits the data."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from krepes import batches, registry, views
from krepes.batches import Batch
from krepes.data.tokenizer import Vocabulary
from krepes.data.tokens import TokenizedTexts
from krepes.errors import InvalidInputError
from krepes.runs.dataset import Dataset
from krepes.runs.settings import Settings, flag
from krepes.views import Augmentation, Compose, Normalise, PerView, ViewStream

DEFAULTS = {"table": "drop", "image": "images", "text": "words", "other": "noise"}
TEXTUAL = "words, dropout or none"
LOOKED_AT, LOOKED_AT_BYTES = 512, 2**25
"""Samples that scales and marginals are taken from, and their bytes: fewer of large ones, two at least."""


@dataclass(frozen=True, eq=False)
class Material:
    """What an augmentation may need to know.

    Attributes:
        sample: Some samples, ``(b, ...)``, for scales and marginals.
        groups: Encoded columns that belong together, one group per column of the table.
        mean: Of each channel, or none.
        std: Of each channel, or none.
        vocabulary: Of texts, or ``None``.
    """

    sample: Batch
    groups: Sequence[Sequence[int]]
    mean: Sequence[float]
    std: Sequence[float]
    vocabulary: Vocabulary | None = None

    def words(self, name: str) -> Vocabulary:
        """Return what is known of tokens, for the augmentation ``name`` of texts."""
        if self.vocabulary is None:
            raise InvalidInputError(f"augment {name!r} takes texts, and these samples are none.")
        return self.vocabulary

    def tensor(self, name: str) -> Tensor:
        """Return the samples, which must be a single tensor for the augmentation ``name``."""
        if self.vocabulary is not None:
            raise InvalidInputError(
                f"augment {name!r} takes numbers or pixels, and texts are neither: choose {TEXTUAL}."
            )
        if not isinstance(self.sample, Tensor):
            raise InvalidInputError(f"augment {name!r} takes single tensors, not a {type(self.sample).__name__}.")
        return self.sample


def none(of: Material) -> Augmentation:
    """Leave samples as they are."""
    return views.Identity()


def noise(of: Material, *, noise: float = 0.1) -> Augmentation:
    """Add Gaussian noise, in parts of the data's deviation."""
    return views.GaussianNoise(noise * float(of.tensor("noise").double().std()))


def drop(of: Material, *, drop: float = 0.2, noise: float = 0.1) -> Augmentation:
    """Drop whole columns of a table, and add noise."""
    return Compose(views.FeatureDrop(drop, groups=of.groups), views.GaussianNoise(noise))


def scarf(of: Material, *, rate: float = 0.6) -> Augmentation:
    """Replace columns by draws from their marginals."""
    return views.Scarf(of.tensor("scarf"), rate, groups=of.groups)


def crops(of: Material, *, crop: float = 0.5) -> Augmentation:
    """Crop images to at least the part ``crop``, and scale back."""
    return views.RandomResizedCrop(scale=(crop, 1.0))


def images(
    of: Material, *, crop: float = 0.4, jitter: float = 0.3, flip: float = 0.0, grey: float = 0.0, side: float = 0.0
) -> Compose:
    """Crop, flip, jitter colours, turn grey; crops are scaled to ``side`` pixels, or back to the size of the image."""
    if side != int(side):
        raise InvalidInputError(f"side={side:g} must be a whole number of pixels, or 0 for the size of the image.")
    colours = views.ColourJitter(jitter, jitter, jitter * 2 / 3, jitter / 6)
    crops = views.RandomResizedCrop(int(side) or None, scale=(crop, 1.0))
    return Compose(crops, views.HorizontalFlip(flip), colours, views.Grey(grey))


def symmetric(of: Material) -> Augmentation:
    """Return solo-learn's symmetric CIFAR recipe, normalised by the data's own mean if one is given."""
    return views.symmetric_cifar(of.mean, of.std) if of.mean else views.symmetric_cifar()


def asymmetric(of: Material) -> Augmentation:
    """Return solo-learn's asymmetric CIFAR pair, normalised by the data's own mean if one is given."""
    return views.asymmetric_cifar(of.mean, of.std) if of.mean else views.asymmetric_cifar()


def words(
    of: Material, *, drop: float = 0.2, mask: float | None = None, crop: float = 0.7, swap: float = 0.1
) -> Augmentation:
    """Crop texts to at least the part ``crop`` of their words, drop words, swap neighbours, hide a run of them."""
    return views.word_views(of.words("words"), drop=drop, mask=mask, crop=crop, swap=swap)


def dropout(of: Material, *, rate: float = 0.1) -> Augmentation:
    """Leave texts as they are, and drop channels of their tokens inside the encoder, as SimCSE does."""
    of.words("dropout")
    return views.Dropout(rate)


def paper(of: Material) -> Augmentation:
    """Return the paper's views: solo-learn's asymmetric pair for images, noise and dropped features for tables.

    The pair has no meaning for colours that are not there: of grey images the second view alone is solarized.
    """
    sample = of.tensor("paper")
    if sample.ndim != 4:
        return drop(of)
    if sample.shape[1] == 3:
        return asymmetric(of)
    crop, flip = views.RandomResizedCrop(), views.HorizontalFlip(0.5)
    last = [Normalise(of.mean, of.std)] if of.mean else []
    return PerView(Compose(crop, flip, *last), Compose(crop, views.Solarize(0.2), flip, *last))


NORMALISED = {"symmetric_cifar", "asymmetric_cifar", "paper"}
"""Recipes that end in a normalisation of their own."""


def augmentation(settings: Settings, dataset: Dataset, sample: Batch) -> Augmentation:
    """Return the augmentation that settings name, or what suits the data.

    Args:
        settings: Their ``augment``, ``second_augment``, their options, ``mean`` and ``std``.
        dataset: The data; a table's columns are dropped or replaced together with all that encodes them.
        sample: Some samples, for scales and marginals.

    Returns:
        The augmentation of every view, or of each.
    """
    groups = () if dataset.encoding is None else tuple(tuple(part) for part in dataset.encoding.groups.values())
    known = dataset.arrays.tokenizer.vocabulary if isinstance(dataset.arrays, TokenizedTexts) else None
    material = Material(sample, groups, settings.mean, settings.std, known)
    name = settings.augment or DEFAULTS[dataset.kind]
    first = _made(name, settings.augment_options, "augment_options", material)
    if settings.second_augment is None:
        return first
    return PerView(first, _made(settings.second_augment, settings.second_options, "second_options", material))


def open_stream(settings: Settings, dataset: Dataset, rows: Tensor) -> ViewStream:
    """Return the views of the samples ``rows`` ``(n,)`` of a data set; an augmentation that does not fit is refused."""
    few = max(2, LOOKED_AT_BYTES // max(1, batches.sample_bytes(dataset.take(rows[:1]))))
    augment = augmentation(settings, dataset, dataset.take(rows[: min(few, LOOKED_AT)]))
    stream = ViewStream(dataset.part(rows), augment, seed=settings.seed, batch_size=settings.batch_size)
    try:
        stream.views_of(torch.arange(min(2, stream.n)))
    except InvalidInputError as error:
        raise InvalidInputError(f"{flag('augment')} {settings.augment or DEFAULTS[dataset.kind]}: {error}") from error
    return stream


def _made(name: str, options: dict[str, float], key: str, material: Material) -> Augmentation:
    make: Callable[..., Augmentation] = registry.load(registry.AUGMENTATIONS[name])
    known = [parameter for parameter in inspect.signature(make).parameters if parameter != "of"]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise InvalidInputError(
            f"{flag(key)}: {unknown} do not fit augment={name!r}, which takes {known or 'no option'}."
            f"{registry.suggestion(unknown[0], known)}"
        )
    made = make(material, **options)
    plain = not material.mean or name in NORMALISED
    return made if plain else Compose(made, Normalise(material.mean, material.std))
