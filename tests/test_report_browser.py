"""The page in a real browser: it renders, its controls work, it fits a phone, it asks nothing of the network."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
from html import unescape

import pytest
import torch

from krepes.data.synthetic import applicants
from krepes.kernels.classic import RBF
from krepes.model import Krepes
from krepes.report import build_report, join, render
from krepes.views import GaussianNoise, ViewStream

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium")

# Without these a fresh profile asks its maker for updates, and a sandboxed machine cannot start it as root.
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --virtual-time-budget=4000"
).split()


@pytest.fixture(scope="module")
def html():
    people = applicants(300, seed=0)
    stream = ViewStream(people.X[:220], GaussianNoise(people.jitter), seed=0)
    model = Krepes(RBF(2.0), m=40, h=6, progress=False).fit(stream)
    tables = people.frame.iloc[:220], people.frame.iloc[220:]
    groups = {"group": tuple(table["group"].tolist() for table in tables)}
    report = build_report(
        model, X_test=people.X[220:], tables=tables, groups=groups, inputs="table", shown=4, k=3, title="Applicants"
    )
    bare = build_report(model, X_test=people.X[220:], shown=2, k=2, counterfactual=False, title="The same, bare")
    return render(join("A report with a title as long as titles of reports tend to be", [report, bare]))


HOST = """<!doctype html><iframe src="page.html{fragment}" style="width: {width}px; height: 900px; border: 0"></iframe>
<pre id="answer"></pre>
<script>addEventListener("message", (e) => (document.getElementById("answer").textContent = e.data));</script>"""
PROBE = """<script>addEventListener("load", () => setTimeout(() => {{
  const answer = (() => {{ {script} }})();
  parent.postMessage(JSON.stringify(answer), "*");
}}, 200));</script></body>"""


def digest(script):
    """Return a script's hash as a content security policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


@pytest.fixture
def probe(html, tmp_path):
    """Return a function that runs a script in the page and returns what it returned.

    The page stands in a frame, because a headless window gets no narrower than 500 pixels.
    """

    def run(script, *, width=1100, fragment=""):
        added = PROBE.format(script=script)
        allowed = digest(re.search(r"<script>(.*)</script>", added, re.DOTALL)[1])
        page = html.replace("script-src ", f"script-src '{allowed}' ").replace("</body>", added)
        (tmp_path / "page.html").write_text(page)
        (tmp_path / "host.html").write_text(HOST.format(fragment=fragment, width=width))
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path}/profile", "--window-size=1200,900", "--dump-dom"]
        done = subprocess.run([*command, f"file://{tmp_path}/host.html"], capture_output=True, timeout=120, check=True)
        found = re.search(r'<pre id="answer">(.+?)</pre>', done.stdout.decode(), re.DOTALL)
        assert found, "the script did not finish in the page"
        return json.loads(unescape(found[1]))

    return run


SHOWN = "const shown = () => [...document.querySelectorAll('.choice')].filter((c) => c.offsetHeight).map((c) => c.id);"


def test_chooser_shows_one_sample_and_changes_it(probe):
    first, chosen, after, before = probe(
        SHOWN
        + """
        const chooser = document.querySelector(".chooser"), select = chooser.querySelector("select");
        const mine = () => shown().filter((id) => chooser.querySelector("#" + id));
        const seen = [mine()];
        select.selectedIndex = 2; select.dispatchEvent(new Event("change")); seen.push(mine());
        const step = (by) => chooser.querySelector(`[data-step="${by}"]`).click();
        step(1); step(1); seen.push(mine());
        step(-1); seen.push(mine());
        return seen;
        """
    )
    names = [[f"p1-samples-1-{i}"] for i in (1, 3, 1, 4)]
    assert [first, chosen, after, before] == names


def test_a_link_to_a_sample_opens_it(probe):
    assert "p1-samples-1-3" in probe(SHOWN + "return shown();", fragment="#p1-samples-1-3")


def test_tables_sort_by_number_and_back(probe):
    down, up = probe(
        """
        const table = document.querySelector("#p1-landmarks table");
        const values = () => [...table.tBodies[0].rows].map((row) => Number(row.cells[4].dataset.value));
        const age = table.querySelector("thead button[aria-label='Sort by age']");
        age.click(); const down = values(); age.click(); return [down, values()];
        """
    )
    assert len(down) > 12 and down == sorted(down, reverse=True) and up == sorted(down)


def test_filter_hides_rows_that_do_not_match(probe):
    texts, total = probe(
        """
        const section = document.querySelector("#p1-landmarks"), filter = section.querySelector("input[type=search]");
        filter.value = "olive"; filter.dispatchEvent(new Event("input"));
        const rows = [...section.querySelectorAll("tbody tr")];
        return [rows.filter((row) => row.offsetHeight).map((row) => row.textContent), rows.length];
        """
    )
    assert 0 < len(texts) < total and all("olive" in text for text in texts)


@pytest.mark.parametrize("width", [375, 700, 1100])
def test_page_does_not_scroll_sideways(probe, width):
    seen, needed, tables = probe(
        """
        const wide = [...document.querySelectorAll(".scroll")].filter((box) => box.scrollWidth > box.clientWidth);
        return [innerWidth, document.documentElement.scrollWidth, wide.length];
        """,
        width=width,
    )
    assert (seen, needed) == (width, width)
    assert tables > 0, "no table is wider than its box: the test says nothing"


def test_every_control_can_be_reached_by_keyboard_and_has_a_name(probe):
    controls = probe(
        """
        return [...document.querySelectorAll("button, select, input, summary, a, .scroll")].map((e) => [
          e.tabIndex, (e.getAttribute("aria-label") || e.textContent || (e.labels && e.labels[0].textContent)).trim(),
        ]);
        """
    )
    assert len(controls) > 30
    assert all(index == 0 and name for index, name in controls)


def test_text_has_contrast(probe):
    """WCAG AA asks for 4.5 to 1; the background is that of the nearest painted ancestor."""
    lowest = probe(
        """
        const light = (rgb) => {
          const [r, g, b] = rgb.map((v) => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
          return .2126 * r + .7152 * g + .0722 * b;
        };
        const parse = (text) => text.match(/[\\d.]+/g).map(Number);
        const behind = (e) => {
          for (; e; e = e.parentElement) {
            const found = parse(getComputedStyle(e).backgroundColor);
            if (found.length === 3 || found[3] > 0) return found.slice(0, 3);
          }
          return [255, 255, 255];
        };
        let lowest = [99, ""];
        for (const e of document.querySelectorAll("p, td, th, li, a, dt, dd, span, strong, h1, h2, h3, h4, summary")) {
          if (!e.offsetHeight || e.closest("[hidden]")) continue;
          const pair = [light(parse(getComputedStyle(e).color).slice(0, 3)), light(behind(e))].sort((a, b) => b - a);
          const ratio = (pair[0] + .05) / (pair[1] + .05);
          if (ratio < lowest[0]) lowest = [ratio, e.className + " " + e.textContent.slice(0, 40)];
        }
        return lowest;
        """
    )
    assert lowest[0] >= 4.5, lowest


def test_page_loads_nothing_but_itself(probe):
    loaded = probe("return performance.getEntriesByType('resource').map((entry) => entry.name.slice(0, 60));")
    assert [name for name in loaded if not name.startswith("data:")] == []


def test_no_script_runs_but_the_page_s_own(html, tmp_path):
    planted = (
        "<script>document.documentElement.classList.add('bitten')</script><img src=x onerror=\"document.body.id='b'\">"
    )
    (tmp_path / "page.html").write_text(html.replace("</body>", f"{planted}</body>"))
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path}/profile", "--dump-dom", f"file://{tmp_path}/page.html"]
    page = subprocess.run(command, capture_output=True, timeout=120, check=True).stdout.decode()
    assert re.search(r'<html lang="en" class="js">', page) and '<body id="b">' not in page


def test_page_renders_and_prints(html, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(html)
    for flag, result in (("--screenshot", "page.png"), ("--print-to-pdf", "page.pdf")):
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path}/profile", "--window-size=1100,900"]
        subprocess.run([*command, f"{flag}={tmp_path / result}", f"file://{path}"], capture_output=True, timeout=120)
    shot = torch.frombuffer(bytearray((tmp_path / "page.png").read_bytes()), dtype=torch.uint8)
    assert len(shot.unique()) > 200 and (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
