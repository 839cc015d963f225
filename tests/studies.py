"""A study of few random rows that trains in no time, for the targets that retrain."""

import torch

from krepes.reproduce.retraining import Recipe, Study
from krepes.views import GaussianNoise


def small_study(sizes, draw):
    """Barlow Twins on ``sizes`` training, test and reference rows of three classes, drawn by a generator."""
    X, test, reference = (torch.randn(size, 5, generator=draw) for size in sizes)
    y, y_test, y_reference = (torch.arange(size) % 3 for size in sizes)
    recipe = Recipe("noise", width=12, out=4, epochs=3)
    return Study(X, test, reference, y, y_test, y_reference, GaussianNoise(0.1), recipe, "barlow_twins", seed=0)
