"""The explorer in a real browser: every job from the first click to the export, by mouse, by keyboard, on a phone."""

import csv
import json
import shutil

import numpy as np
import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytest.importorskip("fastapi", reason="the extra explore is not installed: pip install 'krepes[explore]'")
playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install playwright")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium")

from explored import HOSTILE, N, T, people  # noqa: E402
from krepes.explore.server import Server  # noqa: E402
from krepes.explore.subject import of_study  # noqa: E402

# WebGL by software, so that the map is drawn on machines without a graphics card.
FLAGS = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist"]
WIDER = """() => [...document.querySelectorAll("body *")].filter((e) => e.clientWidth > 0
  && e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX === "visible").map((e) => e.outerHTML)"""
NAMELESS = """() => [...document.querySelectorAll("button, input, select, textarea")].filter((e) => !(e.textContent
  || e.ariaLabel || e.labels?.length || e.title)).map((e) => e.outerHTML)"""


@pytest.fixture(scope="module")
def address():
    server = Server.of([of_study(people(0)), of_study(people(1))], progress=False)
    thread = server.start()
    yield server.address
    server.stop()
    thread.join(10)


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser, address):
    """Return a function that opens the explorer; afterwards there was no error and no request to another host."""
    seen, contexts = [], []
    base = address.split("/?")[0]

    def opened(query="", width=1280, **options):
        contexts.append(browser.new_context(viewport={"width": width, "height": 800}, **options))
        page = contexts[-1].new_page()
        page.set_default_timeout(15_000)
        page.on("console", lambda said: seen.append(said.text) if said.type in {"error", "warning"} else None)
        page.on("pageerror", lambda error: seen.append(str(error)))
        page.on("dialog", lambda dialog: (seen.append("dialog"), dialog.dismiss()))
        page.on("request", lambda asked: None if asked.url.startswith((base, "blob:")) else seen.append(asked.url))
        page.goto(address + query)
        page.wait_for_selector("body[data-ready]")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert [text for text in seen if "GPU stall" not in text and "status of 400" not in text] == []


def on_the_map(page, address):
    """Return a training sample of the first run that stands alone, and where it is drawn, in pixels of the page."""
    base, token = address.split("/?token=")
    body = page.request.get(f"{base}/api/a/points", headers={"x-krepes-token": token}).body()
    places = np.frombuffer(body, np.float32)[-2 * (N + T) :].reshape(-1, 2)
    apart = np.sort(np.linalg.norm(places[:N, None] - places[None], axis=2), axis=1)[:, 1]
    row = int(np.where(np.abs(places[:N]).max(1) < 0.9, apart, 0).argmax())
    x, y = places[row].tolist()
    box = page.locator(".map").first
    left, bottom, zoom = (float(part) for part in box.get_attribute("data-view").split(","))
    frame = box.bounding_box()
    middle = frame["x"] + frame["width"] / 2, frame["y"] + frame["height"] / 2
    return row, middle[0] + (x - left) * 2**zoom, middle[1] - (y - bottom) * 2**zoom


def test_pick_a_sample_on_the_map_and_open_its_landmarks(open_page, address):
    page = open_page()
    assert "token" not in page.url
    row, x, y = on_the_map(page, address)
    page.mouse.click(x, y)
    playwright.expect(page.locator("#view-sample h2")).to_have_text(f"r{row}")
    assert f"sample=r{row}" in page.url
    page.wait_for_selector("text=hold them together")
    page.locator("#view-sample .card .open").first.click()
    playwright.expect(page.locator("#view-sample h2")).not_to_have_text(f"r{row}")
    page.go_back()
    playwright.expect(page.locator("#view-sample h2")).to_have_text(f"r{row}")


def test_lasso_concept_what_if_and_export(open_page, tmp_path):
    page = open_page("&tab=selection")
    page.click("#lasso")
    box = page.locator(".map").first.bounding_box()
    x, y, w, h = box["x"], box["y"], box["width"], box["height"]
    page.mouse.move(x + 0.1 * w, y + 0.2 * h)
    page.mouse.down()
    for dx, dy in ((0.55, 0.2), (0.55, 0.8), (0.1, 0.8)):
        page.mouse.move(x + dx * w, y + dy * h, steps=4)
    page.mouse.up()
    page.wait_for_selector("#count")
    count = int(page.locator("#count").inner_text().split()[0])
    assert 9 < count < N + T and "lasso" in page.url
    with page.expect_download() as got:
        page.click("text=CSV")
    got.value.save_as(tmp_path / "chosen.csv")
    with open(tmp_path / "chosen.csv", encoding="utf-8", newline="") as file:
        assert len(list(csv.reader(file))) == count + 1
    with page.expect_download() as got:
        page.click("text=JSON")
    got.value.save_as(tmp_path / "chosen.json")
    assert len(json.loads((tmp_path / "chosen.json").read_text(encoding="utf-8"))) == count
    page.click("text=A concept of them")
    page.click("text=Find the direction")
    page.wait_for_selector("#view-concept .finding")
    page.click("text=Colour the map by the pull")
    page.wait_for_selector(".legend .ramp")
    page.click("#tab-whatif")
    page.click("text=What moves without them?")
    page.wait_for_selector("#view-whatif .finding")
    assert "random sets" in page.locator("#view-whatif .finding").inner_text()


def test_groups_open_their_samples_and_two_runs_stand_side_by_side(open_page):
    page = open_page("&tab=groups&sample=t5")
    page.select_option("#view-groups select", "sex")
    page.click(".matrix .cell:enabled >> nth=0")
    page.wait_for_selector("#count")
    assert page.locator(".map").count() == 2
    page.click("#tab-compare")
    page.wait_for_selector("text=Made of, in")
    assert "of a sample's ten closest" in page.locator("#view-compare .finding").inner_text().lower()


def test_a_link_opens_the_same_view_and_hostile_words_stay_words(open_page):
    page = open_page(f"&sample={HOSTILE.replace(' ', '%20')}&by=column:age&tab=sample")
    page.wait_for_selector("#view-sample .card")
    assert page.locator("#view-sample h2").inner_text() == HOSTILE
    assert page.locator(".legend").inner_text().startswith("age")
    assert page.locator("img[src='x']").count() == 0


def test_everything_can_be_done_by_keyboard(open_page):
    page = open_page()
    page.keyboard.press("/")
    page.keyboard.type("t17")
    page.wait_for_selector("#found button")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector("#view-sample .card")
    assert page.locator("#view-sample h2").inner_text() == "t17"
    page.focus("#tab-sample")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#where")
    page.focus("#where")
    page.keyboard.type("age < 40")
    page.keyboard.press("Enter")
    page.wait_for_selector("#count")
    page.locator("#view-selection .open").first.focus()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.focus(".map")
    for key in ("+", "ArrowLeft", "ArrowUp", "0"):
        page.keyboard.press(key)
    assert page.evaluate(NAMELESS) == []


def test_a_phone_and_the_dark_show_everything_within_the_page(open_page):
    page = open_page("&sample=t5", width=390, color_scheme="dark")
    for tab in ("sample", "selection", "concept", "whatif", "groups", "compare"):
        page.click(f"#tab-{tab}")
        page.wait_for_selector(".view:not([hidden]) [aria-busy]", state="detached")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.evaluate(WIDER) == []
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 29)"


def test_without_the_token_the_page_says_what_to_do(browser, address):
    page = browser.new_page()
    answer = page.goto(address.split("?")[0])
    assert answer.status == 403 and "open the address that the terminal shows" in answer.text()
    page.close()
