"""Training time on this machine: measured on a few steps, and put into words."""

from __future__ import annotations

import dataclasses
import time
import warnings
from typing import Any, NamedTuple

from jax import Array

from jaxarch import Network, Problem, Progress, ResultWarning, over_seeds

MEASURED_STEPS = 20


class Pace(NamedTuple):
    """Speed of a training.

    Attributes:
      a_step: seconds that one device takes for a step of one run.
      devices: the number of devices that share the runs.
      compile_seconds: seconds that its programs take to compile.
    """

    a_step: float
    devices: int
    compile_seconds: float

    def seconds(self, steps: float) -> float:
        """Return the seconds for `steps` steps of one run each, all devices busy."""
        return self.a_step * steps / self.devices


def measured(strategy: Any, keys: Array, problem: Problem, network: Network | None = None) -> Pace:
    """Measure the pace over `MEASURED_STEPS` steps, after as many warm-up steps (such as placing the data).

    Args:
      strategy: the strategy; its last stage is measured.
      keys: one key per run.
      problem: as for `jaxarch.over_seeds`; held-out rows are not used.
      network: the network to continue from.
    """
    steps = MEASURED_STEPS
    ends: dict[tuple[str, int], list[float]] = {}

    def note(progress: Progress) -> None:
        ends.setdefault((progress.name, progress.group), []).append(time.perf_counter())

    few = dataclasses.replace(problem.descending(steps=2 * steps), validation=None)
    with warnings.catch_warnings():
        # So few steps reach no target density, so do not warn about that.
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
    """Return the line of a dry run with the time of a run and what that time counts."""
    return f"time: about {in_words(seconds)} on {devices} device{'s' * (devices > 1)}, {counted}"


def in_words(seconds: float) -> str:
    """Put a time into words."""
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
