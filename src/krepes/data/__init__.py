"""Data in: tables, folders of images, the public data sets by name, and populations whose truth was planted."""

from krepes.data.frames import read_table
from krepes.data.schema import Column, Schema
from krepes.data.tabular import TabularEncoder

__all__ = ["Column", "Schema", "TabularEncoder", "read_table"]
