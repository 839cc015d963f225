"""The demo: all audits on one page, planted truths found, small, and the same bytes every time."""

import hashlib

import pytest
import torch

from krepes.report import render
from krepes.runs import demo


@pytest.fixture(scope="module")
def applicants():
    return demo.applicants_report(n=400, epochs=4, m=60, progress=False)


def test_applicants_find_that_the_district_gives_the_hidden_group_away(applicants):
    assert "above all through district" in applicants.section("proxy").finding
    leading = applicants.section("features").finding.split(";")[0]
    assert "group" in leading and "district" in leading
    assert not any(column in leading for column in ("age", "income", "hours", "savings", "education", "housing"))


def test_digits_report_shows_pictures_and_judges_the_surrogate():
    report = demo.digits_report(n=300, epochs=3, m=40, progress=False)
    assert "decide alike" in report.section("faithfulness").finding
    assert render(report).count('<img src="data:image/png') > 100
    # Ten balanced classes: a random landmark shares the class of a tenth of the samples.
    assert float(report.section("consistency").headline.value.split("\u00a0")[0]) > 40


def test_reviews_find_that_texts_give_the_hidden_column_away():
    report = demo.reviews_report(n=160, epochs=5, m=30, progress=False)
    assert "paid was hidden and is still given away" in report.section("proxy").finding
    page = render(report)
    assert page.count('<mark class="m3">') > 20 and "Tell your friends" in page


def test_demo_puts_all_on_one_page_and_restores_the_threads(applicants, tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "digits_report", lambda *, progress: applicants)
    monkeypatch.setattr(demo, "applicants_report", lambda *, progress: applicants)
    monkeypatch.setattr(demo, "reviews_report", lambda *, progress: applicants)
    threads = torch.get_num_threads()
    path = demo.run_demo(tmp_path / "out", progress=False)
    assert path == tmp_path / "out" / "report.html"
    assert path.read_text().count("<article") == 3
    assert torch.get_num_threads() == threads


@pytest.mark.slow
def test_demo_is_small_and_repeats_to_the_byte(tmp_path):
    contents = [demo.run_demo(tmp_path / name, progress=False).read_bytes() for name in ("a", "b")]
    assert len({hashlib.sha256(content).hexdigest() for content in contents}) == 1
    assert len(contents[0]) < 5e6
