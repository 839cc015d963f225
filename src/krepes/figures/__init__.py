"""Figures of explanations and audits: each function takes a result and returns a matplotlib Figure, drawn nowhere."""

from krepes.figures.curves import consistency_curves, coverage_curve, spectral_curves
from krepes.figures.heatmap import cross_group_heatmap
from krepes.figures.latent import latent_map
from krepes.figures.measures import alignment_bars, deletion_bars, faithfulness_bars
from krepes.figures.results import influence_bars, kind_bars, landmark_bars, verdict_board
from krepes.figures.rows import row_diffs
from krepes.figures.spectra import singular_values
from krepes.figures.strips import landmark_columns, landmark_strips
from krepes.figures.style import render

__all__ = [
    "alignment_bars",
    "consistency_curves",
    "coverage_curve",
    "cross_group_heatmap",
    "deletion_bars",
    "faithfulness_bars",
    "influence_bars",
    "kind_bars",
    "landmark_bars",
    "landmark_columns",
    "landmark_strips",
    "latent_map",
    "render",
    "row_diffs",
    "singular_values",
    "spectral_curves",
    "verdict_board",
]
