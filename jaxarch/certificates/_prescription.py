"""Settings that theorems prescribe, and how they are told."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from jaxarch.run._training import Training


class Line(NamedTuple):
    """A setting, or a constant that settings were made of.

    Attributes:
      name: of it.
      value: as it is shown.
      why: the theorem by the id of its claim, or where the constant is from.
    """

    name: str
    value: str
    why: str


@dataclasses.dataclass(frozen=True)
class Prescription:
    """What theorems set of a search: what `prescribe` returns. `print` shows it with the reasons.

    Attributes:
      hard: the search's.
      soft: the search's, or less.
      rate: of plain gradient descent; `None` where no theorem here says one.
      clip: eps, as of `search.two_temperature`; `None` where none is prescribed.
      bound: what is guaranteed in the end, if the constants are right: without convexity, on the least gap of
        all steps, with convexity on the expected loss of the last mask above the best one's; `None` without.
      search: the search with these settings, by plain gradient descent where a rate is set, and clipped only
        where that was asked for.
      estimated: the names of constants that were estimated: with any, all of it is a heuristic.
      lines: one a setting, then one a constant.
      assumptions: what it rests on that could not be looked up.
    """

    hard: float
    soft: float
    rate: float | None
    clip: float | None
    bound: float | None
    search: Training
    estimated: tuple[str, ...]
    lines: tuple[Line, ...]
    assumptions: tuple[str, ...]

    def __str__(self) -> str:
        lines = list(self.lines)
        if self.estimated:
            guessed = " and ".join(self.estimated)
            lines.append(
                Line("heuristic", "", f"{guessed} may be larger elsewhere; what follows is no theorem")
            )
        lines += [Line("assumed", "", assumption) for assumption in self.assumptions]
        names, values = (max(len(line[column]) for line in lines) for column in (0, 1))
        return "\n".join(f"{line.name:<{names}}  {line.value:<{values}}  {line.why}" for line in lines)
