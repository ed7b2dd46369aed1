"""Controls of the masks that methods found: as found, reshuffled, reinitialized, inverted."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd

from jaxarch import Network, Start, TrainingInfo, chain, invert, over_seeds, reshuffle, retrain
from jaxarch.lab.tournament.matches import Played, grid, measured
from jaxarch.lab.tournament.task import Task
from jaxarch.masks import apply_mask

AS_FOUND, RESHUFFLED = "as found", "reshuffled"


def control(name: str, task: Task, rate: float) -> Any:
    """Return the stages that change a mask and train it: one phase, as in the tournament.

    Args:
      name: `as found`, from the initial weights of the seed; `reshuffled` within each layer, and `inverted`,
        likewise; `reinitialised`, from fresh weights.
      task: the task to learn.
      rate: learning rate of Adam.
    """
    descent: Any = {"steps": task.settings.steps, "optimizer": optax.adam(rate)}
    again = retrain("rewind", nonnegative=False, **descent)
    return {
        AS_FOUND: chain(again),
        RESHUFFLED: chain(reshuffle(), again),
        "reinitialised": chain(retrain("cold", nonnegative=False, **descent)),
        "inverted": chain(invert(), again),
    }[name]


def controlled(
    name: str, played: Played, task: Task, rate: float, options: Mapping[str, Any]
) -> pd.DataFrame:
    """Train a method's masks as found and under the settings' controls: one row a run and control.

    Args:
      name: name of the method.
      played: results of the method, with its masks. Runs that failed there count as failed here too.
      task: the task on which the masks were found.
      rate: learning rate of the method's training.
      options: options of `over_seeds`.
    """
    runs = grid(task, np.arange(task.settings.seeds))
    seeds = runs["seed"].to_numpy()
    problem = task.learning(seeds)
    keys = task.keys("controls")[seeds]
    params, state = jax.vmap(lambda pair: dataclasses.replace(problem, paired=pair).start(pair))(
        problem.paired
    )
    mask = played.mask
    info = TrainingInfo(failed_at=jnp.asarray(played.failed_at))
    begun = Network(jax.vmap(apply_mask)(mask, params), mask, state, records=(Start(params),), info=info)
    rows = []
    for which in (AS_FOUND, *task.settings.controls):
        network, report = over_seeds(
            control(which, task, rate),
            keys,
            problem,
            network=begun,
            **{**options, "name": f"{options['name']}, {which}"},
        )
        trained = measured(network, task, seeds, [report])
        rows.append(
            runs.assign(
                strategy=name,
                control=which,
                accuracy=trained.accuracy,
                measured_density=trained.density,
                failed_at=trained.failed_at,
            )
        )
    return pd.concat(rows, ignore_index=True)
