"""Data flows down the list and imports point up: a module imports only modules above it."""

import ast
from pathlib import Path

import pytest

import krepes

ROOT = Path(krepes.__file__).parent
LAYERS = [
    "errors",
    "registry",
    "preset",
    "budget",
    "processes",
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
    "kernels.products",
    "kernels.forms",
    "kernels.patches",
    "kernels.layers",
    "kernels.convolutions",
    "kernels.norms",
    "kernels.attention",
    "kernels.rules",
    "kernels.broadcast",
    "kernels.derived",
    "kernels.pullback",
    "kernels.recurrent",
    "kernels.refusals",
    "kernels.rewrites",
    "kernels.capture",
    "kernels.kept",
    "kernels.groups",
    "kernels.settle",
    "kernels.per_sample",
    "kernels.tangent",
    "kernels.store",
    "kernels.memory",
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
    "engine.phases",
    "engine.known",
    "engine.rows",
    "engine.rowstore",
    "engine.together",
    "objectives.base",
    "objectives",
    "engine.passes",
    "engine.cg",
    "engine.solution",
    "engine.linear",
    "engine.shifts",
    "engine.damping",
    "engine.solvers",
    "engine",
    "model.intake",
    "model.surrogate",
    "model.measuring",
    "model.choosing",
    "model.removal",
    "runs.store",
    "model.readable",
    "model.persist",
    "model",
    "attribution",
    "concepts",
    "influence",
    "proof.subject",
    "proof.lds",
    "proof.halves",
    "proof.scores",
    "proof.kept",
    "proof.result",
    "proof",
    "audit",
    "figures",
    "audit.questions",
    "report",
    "runs.fields",
    "runs.refusals",
    "runs.sources",
    "runs.settings",
    "runs.adapting",
    "runs.recipe",
    "runs.columns",
    "runs.texts",
    "runs.holdout",
    "runs.dataset",
    "runs.fingerprint",
    "runs.augment",
    "runs.suiting",
    "runs.within",
    "runs.losses",
    "runs.encoder",
    "runs.place",
    "runs.workspace",
    "runs.sentences",
    "runs.removal",
    "runs.uses",
    "runs.fitting",
    "runs.queue",
    "runs.footprint",
    "runs.calibration",
    "runs.scaling",
    "runs.forecast",
    "runs.opening",
    "runs.training",
    "runs.grid",
    "runs.shelf",
    "runs.selection",
    "runs.retraining",
    "runs.subject",
    "runs.proving",
    "runs.answers",
    "runs.comparing",
    "runs.decisions",
    "runs.outcomes",
    "runs.whatif",
    "runs.curation",
    "runs.verification",
    "runs.signing",
    "runs.front",
    "runs.demo",
    "runs",
    "explore",
    "reproduce.scale",
    "reproduce.recipes",
    "reproduce.stored",
    "reproduce.trial",
    "reproduce.measured",
    "reproduce.parts",
    "reproduce.tables",
    "reproduce.sections",
    "reproduce.claims",
    "reproduce.base",
    "reproduce.page",
    "reproduce.probes",
    "reproduce.grids",
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


def imports_of(nodes) -> list[str]:
    found = []
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "krepes":
            base = node.module.removeprefix("krepes").lstrip(".")
            for alias in node.names:
                below = ROOT.joinpath(*base.split("."), alias.name) if base else ROOT / alias.name
                is_module = below.with_suffix(".py").exists() or below.is_dir()
                found.append(".".join(filter(None, [base, alias.name])) if is_module else base)
        elif isinstance(node, ast.Import):
            found += [a.name.removeprefix("krepes.") for a in node.names if a.name.startswith("krepes.")]
    return found


def imports(path: Path) -> list[str]:
    return imports_of(ast.walk(ast.parse(path.read_text())))


FILES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_module_imports_only_modules_above_it(path):
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix("__init__").rstrip(".")
    for imported in imports(path):
        sibling = imported.split(".")[0] == module.split(".")[0] and layer(imported) == layer(module)
        assert layer(imported) < layer(module) or sibling, (
            f"{module} imports {imported}, which stands below it in LAYERS"
        )


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> int:
    """Lines of a function's body that are code: no docstring, no comment, no blank line."""
    body = function.body
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    span = {line for node in body for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    return sum(bool(lines[line - 1].strip()) and not lines[line - 1].strip().startswith("#") for line in span)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_can_be_read_without_scrolling(path):
    text = path.read_text()
    lines = text.splitlines()
    assert len(lines) <= 300, f"{path.name} has {len(lines)} lines, 300 at most"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert code_lines(node, lines) <= 40, f"{node.name} has {code_lines(node, lines)} lines of code, 40 at most"


def test_no_module_of_the_package_is_part_of_an_import_cycle():
    """Imports at the top of a file alone: what is imported when it is needed cannot close a circle."""
    graph = {}
    for path in FILES:
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix("__init__").rstrip(".")
        top = [node for node in ast.parse(path.read_text()).body if isinstance(node, (ast.Import, ast.ImportFrom))]
        found = imports_of(top)
        graph[module] = {name for name in found if name != module}
    state: dict[str, int] = {}

    def visit(name: str, trail: list[str]) -> None:
        state[name] = 1
        for other in graph.get(name, ()):
            assert state.get(other) != 1, f"import cycle: {' -> '.join([*trail, name, other])}"
            if other not in state:
                visit(other, [*trail, name])
        state[name] = 2

    for name in graph:
        if name not in state:
            visit(name, [])
