"""Figures of the reproduction, drawn from what is stored: they show the table, the paper's figures and proper names."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.text import Text

from krepes.reproduce import TARGETS, coverage, faithfulness
from krepes.reproduce.faithfulness_claims import ANY, DATA, LOSSES, MATCHED, PLAIN, drop
from krepes.reproduce.measured import as_table, read

STORED = Path(__file__).parents[1] / "docs" / "reproduction"


def stored(name):
    return as_table(read(STORED / f"{name}-standard.json"))


def drawn(name):
    figure = TARGETS[name].draw(stored(name))
    figure.draw_without_rendering()
    return figure


def words(figure):
    return " ".join(text.get_text() for text in figure.findobj(Text))


@pytest.mark.parametrize("name", ["alignment", "consistency", "coverage", "faithfulness", "init", "landmarks"])
def test_names_are_spelled_as_in_the_literature_and_everything_lies_inside(name):
    figure = drawn(name)
    assert not {"barlow_twins", "simclr", "vicreg", "cifar10"} & set(words(figure).replace(",", " ").split())
    box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert min(box.x0, box.y0) >= -0.01 and box.x1 <= width + 0.01 and box.y1 <= height + 0.01


def test_coverage_shows_the_paper_s_kappas_and_the_shared_encoder_once():
    figure = drawn("coverage")
    kappa = figure.axes[0]
    marks = {line.get_label(): line.get_xdata().tolist() for line in kappa.get_lines()}
    assert marks["the paper"] == [12, 18, 26, 27, 81]
    own, shared = (len(bars.lines[0].get_xdata()) for bars in kappa.containers)
    assert (own, shared) == (5, 4)
    assert [label.get_text() for label in kappa.get_yticklabels()][:2] == ["Barlow Twins", "VICReg"]
    assert coverage.LOSSES[0] == "barlow_twins"


def test_faithfulness_shows_ratios_of_means_under_the_plain_and_the_largest_reading():
    table = stored("faithfulness")
    figure, ours = drawn("faithfulness"), table[table["setting"] == "ours"]
    means = ours.set_index(["loss", "measure", "data"])["mean"]
    largest = faithfulness._largest(ours)
    assert largest == ("weighted", "predicted class")
    assert "the same, weighted votes, predicted class" in words(figure)
    chance = {"o": drop(PLAIN, "random"), "^": drop((largest[0], ANY), "random"), "+": drop(PLAIN, MATCHED)}
    deleted = {"o": drop(PLAIN, "influence"), "^": drop(largest, "influence"), "+": drop(PLAIN, "influence")}
    for mark, by_chance in chance.items():
        lines = [line for line in figure.axes[2].get_lines() if line.get_marker() == mark and len(line.get_xdata())]
        for loss, line in zip(LOSSES, lines, strict=True):
            of = means[loss]
            wanted = [of[deleted[mark], name] / of[by_chance, name] for name in DATA]
            np.testing.assert_allclose(line.get_ydata(), wanted)
    colours = [handle.get_color() for handle in figure.legends[0].get_lines()]
    assert len(set(colours[:3])) == 3 and not set(colours[:3]) & set(colours[3:])  # a colour is a loss and nothing else


def test_alignment_has_the_interval_over_samples_and_an_axis_that_says_so():
    table, figure = stored("alignment"), drawn("alignment")
    of = table.query(
        "data == 'adult' and setting == 'ours' and agreement == 'indicator' and columns == 'as in the table'"
    )
    half = of[of["measure"] == "half width of the gap"].set_index("column")["mean"]
    ends = [bar[:, 0] for bar in figure.axes[0].collections[0].get_segments()]
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    np.testing.assert_allclose([(high - low) / 2 for low, high in ends], half[names])
    assert "95 % interval over test samples" in figure.get_supxlabel()


def test_consistency_has_the_paper_s_figures_as_dotted_lines():
    table, figure = stored("consistency"), drawn("consistency")
    dotted = [line for line in figure.axes[0].get_lines() if line.get_linestyle() == ":" and len(line.get_xdata())]
    of = table.query("data == 'adult' and setting == 'default' and labels == 'true / true' and metric == 'precision'")
    for line, method in zip(dotted, ("influence", "latent cosine"), strict=True):
        rows = of[of["method"] == method].reset_index(drop=True)["paper"].dropna()
        assert line.get_ydata().tolist() == rows.tolist() and list(line.get_xdata()) == list(rows.index)
    assert "dotted: the paper's figures" in words(figure)
