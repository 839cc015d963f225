"""Data in: tables, folders of images, texts, the public data sets by name, and populations whose truth was planted.

A public data set is a module with one function: ``krepes.data.adult.load(data_dir, split)``.
"""

from collections.abc import Callable

from krepes import registry
from krepes.data.arrays import ArrayFile, open_array
from krepes.data.column import Column
from krepes.data.frames import read_table
from krepes.data.images import ImageFolder, image_folder
from krepes.data.local import NamedImages, NamedTable
from krepes.data.schema import Schema
from krepes.data.shards import TarImages, tar_images
from krepes.data.synthetic import Population, applicants
from krepes.data.tabular import TabularEncoder
from krepes.data.tokenizer import HashedTokenizer, Tokenizer
from krepes.data.tokens import TokenizedTexts, tokenized

DATASETS: dict[str, Callable[..., NamedTable | NamedImages]] = registry.loaded(registry.DATASETS)
"""Public data sets by name: functions that load them."""

__all__ = [
    "DATASETS",
    "ArrayFile",
    "Column",
    "HashedTokenizer",
    "ImageFolder",
    "TarImages",
    "NamedImages",
    "NamedTable",
    "Population",
    "Schema",
    "TabularEncoder",
    "TokenizedTexts",
    "Tokenizer",
    "applicants",
    "image_folder",
    "tar_images",
    "open_array",
    "read_table",
    "tokenized",
]
