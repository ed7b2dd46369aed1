"""Settings of methods, tuned on held-out rows: equally many trials for each, none on test rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from jaxarch.lab.tournament.entrants import Entrant
from jaxarch.lab.tournament.matches import play
from jaxarch.lab.tournament.task import PictureTask, Task

SEEDS = 2
"""Number of seeds over which a trial is judged."""
RATES = 10.0
"""Largest factor between the default learning rate and those tried."""


def defaults(entrant: Entrant, task: PictureTask[Any]) -> dict[str, float]:
    """Return the numbers of a method that is not tuned."""
    return {"rate": task.settings.rate, "own": 0.0 if entrant.own is None else entrant.own[1]}


def trials(entrant: Entrant, task: Task) -> pd.DataFrame:
    """Draw the trials: the defaults, and then numbers drawn evenly on a logarithmic scale.

    The learning rates, and the positions of a method's own numbers between their bounds, are the same for all
    methods. A method that never trains weights has the default learning rate in all trials.
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
    """Run the trials of a method, measure each one's held-out accuracy, and mark the best as `chosen`.

    A trial's accuracy is the mean over densities of the median over seeds. A failed run counts as 0, below
    any run that did not fail. Among equal trials the first is chosen.
    """
    tried = trials(entrant, task)
    seeds = np.arange(min(SEEDS, task.settings.seeds))
    values = {name: np.repeat(of.to_numpy(), len(seeds)) for name, of in tried.items()}
    played = play(entrant, task, np.tile(seeds, len(tried)), values, options, test=False)
    by_run = np.nan_to_num(played.validation, nan=0.0)
    accuracy = np.median(by_run.reshape(-1, len(tried), len(seeds)), axis=-1).mean(axis=0)
    return tried.assign(validation_accuracy=accuracy, chosen=np.arange(len(tried)) == int(accuracy.argmax()))
