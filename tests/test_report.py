"""The report: findings follow from planted truths, every table has its baselines, and the page is safe and the same."""

import copy
import dataclasses
import re
from collections import Counter
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
import torch

from krepes import registry
from krepes.audit import FeatureSpace, cross_group
from krepes.audit.questions.trust import spanned
from krepes.audit.study import Study
from krepes.audit.wording import listing, percent, signed, text
from krepes.concepts import ConceptVector
from krepes.data.synthetic import applicants
from krepes.encoders import MLP
from krepes.errors import InvalidInputError
from krepes.kernels.classic import RBF
from krepes.model import Krepes
from krepes.report import build_report, join, render, write_report
from krepes.report.blocks import Chooser, Paragraph, Picture, Sheets, Table, Titled
from krepes.report.content import Part, Report, Section
from krepes.report.desk import Desk, moved
from krepes.report.sections.counterfactual import counterfactual, trust_line
from krepes.report.sections.provenance import _shape
from krepes.report.sections.samples import samples
from krepes.views import GaussianNoise, ViewStream

N, T = 360, 100
KEYS = {"audited", *registry.AUDITS, "samples", "landmarks", "counterfactual"}
EVIL = "<script>alert('x')</script>"


def fitted(people, kernel, **settings):
    stream = ViewStream(people.X[:N], GaussianNoise(people.jitter), seed=0)
    return Krepes(kernel, m=40, h=8, progress=False, **settings).fit(stream)


def material(people):
    train, test = people.frame.iloc[:N], people.frame.iloc[N:]
    return {
        "tables": (train, test),
        "groups": {name: (train[name].tolist(), test[name].tolist()) for name in ("group", "housing")},
        "labels": (people.labels[:N].tolist(), people.labels[N:].tolist()),
        "inputs": "table",
        "shown": 4,
        "k": 3,
    }


@pytest.fixture(scope="module")
def people():
    return applicants(N + T, seed=3)


@pytest.fixture(scope="module")
def model(people):
    torch.manual_seed(0)
    return fitted(people, MLP(people.X.shape[1], width=32, depth=1, out=16).eval())


@pytest.fixture(scope="module")
def full(people, model):
    member = people.labels[:N] == 0
    concept = ConceptVector.fit(model, people.X[:N][member], people.X[:N][~member], name="azure")
    return build_report(model, X_test=people.X[N:], concepts=[concept], title="Applicants", **material(people))


@pytest.fixture(scope="module")
def bare(people):
    return build_report(fitted(people, RBF(2.0)), X_test=people.X[N : N + 20], shown=3, k=2)


@pytest.fixture(scope="module")
def pictures():
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(120, 3, 6, 6, generator=generator)
    torch.manual_seed(0)
    encoder = MLP(108, width=16, depth=1, out=8).eval()
    model = Krepes(encoder, m=12, h=4, augment=FlatNoise(0.1), progress=False).fit(images[:80])
    return build_report(model, X_test=images[80:], inputs="image", shown=2, k=2)


class FlatNoise(GaussianNoise):
    """Gaussian noise of images: `GaussianNoise` takes rows."""

    def __call__(self, X, noise):
        return super().__call__(X.flatten(1), noise).reshape(X.shape)


class Page(HTMLParser):
    """The tags of a page with their attributes, and its visible text."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.texts = [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)

    def all(self, name):
        return [attrs for tag, attrs in self.tags if tag == name]


def tables(blocks):
    for block in blocks:
        if isinstance(block, Table):
            yield block
        elif isinstance(block, Titled):
            yield from tables(block.blocks)
        elif isinstance(block, (Chooser, Sheets)):
            for choice in block.choices if isinstance(block, Chooser) else block.sheets:
                yield from tables(choice.blocks)


# What it says


def test_sections_come_in_order_of_their_news_each_with_a_finding_and_a_caveat(full):
    keys = [section.key for section in full.parts[0].sections]
    assert (
        set(keys) == KEYS and keys[0] == "audited" and keys[-4:] == ["samples", "landmarks", "counterfactual", "proxy"]
    )
    rank = {"bad": 0, "neutral": 1, "good": 2}
    verdicts = [rank[section.verdict] for section in full.parts[0].sections if section.data]
    assert verdicts == sorted(verdicts)
    for section in full.parts[0].sections:
        assert section.missing == (section.key == "proxy")
        if section.missing:
            continue
        assert section.finding.endswith(".") and section.caveat.endswith(".")


def test_features_name_the_planted_column_and_its_proxy_and_no_noise(full, people):
    finding = full.section("features").finding
    leading, others = finding.split(";")
    assert people.driver in leading and people.proxy in leading
    assert not any(column in leading for column in people.noise_columns)
    assert any(column in others for column in people.noise_columns)
    assert full.section("features").headline.value in {people.driver, people.proxy}


def test_features_do_not_name_a_column_that_tells_nothing(people, model):
    shuffled = people.frame[["age", "hours"]].sample(frac=1, random_state=0)
    tables = shuffled.iloc[:N].reset_index(drop=True), shuffled.iloc[N:].reset_index(drop=True)
    report = build_report(model, X_test=people.X[N:], tables=tables, shown=2, k=2, counterfactual=False)
    gaps = next(tables_of for tables_of in report.section("features").blocks if isinstance(tables_of, Table))
    assert all(abs(row[1].value) < 0.05 for row in gaps.rows)


def test_groups_say_what_the_matrix_says(full, people, model):
    evidence = Study(model, people.X[N:], **material(people))
    groups = people.frame["group"].tolist()
    found = cross_group(evidence.rankings, [groups[i] for i in model.landmarks_], groups[N:])["influence"]
    share = found.counts.trace() / T
    assert f"By group, {percent(share)} of the samples" in full.section("groups").finding
    assert share > 0.9
    assert full.section("groups").headline.value == percent(share)


def test_a_group_that_leans_on_another_is_named(people, model):
    """Samples called 'lost' are of group azure, whose landmarks keep their name: they lean on them.

    Two kinds of landmarks and not four: 'lost' is anchored to four landmarks, too few for a p of one pair among 16.
    """
    names = ["azure" if name == "azure" else "other" for name in people.frame["group"]]
    test = ["lost" if name == "azure" else name for name in names[N:]]
    groups = {"tribe": (names[:N], test)}
    report = build_report(model, X_test=people.X[N:], groups=groups, shown=1, k=2, counterfactual=False)
    assert re.search(r"“lost” leans on “azure” \d", report.section("groups").finding)
    assert report.section("groups").headline.value == "lost → azure"


def test_concept_that_exists_is_told_apart(full):
    finding = full.section("concepts").finding
    assert "“azure” can be told apart beyond chance" in finding
    assert full.section("concepts").headline.value == "1 of 1"


def test_concept_of_nothing_is_not_told_apart(people, model):
    generator = torch.Generator().manual_seed(1)
    member = torch.rand(N, generator=generator) < 0.3
    concept = ConceptVector.fit(model, people.X[:N][member], people.X[:N][~member], name="any")
    report = build_report(model, X_test=people.X[N:], concepts=[concept], shown=2, k=2, counterfactual=False)
    assert "none can be told apart" in report.section("concepts").finding


@pytest.mark.parametrize("key", ["features", "groups", "concepts", "consistency"])
def test_a_section_without_its_input_says_what_to_pass(bare, key):
    section = bare.section(key)
    argument = {"features": "tables=", "groups": "groups=", "concepts": "concepts=", "consistency": "labels="}[key]
    assert section.missing and f"pass {argument}" in section.finding


def test_every_ranking_stands_beside_its_baselines(full):
    found = [table for section in full.parts[0].sections for table in tables(section.blocks)]
    ranked = [table for table in found if table.columns[0].text == "ranked by"]
    methods = [{row[0].text for row in table.rows} for table in ranked]
    across = [table for table in found if table.caption.startswith(("Gap of each column", "Samples anchored"))]
    methods += [{head.text.split(" [")[0] for head in table.columns} for table in across]
    assert len(ranked) == 17 and len(across) == 3, (len(ranked), len(across))
    for names in methods:
        assert {"influence (ours)", "latent cosine", "kernel similarity", "random"} <= names, names


def test_rows_of_a_table_are_as_long_as_its_head(full, bare, pictures):
    for report in (full, bare, pictures):
        for section in report.parts[0].sections:
            for table in tables(section.blocks):
                assert {len(row) for row in table.rows} <= {len(table.columns)}, table.caption


def test_attracting_landmarks_score_above_zero_and_repelling_ones_below(full):
    chooser = next(block for block in full.section("samples").blocks if isinstance(block, Chooser))
    for choice in chooser.choices[:4]:
        numbers = next(table for table in tables(choice.blocks) if table.caption.startswith("Their figures"))
        effects = {row[1].text: row[2].value for row in numbers.rows}
        assert effects["attracts"] > 0 > effects["repels"]


def test_landmarks_lie_wholly_in_their_own_span(people, model):
    evidence = Study(model, model.points_)
    torch.testing.assert_close(spanned(evidence), torch.ones(80).double(), atol=1e-4, rtol=0)


def test_kernel_coverage_equals_least_squares(people, model):
    """The part of a feature in a span is 1 minus its squared distance to it, by a dense solve."""
    X = people.X[N : N + 10]
    K, k = model.K_mm_, model.kernel_rows(X)
    ridge = 1e-10 * torch.eye(len(K), dtype=K.dtype)
    expected = (k * torch.linalg.solve(K + ridge, k.T).T).sum(1)
    # Float32 kernel values: an eigenvalue near the cut-off weighs round-off of 1e-7 by up to a thousand.
    torch.testing.assert_close(spanned(Study(model, X)), expected, atol=1e-3, rtol=0)


def test_few_samples_and_an_uncentred_kernel_are_warned_of(people):
    model = fitted(people, RBF(2.0), centre=False)
    html = render(build_report(model, X_test=people.X[N : N + 5], shown=2, k=2, counterfactual=False))
    assert "Only 5 test samples were given" in html
    assert "The kernel is not centred" in html


def test_a_loaded_model_says_that_it_needs_its_data_and_repeats_the_report_with_it(people, tmp_path):
    model = fitted(people, RBF(2.0))
    model.save(tmp_path / "run")
    loaded = Krepes.load(tmp_path / "run", RBF(2.0))
    loaded.progress = False
    settings = {"X_test": people.X[N:], "shown": 2, "k": 2}
    alone = build_report(loaded, **settings)
    assert "pass stream=" in alone.section("counterfactual").finding
    assert "not at hand" in render(alone)
    settings["groups"] = material(people)["groups"]
    again, first = build_report(loaded, stream=model.stream_, **settings), build_report(model, **settings)
    assert again.section("counterfactual") == first.section("counterfactual")
    assert again.section("groups") == first.section("groups")


def test_without_a_step_nothing_is_attributed(people, model):
    """All scores are zero then: any landmark named first would be an accident of the sort."""
    details = model.solution_
    rejected = tuple(dataclasses.replace(step, accepted=False) for step in details.steps)
    stuck = copy.copy(model)
    stuck.solution_ = dataclasses.replace(details, theta=details.theta0, steps=rejected)
    report = build_report(stuck, X_test=people.X[N:], **material(people))
    for key in ("landmarks", "samples", "features", "groups", "counterfactual"):
        assert report.section(key).finding.startswith("There is nothing to attribute: no step lowered the objective")
    assert "The step was rejected" in render(report)


def test_rows_are_followed_by_a_lazy_replay_whose_figures_are_points_of_closeness(people):
    torch.manual_seed(0)
    encoder = torch.nn.Sequential(torch.nn.Linear(people.X.shape[1], 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))
    stream = ViewStream(people.X[:N], GaussianNoise(people.jitter), seed=0)
    model = Krepes(encoder, m=20, h=4, progress=False).fit(stream)
    study = Study(model, people.X[N:], shown=1, k=2, listed=1, trust={"lazy": "believe the sign alone."})
    section = counterfactual(Desk(study))
    assert study.influence.method == "lazy" and not study.influence.residuals
    assert "lazy replay, 8 passes over the training rows" in section.caveat and "20 gradient steps" in section.caveat
    assert section.caveat.endswith("Trust: believe the sign alone.")
    choice = next(block for block in samples(Desk(study)).blocks if isinstance(block, Chooser)).choices[0]
    part = next(block for block in choice.blocks if isinstance(block, Titled) and "change" in block.title)
    rows = next(tables(part.blocks)).rows
    values = study.influence.values[:, 0]
    assert [int(row[0].text) for row in rows] == [*np.argsort(-values)[:2], *np.argsort(values)[:2]]
    for row in rows:
        change = -100 * values[int(row[0].text)] / N
        assert row[1].text == f"{moved(change)} if removed" and row[1].value == pytest.approx(change)
    cosine = float(study.bonds[0].of(study.encoder.encode))
    assert f"is {100 * cosine:.0f} of 100" in part.blocks[0].text


def test_without_a_replay_the_section_says_why_and_that_trust_was_not_measured(people):
    section = counterfactual(Desk(Study(fitted(people, RBF(2.0)), people.X[N:], shown=1, k=2, listed=1)))
    assert "in the kernel model" in section.caveat and "no replay: a replay needs the encoder" in section.caveat
    assert trust_line(None) in section.caveat and "krepes prove RUN" in trust_line(None)


@pytest.mark.parametrize("objective", ["simclr", "kpca"])
def test_any_objective_and_any_ids_make_a_report(people, objective):
    """SimCLR keeps rows instead of moments, KPCA has one view; ids may be arrays."""
    stream = ViewStream(people.X[:N], GaussianNoise(people.jitter), seed=0)
    model = Krepes(RBF(2.0), objective=objective, m=20, h=4, progress=False).fit(stream)
    ids = {"train_ids": np.arange(N) + 1000, "test_ids": np.arange(T) + 5000}
    report = build_report(model, X_test=people.X[N:], shown=2, k=2, **ids)
    chooser = next(block for block in report.section("samples").blocks if isinstance(block, Chooser))
    assert chooser.choices[0].name.startswith("5000")
    named = [table for table in tables(chooser.choices[0].blocks) if table.columns[0].text != "ranked by"]
    rows = [int(row[0].text) for table in named for row in table.rows]
    assert rows and all(1000 <= row < 1000 + N for row in rows)


def test_what_counts_is_the_order_of_rows_and_not_a_pandas_index(people, model, full):
    index = np.random.default_rng(0).permutation(N + T)
    frame = people.frame.set_index(pd.Index(index))
    series = {name: (frame[name].iloc[:N], frame[name].iloc[N:]) for name in ("group", "housing")}
    labels = pd.Series(people.labels.numpy(), index=index)
    given = {"tables": (frame.iloc[:N], frame.iloc[N:]), "groups": series, "labels": (labels[:N], labels[N:])}
    report = build_report(model, X_test=people.X[N:], **material(people) | given)
    for key in ("trust", "landmarks", "samples", "features", "groups", "counterfactual"):
        assert report.section(key) == full.section(key)


def test_missing_values_are_called_missing(people, model):
    frame = people.frame.assign(income=np.nan, housing=None)
    given = {"tables": (people.frame.iloc[:N], frame.iloc[N:]), "inputs": "table"}
    html = render(build_report(model, X_test=people.X[N:], shown=1, k=2, counterfactual=False, **given))
    assert '<td class="">missing</td>' in html and "nan" not in re.findall(r'data-value="([^"]*)"', html)


# How it looks


@pytest.mark.parametrize("name", ["full", "bare", "pictures"])
def test_page_is_well_formed(name, request):
    html = render(request.getfixturevalue(name))
    page = Page(html)
    ids = Counter(attrs["id"] for _, attrs in page.tags if "id" in attrs)
    assert max(ids.values()) == 1
    assert len(page.all("h1")) == 1 and page.all("html") == [{"lang": "en"}]
    assert all(attrs.get("alt") for attrs in page.all("img"))
    targets = [attrs["href"] for attrs in page.all("a") if "href" in attrs]
    assert targets and all(target.startswith("#") and target[1:] in ids for target in targets)
    assert all(attrs["for"] in ids for attrs in page.all("label"))
    assert "{{" not in html and "{%" not in html


def test_page_asks_nothing_of_the_network(full, pictures):
    for report in (full, pictures):
        page = Page(render(report))
        assert all(attrs["src"].startswith("data:image/") for attrs in page.all("img"))
        assert not [attrs for tag, attrs in page.tags if tag in {"link", "iframe", "object"} or attrs.get("src") == ""]
        assert not re.search(r"@import|url\(|https?://", render(report))
        policy = next(attrs["content"] for attrs in page.all("meta") if "content" in attrs and "http-equiv" in attrs)
        assert policy.startswith("default-src 'none'")


def test_without_javascript_every_sample_is_shown(full):
    page = Page(render(full))
    assert [attrs for attrs in page.all("div") if attrs.get("class") == "choose" and "hidden" in attrs]
    choices = [attrs for attrs in page.all("div") if attrs.get("class") == "choice"]
    assert len(choices) == T and not any("hidden" in attrs for attrs in choices)


def test_everything_from_data_is_escaped(people):
    frame = people.frame.astype({"group": object}).rename(columns={"group": f'"{EVIL}', "housing": "<b>housing"})
    frame[f'"{EVIL}'] = frame[f'"{EVIL}'].map(lambda value: f'{value}"><img src=x onerror=alert(1)>')
    column = frame[f'"{EVIL}'].tolist()
    model = fitted(people, RBF(2.0))
    model.landmark_ids_ = [f"<i>{row}" for row in model.landmark_ids_]
    report = build_report(
        model,
        X_test=people.X[N:],
        test_ids=[f"{EVIL}{i}" for i in range(T)],
        train_ids=[f"{EVIL}{i}" for i in range(N)],
        tables=(frame.iloc[:N], frame.iloc[N:]),
        groups={EVIL: (column[:N], column[N:])},
        labels=(column[:N], column[N:]),
        inputs="table",
        title=EVIL,
        shown=2,
        k=2,
    )
    html = render(report)
    page = Page(html)
    assert EVIL not in html and "&lt;script&gt;alert(&#39;x&#39;)" in html
    assert len(page.all("script")) == 1
    assert {tag for tag, attrs in page.tags if tag in {"i", "b"} and not attrs} == set()
    assert not any(key.startswith("on") for _, attrs in page.tags for key in attrs)
    assert EVIL in "".join(page.texts)


def test_characters_that_hide_or_steer_are_written_out():
    section = Section("one", "\u2066x\x07\x9b", "\r\ufeff", blocks=(Paragraph("two\nlines"),))
    html = render(Report("a\x1b[31m\u202eb\x00", (Part("part", (section,)),)))
    assert "a\\x1b[31m\\u202eb\\x00" in html and "\\u2066x\\x07\\x9b" in html
    assert "two\nlines" in html
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", html)


def test_an_evil_name_cannot_leave_a_figure(full):
    """An SVG is drawn as an image, where no script runs; its text is escaped all the same."""
    drawn = [block for section in full.parts[0].sections for block in section.blocks if isinstance(block, Picture)]
    assert drawn and all(b"<script" not in picture.content for picture in drawn)


def test_same_evidence_gives_the_same_bytes(people, model, full):
    member = people.labels[:N] == 0
    concept = ConceptVector.fit(model, people.X[:N][member], people.X[:N][~member], name="azure")
    again = build_report(model, X_test=people.X[N:], concepts=[concept], title="Applicants", **material(people))
    assert render(again) == render(full)


def test_parts_share_a_page_without_sharing_ids(full, bare):
    html = render(join("Both", [full, bare]))
    ids = Counter(attrs["id"] for _, attrs in Page(html).tags if "id" in attrs)
    assert max(ids.values()) == 1 and {"p1-trust", "p2-trust"} <= set(ids)


def test_image_samples_are_pictures_with_words(pictures):
    page = Page(render(pictures))
    alts = [attrs["alt"] for attrs in page.all("img")]
    assert any(re.match(r"training sample \d+: attracts, [\d.]+\u00a0% of the pull", alt) for alt in alts)
    assert any(re.match(r"training sample \d+: repels, ", alt) for alt in alts)
    assert any(alt.startswith("test sample 0") for alt in alts)


# How it is written


def test_a_report_is_written_whole_or_not_at_all(bare, tmp_path, monkeypatch):
    path = write_report(bare, tmp_path / "new" / "report.html")
    before = path.read_bytes()
    assert before.decode() == render(bare)

    def fail(_):
        raise RuntimeError("killed")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(RuntimeError, match="killed"):
        write_report(join("Other", [bare]), path)
    assert path.read_bytes() == before


# What it refuses


def test_labels_of_another_length_are_refused(people, model):
    with pytest.raises(InvalidInputError, match="labels has 359 training and 100 test entries: .* 360 rows"):
        build_report(model, X_test=people.X[N:], labels=(range(359), range(100)))


def test_unknown_kind_of_input_is_refused(people, model):
    with pytest.raises(InvalidInputError, match="inputs='audio' is unknown"):
        build_report(model, X_test=people.X[N:], inputs="audio")


def test_a_row_is_no_image(people, model):
    with pytest.raises(InvalidInputError, match=r"shape \(20,\) is no image"):
        build_report(model, X_test=people.X[N:], inputs="image", shown=1, counterfactual=False)


# Words


def test_numbers_read_well():
    assert [percent(x) for x in (0, 0.034, 0.5, 0.995, 1)] == [f"{x}\u00a0%" for x in ("0", "3.4", "50", "99.5", "100")]
    assert [signed(x) for x in (0.5, -0.25, 0.00012, 0.0)] == ["+0.500", "−0.250", "+0.00012", "+0.000"]
    assert [listing(x) for x in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["none", "a", "a and b", "a, b and c"]
    assert text("x" * 100).endswith("…") and len(text("x" * 100)) == 60


def test_constant_columns_are_listed_with_their_reason(people, model):
    frame = pd.DataFrame({"group": people.frame["group"], "country": "same"})
    tables_given = frame.iloc[:N], frame.iloc[N:]
    report = build_report(
        model,
        X_test=people.X[N:],
        tables=tables_given,
        features=FeatureSpace.of(tables_given[0]),
        shown=1,
        counterfactual=False,
    )
    table = next(block for block in report.section("features").blocks if isinstance(block, Table))
    assert [row[-1].text for row in table.rows] == ["", "constant in the 360 training rows"]


def test_samples_of_several_tensors_are_described_in_words():
    one = {"shape": [24], "dtype": "torch.int64"}
    assert _shape({"shape": [3, 8, 8], "dtype": "torch.float32"}) == "3 × 8 × 8 numbers"
    assert _shape({"input_ids": one, "mask": one, "age": {"shape": [], "dtype": "torch.float32"}}) == (
        "24 numbers (input_ids, mask); single numbers (age)"
    )
