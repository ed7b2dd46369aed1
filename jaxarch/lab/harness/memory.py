"""Memory of an experiment's first training on each device, found without training."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

from jaxarch import Progress, RunPlan
from jaxarch.lab.checks import in_bytes
from jaxarch.lab.harness.experiment import Context, Experiment


def first_memory(experiment: Experiment, settings: Any) -> list[str]:
    """Return a line on the memory of a run's first training; none if the experiment trains nothing.

    The run is started and left before its first step, once its data is read and its program is compiled.
    """
    if not experiment.trains:
        return []
    # Leave the folder of `resume` alone.
    settings = dataclasses.replace(settings, resume="")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            experiment.run(settings, Context(experiment.name, settings, _Leaving()))
        except _BegunError as begun:
            return [_line(begun.plan)]
    return []


class _BegunError(BaseException):
    """Signal to leave a run; not an `Exception`, so that no handler takes it for a failed method."""

    def __init__(self, plan: RunPlan) -> None:
        self.plan = plan


class _Leaving:
    """Progress callback that leaves the first training before its first step."""

    def __call__(self, told: Progress) -> None:
        """Do nothing: stages that are not trainings go on."""

    def begins(self, plan: RunPlan) -> None:
        raise _BegunError(plan)


def _line(plan: RunPlan) -> str:
    runs = (
        f"{plan.max_parallel_runs} of {plan.runs}" if plan.max_parallel_runs < plan.runs else f"{plan.runs}"
    )
    devices = "on 1 device" if plan.devices == 1 else f"on each of {plan.devices} devices"
    needed = "not counted by its compiler" if plan.memory is None else str(plan.memory)
    free = "" if plan.free is None else f"; {in_bytes(plan.free)} free"
    return f"memory of the first training ({plan.name}, {runs} runs at once), {devices}: {needed}{free}"
