"""What the first training of an experiment takes on each device, found without training it."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

from jaxarch import Outset, Progress
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
            return [_line(begun.outset)]
    return []


class _BegunError(BaseException):
    """Nobody on the way takes it for a method that failed: it is no `Exception`."""

    def __init__(self, outset: Outset) -> None:
        self.outset = outset


class _Leaving:
    """A progress callback that leaves the first training before its first step."""

    def __call__(self, border: Progress) -> None:
        """What is no training goes on."""

    def begins(self, outset: Outset) -> None:
        raise _BegunError(outset)


def _line(outset: Outset) -> str:
    runs = f"{outset.at_once} of {outset.runs}" if outset.at_once < outset.runs else f"{outset.runs}"
    devices = "on 1 device" if outset.devices == 1 else f"on each of {outset.devices} devices"
    needed = "not counted by its compiler" if outset.memory is None else str(outset.memory)
    free = "" if outset.free is None else f"; {in_bytes(outset.free)} free"
    return f"memory of the first training ({outset.name}, {runs} runs at once), {devices}: {needed}{free}"
