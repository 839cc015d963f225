"""One thread, so that numbers repeat and small products do not fight over two cores; a seeded generator."""

import os
import warnings

import pytest
import torch

from krepes.encoders.adapters.operators import mend_torchvision

torch.set_num_threads(1)


@pytest.fixture
def seed() -> int:
    """Zero, or any number with KREPES_SEED=random to roam."""
    return int(torch.seed() % 2**31) if os.environ.get("KREPES_SEED") == "random" else 0


@pytest.fixture
def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def real():
    """Imports a package of real encoders or skips, also beside a torchvision that was built for another torch."""

    def find(name: str):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mend_torchvision()
        return pytest.importorskip(name)

    return find
