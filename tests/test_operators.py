"""A torchvision of another build: a package that ends its import as the real one does, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import krepes

DESCRIBES = """
import torch

@torch.library.register_fake("torchvision::{operator}")
def described(dets, scores, iou_threshold):
    return dets
"""
USED = """
from krepes.encoders.adapters.packages import package
timm = package("timm", "timm")
assert timm.torchvision.early is timm.torchvision.ops.early and package("timm", "timm") is timm
assert package("torchvision", "torchvision") is timm.torchvision
"""


def installed(folder: Path, operators: tuple[str, ...], then: str = "") -> None:
    """Write a timm that imports a torchvision that describes operators which nobody defined."""
    parts = {"early": "", "ops": "from torchvision import early\n"}
    parts |= {f"describes_{name}": DESCRIBES.format(operator=name) for name in operators}
    for name, text in parts.items():
        (folder / "torchvision").mkdir(exist_ok=True)
        (folder / "torchvision" / f"{name}.py").write_text(text)
    (folder / "torchvision" / "__init__.py").write_text(f"from torchvision import {', '.join(parts)}\n{then}\n")
    (folder / "timm.py").write_text("import torchvision\n")


def run(folder: Path, code: str = USED) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(folder), str(Path(krepes.__file__).parents[1])])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("operators", [("nms", "qnms"), ("nms", "another")])
def test_a_torchvision_of_another_build_is_used_with_one_warning(tmp_path, operators):
    installed(tmp_path, operators)
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("was built for another torch than") == 1
    assert all(name in done.stderr for name in (*operators, "install a torchvision built for this torch"))


def test_one_that_works_and_one_that_fails_for_another_reason_are_left_alone(tmp_path):
    installed(tmp_path, ())
    assert run(tmp_path).stderr == ""
    installed(tmp_path, (), then="raise RuntimeError('the disk is full')")
    done = run(tmp_path)
    assert "the package timm cannot be imported" in done.stderr and "the disk is full" in done.stderr
    assert "another torch" not in done.stderr
