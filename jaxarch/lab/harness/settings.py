"""Settings of experiments: the common ones, their checks, and their parsing from text."""

from __future__ import annotations

import csv
import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Self

import jax
from jax import Array

from jaxarch import ArgumentError
from jaxarch.io import Checkpoints
from jaxarch.lab.checks import check_count, check_distinct, check_key, check_memory, did_you_mean, shown

CHECKPOINT_SECONDS = 30
"""Minimum time between two checkpoints, in seconds."""
FLOAT_BYTES = 4
RESULT_NUMBERS = 20
"""Approximate count of numbers in a row of results."""


class ExperimentSettings:
    """Base of a frozen dataclass of settings: numbers, texts and tuples of them.

    The harness completes and checks settings once, before an experiment sees them.
    """

    def complete(self) -> Self:
        """Return the settings with the data set's defaults filled in for unset values."""
        return self

    def suited(self, suits: Mapping[str, Any]) -> Self:
        """Return the settings with unset values (empty tuple or text, 0 or `auto`) filled in from `suits`."""
        chosen = {name: value for name, value in suits.items() if getattr(self, name) in ((), "", 0, "auto")}
        return dataclasses.replace(self, **chosen)  # type: ignore[type-var]

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""

    def which_parts(self) -> tuple[str, ...]:
        """Return the names of settings that select the parts, but on which no part depends.

        A folder of `resume` can be continued with other values of these settings.
        """
        return ()

    def check_each(self, check: Callable[[str, Any], None], *names: str) -> None:
        """Check settings with one of the checks of `jaxarch.lab.checks`; in a tuple, check every entry."""
        for name in names:
            value = getattr(self, name)
            for entry in value if isinstance(value, tuple) else (value,):
                check(name, entry)

    def check_numbers(self, check: Callable[[str, Any], None], *names: str) -> None:
        """Check settings that are tuples: at least one number, no duplicates, and `check` for each."""
        for name in names:
            if not getattr(self, name):
                raise ArgumentError(f"{name}: expected at least one number")
            check_distinct(name, getattr(self, name))
        self.check_each(check, *names)


@dataclasses.dataclass(frozen=True)
class TrainingSettings(ExperimentSettings):
    """Settings of every experiment that trains, set with `--set NAME=VALUE`.

    Attributes:
      seeds: number of independent runs.
      batch_size: examples per gradient step.
      key: seed that all random keys derive from.
      resume: folder for checkpoints, if any: after a stop, the same command continues the run, to the same
        numbers.
    """

    seeds: int = 5
    batch_size: int = 100
    key: int = 0
    resume: str = ""

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        self.check_each(check_count, "seeds", "batch_size")
        check_room(self.seeds, 0)
        check_key("key", self.key)

    def seed_keys(self, stream: int = 1) -> Array:
        """Return one key per seed; see the function `seed_keys`."""
        return seed_keys(self.key, self.seeds, stream)


@dataclasses.dataclass(frozen=True)
class PartSettings(ExperimentSettings):
    """Settings of experiments with parts that other processes can make, set with `--set NAME=VALUE`.

    Attributes:
      devices: devices that share the runs of a part; 0 for all of this process, or one CPU of a worker. Parts
        are bit-identical if `devices` and `max_parallel_runs` are equal.
      max_parallel_runs: runs trained in one program; 0 for as many as memory allows.
    """

    devices: int = 0
    max_parallel_runs: int = 0

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        for name in ("devices", "max_parallel_runs"):
            if (value := getattr(self, name)) < 0:
                raise ArgumentError(f"{name}: expected at least 0, got {value}")

    def width(self) -> dict[str, Any]:
        """Return `devices` and `max_parallel_runs` as keyword arguments of `over_seeds`.

        Raises:
          ArgumentError: more devices than this process has; any number of devices in several processes.
        """
        options: dict[str, Any] = (
            {"max_parallel_runs": self.max_parallel_runs} if self.max_parallel_runs else {}
        )
        everywhere = devices()
        if everywhere is not None:
            if self.devices:
                raise ArgumentError("devices: several processes use all that they have; leave it out")
            options["devices"] = everywhere
        elif self.devices:
            there = jax.local_devices()
            if self.devices > len(there):
                raise ArgumentError(f"devices: expected at most {len(there)}, got {self.devices}")
            options["devices"] = there[: self.devices]
        return options


def check_room(seeds: int, numbers: int) -> None:
    """Raise if memory cannot hold the results of `seeds` seeds, each at least `numbers` numbers.

    Raises:
      ArgumentError: names the memory that they need and the memory available.
    """
    check_memory("seeds", FLOAT_BYTES * seeds * (numbers + RESULT_NUMBERS), f"what {seeds} seeds bring")


def seed_keys(key: int, seeds: int, stream: int = 1) -> Array:
    """Return one key per seed; each stream has different keys, so unrelated draws share no randomness."""
    return jax.random.split(jax.random.fold_in(jax.random.key(key), stream), seeds)


def checkpoints(resume: str) -> Checkpoints | None:
    """Return checkpoints in the folder `resume`, from which the same command continues; `None` if empty."""
    return Checkpoints(resume, every=CHECKPOINT_SECONDS) if resume else None


def devices() -> Literal["all hosts"] | None:
    """Return `"all hosts"` for `over_seeds` if the command runs in several processes, else `None`."""
    return "all hosts" if jax.process_count() > 1 else None


def read_settings(kind: type, values: Mapping[str, str]) -> Any:
    """Parse settings such as `{"seeds": "20", "positive": "1,2,3", "rivals": '"weights, all skips"'}`.

    Raises:
      ArgumentError: an unknown name, a text that is no value of the setting's type.
    """
    types_ = typing.get_type_hints(kind)
    for name in values:
        if name not in types_:
            raise ArgumentError(f"{shown(name)[1:-1]}: no such setting; {did_you_mean(name, types_)}")
    return kind(**{name: _parse(name, text, types_[name]) for name, text in values.items()})


def _parts(name: str, text: str) -> list[str]:
    """Split a text at commas; a part that contains a comma stands in quotation marks."""
    try:
        return next(csv.reader([text], skipinitialspace=True, strict=True), [])
    except csv.Error:
        raise ArgumentError(f"{name}: quotation marks are around whole names, got {shown(text)}") from None


def listed(values: Sequence[Any]) -> str:
    """Return values as one text that `read_settings` parses."""
    return ",".join(f'"{value}"' if "," in str(value) else str(value) for value in values)


def _parse(name: str, text: str, kind: Any) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        parts = (part.strip() for part in _parts(name, " ".join(text.split())))
        return tuple(_parse(name, part, arguments[0]) for part in parts if part)
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
