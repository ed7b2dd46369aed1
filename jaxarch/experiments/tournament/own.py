"""Methods of the user's own, from a Python file."""

from __future__ import annotations

import hashlib
import inspect
import re
import runpy
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxarch import Strategy, Training, chain
from jaxarch.errors import ArgumentError, first_line, shown
from jaxarch.experiments.tournament.entrants import ENTRANTS, Phase
from jaxarch.experiments.tournament.settings import TournamentSettings
from jaxarch.experiments.tournament.task import Task
from jaxarch.storage.files import as_path
from jaxarch.trees import named_leaves, select

FAMILY = "own"
TAKEN = ("dense", "chance", *ENTRANTS)
"""Names that stand in every table."""


class Own(NamedTuple):
    """A method of the user's own.

    Attributes:
      name: of its function.
      function: `(density) -> strategy`.
    """

    name: str
    function: Callable[[float], Any]

    def strategy(self, density: float, task: Task) -> Strategy:
        """What it makes for a density, if that can take part: a mask of this size, and trained weights.

        Raises:
          ArgumentError: a function that fails, or makes something else; the message names it.
        """
        try:
            made = chain(self.function(density))
        except Exception as error:
            raise ArgumentError(
                f"own: {self.name}({density:g}) failed: {type(error).__name__}: {first_line(error)}"
            ) from error
        if not _trainings(made):
            raise ArgumentError(f"own: {self.name} trains nothing; end it with retrain(...), for instance")
        problem = task.learning(np.arange(1))
        one = problem.of_run(0)
        network = jax.eval_shape(made, task.keys("search")[0], one)
        if named_leaves(network.mask).keys() != named_leaves(select(task.params)).keys():
            raise ArgumentError(f"own: {self.name} finds no mask of the parent's kernels")
        return made

    def steps(self, strategy: Strategy, settings: TournamentSettings) -> int:
        """The steps of each of its trainings that has none of its own: a share of what every network has."""
        whole = settings.steps * (2 if settings.budget == "equal" else 1)
        return max(whole // len(_trainings(strategy)), 1)

    def phases(self, strategy: Strategy, task: Task) -> list[Phase]:
        """What it takes: a training of what was found before is one of the connections that are left."""
        problem = task.problem.descending(steps=self.steps(strategy, task.settings))
        batches = sum(stage.needs.batches for stage in strategy.stages)
        return [Phase(batches, 1)] + [
            Phase(stage.on(problem).steps, 0 if stage.needs.network == "required" else 1)
            for stage in _trainings(strategy)
        ]


def read_own(file: str) -> list[Own]:
    """The public functions that a file defines, each `(density) -> strategy`.

    What a strategy finds has the share `density` of the connections. Where its trainings do not say how many
    steps they take, they share those of two phases, or of one with the published budget.

    Args:
      file: its name; empty for none.

    Raises:
      ArgumentError: no such file, one that fails, without such functions, or with a name that is taken.
    """
    if not file:
        return []
    path = as_path(file, "own")
    if not path.is_file():
        raise ArgumentError(f"own: there is no file {shown(file)}")
    try:
        found = runpy.run_path(str(path))
    except (Exception, SystemExit) as error:
        raise ArgumentError(
            f"own: {path.name} failed: {type(error).__name__}: {first_line(error)}"
        ) from error
    own = [
        Own(name.replace("_", " "), value)
        for name, value in found.items()
        if inspect.isfunction(value) and not name.startswith("_") and value.__module__ == found["__name__"]
    ]
    if not own:
        raise ArgumentError(f"own: {path.name} defines no function (density) -> strategy")
    for name, function in own:
        if _letters(name) in map(_letters, TAKEN):
            raise ArgumentError(f"own: {name!r} is a name in the tables already; call yours otherwise")
        try:
            inspect.signature(function).bind(0.1)
        except TypeError:
            raise ArgumentError(f"own: expected {name} to take the density alone") from None
    return own


def digest_of(file: str) -> str:
    """The SHA-256 of a file of methods; nothing of none."""
    return hashlib.sha256(as_path(file, "own").read_bytes()).hexdigest() if file else ""


def _letters(name: str) -> str:
    return re.sub(r"\W+", "", name).lower()


def _trainings(strategy: Strategy) -> list[Training]:
    return [stage for stage in strategy.stages if isinstance(stage, Training)]
