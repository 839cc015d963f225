"""The recipe "add an audit" of CONTRIBUTING, followed to the letter: one file, one line, and every door shows it."""

import json
import sys
import textwrap

import numpy as np
import pandas as pd
import pytest
from tools import reference
from typer.testing import CliRunner

from krepes import registry
from krepes.cli.app import app

FILE = '''
"""Brightness: is the first test sample bright?"""

import pandas as pd

from krepes.audit.base import Audit, Estimate, Exhibit, View


def measure(study):
    return Exhibit(pd.DataFrame({"method": ["ours", "random"], "estimate": [0.75, 0.5]}))


BRIGHTNESS = Audit(
    name="brightness",
    title="Brightness: is it bright",
    asks="whether it is bright",
    needs=("labels",),
    compute=measure,
    sentence=lambda table: f"It is bright in {table['estimate'][0]:.0%} (random: {table['estimate'][1]:.0%}).",
    verdict=lambda table: "good" if table["estimate"][0] > table["estimate"][1] else "bad",
    views=lambda table: (View("Brightness", ("method", "share"), tuple(
        (row["method"], Estimate(row["estimate"], unit="share")) for _, row in table.iterrows())),),
    caveat="Bright is not right.",
)
'''


@pytest.fixture
def run(tmp_path, monkeypatch):
    (tmp_path / "brightness_audit.py").write_text(textwrap.dedent(FILE))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(registry.AUDITS, "brightness", "brightness_audit:BRIGHTNESS")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=80), "y": rng.normal(size=80), "rich": rng.choice(["a", "b"], 80)})
    frame.to_csv(tmp_path / "t.csv", index=False)
    invoke(
        "fit", tmp_path / "t.csv", "--label", "rich", "--kernel", "rbf", "-m", 10, "-h", 3, "--out", tmp_path / "run"
    )
    yield tmp_path / "run"
    sys.modules.pop("brightness_audit", None)


def invoke(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_one_file_and_one_line_reach_the_command_line_the_json_the_report_and_the_reference(run, tmp_path):
    assert "It is bright in 75%" in " ".join(invoke("audit", run).split())
    found = json.loads(invoke("audit", run, "--json", "--only", "brightness"))["audits"]
    assert found["brightness"]["sentence"] == "It is bright in 75% (random: 50%)."
    assert found["brightness"]["table"][1] == {"method": "random", "estimate": 0.5}
    invoke("report", run, "--out", tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "It is bright in 75% (random: 50%)." in page and "Bright is not right." in page
    assert "| `brightness` | Brightness: is it bright | labels | Bright is not right. |" in reference.page()
