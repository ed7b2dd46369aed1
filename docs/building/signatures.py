"""Signatures as they are written, with links to the public classes in them."""

from __future__ import annotations

import inspect
import re
import sys
from functools import cache, partial
from typing import Any

from sphinx.application import Sphinx
from sphinx.util.inspect import stringify_signature

from building.public import entries

NAME = re.compile(r"(?<![\w.\"'])[A-Za-z_][\w.]*")
UNPACKED = re.compile(r"^Unpack\[(.*)\]$")
SELF = ("self", "cls")


def as_written(
    app: Sphinx, what: str, name: str, value: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str, str | None] | None:
    """A signature whose types are those of the source, not what they stand for."""
    if signature is None or what not in ("function", "method", "class"):
        return None
    made = of_class(value) if inspect.isclass(value) else inspect.signature(value)
    if made is None:
        return "", None
    names = vars(sys.modules[inspect.unwrap(value).__module__])
    parameters = [
        parameter.replace(annotation=typed(parameter.annotation, names), default=shown(parameter.default))
        for parameter in made.parameters.values()
        if not (what == "method" and parameter.name in SELF)
    ]
    made = made.replace(parameters=parameters, return_annotation=typed(made.return_annotation, names))
    text, arrow, returned = stringify_signature(made).rpartition(" -> ")
    return (text, returned) if arrow else (returned, None)


def of_class(value: type) -> inspect.Signature | None:
    """What a class of ours is made with; `None` where it is nothing to be called, or its library's."""
    if getattr(value, "_is_protocol", False):
        return None
    if issubclass(value, dict) or not hasattr(value, "__init__"):
        return None
    maker = value.__new__ if issubclass(value, tuple) else value.__init__
    ours = hasattr(value, "_fields") or (getattr(maker, "__module__", None) or "").startswith("jaxarch")
    if not ours:
        return None
    made = inspect.signature(maker)
    return made.replace(
        parameters=list(made.parameters.values())[1:], return_annotation=inspect.Signature.empty
    )


def typed(annotation: Any, names: dict[str, Any]) -> Any:
    """A type as it is written, its public classes by their full names."""
    annotation = getattr(annotation, "__forward_arg__", annotation)
    if not isinstance(annotation, str):
        return annotation
    return NAME.sub(partial(full_name, names), UNPACKED.sub(r"\1", annotation))


def full_name(names: dict[str, Any], match: re.Match[str]) -> str:
    """The name that something public is shown with, and any other as it stands."""
    first, *rest = match[0].split(".")
    value = names.get(first)
    for part in rest:
        value = getattr(value, part, None)
    entry = classes().get(id(value))
    return match[0] if entry is None else f"~{entry}"


@cache
def classes() -> dict[int, str]:
    """The names of all that is public and a class."""
    return {id(entry.value): entry.name for entry in entries() if inspect.isclass(entry.value)}


class Written:
    """A default as it is read in the source."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def shown(default: Any) -> Any:
    """Functions by their names, and what is made anew for each instance not at all."""
    if inspect.isroutine(default):
        return Written(default.__name__)
    return Written("...") if repr(default) == "<factory>" else default


def setup(app: Sphinx) -> dict[str, bool]:
    """Have it done to every signature."""
    app.connect("autodoc-process-signature", as_written)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
