"""Names in single backticks, in docstrings and on pages: code, and links where they are something public."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from functools import cache
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

from building.public import entries

NAME = re.compile(r"(?:jaxarch\.)?([A-Za-z_]\w*(?:\.\w+)*)(?:\(.*\))?", re.DOTALL)


@cache
def targets() -> dict[str, str]:
    """What every public name is shown with, by all names that it has, without `jaxarch.`."""
    return {name.removeprefix("jaxarch."): entry.name for entry in entries() for name in entry.names}


@cache
def shown_with() -> dict[int, str]:
    """What every public function and class is shown with."""
    return {
        id(entry.value): entry.name
        for entry in entries()
        if entry.is_function or inspect.isclass(entry.value)
    }


def target(text: str, file: str | None = None, own: frozenset[str] = frozenset()) -> str | None:
    """What code on a page refers to; `None` for anything but a public name.

    Args:
      text: as it stands between the backticks: `keep`, `masks.keep` or `jaxarch.masks.keep(scores, 0.1)`.
      file: the module that the docstring is written in, whose names need no prefix, as those of `jaxarch`
        need none in any; `None` on a page, where names stand with their modules.
      own: names of arguments and attributes there, which are nobody else's.
    """
    match = NAME.fullmatch(text)
    if match is None or match[1].split(".")[0] in own:
        return None
    name = match[1]
    if "." in name or text.startswith("jaxarch."):
        return targets().get(name)
    if file is None:
        return None
    return shown_with().get(id(vars(sys.modules[file]).get(name))) or targets().get(name)


class Links(SphinxTransform):
    """Makes code that is a public name a link to where the reference has it."""

    default_priority = 500

    def apply(self, **settings: Any) -> None:
        """On one document."""
        for literal in list(self.document.findall(nodes.literal)):
            if any(
                isinstance(parent, nodes.reference | nodes.title | addnodes.pending_xref)
                for parent in parents(literal)
            ):
                continue
            found = target(literal.astext(), *context(literal))
            if found is not None:
                link = addnodes.pending_xref(
                    "", refdomain="py", reftype="obj", reftarget=found, refexplicit=True, refwarn=True
                )
                link["refdoc"] = self.env.docname
                literal.replace_self(link)
                link += literal


def parents(node: nodes.Node) -> list[nodes.Node]:
    """What a node is in, the nearest first."""
    found = []
    while node.parent is not None:
        node = node.parent
        found.append(node)
    return found


def context(node: nodes.Node) -> tuple[str | None, frozenset[str]]:
    """The module that a docstring is written in, and the names that it has of its own."""
    for parent in parents(node):
        if isinstance(parent, addnodes.desc):
            signature = parent.next_node(addnodes.desc_signature)
            return described(signature["module"], signature["fullname"])
    return None, frozenset()


@cache
def described(module: str, name: str) -> tuple[str, frozenset[str]]:
    """The module that something is made in, and its own name, arguments and attributes."""
    value: Any = importlib.import_module(module)
    file, names = module, set(name.split("."))
    for part in name.split("."):
        value = getattr(value, part, None)
        if inspect.isclass(value) or inspect.isroutine(value):
            file = inspect.unwrap(value).__module__
        for annotated in (value, getattr(value, "__init__", None)):
            names |= set(getattr(annotated, "__annotations__", ()))
    return file, frozenset(names)


def setup(app: Sphinx) -> dict[str, bool]:
    """Have it done to every document."""
    app.add_transform(Links)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
