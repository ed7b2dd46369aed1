"""What an experiment is: typed settings, a plan, a run that writes files, a report drawn from them."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
from jax import Array
from rich.console import RenderableType

from jaxarch.errors import ArgumentError, did_you_mean, shown
from jaxarch.memory import check_memory
from jaxarch.running.options import Progress
from jaxarch.storage import Checkpoints

CHECKPOINT_SECONDS = 30
"""The least time between two checkpoints."""

FLOAT_BYTES = 4
RESULT_NUMBERS = 20
"""What a row of results has, about."""


class Experiment(NamedTuple):
    """A figure or table of a paper, as something to run.

    Attributes:
      name: as in `jaxarch run NAME`.
      summary: one line.
      settings: a frozen dataclass of numbers, texts and tuples of them; its defaults are the experiment's.
      plan: `settings -> lines`: what would be compiled and trained. Raises on bad settings; trains nothing.
      run: `(settings, folder, progress)`: writes results, manifest and masks.
      report: `folder -> tables`: draws the figures from a folder's files again, and makes its tables.
      estimate: `settings -> lines`: how long it would take here, measured on a few steps; of long ones.
    """

    name: str
    summary: str
    settings: type
    plan: Callable[[Any], list[str]]
    run: Callable[[Any, Path, Callable[[Progress], None] | None], None]
    report: Callable[[Path], list[RenderableType]]
    estimate: Callable[[Any], list[str]] | None = None


def seed_keys(key: int, seeds: int, stream: int = 1) -> Array:
    """One key a seed, other ones in each stream: so what has nothing in common shares no randomness."""
    return jax.random.split(jax.random.fold_in(jax.random.key(key), stream), seeds)


def check_room(seeds: int, numbers: int) -> None:
    """Raise if there is no memory for what so many seeds bring, at so many numbers a seed or more.

    Raises:
      ArgumentError: naming what they need and what there is.
    """
    check_memory("seeds", FLOAT_BYTES * seeds * (numbers + RESULT_NUMBERS), f"what {seeds} seeds bring")


def checkpoints(resume: str) -> Checkpoints | None:
    """Checkpoints in a folder of that name, from which the same command continues; none without a name."""
    return Checkpoints(resume, every=CHECKPOINT_SECONDS) if resume else None


def read_settings(kind: type, values: Mapping[str, str]) -> Any:
    """Settings from texts such as `{"seeds": "20", "positive": "1,2,3"}`.

    Raises:
      ArgumentError: an unknown name, a text that is no value of the setting's type.
    """
    types_ = typing.get_type_hints(kind)
    for name in values:
        if name not in types_:
            raise ArgumentError(f"{shown(name)[1:-1]}: no such setting; {did_you_mean(name, types_)}")
    return kind(**{name: _parse(name, text, types_[name]) for name, text in values.items()})


def _parse(name: str, text: str, kind: Any) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        return tuple(_parse(name, part.strip(), arguments[0]) for part in text.split(",") if part.strip())
    if origin is Literal:
        if text not in arguments:
            raise ArgumentError(f"{name}: expected {' or '.join(arguments)}, got {shown(text)}")
        return text
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ArgumentError(f"{name}: expected true or false, got {shown(text)}")
        return text.lower() == "true"
    try:
        return kind(text)
    except ValueError:
        wanted = {int: "an integer", float: "a number"}.get(kind, kind.__name__)
        raise ArgumentError(f"{name}: expected {wanted}, got {shown(text)}") from None
