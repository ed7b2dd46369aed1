"""A fit, and the groups of runs that it trains one after the other."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxarch._internal.trees import PyTree
from jaxarch.run._inputs import Inputs
from jaxarch.run._options import FitOptions
from jaxarch.run._processes import Team
from jaxarch.run._programs import Make, Stopwatch
from jaxarch.run._runs_mesh import RunsMesh
from jaxarch.run._shares import Shares
from jaxarch.run._training import Training


def make_one(make: Make, settings: PyTree) -> Training:
    """Return the training of the first run's settings, made outside any trace."""
    return make(jax.tree.map(lambda leaf: leaf[0], settings))


@dataclasses.dataclass(frozen=True)
class Job:
    """Settings that all groups of a fit share.

    Attributes:
      make: function from one run's settings to its training.
      mesh: the devices; `None` if each step is a program of its own.
      options: options of the fit.
      watch: stopwatch of the fit.
      name: name of the fit in progress, reports and checkpoints.
      data: a digest of the problem's data; `None` without checkpoints.
      team: the processes that train together.
      shares: how many devices of each process have runs.
    """

    make: Make
    mesh: RunsMesh | None
    options: FitOptions
    watch: Stopwatch
    name: str
    data: np.ndarray | None
    team: Team
    shares: Shares


@dataclasses.dataclass(frozen=True, eq=False)
class Group:
    """Runs of a fit that are trained in one program, and this process's share of them.

    Copies of runs fill the program up; they come after the members.

    Attributes:
      job: the fit.
      per_device: how many runs each device trains.
      share: inputs of this process's share of the runs, on its devices.
      whole: function that makes the inputs of all runs of the group.
      members: indices of the runs.
      index: index of this group within the fit.
      count: how many groups there are.
    """

    job: Job
    per_device: int
    share: Inputs
    whole: Callable[[], Inputs]
    members: np.ndarray
    index: int
    count: int

    @functools.cached_property
    def training(self) -> Training:
        """The first run's training, made outside any trace."""
        return make_one(self.job.make, self.share.settings)

    @property
    def rows(self) -> tuple[int, ...]:
        """Number of the group's runs that each process trains."""
        return self.job.shares.rows(self.per_device)

    @property
    def mine(self) -> slice:
        """Places of this process's share among the group's runs."""
        return self.job.shares.mine(self.per_device)

    @property
    def slot(self) -> str:
        """The name of the group's checkpoints."""
        return f"{self.job.name} group {self.index}"

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the members."""
        return tuple(self.job.options.label(run) for run in self.members)

    def gather(self, title: str, tree: Any) -> Any:
        """Join the shares of all processes along the first axis, on the host.

        With one process its share is everything, and stays where it is.
        """
        return self.job.team.gather(f"{self.slot}: {title}", tree, self.rows)
