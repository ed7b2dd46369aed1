"""What a part of an experiment is: a function of settings, which loads what it needs, after other parts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxarch import ArgumentError, Progress
from jaxarch.io import Checkpoints
from jaxarch.lab.checks import shown


@dataclasses.dataclass(frozen=True)
class Work:
    """What a part is made with beside what it is about.

    Attributes:
      progress: called at every chunk's end of a training, with a `Progress`; or `None`.
      checkpoint: where trainings save, and whence they go on; or `None`, as everywhere but in the driver.
    """

    progress: Callable[[Progress], None] | None = None
    checkpoint: Checkpoints | None = None


@dataclasses.dataclass(frozen=True)
class Part:
    """A table or a pytree of arrays that an experiment makes by itself: here, or in another process.

    Attributes:
      name: no other part of the experiment has it; also that of its file in the folder of `resume`.
      function: `(loaded, settings, found, work) -> table | tree`, at the top of a module: what all parts of
        the experiment load, the part's settings, what the parts before it found, by name, and a `Work`.
      settings: whatever says which part it is; it is pickled, and small.
      after: the names of the parts that it needs, all of them earlier in the list.
      like: the structure of a pytree, with shapes and dtypes; `None` for a table.
    """

    name: str
    function: Callable[[Any, Any, Mapping[str, Any], Work], Any]
    settings: Any = None
    after: tuple[str, ...] = ()
    like: Any = None


def check_order(parts: Sequence[Part]) -> None:
    """Raise unless every part has a name of its own, and those that it is after come before it.

    Raises:
      ArgumentError: naming the first that has not.
    """
    before: set[str] = set()
    for part in parts:
        if part.name in before:
            raise ArgumentError(f"parts: two are called {shown(part.name)}")
        for name in part.after:
            if name not in before:
                raise ArgumentError(f"parts: {shown(part.name)} is after {shown(name)}, which comes later")
        before.add(part.name)
