"""What the first training of an experiment takes on each device, found without training it."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

from jaxarch import Progress, RunPlan
from jaxarch.lab.checks import in_bytes
from jaxarch.lab.harness.experiment import Context, Experiment


def first_memory(experiment: Experiment, settings: Any) -> list[str]:
    """What the first training of a run takes, in lines; none where the experiment trains nothing.

    The run is begun, and left before the first step: its data are read and its program is compiled.
    """
    if not experiment.trains:
        return []
    settings = dataclasses.replace(settings, resume="")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            experiment.run(settings, Context(experiment.name, settings, _Leaving()))
        except _BegunError as begun:
            return [_line(begun.plan)]
    return []


class _BegunError(BaseException):
    """Nobody on the way takes it for a method that failed: it is no `Exception`."""

    def __init__(self, plan: RunPlan) -> None:
        self.plan = plan


class _Leaving:
    """A progress callback that leaves the first training before its first step."""

    def __call__(self, told: Progress) -> None:
        """What is no training goes on."""

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
