"""Texts in settings: which column they stand in, what they are tokenized by, and what does not go with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from krepes import registry
from krepes.data.sentences import TEXT
from krepes.data.text import printable
from krepes.data.tokenizer import HashedTokenizer, Tokenizer
from krepes.data.tokens import TokenizedTexts, tokenized
from krepes.encoders.adapters.folders import require_folder
from krepes.encoders.adapters.sentences import limited_tokenizer
from krepes.encoders.adapters.tokenizers import ForeignTokenizer, folder_tokenizer, load_tokenizer
from krepes.errors import InvalidInputError
from krepes.preset import given_by
from krepes.runs.columns import missing
from krepes.runs.settings import Settings, flag

OWN = "text"
"""The encoder of this package, which has no table of positions: its batches may have any length."""


def text_column(frame: pd.DataFrame, settings: Settings, name: str) -> str:
    """Return the column of a file of texts: as told, else ``text``, else the only one there is."""
    columns = [str(column) for column in frame.columns]
    told = settings.text_column or (TEXT if TEXT in columns else columns[0] if len(columns) == 1 else None)
    if told is None:
        raise InvalidInputError(
            f"{flag('text_column')}: {name} has no column {TEXT!r}, so say which one holds the texts: "
            f"{', '.join(map(printable, columns[:12]))}."
        )
    if told not in columns:
        raise InvalidInputError(f"{flag('text_column')}: {missing(name, told, columns)}")
    return told


def read_texts(column: pd.Series[Any], settings: Settings, name: str) -> TokenizedTexts:
    """Return the texts of a column as samples; a missing one is an empty text.

    Args:
        column: Texts.
        settings: Which tokenizer, and how many tokens.
        name: Of the data, for messages.

    Returns:
        The samples.

    Raises:
        InvalidInputError: If the column holds something else, or the settings ask for what texts have not.
    """
    require_textual(settings)
    given = column.dropna()
    other = next((value for value in given if not isinstance(value, str)), None)
    if other is not None or given.empty:
        found = "nothing" if given.empty else f"{printable(other)[:40]} ({type(other).__name__})"
        raise InvalidInputError(
            f"{flag('text_column')}: column {column.name!r} of {name} holds {found}, not texts. Name the column with "
            f"the texts."
        )
    texts = [value if isinstance(value, str) else "" for value in column]
    return tokenized(texts, open_tokenizer(settings), one_width=settings.encoder not in {None, OWN})


def open_tokenizer(settings: Settings) -> Tokenizer:
    """Return what makes tokens of texts: as told, else that of the encoder's folder, else hashed pieces of words.

    Args:
        settings: Their ``tokenizer``, ``encoder`` and ``max_tokens``.

    Returns:
        The tokenizer.

    Raises:
        InvalidInputError: If there is no such tokenizer.
    """
    adapted = registry.adapter(settings.encoder)
    if settings.tokenizer is not None:
        try:
            return load_tokenizer(settings.tokenizer, settings.max_tokens)
        except InvalidInputError as error:
            raise InvalidInputError(f"{flag('tokenizer')}: {error}") from error
    if adapted is None:
        return HashedTokenizer(longest=settings.max_tokens)
    if adapted[0] == "st":
        return ForeignTokenizer(limited_tokenizer(adapted[1]), settings.max_tokens)
    return ForeignTokenizer(folder_tokenizer(require_folder(adapted[1])), settings.max_tokens)


def imports_code(settings: Settings) -> bool:
    """Say whether opening the texts of some settings imports a module that they name."""
    return settings.tokenizer is not None and ":" in settings.tokenizer and not Path(settings.tokenizer).is_dir()


def require_textual(settings: Settings) -> None:
    """Refuse an encoder of images, and settings that compare the numbers of tokens as if they were measurements."""
    adapted = registry.adapter(settings.encoder)
    if adapted is not None and adapted[0] not in registry.WITH_WEIGHTS:  # before what its adapter says of pictures
        raise InvalidInputError(
            f"{flag('encoder')}: {settings.encoder} takes images, and the samples are texts. Encoders of texts are "
            f"text, hf:FOLDER, st:FOLDER or module:factory."
        )
    reason = "compares numbers of the input, and the numbers of tokens are names"
    if settings.kernel in registry.KERNELS:
        raise InvalidInputError(
            f"{flag('kernel')}: {settings.kernel} {reason}. For texts use the tangent kernel of an encoder: "
            f"{registry.listed(registry.TANGENT)}."
        )
    if settings.landmarks == "kmeans++" and "landmarks" not in given_by(settings.preset):
        raise InvalidInputError(
            f"{flag('landmarks')}: {settings.landmarks} {reason}. For texts choose rpcholesky, leverage-nystrom, "
            f"leverage-hutchinson or uniform."
        )
    for key in ("mean", "std", "schema", "exclude"):
        if getattr(settings, key):
            raise InvalidInputError(f"{flag(key)} has no meaning for texts, which are all that the encoder sees.")
    if "dropout" in {settings.augment, settings.second_augment} and registry.adapter(settings.encoder) is not None:
        raise InvalidInputError(
            f"{flag('augment')}: dropout needs an encoder that takes the noise as an argument, and {settings.encoder} "
            f"does not. Choose words."
        )
