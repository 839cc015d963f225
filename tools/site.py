"""What the site has beside the files of ``docs``: the code's own words, the examples, and pages of the root folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "README.md")
"""Pages of the root folder that documents link to."""
ROOMS = {
    "Start here": ("krepes",),
    "Explanations": ("krepes.attribution", "krepes.concepts", "krepes.influence", "krepes.proof"),
    "Audits, figures": ("krepes.audit", "krepes.figures"),
    "The model's parts": ("krepes.model", "krepes.kernels", "krepes.landmarks", "krepes.objectives"),
    "Data, views, encoders": ("krepes.data", "krepes.views", "krepes.encoders"),
}
OUTWARD = re.compile(r"""<(?:script|img|iframe|link)[^>]*(?:src|href)=["']?(?:https?:)?//[^"'> ]+""")
LINK = re.compile(r"\]\(\.\./([^)#]+)(#[^)]*)?\)")


def on_config(config: Any) -> Any:
    """Add the pages of the code to the navigation."""
    reference = next(part["Reference"] for part in config["nav"] if "Reference" in part)
    reference += [{title: [f"api/{name}.md" for name in names]} for title, names in ROOMS.items()]
    inside = next(part["Inside"] for part in config["nav"] if "Inside" in part)
    inside += [f"root/{page}" for page in PAGES if page != "README.md"]
    inside.append({"Examples": [f"examples/{path.stem}.md" for path in examples()]})
    return config


def examples() -> list[Path]:
    """Return the example programs."""
    return sorted((ROOT / "examples").glob("*.py"))


def on_files(files: Files, *, config: Any) -> Files:
    """Add a page for each module, each example and each page of the root folder."""
    for name in (name for names in ROOMS.values() for name in names):
        files.append(File.generated(config, f"api/{name}.md", content=f"# `{name}`\n\n::: {name}\n"))
    for path in examples():
        text = f"# {path.stem.replace('_', ' ')}\n\n```python\n{path.read_text()}```\n"
        files.append(File.generated(config, f"examples/{path.stem}.md", content=text))
    for page in PAGES:
        files.append(File.generated(config, f"root/{page}", content=(ROOT / page).read_text()))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Point links that leave ``docs`` to the pages that stand for them."""
    if page.file.src_uri.startswith("root/"):
        return re.sub(
            r"\]\((?!https?:|#|\.\./)([^)#]+)(#[^)]*)?\)", lambda m: f"]({_from_root(m[1])}{m[2] or ''})", markdown
        )
    return LINK.sub(lambda m: f"]({_shown(m[1])}{m[2] or ''})", markdown)


def _shown(path: str) -> str:
    """Return where the site shows a file of the repository, from a page of ``docs``."""
    if path in PAGES:
        return f"root/{path}"
    if path.startswith("examples/") and path.endswith(".py"):
        return path.removesuffix(".py") + ".md"
    raise PluginError(f"a page links to ../{path}, which the site does not have: add it in tools/site.py.")


def _from_root(path: str) -> str:
    """Return the same from a page of the root folder."""
    if path.startswith("docs/"):
        return "../" + path.removeprefix("docs/")
    return path if path in PAGES else "../" + _shown(path)


def on_post_build(*, config: Any) -> None:
    """Refuse a site that loads anything from another host."""
    for path in Path(config["site_dir"]).rglob("*.html"):
        found = OUTWARD.search(path.read_text())
        if found and 'rel="canonical"' not in found[0]:
            raise PluginError(f"{path.name} loads from another host: {found[0][:200]}")
