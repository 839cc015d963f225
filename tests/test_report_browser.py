"""The page in a real browser: it renders, its controls work, it fits a phone, it asks nothing of the network."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
from html import unescape

import numpy as np
import pandas as pd
import pytest
import torch

from krepes.data.people import people
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

    def run(script, *, width=1100, fragment="", page=html, flags=()):
        added = PROBE.format(script=script)
        allowed = digest(re.search(r"<script>(.*)</script>", added, re.DOTALL)[1])
        page = page.replace("script-src ", f"script-src '{allowed}' ").replace("</body>", added)
        (tmp_path / "page.html").write_text(page)
        (tmp_path / "host.html").write_text(HOST.format(fragment=fragment, width=width))
        command = [
            CHROMIUM,
            *FLAGS,
            *flags,
            f"--user-data-dir={tmp_path}/profile",
            "--window-size=2000,900",
            "--dump-dom",
        ]
        done = subprocess.run([*command, f"file://{tmp_path}/host.html"], capture_output=True, timeout=120, check=True)
        found = re.search(r'<pre id="answer">(.+?)</pre>', done.stdout.decode(), re.DOTALL)
        assert found, "the script did not finish in the page"
        return json.loads(unescape(found[1]))

    return run


SHOWN = "const shown = () => [...document.querySelectorAll('.choice')].filter((c) => c.offsetHeight).map((c) => c.id);"


def test_chooser_shows_one_sample_and_changes_it(probe):
    first, chosen, after, before, order = probe(
        SHOWN
        + """
        const chooser = document.querySelector(".chooser"), select = chooser.querySelector("select");
        const mine = () => shown().filter((id) => chooser.querySelector("#" + id));
        const seen = [mine()];
        select.selectedIndex = 2; select.dispatchEvent(new Event("change")); seen.push(mine());
        const step = (by) => chooser.querySelector(`[data-step="${by}"]`).click();
        step(1); step(1); seen.push(mine());
        step(-1); seen.push(mine());
        seen.push([...chooser.querySelectorAll("option")].map((option) => option.value));
        return seen;
        """
    )
    assert [first, chosen, after, before] == [[order[i]] for i in (0, 2, 4, 3)]


def test_a_link_to_a_sample_opens_it_and_its_lines_on_the_map(probe):
    places = """
        const ties = [...document.querySelectorAll("#p1-samples .ties")].filter(
          (g) => getComputedStyle(g).display !== "none"
        );
        return [shown(), ties.map((g) => [g.dataset.of, g.querySelectorAll("line.attracts").length > 0])];
        """
    first, _ = probe(SHOWN + places)
    third = probe(SHOWN + "return [...document.querySelectorAll('#p1-samples .choice')][2].id;")
    opened, ties = probe(SHOWN + places, fragment=f"#{third}")
    assert third in opened and third not in first and ties == [[third, True]]


def test_any_sample_is_found_by_its_name(probe):
    found, others = probe(
        SHOWN
        + """
        const find = document.querySelector("#p1-samples input[aria-label='Find a sample']");
        const name = document.querySelectorAll("#p1-samples option")[30].textContent;
        find.value = name; find.dispatchEvent(new Event("input"));
        const heads = [...document.querySelectorAll("#p1-samples .choice h4")].filter((h) => h.offsetHeight);
        find.value = "no such sample"; find.dispatchEvent(new Event("input"));
        return [heads.map((h) => h.textContent).join() === "Sample " + name, find.getAttribute("aria-invalid")];
        """
    )
    assert found and others == "true"


def test_a_landmark_opens_its_own_sheet_and_escape_closes_it(probe):
    before, during, text, after = probe(
        """
        const sheet = () => [...document.querySelectorAll(".sheet")].filter((s) => s.offsetHeight).map((s) => s.id);
        const seen = [sheet()];
        const link = document.querySelector("#p1-landmarks tbody a");
        location.hash = link.getAttribute("href");
        seen.push(sheet(), document.querySelector(".sheet:target").textContent);
        dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }));
        seen.push(sheet());
        return seen;
        """
    )
    assert before == [] == after and len(during) == 1 and "a landmark: carries" in text


def test_words_are_explained_and_tables_become_csv(probe):
    tip, csv = probe(
        """
        const term = document.querySelector(".term"); term.focus();
        const tip = document.getElementById("tip"), told = [tip.hidden, tip.textContent];
        let kept = ""; URL.createObjectURL = (blob) => { kept = blob; return "data:,"; };
        document.querySelector("#p1-landmarks button.csv").click();
        return [told, [kept.type, kept.size]];
        """
    )
    assert tip[0] is False and len(tip[1]) > 20 and csv[0] == "text/csv" and csv[1] > 1000


def test_colours_follow_the_system_and_the_switch(probe):
    script = """
        const paper = () => getComputedStyle(document.body).backgroundColor;
        const seen = [paper()], theme = document.getElementById("theme");
        for (const value of ["dark", "light"]) {
          theme.value = value; theme.dispatchEvent(new Event("change")); seen.push(paper());
        }
        return seen;
        """
    system, dark, light = probe(script)
    assert system == light != dark


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


def tables_of_five_kinds():
    """Yield tables as people have them: plain, numbers only, very wide, with long texts and dates, tiny."""
    rng, n = np.random.default_rng(0), 130
    yield "people", people(n)
    yield (
        "numbers",
        pd.DataFrame(
            rng.normal(size=(n, 5)), columns=[f"a measurement with a name of some length {i}" for i in range(5)]
        ),
    )
    yield "wide", pd.DataFrame(rng.integers(0, 3, size=(n, 40)), columns=[f"c{i}" for i in range(40)])
    words = [
        "Donaudampfschifffahrtsgesellschaftskapitän",
        "a value of many words that goes on and on",
        "日本語のカテゴリ",
        "x" * 70,
    ]
    dated = {
        "when": pd.date_range("2020-01-01", periods=n),
        "said": rng.choice(words, n),
        "gap": rng.choice([1.5, np.nan], n),
    }
    yield "texts and dates", pd.DataFrame(dated)
    yield "tiny", pd.DataFrame({"a": rng.normal(size=24), "b": rng.choice(["yes", "no"], 24)})


@pytest.fixture(scope="module")
def five():
    parts = []
    for name, frame in tables_of_five_kinds():
        kept = len(frame) * 3 // 4
        X = torch.randn(len(frame), 4, generator=torch.Generator().manual_seed(0))
        model = Krepes(RBF(2.0), m=12, h=3, augment=GaussianNoise(0.1), progress=False).fit(X[:kept])
        tables = frame.iloc[:kept], frame.iloc[kept:]
        last = str(frame.columns[-1])
        groups = (
            {last: tuple(part[last].astype(str).str[:30].tolist() for part in tables)}
            if frame[last].nunique() < 9
            else {}
        )
        given = {"tables": tables, "groups": groups, "inputs": "table", "shown": 2, "k": 2, "listed": 3}
        parts.append(build_report(model, X_test=X[kept:], title=f"Table: {name}", **given))
    return render(join("Tables of five kinds", parts))


CLIPPED = """
    const scrolls = (e) => ["auto", "scroll"].includes(getComputedStyle(e).overflowX);
    const bad = [];
    document.querySelectorAll("main *, nav *").forEach((e) => {
      if (!e.offsetWidth || e.closest("svg") || e.matches(".only, .skip, option")) return;
      const inside = e.parentElement.closest(".scroll, figure, select");
      const box = e.getBoundingClientRect();
      if (!scrolls(e) && e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== "inline" && e.clientWidth)
        bad.push(["wider than its box", e.tagName + "." + e.className, e.textContent.slice(0, 50), e.scrollWidth]);
      else if (!(inside && scrolls(inside)) && (box.right > innerWidth + 1 || box.left < -1))
        bad.push(["off the page", e.tagName + "." + e.className, e.textContent.slice(0, 50), box.left, box.right]);
    });
    const wide = [...document.querySelectorAll(".scroll")].filter((box) => box.scrollWidth > box.clientWidth);
    return [innerWidth, document.documentElement.scrollWidth, wide.length, bad.slice(0, 5)];
"""


@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_no_text_is_clipped_and_no_page_scrolls_sideways(probe, five, width):
    seen, needed, tables, bad = probe(CLIPPED, width=width, page=five)
    assert (seen, needed) == (width, width) and bad == []
    assert tables > 0, "no table is wider than its box: the test says nothing"


def test_every_control_can_be_reached_by_keyboard_and_has_a_name(probe):
    controls = probe(
        """
        const all = [...document.querySelectorAll("button, select, input, summary, a, .scroll")];
        return all.filter((e) => !e.closest("svg")).map((e) => [  // marks of the map are rows of tables too
          e.tabIndex, (e.getAttribute("aria-label") || e.textContent || (e.labels && e.labels[0].textContent)).trim(),
        ]);
        """
    )
    assert len(controls) > 30
    assert all(index == 0 and name for index, name in controls)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_contrast(probe, theme):
    """WCAG AA asks for 4.5 to 1; the background is that of the nearest painted ancestor."""
    lowest = probe(
        f"document.documentElement.dataset.theme = '{theme}';"
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
          if (!e.offsetHeight || e.closest("[hidden]") || !e.textContent.trim()) continue;
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
    assert re.search(r'<html lang="en" class="js"', page) and '<body id="b">' not in page


def test_page_renders_and_prints_on_few_pages(html, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(html)
    for flag, result in (("--screenshot", "page.png"), ("--print-to-pdf", "page.pdf")):
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path}/profile", "--window-size=1100,900"]
        subprocess.run([*command, f"{flag}={tmp_path / result}", f"file://{path}"], capture_output=True, timeout=120)
    shot = torch.frombuffer(bytearray((tmp_path / "page.png").read_bytes()), dtype=torch.uint8)
    assert len(shot.unique()) > 200
    paper = (tmp_path / "page.pdf").read_bytes()
    assert paper.startswith(b"%PDF") and 1 < len(re.findall(rb"/Type /Page\b", paper)) <= 15
