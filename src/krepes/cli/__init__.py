"""The command line: ``krepes --help``."""

from krepes.cli.app import main

__all__ = ["main"]
