"""The explorer's server as its page and as a stranger meet it: answers with the token, clean refusals without."""

import contextlib
import json
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("fastapi", reason="the extra explore is not installed: pip install 'krepes[explore]'")
httpx = pytest.importorskip("httpx")

from starlette.testclient import TestClient  # noqa: E402

from explored import HOSTILE, N, T, people  # noqa: E402
from krepes.cli.app import app  # noqa: E402
from krepes.explore.security import HEADER, LARGEST  # noqa: E402
from krepes.explore.server import Server, _bound  # noqa: E402
from krepes.explore.subject import of_study  # noqa: E402


@pytest.fixture(scope="module")
def server():
    made = Server.of([of_study(people(0)), of_study(people(1))], progress=False)
    yield made
    made.bound.close()


@pytest.fixture(scope="module")
def page(server):
    base, token = server.address.split("/?token=")
    return TestClient(server.application, base_url=base, headers={HEADER: token}, raise_server_exceptions=False)


@pytest.fixture(scope="module")
def stranger(server):
    base = server.address.split("/?token=")[0]
    return TestClient(server.application, base_url=base, raise_server_exceptions=False)


def refused(answer, status):
    """Assert a clean refusal: the status, one sentence as JSON, no traceback, no path, the headers of the guard."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json" and set(answer.json()) == {"error"}
    for word in ("Traceback", 'File "', "/src/", "site-packages", "/home", "/tmp"):
        assert word not in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def unpacked(body):
    length = int.from_bytes(body[:4], "little")
    head, at = json.loads(body[4 : 4 + length]), 4 + length
    for entry in head["arrays"]:
        kind = np.dtype(entry["type"])
        head[entry["name"]] = np.frombuffer(body, kind, entry["length"], at)
        at += -(-entry["length"] * kind.itemsize // 4) * 4
    return head


def test_every_question_of_the_page_is_answered(page):
    about = page.get("/api/about").json()["runs"]["a"]
    assert about["samples"] == N + T and about["trained"] == N and about["removable"]
    points = unpacked(page.get("/api/a/points").content)
    assert points["rows"].tolist() == list(range(N + T)) and points["places"].size == 2 * (N + T)
    for query in ("by=split", "by=column&name=sex", "by=column&name=age", "by=influence&row=3"):
        found = unpacked(page.get(f"/api/b/colours?{query}").content)
        assert len(found.get("codes", found.get("values"))) == N + T
    assert page.get("/api/a/place?id=t5").json() == {"row": N + 5}
    assert page.get("/api/a/search?q=t5").json()["found"][0]["id"] == "t5"
    assert page.get("/api/a/samples/5").json()["id"] == "r5"
    would = page.get("/api/a/samples/5/influence").json()
    assert would["method"] == "surrogate" and would["together"] and would["apart"]
    assert page.get("/api/a/groups?column=sex").json()["groups"] == ["F", "M"]
    assert {line["column"] for line in page.get("/api/a/features").json()["features"]} >= {"sex", "age"}
    young = {"where": "age < 40"}
    assert unpacked(page.post("/api/a/select", json=young).content)["count"] > 50
    for path, body in (
        ("concept", {"positive": {"where": "sex == 'F'"}}),
        ("whatif", {"remove": young, "groups": ["sex"]}),
    ):
        found = page.post(f"/api/a/{path}", json=body).json()
        colours = unpacked(page.get(f"/api/a/colours?by=answer&name={found['key']}").content)
        assert colours["kind"] == "scale" and len(colours["values"]) == N + T
    assert page.get("/api/compare").json()["shared"] == N + T


def test_an_export_holds_all_rows_and_no_formula(page):
    asked = {"selection": {"where": "age < 40"}}
    answer = page.post("/api/a/export", json=asked)
    lines = answer.text.splitlines()
    count = unpacked(page.post("/api/a/select", json=asked["selection"]).content)["count"]
    assert len(lines) == count + 1 and answer.headers["content-disposition"].startswith("attachment")
    assert '"=cmd' not in answer.text and "\"'=cmd" in answer.text
    records = page.post("/api/a/export", json={**asked, "format": "json"}).json()
    assert len(records) == count and records[0]["id"].startswith("r")


def test_what_comes_from_data_is_never_markup(page, stranger):
    sample = page.get(f"/api/a/samples/{N}")
    assert (
        sample.headers["content-type"] == "application/json" and sample.headers["x-content-type-options"] == "nosniff"
    )
    assert sample.json()["id"] == HOSTILE  # as text: the page puts it into text nodes alone
    for name in ("app", "lists", "sample", "sets", "matrix", "dom", "map", "colours"):
        script = stranger.get(f"/static/{name}.js").text
        assert "innerHTML" not in script and "insertAdjacentHTML" not in script and "document.write" not in script
    html = stranger.get("/static/index.html").text
    assert "<style" not in html and " onclick" not in html and "style=" not in html and "http" not in html


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/a/samples/99999999999999999999999", 400),
        ("/api/a/samples/-1", 400),
        ("/api/a/samples/x", 422),
        ("/api/z/samples/1", 404),
        ("/api/a/samples/1/picture", 404),
        ("/api/a/points?space=nowhere", 400),
        ("/api/a/points?projection=tsne", 400),
        ("/api/a/points?box=1,2", 400),
        ("/api/a/colours?by=column&name=nothing", 400),
        ("/api/a/colours?by=magic", 400),
        ("/api/a/groups?column=nothing", 400),
        ("/api/a/search?q=" + "x" * 300, 422),
        ("/api/a/search?q=" + "x" * 9000, 414),
        ("/api/nothing", 404),
        ("/static/../server.py", 404),
        ("/static/%2e%2e/server.py", 404),
        ("/static/nothing.js", 404),
        ("/docs", 404),
        ("/openapi.json", 404),
    ],
)
def test_a_wrong_address_is_refused_in_a_sentence(page, path, status):
    refused(page.get(path), status)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"ids": ["nobody"]},
        {"ids": ["r1"], "where": "age < 3"},
        {"where": "__import__('os')"},
        {"where": "age <" + "(" * 100},
        {"lasso": {"polygon": [[0, 0], [1, 1]]}},
        {"lasso": {"polygon": [[0, 0]] * 501}},
        {"cell": {"column": "sex", "of": "F"}},
        {"something": 1},
        [],
        "text",
    ],
)
def test_a_wrong_selection_is_refused_in_a_sentence(page, body):
    for path in ("select", "whatif", "concept", "export"):
        asked = {
            "select": body,
            "whatif": {"remove": body},
            "concept": {"positive": body},
            "export": {"selection": body},
        }
        answer = page.post(f"/api/a/{path}", json=asked[path])
        refused(answer, answer.status_code)
        assert answer.status_code in {400, 422}


def test_infinite_corners_and_broken_bodies_are_refused(page):
    head = {"content-type": "application/json"}
    for body in (b'{"lasso": {"polygon": [[NaN, 0], [1, 0], [1, 1]]}}', b"{", b"\xff\xfe", b""):
        answer = page.post("/api/a/select", content=body, headers=head)
        refused(answer, answer.status_code)
        assert answer.status_code in {400, 422}
    refused(page.post("/api/a/select", content=b"x" * 10_000_000, headers=head), 413)
    refused(page.post("/api/a/select", content=iter([b"x" * LARGEST, b"x"]), headers=head), 413)
    refused(page.post("/api/a/select", content=b"{}", headers={"content-type": "text/plain"}), 415)
    refused(page.put("/api/about"), 405)
    refused(page.options("/api/about"), 405)


def test_nothing_is_told_without_the_token(stranger, server):
    refused(stranger.get("/"), 403)
    refused(stranger.get("/?token=forged"), 403)
    for token in ("", "forged", server.token[:-1], server.token + "x"):
        refused(stranger.get("/api/about", headers={HEADER: token}), 401)
    refused(stranger.get(f"/api/about?token={server.token}"), 401)
    refused(
        stranger.get("/api/about", headers={"cookie": f"krepes-{server.bound.getsockname()[1]}={server.token}"}), 401
    )
    answer = stranger.get(f"/?token={server.token}")
    assert answer.status_code == 200 and "SameSite=Strict" in answer.headers["set-cookie"]
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert stranger.get("/").status_code == 200  # by the cookie
    refused(stranger.get("/api/about"), 401)  # which opens no data
    stranger.cookies.clear()


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example", "[::1]"])
def test_a_foreign_host_is_refused(page, host):
    refused(page.get("/api/about", headers={"host": host}), 421)


def test_requests_of_other_pages_are_refused(page, server):
    for origin in ("http://evil.example", "null", "https://127.0.0.1", server.address.split("/?")[0] + "0"):
        refused(page.get("/api/about", headers={"origin": origin}), 403)
    refused(page.get("/api/about", headers={"sec-fetch-site": "cross-site"}), 403)
    assert page.get("/api/about", headers={"origin": server.address.split("/?")[0]}).status_code == 200
    assert not [name for name in page.get("/api/about").headers if name.startswith("access-control")]


def test_the_page_allows_itself_and_nothing_else(page, server):
    policy = page.get(f"/?token={server.token}").headers["content-security-policy"]
    assert "unsafe" not in policy and "frame-ancestors 'none'" in policy and "default-src 'none'" in policy


def test_two_hundred_requests_at_once_are_answered_or_refused_cleanly(server):
    thread = server.start()
    base, token = server.address.split("/?token=")
    paths = ["/api/a/samples/5", "/api/a/samples/5/influence", "/api/a/samples/999999", "/api/b/groups?column=sex"]

    limits = httpx.Limits(max_connections=200)
    with httpx.Client(base_url=base, timeout=60, limits=limits) as client, ThreadPoolExecutor(200) as pool:

        def ask(i):
            return client.get(paths[i % 4], headers={HEADER: token if i % 10 else "forged"})

        answers = list(pool.map(ask, range(200)))
    counted = {status: sum(answer.status_code == status for answer in answers) for status in (200, 400, 401, 429)}
    assert sum(counted.values()) == 200 and counted[401] == 20 and counted[400] >= 40 and counted[200] >= 50
    assert all("Traceback" not in answer.text for answer in answers)
    server.stop()
    thread.join(10)


def test_the_command_says_what_is_missing_and_refuses_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr("krepes.explore.server.NEEDED", ("fastapi", "no_such_package"))
    result = CliRunner().invoke(app, ["explore", str(tmp_path)])
    assert "no_such_package: pip install 'krepes[explore]'" in str(result.exception)


def test_the_command_line_does_not_load_the_server():
    code = "import krepes.cli.app, sys; print([m for m in ('fastapi', 'uvicorn', 'torch') if m in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "[]"


def test_who_asks_before_the_server_answers_waits_instead_of_being_refused():
    with contextlib.closing(_bound(0)) as bound:
        asking = socket.create_connection(bound.getsockname(), timeout=5)
        asking.close()
