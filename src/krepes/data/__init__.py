"""Data in: tables, folders of images, the public data sets by name, and populations whose truth was planted.

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
from krepes.data.synthetic import Population, applicants
from krepes.data.tabular import TabularEncoder

DATASETS: dict[str, Callable[..., NamedTable | NamedImages]] = registry.loaded(registry.DATASETS)
"""Public data sets by name: functions that load them."""

__all__ = [
    "DATASETS",
    "ArrayFile",
    "Column",
    "ImageFolder",
    "NamedImages",
    "NamedTable",
    "Population",
    "Schema",
    "TabularEncoder",
    "applicants",
    "image_folder",
    "open_array",
    "read_table",
]
