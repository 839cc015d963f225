"""A torchvision built for another torch: its networks are plain Python and work, once its operators have names.

Its compiled part then does not load, and its import ends at the first operator that it describes to torch. timm,
transformers and open_clip import it, so that none of them could be used, though no network of theirs needs those
operators: they choose among boxes.
"""

from __future__ import annotations

import importlib
import re
import sys
import warnings
from importlib.metadata import PackageNotFoundError, version

import torch

USERS = ("torchvision", "timm", "transformers", "open_clip")
"""Packages that import torchvision."""
ABSENT = re.compile(r"operator torchvision::(\w+) does not exist")
DESCRIBED = ("nms", "qnms")
"""Operators that torchvision describes to torch whether or not they are there; defined together, for an import that
is tried again describes the earlier ones a second time, which some versions of torch refuse."""
NAMES = torch.library.Library("torchvision", "FRAGMENT")
"""Where the names are; torch forgets them when this is gone."""


def mend_torchvision() -> None:
    """Import torchvision, if it is installed, and name the operators that it misses, with one warning.

    Nothing happens if it was imported before, or works. If it fails for any other reason it is left to fail where it
    is needed, with its own words.
    """
    named: list[str] = []
    while "torchvision" not in sys.modules:
        try:
            importlib.import_module("torchvision")
        except Exception as error:
            _forget()
            found = ABSENT.search(str(error))
            if found is None or found[1] in named:
                return
            for operator in {*DESCRIBED, found[1]} - set(named):
                NAMES.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
                named.append(operator)
    if named:
        warnings.warn(
            f"torchvision{_version()} was built for another torch than {torch.__version__}: its compiled operators "
            f"({', '.join(sorted(named))}, ...) do not work here. Networks of plain Python do, which is all that is "
            f"used. To mend it install a torchvision built for this torch.",
            stacklevel=2,
        )


def _forget() -> None:
    """Drop the parts of torchvision that were imported before its import failed."""
    for part in [part for part in sys.modules if part.split(".")[0] == "torchvision"]:
        del sys.modules[part]


def _version() -> str:
    """Return the version of torchvision with a space before it, or nothing if it does not say."""
    try:
        return f" {version('torchvision')}"
    except PackageNotFoundError:
        return ""
