"""What each setting of an experiment means, read from where it is declared."""

from __future__ import annotations

import dataclasses
import inspect
import re

SECTION = "Attributes:"


def setting_help(kind: type) -> dict[str, str]:
    """What each setting means, a line of text each, in the order of the fields.

    It is read from the sections `Attributes:` of the docstrings of a dataclass and of those that it is
    derived from, the nearest first; a setting that none of them names is not there.
    """
    described: dict[str, str] = {}
    for base in _dataclasses(kind):
        described = _attributes(_docstring(base)) | described
    return {
        field.name: described[field.name] for field in dataclasses.fields(kind) if field.name in described
    }


def remarks(kind: type) -> list[str]:
    """What the docstrings say of the settings together: what follows their summaries, a line a paragraph."""
    paragraphs = (part for base in _dataclasses(kind) for part in _docstring(base).split("\n\n")[1:])
    return [" ".join(part.split()) for part in paragraphs if not part.startswith(SECTION)]


def _dataclasses(kind: type) -> list[type]:
    return [base for base in kind.__mro__ if dataclasses.is_dataclass(base)]


def _docstring(kind: type) -> str:
    return inspect.cleandoc(kind.__doc__ or "")


def _attributes(docstring: str) -> dict[str, str]:
    """The entries `name: text` of the section, each with the lines that are indented further."""
    _, found, section = docstring.partition(f"{SECTION}\n")
    entries: dict[str, str] = {}
    name = ""
    for line in section.split("\n\n")[0].splitlines() if found else ():
        if entry := re.fullmatch(r"  (\w+): (.+)", line):
            name, entries[entry[1]] = entry[1], entry[2]
        else:
            entries[name] += " " + line.strip()
    return entries
