"""Tokenizers of transformers, from a local folder or a factory: their numbers, where they stand, what begins a word."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from krepes.data.files import foreign, named
from krepes.data.tokenizer import Tokenizer, Tokens, Vocabulary
from krepes.encoders.adapters.huggingface import SAFE
from krepes.encoders.adapters.packages import offline, package
from krepes.encoders.factory import find
from krepes.errors import InvalidInputError

BEGINS = ("Ġ", "▁")
"""What a token starts with that begins a word, in byte-level and sentence-piece vocabularies."""
NEEDED = ("get_vocab", "convert_ids_to_tokens", "all_special_ids")
ADVICE = "Save it beside the model: tokenizer.save_pretrained(folder)."


@dataclass(frozen=True, eq=False)
class ForeignTokenizer:
    """A tokenizer of transformers as this package uses it.

    Attributes:
        inner: The tokenizer itself.
        longest: Tokens of a text that are read, at most; fewer where the tokenizer says so.
    """

    inner: Any
    longest: int = 128

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Its numbers; words begin as its kind of vocabulary writes them."""
        size = 1 + max(self.inner.get_vocab().values())
        pad = getattr(self.inner, "pad_token_id", None)
        special = tuple(sorted({int(number) for number in self.inner.all_special_ids}))
        hidden = getattr(self.inner, "mask_token_id", None)
        kept = tuple(number for number in special if number != hidden)
        return Vocabulary(size, int(pad or 0), hidden, kept, self._continues(size, special))

    def _continues(self, size: int, special: tuple[int, ...]) -> Tensor:
        """Return which tokens continue a word; none where the vocabulary does not tell."""
        names = [str(name) for name in self.inner.convert_ids_to_tokens(list(range(size)))]
        if any(name.startswith("##") for name in names):
            found = [name.startswith("##") for name in names]
        elif any(name.startswith(BEGINS) for name in names):
            found = [not name.startswith(BEGINS) for name in names]
        else:
            found = [False] * size
        continues = torch.tensor(found)
        continues[list(special)] = False
        return continues

    def tokens(self, text: str) -> Tokens:
        """Return the tokens of a text, framed as the tokenizer frames it."""
        length = min(self.longest, int(getattr(self.inner, "model_max_length", self.longest)))
        where = {"return_offsets_mapping": True} if getattr(self.inner, "is_fast", False) else {}
        with foreign("the tokenizer failed on a text", "Check the tokenizer."):
            found = self.inner(text, truncation=True, max_length=length, **where)
            ids = [int(number) for number in found["input_ids"]]
            spans = [(int(start), int(end)) for start, end in found.get("offset_mapping", [(0, 0)] * len(ids))]
            pieces = [str(name) for name in self.inner.convert_ids_to_tokens(ids)]
        if not ids:  # it frames nothing, and the text is empty
            ids, spans, pieces = [self.vocabulary.pad], [(0, 0)], [""]
        return Tokens(ids, spans, pieces)


def load_tokenizer(name: str, longest: int) -> Tokenizer:
    """Return the tokenizer of a local folder, or what a factory of the user's makes.

    Args:
        name: A folder that ``save_pretrained`` wrote, or ``module:factory``.
        longest: Tokens of a text that are read, at most.

    Returns:
        The tokenizer.

    Raises:
        InvalidInputError: If there is none, or it is of no known kind.
    """
    if Path(name).is_dir():
        return ForeignTokenizer(folder_tokenizer(Path(name)), longest)
    if ":" not in name:
        raise InvalidInputError(
            f"{named(name)} is no local folder and does not read module:factory. Nothing is looked for on the network."
        )
    make = find(name)
    ready = not isinstance(make, type) and (hasattr(make, "tokens") or hasattr(make, "get_vocab"))
    with foreign(f"the factory {named(name)} of a tokenizer failed", "Correct the factory."):
        made = make if ready or not callable(make) else make()
    return as_tokenizer(made, longest)


def as_tokenizer(made: Any, longest: int = 128) -> Tokenizer:
    """Return a tokenizer of transformers wrapped, and one that has ``tokens`` and ``vocabulary`` as it is."""
    if hasattr(made, "tokens") and isinstance(getattr(made, "vocabulary", None), Vocabulary):
        return made
    if callable(made) and all(hasattr(made, name) for name in NEEDED):
        return ForeignTokenizer(made, longest)
    raise InvalidInputError(
        f"a {type(made).__name__} is no tokenizer: it needs tokens(text) and vocabulary, as "
        f"krepes.data.HashedTokenizer has them, or to be one of transformers."
    )


def folder_tokenizer(folder: Path) -> Any:
    """Return the tokenizer that lies in a local folder; no code of it is run."""
    transformers = package("transformers", "huggingface")
    with offline(), foreign(f"the tokenizer of {named(folder)} cannot be read", ADVICE):
        return transformers.AutoTokenizer.from_pretrained(str(folder), **SAFE)
