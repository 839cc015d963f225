"""Write ``docs/reference.md`` from the code: public names, commands, audits, settings, errors. ``make reference``."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import typer

import krepes
from krepes import errors, registry
from krepes.cli.app import app
from krepes.preset import presets
from krepes.runs.fields import PANELS
from krepes.runs.settings import FIELDS, panel

PAGE = Path(__file__).parents[1] / "docs" / "reference.md"
ROOMS = (
    ("Start here", ("krepes",)),
    ("Explanations", ("krepes.attribution", "krepes.concepts", "krepes.influence", "krepes.proof")),
    ("Audits, figures, reports", ("krepes.audit", "krepes.figures", "krepes.report", "krepes.explore")),
    ("The model's parts", ("krepes.model", "krepes.kernels", "krepes.landmarks", "krepes.objectives", "krepes.engine")),
    ("Data, views, encoders", ("krepes.data", "krepes.views", "krepes.encoders")),
    ("Runs and commands", ("krepes.runs", "krepes.storage", "krepes.reproduce", "krepes.cli")),
)
FILES = {
    "KREPES-RUN": "Marks the folder as ours: nothing without it is ever replaced.",
    "manifest.json": "Format, versions, parameters, kernel with a fingerprint of the weights, description of the data, ids of "
    "the landmarks, record of the solve, sha256 of every other file, and one sha256 over all of it.",
    "arrays.safetensors": "Landmarks and their points, reference sample, Gram matrix, coefficients before and after, moments.",
    "data.safetensors": "Rows that were fitted and held out, and a hash of every sample and column of the data.",
    "settings.json": "The settings below. Beware: `data` is the path as you typed it.",
    "encoding.json": "How a table becomes numbers: kinds, means, scales, categories.",
    "encoder.safetensors": "The weights of the encoder.",
    "rows": "A folder of kernel rows, for objectives that need them (SimCLR, BYOL, triplets).",
    "signature.json": "A signature by `krepes sign`, if there is one.",
}


def page() -> str:
    """Return the whole page."""
    parts = [HEAD, *(room(title, modules) for title, modules in ROOMS), error_names(), commands(), CODES]
    return "\n".join([
        *parts,
        audits(),
        RUN,
        table(("file", "content"), [(f"`{k}`", v) for k, v in FILES.items()]),
        TOML,
        settings(),
        paper(),
    ])


def room(title: str, roots: tuple[str, ...]) -> str:
    """Return the public names of some packages and of the modules below them."""
    lines = [f"## {title}\n"]
    for name in (name for root in roots for name in modules_below(root)):
        module = importlib.import_module(name)
        if hasattr(module, "__all__"):
            lines += [f"### `{name}`\n", f"{sentence(module.__doc__)}\n"]
            lines += [f"- `{public}`: {about(module, public)}" for public in sorted(module.__all__)]
            lines.append("")
    return "\n".join(lines)


@cache
def modules_below(root: str) -> list[str]:
    """Return a package and all modules below it; the package itself alone for the top."""
    package = importlib.import_module(root)
    if root == "krepes" or not hasattr(package, "__path__"):
        return [root]
    return [root, *(info.name for info in pkgutil.walk_packages(package.__path__, f"{root}."))]


def about(module: Any, name: str) -> str:
    """Return the first sentence that the code says of a name: its docstring, or the text below its assignment."""
    value = getattr(module, name)
    if inspect.isclass(value) or inspect.isfunction(value) or inspect.ismodule(value):
        return sentence(value.__doc__)
    for other in (module, *(m for key, m in sorted(sys.modules.items()) if key.startswith(f"{module.__name__}."))):
        found = constants(other.__file__ or "").get(name)
        if found:
            return sentence(found)
    raise SystemExit(f"{module.__name__}.{name} has no docstring: write one below its assignment")


@cache
def constants(path: str) -> dict[str, str]:
    """Return the texts that stand below assignments of a file, by name."""
    body = ast.parse(Path(path).read_text()).body if path else []
    found = {}
    for node, following in zip(body, body[1:], strict=False):
        target = (
            node.targets[0]
            if isinstance(node, ast.Assign)
            else node.target
            if isinstance(node, ast.AnnAssign)
            else None
        )
        text = (
            following.value.value
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            else None
        )
        if isinstance(target, ast.Name) and isinstance(text, str):
            found[target.id] = text
    return found


def sentence(doc: str | None) -> str:
    """Return the first paragraph of a docstring on one line, code in single backticks."""
    first = inspect.cleandoc(doc or "").split("\n\n")[0]
    return " ".join(first.replace("``", "`").split())


def error_names() -> str:
    """Return every error with what it means."""
    names = [(name, value) for name, value in vars(errors).items() if inspect.isclass(value)]
    lines = [f"- `{name}`: {sentence(value.__doc__)}" for name, value in names]
    head = "All derive from `KrepesError`; a message says what broke, what was required, what to do."
    return "\n".join(["## Errors\n", "### `krepes.errors`\n", f"{head}\n", *lines, ""])


def commands() -> str:
    """Return every command with the first sentence of its help."""
    found: Any = typer.main.get_command(app)
    rows = [(f"`{name}`", sentence(command.help)) for name, command in found.commands.items()]
    head = "## Commands\n\n`krepes <command> --help` shows all options and an example.\n"
    tail = "\nWhat prints tables prints JSON with `--json`; progress, notes and errors go to standard error.\n"
    return "\n".join([head, table(("command", "what it does"), rows), tail])


def audits() -> str:
    """Return every audit with what it needs."""
    rows = [
        (f"`{name}`", audit.title, ", ".join(audit.needs) or "nothing", audit.caveat)
        for name, audit in registry.loaded(registry.AUDITS).items()
    ]
    head = "## Audits\n\n`krepes audit` and `krepes report` ask all that the data allow; `--only` chooses.\n"
    return "\n".join([head, table(("audit", "question", "needs", "caveat"), rows), ""])


def settings() -> str:
    """Return every setting with its default and meaning, panel by panel."""
    rows = []
    for heading in PANELS:
        for name in (name for name in FIELDS if panel(name) == heading):
            field = FIELDS[name]
            default = "" if field.is_required() else field.get_default(call_default_factory=True)
            rows.append((f"`{name}`", "" if default in (None, "") else f"`{default!r}`", field.description or ""))
    return table(("setting", "default", "meaning"), rows) + "\n"


def paper() -> str:
    """Return what each preset sets, and where the paper says so."""
    parts = []
    for preset in presets.values():
        values = {**preset.values, **{f"objective {name}": given for name, given in preset.objectives.items()}}
        rows = [(name, f"`{value!r}`", preset.sources[name]) for name, value in values.items()]
        parts.append(f"### Preset `{preset.name}`\n\n{PRESET}\n" + table(("setting", "value", "where"), rows) + "\n")
    return "\n".join(parts)


def table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)


HEAD = """# Reference

Every public name with its first sentence; `help(name)` says the rest. Written from the code by `make reference`.
"""
PRESET = """`--preset NAME`, `preset = "NAME"` in TOML, `krepes.presets["NAME"].arguments(objective)` for `krepes.Krepes`. What you pass
yourself beats it; the options of an objective are merged one by one. A run folder keeps the name and every value.
"""
CODES = """### Exit codes

| code | meaning |
|---|---|
| 0 | Done. |
| 2 | Something about the input, the options or the machine; one line says what, where and what to do. `krepes --debug ...` shows the traceback. |
| 130 | Interrupted. Call the same command again: what was finished is used again. |
"""
RUN = """## Run folder

`krepes fit` and `Krepes.save` write a folder whole or not at all. It holds no time, no pickle, names no code that is run, and the
same fit gives the same bytes. Files carry a part of their hash in their names, such as `arrays-1a2b3c4d5e6f.safetensors`; files
that the manifest does not list are not ours and stay. A folder that is truncated, altered or of another format is refused.
"""
TOML = """
A run keeps the landmarks themselves (in `arrays.safetensors`) and no other training data. Treat it as you treat the data.
Every command that answers from a run compares the data with those of the fit. If they moved, say where they are with `--data`.

## Settings

`--config run.toml` takes any of these names, and so does the `settings.json` of a run; flags override it. Every setting is also a
flag of `pretrain`, `fit`, `select` and `report`. An unknown name is an error that names the nearest one.

```toml
data = "people.csv"
id_column = "who"
label = "approved"
exclude = ["group"]
epochs = 40
m = 200

[objective_options]
lam = 0.01
```
"""

if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"{PAGE.relative_to(Path.cwd())} of krepes {krepes.__version__}")
