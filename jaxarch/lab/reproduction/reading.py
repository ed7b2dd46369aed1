"""Reader of the record's files, with checks."""

from __future__ import annotations

import dataclasses
import datetime
import tomllib
import typing
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from jaxarch import ArgumentError
from jaxarch.lab.checks import as_folder, did_you_mean, is_choice, items, one_line, shown
from jaxarch.lab.reproduction.line import Paper

FOLDER = Path(__file__).parent
_WORDS = {
    str: "a text",
    float: "a number",
    int: "an integer",
    datetime.date: "a date",
    tuple: "a list",
}
_Kind = TypeVar("_Kind")


def read(folder: Path = FOLDER) -> tuple[Paper, ...]:
    """Read every paper of the record: a TOML file with the fields of `Paper`, `Line` and `Measurement`.

    Texts may be broken over lines; line breaks are read as spaces.

    Raises:
      ArgumentError: a file that is not TOML; a field that is unknown, missing or of another type; a line that
        contradicts itself; a paper that occurs twice. The message names file, line and field.

    Example:
      >>> from jaxarch.lab import reproduction
      >>> [(paper.key, paper.year) for paper in reproduction.read()][:4]
      [('D', 2021), ('N', 2023), ('P', 2022), ('A', 2021)]
    """
    papers: dict[str, Paper] = {}
    for path in sorted(as_folder(folder).glob("*.toml")):
        place = f"reproduction: {path.name}"
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ArgumentError(f"{place}: cannot be read ({one_line(error)})") from None
        paper = build(Paper, content, place)
        if paper.key in papers:
            raise ArgumentError(f"{place}: key: {paper.key!r} is used by another file; choose another")
        papers[paper.key] = paper
    return tuple(papers.values())


def checked(papers: Iterable[Paper]) -> list[Paper]:
    """Return the papers of a record as a list; raise if they are anything else."""
    return items("papers", papers, Paper, "papers such as jaxarch.lab.reproduction.read()")


def only(papers: Sequence[Paper], id: str) -> tuple[Paper]:
    """Return the record with only one of its lines.

    Raises:
      ArgumentError: there is no such line.

    Example:
      >>> from jaxarch.lab import reproduction
      >>> (paper,) = reproduction.only(reproduction.read(), "D.figure-2")
      >>> paper.key, [line.id for line in paper.lines]
      ('D', ['D.figure-2'])
    """
    lines = {line.id: (paper, line) for paper in checked(papers) for line in paper.lines}
    if not is_choice(id, lines):
        raise ArgumentError(f"line: unknown {shown(id)}; {did_you_mean(id, lines)}")
    paper, line = lines[id]
    return (dataclasses.replace(paper, lines=(line,)),)


def build(kind: type[_Kind], table: Any, place: str) -> _Kind:
    """Build a dataclass from a table of a file; errors name the place in the file.

    Raises:
      ArgumentError: a field that is unknown, missing, of another type, or refused by the dataclass.
    """
    if not isinstance(table, dict):
        raise ArgumentError(f"{place}: expected a table, got {shown(table)}")
    types = typing.get_type_hints(kind)
    for name in table:
        if name not in types:
            raise ArgumentError(f"{place}: {name}: unknown field; {did_you_mean(name, types)}")
    for field in dataclasses.fields(typing.cast(Any, kind)):
        if field.name not in table and field.default is dataclasses.MISSING:
            raise ArgumentError(f"{place}: {field.name}: missing")
    values = {name: _value(value, types[name], f"{place}: {name}") for name, value in table.items()}
    try:
        return kind(**values)
    except ArgumentError as error:
        raise ArgumentError(f"{place}: {error}") from None


def _value(value: Any, kind: Any, place: str) -> Any:
    if typing.get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise ArgumentError(f"{place}: expected a list, got {shown(value)}")
        (inner, _) = typing.get_args(kind)
        return tuple(_value(item, inner, f"{place} {_label(item, i)}") for i, item in enumerate(value, 1))
    if dataclasses.is_dataclass(kind):
        return build(typing.cast(type, kind), value, place)
    (wanted, *_) = typing.get_args(kind) or (kind,)
    if wanted is float and type(value) is int:
        return float(value)
    # Compare types exactly: True must not count as a number, nor a time as a date.
    if type(value) is not wanted:
        raise ArgumentError(f"{place}: expected {_WORDS[wanted]}, got {shown(value)}")
    return " ".join(value.split()) if wanted is str else value


def _label(item: Any, position: int) -> str:
    """Return the label of a list entry: its id if it has one, else its position."""
    id = item.get("id") if isinstance(item, dict) else None
    return id if isinstance(id, str) else str(position)
