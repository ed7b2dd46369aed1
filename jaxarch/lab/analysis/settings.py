"""Settings that studies of masked networks share."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from jaxarch.lab.checks import check_distinct, check_known
from jaxarch.lab.harness import PartSettings
from jaxarch.lab.pruning.parents import PERCEPTRONS
from jaxarch.lab.pruning.settings import check_share
from jaxarch.lab.tournament.entrants import ENTRANTS
from jaxarch.lab.tournament.settings import PictureTrainingSettings
from jaxarch.masks import check_temperatures


@dataclasses.dataclass(frozen=True)
class ParentSettings(PartSettings, PictureTrainingSettings):
    """Settings of a parent, and of its masks.

    Attributes:
      densities: shares of the connections that are kept.
    """

    densities: tuple[float, ...] = (0.2, 0.05)

    hidden: ClassVar[tuple[int, ...]]
    """Widths of an mlp where the user sets none."""
    parents: ClassVar[tuple[str, ...]] = PERCEPTRONS
    """Values of `model` that the study takes."""
    suits_all: ClassVar[Mapping[str, Any]]
    """Defaults where the user sets nothing, and `suits` has no other."""
    suits: ClassVar[Mapping[str, Mapping[str, Any]]]
    """Defaults per data set."""

    def complete(self) -> Self:
        """Fill in the data set's defaults."""
        settings = self.suited({**self.suits_all, **self.suits.get(self.dataset, {})})
        widths = self.widths or (self.hidden if settings.model == "mlp" else settings.widths)
        return dataclasses.replace(
            settings, widths=widths, densities=tuple(sorted(settings.densities, reverse=True))
        )

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        check_known("model", (self.model,), self.parents)
        self.check_numbers(check_share, "densities")


@dataclasses.dataclass(frozen=True)
class MethodSettings(ParentSettings):
    """Settings of a parent, and of the methods of the tournament that find networks in it.

    Attributes:
      methods: methods of the tournament.
      steps: gradient steps of a phase. Most methods have two: a search, and training the found network.
      hard: the inverse temperature of two-temperature's masks in the loss.
      soft: the inverse temperature of the masks that its gradient passes through, at most `hard`.
    """

    methods: tuple[str, ...] = ()
    hard: float = 50.0
    soft: float = 5.0

    budget: ClassVar[str] = "equal"
    """Budget of a network, as in a tournament."""

    def which_parts(self) -> tuple[str, ...]:
        """Name the setting that selects parts: each method is one."""
        return ("methods",)

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        check_known("methods", self.methods, ENTRANTS)
        check_distinct("methods", self.methods)
        check_temperatures(self.hard, self.soft)
