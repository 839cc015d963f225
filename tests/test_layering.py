"""Data flows down the list and imports point up: a module imports only modules above it."""

import ast
from pathlib import Path

import pytest

import krepes

ROOT = Path(krepes.__file__).parent
LAYERS = [
    "errors",
    "registry",
    "budget",
    "_checks",
    "_describe",
    "storage",
    "_autodiff",
    "batches",
    "linalg",
    "data",
    "views",
    "encoders",
    "kernels.base",
    "kernels.forms",
    "kernels.patches",
    "kernels.layers",
    "kernels.broadcast",
    "kernels.attention",
    "kernels.capture",
    "kernels.groups",
    "kernels.per_sample",
    "kernels.refusals",
    "kernels.tangent",
    "kernels.store",
    "kernels.entk",
    "kernels.sketch",
    "kernels.vectors",
    "kernels.classic",
    "kernels.transforms",
    "kernels.auto",
    "kernels",
    "landmarks",
    "engine.init",
    "engine.moments",
    "engine.rows",
    "engine.rowstore",
    "objectives.base",
    "objectives",
    "engine.passes",
    "engine.cg",
    "engine.solution",
    "engine.damping",
    "engine.solvers",
    "engine",
    "model.intake",
    "model.surrogate",
    "runs.store",
    "model.persist",
    "model",
    "attribution",
    "concepts",
    "influence",
    "audit",
    "figures",
    "audit.questions",
    "report",
    "runs.demo",
    "runs.fields",
    "runs.refusals",
    "runs.settings",
    "runs.dataset",
    "runs.fingerprint",
    "runs.augment",
    "runs.encoder",
    "runs.place",
    "runs.workspace",
    "runs.fitting",
    "runs.opening",
    "runs.training",
    "runs.answers",
    "runs.signing",
    "runs.front",
    "runs",
    "reproduce.scale",
    "reproduce.recipes",
    "reproduce.trial",
    "reproduce.tables",
    "reproduce.sections",
    "reproduce.base",
    "reproduce.page",
    "reproduce.probes",
    "reproduce",
    "cli",
    "",
]


def layer(module: str) -> int:
    """Index of the longest listed prefix of a module name below the package."""
    parts = module.split(".")
    for length in range(len(parts), -1, -1):
        name = ".".join(parts[:length])
        if name in LAYERS:
            return LAYERS.index(name)
    raise AssertionError(f"{module} is not in LAYERS")


def imports(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "krepes":
            base = node.module.removeprefix("krepes").lstrip(".")
            for alias in node.names:
                below = ROOT.joinpath(*base.split("."), alias.name) if base else ROOT / alias.name
                is_module = below.with_suffix(".py").exists() or below.is_dir()
                found.append(".".join(filter(None, [base, alias.name])) if is_module else base)
        elif isinstance(node, ast.Import):
            found += [a.name.removeprefix("krepes.") for a in node.names if a.name.startswith("krepes.")]
    return found


FILES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_module_imports_only_modules_above_it(path):
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix("__init__").rstrip(".")
    for imported in imports(path):
        sibling = imported.split(".")[0] == module.split(".")[0] and layer(imported) == layer(module)
        assert layer(imported) < layer(module) or sibling, (
            f"{module} imports {imported}, which stands below it in LAYERS"
        )
