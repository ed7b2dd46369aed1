"""Inputs of runs: a key each, settings, the problem, and the network of the stage before."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jax import Array

from jaxarch._internal.trees import PyTree
from jaxarch.run._devices import place, take_runs
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._runs_mesh import RunsMesh


class Inputs(NamedTuple):
    """Inputs of some runs, in the order in which programs of many runs take them.

    Attributes:
      keys: one key per run, shape (runs,).
      settings: pytree whose leaves have a leading axis of runs, or `None`.
      problem: what to learn; its per-run arrays have the keys' length.
      network: the result of the stage before, with a leading axis of runs, or `None`.
    """

    keys: Array
    settings: PyTree
    problem: Problem
    network: Network | None

    @property
    def runs(self) -> int:
        """The number of runs."""
        return self.keys.shape[0]

    @property
    def axes(self) -> tuple[Any, ...]:
        """The inputs' axes of runs, for `vmap`."""
        return (0, 0, self.problem.in_axes(), 0)

    def of(self, runs: np.ndarray) -> Inputs:
        """Return the inputs of some of the runs, as they are if that is all of them in order."""
        if np.array_equal(runs, np.arange(self.runs)):
            return self
        return Inputs(*take_runs(self.axes, tuple(self), runs))

    def on(self, mesh: RunsMesh | None) -> Inputs:
        """Return the inputs on the devices of a mesh, split along the axis of runs."""
        # Partitions compare the endings of paths. A plain tuple keeps names of these fields out of the paths.
        return Inputs(*place(mesh, self.axes, tuple(self)))
