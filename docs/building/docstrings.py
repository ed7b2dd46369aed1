"""Docstrings, which are written to be read in a terminal, as reStructuredText."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx
from sphinx.domains.python import PyObject

PAPER = re.compile(r"\[[A-Z]\] ")
"""How a line begins that says what [D] is."""


def as_rest(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """A docstring's lines, changed in place, before napoleon reads the other sections."""
    lines[:] = with_returned_text(with_literal_blocks(lines))


def with_literal_blocks(lines: list[str]) -> list[str]:
    """What is indented by four after an empty line is code or a formula, and stays as it is.

    Lines that say what a paper is are a paragraph each.
    """
    made: list[str] = []
    base, inside = 0, False
    for line in lines:
        indent = len(line) - len(line.lstrip())
        inside = inside and (not line.strip() or indent > base)
        if line.strip() and not inside:
            after_empty = bool(made) and not made[-1].strip()
            if after_empty and indent >= base + 4:
                made += [" " * base + "::", ""]
                inside = True
            else:
                base = indent
                if PAPER.match(line) and made and not after_empty:
                    made.append("")
        made.append(line)
    return made


def with_returned_text(lines: list[str]) -> list[str]:
    """What is returned as text: napoleon would take what is before a colon for its type."""
    made: list[str] = []
    inside = first = False
    for line in lines:
        if line == "Returns:":
            inside = first = True
        elif first:
            made.append(f":returns: {line.strip()}")
            first = False
        else:
            inside = inside and (not line.strip() or line.startswith(" "))
            made.append(f"  {line}" if inside and line.strip() else line)
    return made


def skipped(app: Sphinx, what: str, name: str, value: Any, skip: bool, options: Any) -> bool | None:
    """What is not ours: members that another library makes, fields that say no more than their number."""
    theirs = not (getattr(value, "__module__", None) or "jaxarch").startswith("jaxarch")
    field = (getattr(value, "__doc__", None) or "").startswith("Alias for field number")
    return True if theirs or field else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Have it done to every docstring, and say of attributes that they are some."""
    for field in PyObject.doc_field_types:
        if field.name == "variable":
            field.label = "Attributes"
    app.connect("autodoc-process-docstring", as_rest, priority=100)
    app.connect("autodoc-skip-member", skipped)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
