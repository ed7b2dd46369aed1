"""Pages that are made when the site is built: the reference, the notebooks, files from outside of docs/."""

from __future__ import annotations

import ast
import inspect
import itertools
import os
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from building import notebooks
from building.public import PAGES, Entry, entries

if TYPE_CHECKING:
    from sphinx.application import Sphinx

# Of the pages: the package may be installed elsewhere.
ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

COPIED = {
    "get_started": ROOT / "README.md",
    "contributing": ROOT / "CONTRIBUTING.md",
    "changelog": ROOT / "CHANGELOG.md",
}
"""Pages of the site that are files from outside of docs/."""

NOTEBOOKS = sorted(notebooks.FOLDER.glob("*.ipynb"))
SCRIPTS = DOCS / "examples"

PAGE_OF = {
    **{file: DOCS / f"{name}.md" for name, file in COPIED.items()},
    **{path: DOCS / "notebooks" / f"{path.stem}.md" for path in NOTEBOOKS},
    SCRIPTS: SCRIPTS / "README.md",
    DOCS / "building" / "public.py": DOCS / "reference" / "index.rst",
}
"""Where a link leads on the site that leads to a file or a folder on GitHub."""


def write_pages(app: Sphinx) -> None:
    """Write all of them, those that have not changed apart."""
    pages = {f"reference/{name}.rst": reference_page(name).encode() for name in PAGES}
    pages["reference/index.rst"] = reference_index().encode()
    for path in NOTEBOOKS:
        pages[f"notebooks/{path.stem}.md"] = notebooks.page(path).encode()
        for number, figure in enumerate(notebooks.figures(path), 1):
            pages[f"notebooks/{path.stem}_{number}.png"] = figure
    for name, file in COPIED.items():
        pages[f"{name}.md"] = relinked(file.read_text(), file, DOCS / f"{name}.md").encode()
    for name, content in pages.items():
        path = DOCS / name
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)


def has_list(name: str) -> bool:
    """Whether a module says itself what is public in it, as others do not, of which `jaxarch` takes names."""
    module = import_module(f"jaxarch.{name}")
    return hasattr(module, "__all__") or hasattr(module, "__path__")


def reference_index() -> str:
    """The list of the reference's pages."""
    return "\n".join([*titled("Reference", "="), ".. toctree::", "", *(f"   {name}" for name in PAGES), ""])


def reference_page(name: str) -> str:
    """A page of the reference: a section for each module that has public names there."""
    title, modules = PAGES[name]
    lines = titled(title, "=")
    for module in modules:
        of_module = [entry for entry in entries() if entry.section == module]
        if not of_module and module != modules[0]:
            raise LookupError(f"docs/building/public.py: nothing public is in {module}")
        if len(modules) == 1 or has_list(module):
            lines += titled(f"``jaxarch.{module}``", "-") if len(modules) > 1 else []
            lines += [f".. automodule:: jaxarch.{module}", ""]
        for entry in of_module:
            lines += described(entry)
    return "\n".join(lines)


def titled(text: str, line: str) -> list[str]:
    """A heading in reStructuredText."""
    return [text, line * len(text), ""]


def described(entry: Entry) -> Iterator[str]:
    """The directive that shows something public."""
    if entry.is_function:
        yield from (f".. autofunction:: {entry.name}", "")
    elif inspect.isclass(entry.value):
        kind = "exception" if issubclass(entry.value, BaseException) else "class"
        yield from (f".. auto{kind}:: {entry.name}", "   :members:", "")
    else:
        module, _, name = entry.name.rpartition(".")
        yield from (f".. py:data:: {name}", f"   :module: {module}", "")
        yield from (f"   {line}" for line in (*text_under(module, name).split("\n"), ""))


def text_under(module: str, name: str) -> str:
    """The text under the line that gives a constant its value, in the module or in one that it comes from."""
    package = Path(inspect.getfile(import_module(module)))
    files = sorted(package.parent.rglob("*.py")) if package.name == "__init__.py" else [package]
    for file in files:
        body = ast.parse(file.read_text()).body
        for node, after in itertools.pairwise(body):
            if (
                name in assigned(node)
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
            ):
                return inspect.cleandoc(str(after.value.value))
    raise LookupError(f"{module}.{name} is public, and no text under it says what it is")


def assigned(node: ast.stmt) -> list[str]:
    """The names that a statement gives values."""
    targets: list[Any] = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def with_scripts(app: Sphinx, docname: str, source: list[str]) -> None:
    """The page on the example scripts, with every script on it."""
    if docname != "examples/README":
        return
    for path in sorted(SCRIPTS.glob("*.py")):
        about, _, _ = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")
        source[0] += f"\n## {path.name}\n\n{about}\n\n```{{literalinclude}} {path.name}\n```\n"


def with_links(app: Sphinx, docname: str, source: list[str]) -> None:
    """Links between files as links between pages, where a file is a page."""
    page = DOCS / f"{docname}.md"
    if page.exists():
        source[0] = relinked(source[0], page, page)


def relinked(text: str, file: Path, page: Path) -> str:
    """The text of a file with its links as they are from the page that shows it."""

    def link(match: re.Match[str]) -> str:
        target = (file.parent / match[1]).resolve()
        shown = os.path.relpath(PAGE_OF.get(target, target), page.parent)
        return f"]({Path(shown).as_posix()}{match[2] or ''})"

    return re.sub(r"\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)", link, text)
