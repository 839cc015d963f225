"""The package from outside: quick to import, without plotting, with its types, and with one name for each thing."""

import subprocess
import sys
from pathlib import Path

import krepes


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_every_public_name_exists():
    for name in krepes.__all__:
        assert callable(getattr(krepes, name))


def test_import_brings_in_neither_plots_nor_networks():
    loaded = run("import krepes, sys; print([m for m in ('matplotlib', 'torch', 'sklearn') if m in sys.modules])")
    assert loaded.strip() == "[]"
    loaded = run("from krepes import Krepes, attribute; import sys; print('matplotlib' in sys.modules)")
    assert loaded.strip() == "False"


def test_types_are_shipped():
    assert (Path(krepes.__file__).parent / "py.typed").exists()
