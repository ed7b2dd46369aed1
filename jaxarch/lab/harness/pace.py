"""How long a training takes here: measured on a few of its steps, and said in words."""

from __future__ import annotations

import dataclasses
import time
import warnings
from typing import Any, NamedTuple

from jax import Array

from jaxarch import Network, Problem, Progress, ResultWarning, over_seeds

MEASURED_STEPS = 20


class Pace(NamedTuple):
    """Of a training.

    Attributes:
      a_step: seconds that a step of one run costs one device.
      devices: that share the runs.
      compile_seconds: of its programs.
    """

    a_step: float
    devices: int
    compile_seconds: float

    def seconds(self, steps: float) -> float:
        """Of so many steps of one run each, all devices busy."""
        return self.a_step * steps / self.devices


def measured(strategy: Any, keys: Array, problem: Problem, network: Network | None = None) -> Pace:
    """From `MEASURED_STEPS` steps, after as many in which all else is done, such as placing the data.

    Args:
      strategy: whose last stage is measured.
      keys: one a run.
      problem: as for `jaxarch.over_seeds`; held-out rows are not looked at.
      network: to go on from.
    """
    steps = MEASURED_STEPS
    ends: dict[tuple[str, int], list[float]] = {}

    def note(progress: Progress) -> None:
        ends.setdefault((progress.name, progress.group), []).append(time.perf_counter())

    few = dataclasses.replace(problem.descending(steps=2 * steps), validation=None)
    with warnings.catch_warnings():
        # After so few steps no density is reached.
        warnings.simplefilter("ignore", ResultWarning)
        _, report = over_seeds(
            strategy, keys, few, network=network, progress=note, dead_start="ignore", chunk=steps
        )
    last = report.stages[-1]
    name, _ = next(reversed(ends))
    groups = [times for (stage, _), times in ends.items() if stage == name]
    if min(map(len, groups)) < 2:  # All runs of a group have failed.
        return Pace(last.seconds / (2 * steps), last.devices, last.compile_seconds)
    running = sum(times[1] - times[0] for times in groups)
    return Pace(running * last.devices / len(keys) / steps, last.devices, last.compile_seconds)


def told(seconds: float, devices: int, counted: str) -> str:
    """The line of a dry run that says how long a run takes, and what is counted in it."""
    return f"time: about {in_words(seconds)} on {devices} device{'s' * (devices > 1)}, {counted}"


def in_words(seconds: float) -> str:
    """A time to read."""
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
