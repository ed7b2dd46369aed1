"""Settings that theorems prescribe, and how they are printed."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from jaxarch.run._training import Training


class Line(NamedTuple):
    """A setting, or a constant that settings were derived from.

    Attributes:
      name: the name of the setting or constant.
      value: the value as it is shown.
      why: the theorem, by the id of its claim, or the source of the constant.
    """

    name: str
    value: str
    why: str


@dataclasses.dataclass(frozen=True)
class Prescription:
    """The prescribed settings of a search, as returned by `prescribe`. `print` shows them with the reasons.

    Attributes:
      hard: the search's `hard`, unchanged.
      soft: the search's `soft`, or less.
      rate: the learning rate of plain gradient descent; `None` if no theorem here gives one.
      clip: eps, as in `search.two_temperature`; `None` if none is prescribed.
      bound: the final guarantee, if the constants are right; `None` if there is none. Without convexity it
        bounds the smallest gap of all steps. With convexity it bounds the expected loss of the last mask
        minus the best mask's loss.
      search: the search with these settings, by plain gradient descent if a rate is set, and clipped only if
        this was asked for.
      estimated: the names of estimated constants; with any, the whole prescription is a heuristic.
      lines: one line for each setting, then one for each constant.
      assumptions: the assumptions that could not be checked.
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
                Line(
                    "heuristic",
                    "",
                    f"{guessed} may be larger at other masks, so no theorem guarantees these settings",
                )
            )
        lines += [Line("assumed", "", assumption) for assumption in self.assumptions]
        names, values = (max(len(line[column]) for line in lines) for column in (0, 1))
        return "\n".join(f"{line.name:<{names}}  {line.value:<{values}}  {line.why}" for line in lines)
