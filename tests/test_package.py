"""The package from outside: quick to import, without plotting, with its types, and with one name for each thing."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import krepes

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCKED = re.findall(
    r"^(\S+)==(\S+)(?: ; .*)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)",
    (ROOT / "requirements.lock").read_text(),
    re.MULTILINE,
)
PINNED = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
EXTRAS = PROJECT["optional-dependencies"]
REQUIRED = [Requirement(text) for text in (*PROJECT["dependencies"], *EXTRAS["dev"], *EXTRAS["sign"])]


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_every_public_name_exists():
    for name in krepes.__all__:
        assert callable(getattr(krepes, name)) or name == "presets"


def test_import_brings_in_neither_plots_nor_networks():
    loaded = run("import krepes, sys; print([m for m in ('matplotlib', 'torch', 'sklearn') if m in sys.modules])")
    assert loaded.strip() == "[]"
    loaded = run("from krepes import Krepes, attribute; import sys; print('matplotlib' in sys.modules)")
    assert loaded.strip() == "False"


def test_types_are_shipped():
    assert (Path(krepes.__file__).parent / "py.typed").exists()


@pytest.mark.parametrize("requirement", REQUIRED, ids=lambda requirement: requirement.name)
def test_everything_that_is_required_is_locked_by_hash_but_torch(requirement):
    name = canonicalize_name(requirement.name)
    pinned = {canonicalize_name(name): version for name, version in PINNED.items()}[name]
    assert requirement.specifier.contains(pinned), f"constraints.txt pins {name} outside of {requirement}"
    versions = {version for locked, version, _ in LOCKED if canonicalize_name(locked) == name}
    assert versions == (set() if name == "torch" else {pinned}), "run `make lock`"


def test_every_line_of_the_lock_file_carries_hashes():
    lines = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if "==" in line]
    assert len(lines) == len(LOCKED) > 50
