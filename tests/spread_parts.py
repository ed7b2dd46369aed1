"""Parts that other processes make in tests: they import them from here."""

import dataclasses
import os
import signal
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from jaxarch import ArgumentError, Progress, ResultWarning
from jaxarch.lab.harness import Experiment, Outcome, Part, Parts, TrainingSettings


@dataclasses.dataclass(frozen=True)
class Counting:
    """Settings of an experiment that counts."""

    first: int = 3
    devices: int = 0
    resume: str = ""


def load(first):
    return first


def number(first, by, found, work):
    """A table: the first number, more by so many, and by all that was found before."""
    if work.progress is not None:
        work.progress(Progress(f"count {by}", 1, 1, 0, 1, 1, None))
    before = sum(table["number"].iloc[0] for table in found.values())
    return pd.DataFrame({"number": [first + by + before + 0.1]})


def array(first, by, found, work):
    return {"array": np.full(2, first + by, np.float32)}


def of_array(first, by, found, work):
    (tree,) = found.values()
    return pd.DataFrame({"number": [float(tree["array"].sum())]})


def telling(first, by, found, work):
    for step in range(1, by + 1):
        time.sleep(0.6)
        work.progress(Progress("telling", step, by, 0, 1, 1, None))
    return number(first, by, found, work)


def lasting(first, by, found, work):
    time.sleep(by)
    return number(first, by, found, work)


def refused(first, by, found, work):
    raise ArgumentError("first: expected another number")


def faulty(first, by, found, work):
    return 1 / 0


def warned(first, by, found, work):
    warnings.warn("too few were found", ResultWarning, stacklevel=2)
    return number(first, by, found, work)


def killed(first, mark, found, work):
    """A table; the first so many times, the process ends by SIGKILL."""
    folder, times = mark
    deaths = len(list(Path(folder).iterdir()))
    if deaths < times:
        Path(folder, f"{deaths}-{os.getpid()}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return pd.DataFrame({"number": [float(first)]})


LIKE = {"array": np.zeros(2, np.float32)}


def count(settings, context):
    """An experiment's run: a part that is warned of after another."""
    chosen = [Part("one", number, 1), Part("poor", warned, 2, ("one",))]
    load_first = partial(load, 3)
    made = Parts(settings).run(chosen, 3, load_first, progress=context.progress, spread=context.spread)
    return Outcome(pd.concat([table for _, table in made]), [])


COUNTS = Experiment(
    "jaxarch.lab.counts",
    TrainingSettings,
    lambda settings: [],
    count,
    lambda results: [str(results.table["number"].tolist())],
    lambda results: [f"There are {len(results.table)} numbers."],
    spreads=True,
)


def parts():
    """Tables and a tree, some after others."""
    return [
        Part("one", number, 1),
        Part("tree", array, 2, like=LIKE),
        Part("two", number, 3, ("one",)),
        Part("of tree", of_array, None, ("tree",)),
        Part("both", number, 4, ("one", "two")),
    ]
