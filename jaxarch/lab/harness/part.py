"""Part of an experiment: a function of settings and loaded data, run after the parts that it needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxarch import ArgumentError, Progress
from jaxarch.io import Checkpoints
from jaxarch.lab.checks import shown


@dataclasses.dataclass(frozen=True)
class Work:
    """Progress and checkpoints of a part that is being made.

    Attributes:
      progress: called with a `Progress` at the end of every chunk of a training; or `None`.
      checkpoint: where trainings save and resume; `None` everywhere but in the driver.
    """

    progress: Callable[[Progress], None] | None = None
    checkpoint: Checkpoints | None = None


@dataclasses.dataclass(frozen=True)
class Part:
    """Table or pytree of arrays that an experiment makes as a unit, in this process or another one.

    Attributes:
      name: unique within the experiment; also the name of its file in the folder of `resume`.
      function: `(loaded, settings, found, work) -> table | tree`, at the top of a module. Its arguments are
        the data that all parts load, the part's settings, the results of the parts in `after` by name, and a
        `Work`.
      settings: whatever identifies the part; small, since it is pickled.
      after: the names of the parts that it needs, all of them earlier in the list.
      like: the structure of a pytree, with shapes and dtypes; `None` for a table.
    """

    name: str
    function: Callable[[Any, Any, Mapping[str, Any], Work], Any]
    settings: Any = None
    after: tuple[str, ...] = ()
    like: Any = None


def check_order(parts: Sequence[Part]) -> None:
    """Raise unless part names are unique and every part comes after the parts that it needs.

    Raises:
      ArgumentError: names the first part that breaks the rule.
    """
    before: set[str] = set()
    for part in parts:
        if part.name in before:
            raise ArgumentError(f"parts: two are called {shown(part.name)}")
        for name in part.after:
            if name not in before:
                raise ArgumentError(f"parts: {shown(part.name)} is after {shown(name)}, which comes later")
        before.add(part.name)
