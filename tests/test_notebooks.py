"""The example notebooks run from the first cell to the last, and what they end in can be shown."""

import ast
import json
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the extra explore is not installed: pip install 'krepes[explore]'")
pytest.importorskip("uvicorn")

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))


def run(path):
    """Run the code cells of a notebook in one namespace, and return what each shows."""
    names, shown = {}, []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        body = ast.parse("".join(cell["source"])).body
        last = body.pop() if isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), path.name, "exec"), names)
        shown.append(None if last is None else eval(compile(ast.Expression(last.value), path.name, "eval"), names))
    return names, shown


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_ends_in_the_explorer(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4 and not any(cell.get("outputs") for cell in notebook["cells"])
    names, shown = run(path)
    try:
        html = [value._repr_html_() for value in shown if value is not None]
        assert len(html) >= 3 and html[-1].startswith('<iframe src="http://127.0.0.1:')
        assert all("<table" in text or "<p>" in text for text in html[:-1])
    finally:
        names["page"].stop()


def test_there_are_notebooks():
    assert len(NOTEBOOKS) == 2
