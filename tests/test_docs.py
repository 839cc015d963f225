"""The documents keep their word: code runs and prints what is shown, commands parse, links and names exist."""

import contextlib
import importlib
import io
import pkgutil
import re
import runpy
import shlex
import tomllib
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import pytest
import torch
import typer
from tools import reference

import krepes
from krepes import errors
from krepes.cli.app import app
from krepes.data import Schema
from krepes.runs.settings import Settings

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
SLOW = {"own_loss"}  # run by tests/test_custom_objective.py
MOST_SKIPPED = 3
NEEDS = "needs: "  # run by tests/test_real_encoders.py where the package is installed
REFERENCE = (ROOT / "docs" / "reference.md").read_text()
COMMANDS = typer.main.get_command(app).commands
NUMBER = re.compile(r"[-+]?\d+(\.\d+)?(e[-+]?\d+)?")

in_documents = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, what else the fence says, its text and the line it starts at."""

    language: str
    note: str
    text: str
    line: int


def blocks(path):
    text = path.read_text()
    fence = re.compile(r"^```(\w*) ?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return [Block(*m.group(1, 2, 3), line=text.count("\n", 0, m.start()) + 1) for m in fence.finditer(text)]


def commands(text):
    """Return the commands of a console block as lists of words, without comments."""
    return [shlex.split(line, comments=True) for line in text.replace("\\\n", " ").splitlines() if line.strip()]


def without_numbers(text):
    """Return text in which every number reads 0 and every run of spaces is one: machines differ in the last digits."""
    return " ".join(NUMBER.sub("0", text).split())


def run_blocks(path):
    """Run the python blocks of a document, in order, in one namespace; a text block after one shows what it printed."""
    namespace, found = {"__name__": "document"}, blocks(path)
    for block, following in zip_longest(found, found[1:]):
        if block.language != "python" or block.note.startswith(("no-run", NEEDS)):
            continue
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile("\n" * block.line + block.text, str(path), "exec"), namespace)
        if following is not None and following.language == "text":
            assert without_numbers(printed.getvalue()) == without_numbers(following.text), f"{path}:{following.line}"


@in_documents
def test_code_runs_and_prints_what_is_shown(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with torch.random.fork_rng():
        run_blocks(path)


def test_a_wrong_output_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nprint('one', 2)\n```\n\n```text\none 3\n```\n")
    run_blocks(page)
    page.write_text("```python\nprint('one')\n```\n\n```text\ntwo\n```\n")
    with pytest.raises(AssertionError):
        run_blocks(page)


def test_few_blocks_are_skipped_and_each_says_why():
    skipped = [block.note for path in DOCUMENTS for block in blocks(path) if "no-run" in block.note]
    assert len(skipped) <= MOST_SKIPPED and all(re.fullmatch(r"no-run: .{10,}", note) for note in skipped)


@pytest.mark.parametrize("path", [path for path in EXAMPLES if path.stem not in SLOW], ids=lambda path: path.stem)
def test_example_runs(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with torch.random.fork_rng():
        runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out
    assert not list(tmp_path.iterdir()), "an example cleans up after itself"
    assert len(path.read_text().splitlines()) < 60


@in_documents
def test_commands_and_their_options_exist(path):
    for block in blocks(path):
        if block.language != "console":
            continue
        for words in commands(block.text):
            parse(words)


def parse(words):
    """Parse a command as the shell would hand it over, and run nothing."""
    if words[0] == "torchrun":  # its own options end at the two dashes; then comes $(which krepes)
        words = ["krepes", *words[words.index("--") + 3 :]]
    tool, *arguments = words
    if tool == "make":
        targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert set(arguments) <= set(targets)
        return
    assert tool == "krepes" and arguments[0] in COMMANDS
    COMMANDS[arguments[0]].make_context(arguments[0], arguments[1:])


@pytest.mark.parametrize("line", ["krepes fit data.csv --no-such-option", "krepes explain runs/x", "krepes nothing"])
def test_a_wrong_command_is_noticed(line):
    with pytest.raises(Exception, match="no-such-option|row|nothing"):
        parse(shlex.split(line))


@in_documents
def test_settings_files_would_be_accepted(path):
    for block in blocks(path):
        if block.language == "toml":
            values = tomllib.loads(block.text)
            assert (
                Schema.from_dict(values["columns"])
                if "columns" in values
                else Settings.from_dict({"data": "x", **values})
            )


@in_documents
def test_links_lead_somewhere(path):
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", path.read_text()):
        linked = (path.parent / target).resolve() if target else path
        assert linked.exists(), f"{path.name} links to {target}, which does not exist"
        assert not anchor or anchor in anchors(linked), f"{target} has no heading #{anchor}"


def anchors(path):
    """Return the anchors that headings get: lower case, words joined by hyphens, without punctuation."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", [*DOCUMENTS, *EXAMPLES], ids=lambda path: path.name)
def test_no_machine_is_mentioned(path):
    assert not re.search(r"(?<![\w.])/(work|tmp|home|root|Users|mnt|data)/|[A-Z]:\\\\", path.read_text())


def test_reference_is_what_the_code_says():
    assert REFERENCE == reference.page(), "docs/reference.md is behind the code: make reference"


def test_reference_knows_every_module_with_public_names():
    names = ["krepes", *(info.name for info in pkgutil.walk_packages(krepes.__path__, "krepes."))]
    public = [name for name in names if hasattr(importlib.import_module(name), "__all__")]
    assert [name for name in public if f"### `{name}`" not in REFERENCE] == []
    assert {f"`{name}`" for name in errors.__dict__ if isinstance(vars(errors)[name], type)} <= set(
        re.findall(r"`\w+`", REFERENCE)
    )


def test_the_site_shows_every_page():
    listed = (ROOT / "mkdocs.yml").read_text()
    missing = [
        path.name for path in (ROOT / "docs").glob("*.md") if f"- {path.name}" not in listed.replace("Start: ", "")
    ]
    assert not missing, f"add them to nav in mkdocs.yml: {missing}"
