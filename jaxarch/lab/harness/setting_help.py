"""Help texts of an experiment's settings, read from the docstrings that declare them."""

from __future__ import annotations

import dataclasses
import inspect
import re

SECTION = "Attributes:"


def setting_help(kind: type) -> dict[str, str]:
    """Return the meaning of each setting, one line of text each, in the order of the fields.

    The text comes from the `Attributes:` section of the dataclass, or else of its nearest base that has the
    setting. A setting that no docstring names is left out.
    """
    described: dict[str, str] = {}
    for base in _dataclasses(kind):
        described = _attributes(_docstring(base)) | described
    return {
        field.name: described[field.name] for field in dataclasses.fields(kind) if field.name in described
    }


def remarks(kind: type) -> list[str]:
    """Return the paragraphs after the docstrings' summaries, one line each, without `Attributes:`."""
    paragraphs = (part for base in _dataclasses(kind) for part in _docstring(base).split("\n\n")[1:])
    return [" ".join(part.split()) for part in paragraphs if not part.startswith(SECTION)]


def _dataclasses(kind: type) -> list[type]:
    return [base for base in kind.__mro__ if dataclasses.is_dataclass(base)]


def _docstring(kind: type) -> str:
    return inspect.cleandoc(kind.__doc__ or "")


def _attributes(docstring: str) -> dict[str, str]:
    """Return the `name: text` entries of the `Attributes:` section, each with its continuation lines."""
    _, found, section = docstring.partition(f"{SECTION}\n")
    entries: dict[str, str] = {}
    name = ""
    for line in section.split("\n\n")[0].splitlines() if found else ():
        if entry := re.fullmatch(r"  (\w+): (.+)", line):
            name, entries[entry[1]] = entry[1], entry[2]
        else:
            entries[name] += " " + line.strip()
    return entries
