"""The user's own methods, from a Python file."""

from __future__ import annotations

import hashlib
import inspect
import re
import runpy
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxarch import ArgumentError, Network, Strategy, Training, chain, named_leaves, select
from jaxarch.lab.checks import as_path, first_line, shown
from jaxarch.lab.tournament.entrants import ENTRANTS, Phase
from jaxarch.lab.tournament.settings import TournamentSettings
from jaxarch.lab.tournament.task import Task
from jaxarch.masks import connections

FAMILY = "own"
TAKEN = ("dense", "chance", *ENTRANTS)
"""Names that are taken: they stand in every table."""


class Own(NamedTuple):
    """One of the user's own methods.

    Attributes:
      name: name of its function.
      function: `(density) -> strategy`.
    """

    name: str
    function: Callable[[float], Any]

    def strategy(self, density: float, task: Task) -> Strategy:
        """Return its strategy for a density, if it can take part: a mask of this size, and trained weights.

        Raises:
          ArgumentError: a function that fails or returns something else; the message names it.
        """
        try:
            made = chain(self.function(density))
        except Exception as error:
            raise ArgumentError(
                f"own: {self.name}({density:g}) failed: {type(error).__name__}: {first_line(error)}"
            ) from error
        if not _trainings(made):
            raise ArgumentError(
                f"own: {self.name} trains nothing; end it with a training, such as retrain(...)"
            )
        problem = task.learning(np.arange(1))
        one = problem.of_run(0)
        network = jax.eval_shape(made, task.keys("search")[0], one)
        if named_leaves(network.mask).keys() != named_leaves(select(task.params)).keys():
            raise ArgumentError(f"own: expected {self.name} to return a mask of exactly the parent's kernels")
        if network.info.failed_at is None or "loss" not in network.info:
            raise ArgumentError(
                f"own: the last stage of {self.name} drops the record of the training; let it return "
                "network.replace(...)"
            )
        return made

    def check_found(self, network: Network, density: float, task: Task) -> None:
        """Raise unless networks, one a seed, match their masks and the density asked for.

        Raises:
          ArgumentError: masked connections with weights, or too many or too few unmasked connections.
        """
        kept = np.asarray(jax.vmap(connections)(network.mask))
        if (kept != round(density * task.connections)).any():
            low, high = kept.min() / task.connections, kept.max() / task.connections
            raise ArgumentError(
                f"own: expected networks of density {density:g} from {self.name}, got {low:.4g} to {high:.4g}"
            )
        weights = named_leaves(network.params)
        for path, mask in named_leaves(network.mask).items():
            left = np.asarray((mask == 0) & (weights[path] != 0)).any(axis=tuple(range(1, mask.ndim)))
            # A failed run has no accuracy to report, so its weights do not matter.
            if (left & (np.asarray(network.info.failed_at) < 0)).any():
                raise ArgumentError(
                    f"own: {self.name} has nonzero weights in {path} where its mask is 0; "
                    "masks.apply_mask(mask, params) removes them"
                )

    def steps(self, strategy: Strategy, settings: TournamentSettings) -> int:
        """Return the steps of each training that sets none itself: an equal share of a network's steps."""
        whole = settings.steps * (2 if settings.budget == "equal" else 1)
        return max(whole // len(_trainings(strategy)), 1)

    def phases(self, strategy: Strategy, task: Task) -> list[Phase]:
        """Return its phases as an upper bound; only the last training's number of connections is known.

        The last training computes with the remaining connections, if an earlier stage found them. All other
        trainings count as whole networks, and each batch looked at before training as a gradient.
        """
        problem = task.problem.descending(steps=self.steps(strategy, task.settings))
        batches = sum(stage.needs.batches for stage in strategy.stages)
        *before, last = _trainings(strategy)
        return [
            Phase(batches, 1),
            *(Phase(stage.on(problem).descent.steps, 1) for stage in before),
            Phase(last.on(problem).descent.steps, 0 if last.needs.network == "required" else 1),
        ]


def read_own(file: str) -> list[Own]:
    """Read the public functions that a file defines, each `(density) -> strategy`.

    The network of a strategy has the share `density` of the connections. Trainings that do not set their
    steps share the steps of two phases, or of one phase with the published budget.

    Args:
      file: name of the file; empty for none.

    Raises:
      ArgumentError: no such file, or a file that fails, has no such functions, or uses a taken name.
    """
    if not file:
        return []
    path = as_path(file, "own")
    if not path.is_file():
        raise ArgumentError(f"own: no such file {shown(file)}")
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
        raise ArgumentError(f"own: expected {path.name} to define a public function (density) -> strategy")
    for name, function in own:
        if _letters(name) in map(_letters, TAKEN):
            raise ArgumentError(f"own: the tables use the name {name!r} already; rename your function")
        try:
            inspect.signature(function).bind(0.1)
        except TypeError:
            raise ArgumentError(f"own: expected {name} to take one argument, the density") from None
    return own


def digest_of(file: str) -> str:
    """Return the SHA-256 of a file of methods, or an empty string without a file."""
    return hashlib.sha256(as_path(file, "own").read_bytes()).hexdigest() if file else ""


def _letters(name: str) -> str:
    return re.sub(r"\W+", "", name).lower()


def _trainings(strategy: Strategy) -> list[Training]:
    return [stage for stage in strategy.stages if isinstance(stage, Training)]
