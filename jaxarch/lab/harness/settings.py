"""Settings of experiments: what those that train have in common, how all are checked and read from texts."""

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
"""The least time between two checkpoints."""
FLOAT_BYTES = 4
RESULT_NUMBERS = 20
"""What a row of results has, about."""


class ExperimentSettings:
    """What a frozen dataclass of settings has: numbers, texts and tuples of them, completed and checked.

    The harness does both, once, before an experiment sees its settings.
    """

    def complete(self) -> Self:
        """The same with what suits the data set where nothing is said."""
        return self

    def suited(self, suits: Mapping[str, Any]) -> Self:
        """The same with these values where nothing is said: an empty tuple or text, 0 or `auto`."""
        chosen = {name: value for name, value in suits.items() if getattr(self, name) in ((), "", 0, "auto")}
        return dataclasses.replace(self, **chosen)  # type: ignore[type-var]

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""

    def which_parts(self) -> tuple[str, ...]:
        """The settings that say which parts there are, and on which none of them depends.

        What is kept in a folder of `resume` is gone on with whatever their values.
        """
        return ()

    def check_each(self, check: Callable[[str, Any], None], *names: str) -> None:
        """Check settings with one of the checks of `jaxarch.errors`; of a tuple, every entry."""
        for name in names:
            value = getattr(self, name)
            for entry in value if isinstance(value, tuple) else (value,):
                check(name, entry)

    def check_numbers(self, check: Callable[[str, Any], None], *names: str) -> None:
        """Check settings that are tuples of numbers: at least one, none twice, every one by itself."""
        for name in names:
            if not getattr(self, name):
                raise ArgumentError(f"{name}: expected at least one number")
            check_distinct(name, getattr(self, name))
        self.check_each(check, *names)


@dataclasses.dataclass(frozen=True)
class TrainingSettings(ExperimentSettings):
    """What can be set in every experiment that trains.

    Attributes:
      seeds: independent runs.
      batch_size: examples a gradient step.
      key: what all random keys derive from.
      resume: the name of a folder, if any, in which checkpoints are kept: a run that was stopped is continued
        by the same command, to the same numbers.
    """

    seeds: int = 5
    batch_size: int = 100
    key: int = 0
    resume: str = ""

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        self.check_each(check_count, "seeds", "batch_size")
        check_key("key", self.key)

    def seed_keys(self, stream: int = 1) -> Array:
        """One key a seed; see the function of this name."""
        return seed_keys(self.key, self.seeds, stream)


@dataclasses.dataclass(frozen=True)
class PartSettings(ExperimentSettings):
    """What can be set where parts of an experiment can be made by other processes.

    Attributes:
      devices: that the runs of a part are spread over; 0 for all that a process has, and one CPU of a worker.
        Parts of equal `devices` and `max_parallel_runs` have equal bits.
      max_parallel_runs: runs that are trained in one program; 0 for as many as memory allows.
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
        """Devices and width as `over_seeds` takes them.

        Raises:
          ArgumentError: more devices than this process has; any number of them in several processes.
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
    """Raise if there is no memory for what so many seeds bring, at so many numbers a seed or more.

    Raises:
      ArgumentError: naming what they need and what there is.
    """
    check_memory("seeds", FLOAT_BYTES * seeds * (numbers + RESULT_NUMBERS), f"what {seeds} seeds bring")


def seed_keys(key: int, seeds: int, stream: int = 1) -> Array:
    """One key a seed, other ones in each stream: so what has nothing in common shares no randomness."""
    return jax.random.split(jax.random.fold_in(jax.random.key(key), stream), seeds)


def checkpoints(resume: str) -> Checkpoints | None:
    """Checkpoints in a folder of that name, from which the same command continues; none without a name."""
    return Checkpoints(resume, every=CHECKPOINT_SECONDS) if resume else None


def devices() -> Literal["all hosts"] | None:
    """What `over_seeds` spreads runs over: those of all processes, if the command was started in several."""
    return "all hosts" if jax.process_count() > 1 else None


def read_settings(kind: type, values: Mapping[str, str]) -> Any:
    """Settings from texts such as `{"seeds": "20", "positive": "1,2,3", "rivals": '"weights, all skips"'}`.

    Raises:
      ArgumentError: an unknown name, a text that is no value of the setting's type.
    """
    types_ = typing.get_type_hints(kind)
    for name in values:
        if name not in types_:
            raise ArgumentError(f"{shown(name)[1:-1]}: no such setting; {did_you_mean(name, types_)}")
    return kind(**{name: _parse(name, text, types_[name]) for name, text in values.items()})


def _parts(name: str, text: str) -> list[str]:
    """What commas separate; a part that has one itself stands in quotation marks."""
    try:
        return next(csv.reader([text], skipinitialspace=True, strict=True), [])
    except csv.Error:
        raise ArgumentError(f"{name}: quotation marks are around whole names, got {shown(text)}") from None


def listed(values: Sequence[Any]) -> str:
    """Some values as `read_settings` takes them."""
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
