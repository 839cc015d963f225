"""Figures: they draw what the result says, lie inside the paper, repeat byte for byte, and load matplotlib late."""

import subprocess
import sys
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.text import Text

from krepes import figures
from krepes.audit import FeatureSpace, alignment_of, class_coverage, cross_group, label_consistency
from krepes.audit.consistency import READINGS, consistency_readings
from krepes.audit.rankings import first
from krepes.audit.selection import Selection
from krepes.data.text import printable
from krepes.errors import InvalidInputError
from krepes.figures.style import ATTRACTIVE, BLUE, MARKERS, ORANGE, PALE, REPULSIVE, SERIES, fixed

GAP = ["estimate", "low_corrected", "high_corrected", "null", "p_corrected"]
LONG = "a name that is far too long to stand beside a bar at this size"


def frame(n, seed):
    rng = np.random.default_rng(seed)
    return pd.DataFrame({LONG: rng.normal(size=n), "town": rng.choice(["Bonn", "Graz"], n), "year": 2020})


def alignment():
    train = frame(40, 0)
    scores = torch.randn(30, 20, generator=torch.Generator().manual_seed(0))
    return alignment_of(scores, frame(30, 1), train[:20], FeatureSpace.of(train))


def ranked(t=60, m=30, k=20):
    generator = torch.Generator().manual_seed(0)
    top = {name: first(torch.rand(t, m, generator=generator), k) for name in ("influence", "random")}
    return top, [f"group {l % 7}" for l in range(m)], [f"group {i % 7}" for i in range(t)]


def selection(values):
    curve = pd.DataFrame({
        "value": values,
        "entropy": [0.2, 0.9, 0.5],
        "entropy_kernel": [0.3, 0.8, 0.6],
        "rankme": [1, 3, 2],
    })
    return Selection("entropy", values[1], dict.fromkeys(("entropy", "entropy_kernel", "rankme"), values[1]), curve)


def faithfulness_table():
    rows = [
        ("surrogate accuracy", None, 0.9, 0.85, 0.93, 100, ""),
        ("encoder accuracy", None, 0.92, 0.88, 0.95, 100, ""),
        ("accuracy gap", None, -0.02, -0.05, 0.01, 100, ""),
        ("same decision", None, 0.95, 0.9, 0.98, 100, ""),
        ("tau over classes", None, 0.8, 0.75, 0.85, 100, ""),
        *(("tau over samples", f"class {c}", 0.7, 0.6, 0.8, 100, "") for c in range(4)),
        ("tau over samples", "constant", float("nan"), -1, 1, 100, "same probability"),
    ]
    return pd.DataFrame(rows, columns=["measure", "class", "estimate", "low", "high", "n", "note"])


def deletion_table():
    rows = [("influence", 0.9, 0.05, 0.04, 0.06, 100), ("random", 0.9, 0.0, -0.01, 0.01, 100)]
    return pd.DataFrame(rows, columns=["method", "before", "estimate", "low", "high", "n"])


def strips(scores):
    images = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    return figures.landmark_strips(images[:1], images, torch.tensor([[1, 2]]), scores, landmark_names=list("abcdef"))


def rows():
    train = frame(20, 0)
    return figures.row_diffs(train[:1], train[1:4], torch.tensor([0.5, 0.1, -0.2]), FeatureSpace.of(train))


def latent(**options):
    Z = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    return figures.latent_map(Z[0], Z, torch.linspace(-1, 1, 30), **options)


def columns():
    images = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    names = ["automobile", "airplane", "bird", "cat", "deer", "truck"]
    chosen = torch.arange(18).reshape(6, 3) % 6
    return figures.landmark_columns(images, images, chosen, sample_names=names, landmark_names=names)


def apart():
    images = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    scores = torch.linspace(1, -1, 12).reshape(2, 6)
    return figures.landmark_strips(images[:2], images, torch.arange(6).repeat(2, 1), scores, attracting=3)


ALL = {
    "columns": columns,
    "strips apart": apart,
    "map of classes": lambda: latent(names=["a", "b", "c"] * 10, own="a", rest="c"),
    "strips": lambda: strips(torch.tensor([[0.5, -0.2]])),
    "rows": rows,
    "alignment": lambda: figures.alignment_bars(alignment()),
    "raw alignment": lambda: figures.alignment_bars(alignment(), variant="raw"),
    "groups": lambda: figures.cross_group_heatmap(cross_group(*ranked())["influence"]),
    "latent": latent,
    "named latent": lambda: latent(names=[f"kind {l % 9}" for l in range(30)]),
    "spectrum": lambda: figures.spectral_curves(selection([0.01, 0.1, 1.0]), accuracy={0.01: 0.5, 0.1: 0.7, 1.0: 0.6}),
    "named spectrum": lambda: figures.spectral_curves(selection(["low", "middle", "high"])),
    "consistency": lambda: figures.consistency_curves(label_consistency(*ranked())),
    "coverage": lambda: figures.coverage_curve(class_coverage(torch.rand(30), [l % 7 for l in range(30)])),
    "no coverage": lambda: figures.coverage_curve(class_coverage(torch.rand(3), list("aab"), classes=list("abc"))),
    "faithfulness": lambda: figures.faithfulness_bars(faithfulness_table()),
    "deletion": lambda: figures.deletion_bars(deletion_table()),
}
every_figure = pytest.mark.parametrize("name", ALL)


def texts(figure):
    return [text for text in figure.findobj(Text) if text.get_text()]


def words(figure):
    return " ".join(text.get_text() for text in texts(figure))


@every_figure
def test_everything_lies_inside_700_pixels_and_no_text_is_small(name):
    figure = ALL[name]()
    figure.draw_without_rendering()
    drawn, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert width == 7
    # A hundredth of an inch, one pixel, for rounding.
    assert min(drawn.x0, drawn.y0) >= -0.01
    assert drawn.x1 <= width + 0.01
    assert drawn.y1 <= height + 0.01
    assert min(text.get_fontsize() for text in texts(figure)) >= 8


EVIL = ("$x_1^2$", r"$\frac{1$ \alpha", "_hidden", "a\x1b[31m\u202e\x00", "100 $", "<b>&amp;", "$$", r"\$5 ^_{}%#~")


def evil_alignment(name):
    train = frame(40, 0).rename(columns={LONG: name, "year": f"{name} year"})
    test = frame(30, 1).rename(columns={LONG: name, "year": f"{name} year"})
    scores = torch.randn(30, 20, generator=torch.Generator().manual_seed(0))
    return alignment_of(scores, test, train[:20], FeatureSpace.of(train))


def evil_rows(name):
    train = frame(20, 0).rename(columns={"town": name}).assign(**{name: name})
    space = FeatureSpace.of(train.assign(**{name: [name, "b"] * 10}))
    return figures.row_diffs(train[:1], train[1:3], torch.tensor([0.5, -0.2]), space, landmark_ids=[name, "b"])


def evil_groups(name):
    top, landmarks, samples = ranked()
    return cross_group(top, [name, *landmarks[1:]], [name, *samples[1:]])["influence"]


NAMED = {
    "alignment": lambda name: figures.alignment_bars(evil_alignment(name)),
    "rows": evil_rows,
    "groups": lambda name: figures.cross_group_heatmap(evil_groups(name)),
    "latent": lambda name: latent(names=[name, "b"] * 15),
    "consistency": lambda name: figures.consistency_curves(label_consistency(*ranked()).replace("random", name)),
    "spectrum": lambda name: figures.spectral_curves(selection([name, "b", "c"]), name=name),
    "faithfulness": lambda name: figures.faithfulness_bars(faithfulness_table().replace("class 1", name)),
    "columns": lambda name: figures.landmark_columns(
        torch.rand(1, 8, 8), torch.rand(2, 8, 8), torch.tensor([[0]]), sample_names=[name], landmark_names=["a", "b"]
    ),
    "own": lambda name: latent(names=[name, "b"] * 15, own=name, rest="b"),
    "strips": lambda name: figures.landmark_strips(
        torch.rand(1, 8, 8),
        torch.rand(2, 8, 8),
        torch.tensor([[0, 1]]),
        torch.tensor([[0.5, -0.2]]),
        sample_names=[name],
        sample_notes=[name],
        landmark_names=[name, "b"],
    ),
}


@pytest.mark.parametrize("figure", NAMED)
@pytest.mark.parametrize("name", EVIL)
def test_names_are_drawn_letter_by_letter(figure, name):
    """No formula, no error of the formula's parser, nothing left out, no character that breaks the file."""
    drawn = figures.render(NAMED[figure](name), format="svg")
    page = "".join(ElementTree.fromstring(drawn).itertext())
    length = 10  # the shortest that a name is cut to
    shown = printable(name)
    assert (shown if len(shown) <= length else shown[: length - 1]) in page, page


@every_figure
@pytest.mark.parametrize("format", ["png", "svg"])
def test_same_result_same_bytes_without_dates(name, format):
    torch.manual_seed(0)
    one = figures.render(ALL[name](), format=format, dpi=60)
    torch.manual_seed(0)
    assert one == figures.render(ALL[name](), format=format, dpi=60)
    assert b"dc:date" not in one
    assert b"Software" not in one


def test_the_users_matplotlib_settings_neither_leak_in_nor_out():
    plain = figures.render(ALL["deletion"](), dpi=60)
    with matplotlib.rc_context({"font.size": 25, "axes.facecolor": "black"}):
        assert figures.render(ALL["deletion"](), dpi=60) == plain
        assert matplotlib.rcParams["font.size"] == 25


def test_attraction_is_green_and_repulsion_red_with_signs_and_digits_that_say_so_too():
    _, attracts, repels = strips(torch.tensor([[0.0112, -0.00928]])).axes
    assert [to_hex(ax.spines["left"].get_edgecolor()).upper() for ax in (attracts, repels)] == [ATTRACTIVE, REPULSIVE]
    assert {spine.get_linestyle() for ax in (attracts, repels) for spine in ax.spines.values()} == {"solid"}
    assert [ax.get_xlabel() for ax in (attracts, repels)] == ["+0.0112", "−0.0093"]
    lines = latent(k=2).axes[0].get_lines()
    assert [line.get_color() for line in lines] == [ATTRACTIVE] * 2 + [REPULSIVE] * 2


@pytest.mark.parametrize(
    ("values", "written"),
    [
        ([123.4, -2.0], ["+123", "−2"]),
        ([0.0, 0.0], ["+0.00", "+0.00"]),
        ([1.0, float("nan")], ["+1.00", "+nan"]),
        ([1.25e-9, -1e-10], ["+1.25e−09", "−1.00e−10"]),
    ],
)
def test_scores_are_written_to_the_same_digit(values, written):
    assert fixed(values) == written


def test_what_attracts_and_what_repels_stand_apart_under_headings():
    images = torch.rand(5, 4, 4)
    scores = torch.tensor([[0.3, 0.2, -0.1, -0.2]])
    figure = figures.landmark_strips(
        images[:1], images, torch.tensor([[0, 1, 2, 3]]), scores, sample_names=["ship"], attracting=2
    )
    figure.draw_without_rendering()
    assert [ax.texts[0].get_text() for ax in figure.axes[:3]] == ["test", "attract most", "repel most"]
    left = [ax.get_position().x0 for ax in figure.axes[3:]]
    steps = np.diff(left)
    assert len(left) == 5 and steps[2] > 1.2 * max(steps[0], steps[1], steps[3])
    assert figure.axes[3].get_title() == "ship"
    with pytest.raises(InvalidInputError, match="attracting between 1 and 3, got .* attracting=4"):
        figures.landmark_strips(images[:1], images, torch.tensor([[0, 1, 2, 3]]), scores, attracting=4)


def test_landmarks_below_a_sample_are_framed_by_whether_they_share_its_class():
    images = torch.rand(3, 4, 4)
    figure = figures.landmark_columns(
        images[:2],
        images,
        torch.tensor([[0, 2], [1, 0]]),
        sample_names=["cat", "dog"],
        landmark_names=["cat", "dog", "dog"],
    )
    shown = {(ax.get_xlabel(), to_hex(ax.spines["left"].get_edgecolor()).upper()) for ax in figure.axes[2:]}
    assert shown == {("cat", BLUE), ("dog", BLUE), ("dog", ORANGE), ("cat", ORANGE)}
    assert [ax.get_title() for ax in figure.axes[:2]] == ["cat", "dog"]
    np.testing.assert_array_equal(figure.axes[5].images[0].get_array(), images[0])  # the second of the second sample
    ten = figures.landmark_columns(
        torch.rand(10, 4, 4), images, torch.zeros(10, 3).long(), sample_names=range(10), landmark_names=range(3)
    )
    width, height = ten.get_size_inches()
    assert height < 0.6 * width


def test_a_map_shows_the_sample_s_own_class_first_and_what_is_merged_last_and_grey():
    names = ["ship", "cat", "other classes"] * 10
    figure = latent(names=names, own="ship", rest="other classes")
    shown = [text.get_text() for text in figure.legends[0].get_texts()]
    assert shown == ["attracts", "repels", "ship (the sample's)", "cat", "other classes", "test sample"]
    own, cat, rest = figure.axes[0].collections[:3]
    assert own.get_sizes()[0] > cat.get_sizes()[0] > rest.get_sizes()[0]
    assert to_hex(rest.get_facecolor()[0]).upper() == PALE
    assert figure.axes[0].get_title(loc="left") == "a test sample of class ship among the landmarks"


def test_edges_of_a_missing_sign_are_left_out():
    Z = torch.randn(9, 4, generator=torch.Generator().manual_seed(0))
    lines = figures.latent_map(Z[0], Z, torch.rand(9) + 0.1).axes[0].get_lines()
    assert {line.get_color() for line in lines} == {ATTRACTIVE}


def test_bars_are_the_estimates_in_order_and_undefined_columns_are_named():
    found = alignment()
    figure = figures.alignment_bars(found)
    table = found.ranked().dropna(subset="estimate")
    widths = [bar.get_width() for bar in figure.axes[0].patches]
    np.testing.assert_allclose(widths, table["estimate"])
    ends = np.array([bar[:, 0] for bar in figure.axes[0].collections[0].get_segments()])
    np.testing.assert_allclose(ends, table[["low_corrected", "high_corrected"]])
    assert "year: undefined, constant in the 40 training rows" in words(figure)


def test_consistency_has_a_row_of_panels_for_each_reading_of_class():
    tops, of_landmark, of_sample = ranked()
    table = consistency_readings(tops, (of_landmark, of_landmark[::-1]), (of_sample, of_sample[::-1]))
    figure = figures.consistency_curves(table)
    assert len(figure.axes) == 9
    assert [ax.get_ylabel() for ax in figure.axes[::3]] == [f"share, {reading}" for reading in READINGS]
    drawn = figure.axes[4].get_lines()[0].get_ydata()  # majority of influence under the second reading
    wanted = table.query("labels == 'predicted / true' and metric == 'majority' and method == 'influence'")
    np.testing.assert_allclose(drawn, wanted["estimate"])


def test_a_bar_is_blue_only_beyond_its_null_whose_band_is_drawn():
    found = alignment()
    found.frame.loc[found.frame["column"] == "town", GAP] = [0.3, 0.2, 0.4, 0.0, 0.05]
    found.frame.loc[found.frame["column"] == LONG, GAP] = [0.5, 0.4, 0.6, 0.0, 0.051]
    ax = figures.alignment_bars(found).axes[0]
    assert [to_hex(bar.get_facecolor()).upper() for bar in ax.patches] == [PALE, BLUE]
    table = found.ranked().dropna(subset="estimate")
    bands = ax.collections[-1].get_segments()
    np.testing.assert_allclose([band[:, 0] for band in bands], table[["null_low", "null_high"]])


def test_heat_map_writes_every_share_and_chance():
    found = cross_group(*ranked())["influence"]
    figure = figures.cross_group_heatmap(found)
    shown = figure.axes[0].images[0].get_array()
    np.testing.assert_allclose(shown, np.vstack([found.shares, found.expected]))
    assert "random landmark" in words(figure)
    largest, scale = np.nanmax(shown), figure.axes[0].images[0].get_clim()
    assert scale[0] == 0 and largest <= scale[1] < largest + 0.05  # the largest share is the darkest


def test_the_winner_is_ringed():
    figure = figures.spectral_curves(selection([0.01, 0.1, 1.0]))
    for ax in figure.axes:
        ring = ax.get_lines()[1]
        assert ring.get_xdata()[0] == 0.1
    assert "best at 0.1" in words(figure)


def test_identical_rows_are_not_shaded_and_different_categories_are():
    train = pd.DataFrame({"town": ["Bonn", "Bonn", "Graz"]})
    figure = figures.row_diffs(train[:1], train[1:], torch.tensor([1.0, 0.5]), FeatureSpace.of(train))
    shades = [cell.get_alpha() for cell in figure.axes[0].collections]
    assert shades[:2] == [0, 0]
    assert shades[2] > 0.5


def test_normalised_images_are_stretched_and_plain_ones_kept():
    image = torch.tensor([[[-2.0, 2.0], [0.0, 1.0]]])
    figure = figures.landmark_strips(image, image / 4 + 0.5, torch.tensor([[0]]), torch.tensor([[1.0]]))
    stretched, kept = (ax.images[0].get_array() for ax in figure.axes)
    np.testing.assert_allclose(stretched, [[0, 1], [0.5, 0.75]])
    np.testing.assert_allclose(kept, [[0, 1], [0.5, 0.75]])


def test_notes_stand_under_their_test_images():
    images = torch.rand(2, 4, 4)
    options = {"sample_names": ["a", "b"], "sample_notes": ["+1.0", "-2.0"]}
    figure = figures.landmark_strips(images, images, torch.tensor([[0], [1]]), torch.ones(2, 1), **options)
    below = {ax.get_title(): ax.get_xlabel() for ax in figure.axes if ax.get_title()}
    assert below == {"test: a": "+1.0", "test: b": "-2.0"}


def test_series_are_distinct_without_colour_too():
    assert len(set(SERIES)) == len(SERIES) == len(set(MARKERS))


def test_refusals():
    with pytest.raises(InvalidInputError, match=r"images must be \(t, H, W\)"):
        figures.landmark_strips(torch.rand(1, 4), torch.rand(3, 4), torch.tensor([[1]]), torch.tensor([[1.0]]))
    with pytest.raises(InvalidInputError, match="10 distinct names"):
        latent(names=[l % 10 for l in range(30)])
    with pytest.raises(InvalidInputError, match="one test row"):
        figures.row_diffs(frame(2, 0), frame(1, 0), torch.rand(1), FeatureSpace.of(frame(9, 0)))
    with pytest.raises(InvalidInputError, match="scores and names"):
        figures.latent_map(torch.rand(3), torch.rand(9, 4), torch.rand(9))


def test_importing_krepes_and_its_figures_does_not_import_matplotlib():
    code = "import sys, krepes, krepes.audit, krepes.figures; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
