"""Settings of methods, chosen on rows that are held out: as many trials for each, none on test rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from jaxarch.lab.tournament.entrants import Entrant
from jaxarch.lab.tournament.matches import play
from jaxarch.lab.tournament.task import Task

SEEDS = 2
"""Over which a trial is judged."""
RATES = 10.0
"""By how much the rates that are tried are smaller or larger than the default, at most."""


def defaults(entrant: Entrant, task: Task) -> dict[str, float]:
    """The numbers of a method that is not tuned."""
    return {"rate": task.settings.rate, "own": 0.0 if entrant.own is None else entrant.own[1]}


def trials(entrant: Entrant, task: Task) -> pd.DataFrame:
    """What is tried: the defaults, and then numbers drawn evenly on a logarithmic scale.

    The rates, and the places of a method's own numbers between their bounds, are the same for all methods.
    One that never trains weights has the default rate in all of them.
    """
    drawn = np.random.default_rng(task.settings.key).uniform(size=(task.settings.tune - 1, 2))
    first = defaults(entrant, task)
    rates = first["rate"] * RATES ** ((2 * drawn[:, 0] - 1) * entrant.trains_weights)
    if entrant.own is None:
        own = np.full(len(drawn), first["own"])
    else:
        _, _, low, high = entrant.own
        own = low * (high / low) ** drawn[:, 1]
    return pd.DataFrame({"rate": [first["rate"], *rates], "own": [first["own"], *own]})


def tuned(entrant: Entrant, task: Task, options: Mapping[str, Any]) -> pd.DataFrame:
    """The trials of a method with the accuracy of each on the rows held out; that of the best is `chosen`.

    A trial's accuracy is the mean over densities of the median over seeds; a run that failed has 0, less than
    any that did not, and of equal trials the first is chosen.
    """
    tried = trials(entrant, task)
    seeds = np.arange(min(SEEDS, task.settings.seeds))
    values = {name: np.repeat(of.to_numpy(), len(seeds)) for name, of in tried.items()}
    played = play(entrant, task, np.tile(seeds, len(tried)), values, options, test=False)
    by_run = np.nan_to_num(played.validation, nan=0.0)
    accuracy = np.median(by_run.reshape(-1, len(tried), len(seeds)), axis=-1).mean(axis=0)
    return tried.assign(validation_accuracy=accuracy, chosen=np.arange(len(tried)) == int(accuracy.argmax()))
