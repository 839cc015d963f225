"""The model: from views to a fitted surrogate (`Krepes`), and between a run folder and back."""

from krepes.model.estimator import Krepes

__all__ = ["Krepes"]
