"""Measurements of a run: F, its gap above the least value, and the theorem's bound on the gap."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array

from jaxarch import Network, Problem, PyTree, density, evaluate
from jaxarch.lab.data import Dataset, Task
from jaxarch.lab.disentangling import measuring
from jaxarch.lab.theory import convex
from jaxarch.lab.theory.averaging import EXACT
from jaxarch.lab.theory.settings import Settings
from jaxarch.metrics import auc
from jaxarch.search import two_temperature
from jaxarch.theory import mirror


def objectives(problem: Problem, network: Network) -> dict[str, Any]:
    """Compute F of the found architecture, of the last and the average mask, and the share that is kept."""
    networks = {"loss": network.params, "last": network.info["last"], "average": network.info["average"]}
    measured: dict[str, Any] = {
        name: np.asarray(measuring.objectives(problem, params, network.state), np.float64)
        for name, params in networks.items()
    }
    return measured | {"density": np.asarray(jax.vmap(density)(network.mask), np.float64)}


def test_auc(
    cells: pd.DataFrame, problem: Problem, network: Network, data: Dataset, task: Task
) -> np.ndarray:
    """Compute the test AUC of every run's network."""
    outputs = evaluate(two_temperature(), network, problem, task.test[cells["seed"]])
    return auc(task.labels(data, task.test)[cells["seed"]], outputs)


def above_least(
    rows: pd.DataFrame, problem: Problem, network: Network, least: np.ndarray, norm: np.ndarray
) -> dict[str, Any]:
    """Compute the gap of F above its least value, at the average and last mask; the former over its bound.

    G sqrt(d) holds for every mask, so a larger bound says nothing and gives no share. This happens where
    soft = hard, if the best mask has entries of 0 or 1, and at learning rates that are too large.
    """
    gap, last = (
        convex.exact_objectives(problem, np.asarray(network.info[mask]["v"])) - least[rows["seed"]]
        for mask in ("average", "last")
    )
    trivial = norm[rows["seed"]] * np.sqrt(network.info["last"]["v"].shape[1])
    share = (gap / rows["bound"]).where(rows["bound"] <= trivial)
    return {"gap": gap, "last_gap": last, "gap_over_bound": share}


def bounds(
    settings: Settings, cells: pd.DataFrame, start: PyTree, best: np.ndarray, norm: np.ndarray, step: str
) -> np.ndarray:
    """Compute the theorem's bound on the average mask's gap: D(u, v_1) with u the best mask, G certified."""
    distances = _distances(jnp.asarray(best, jnp.float32), start, settings.hard, settings.softs())
    of = cells["ratio"].map(settings.ratios.index)
    bound = jax.jit(partial(mirror.average_iterate_bound, exact=step == EXACT))(
        distances[of.to_numpy(), cells["seed"].to_numpy()],
        *(cells[column].to_numpy() for column in ("rate", "hard", "soft")),
        gradient_bound=norm[cells["seed"]],
        steps=settings.steps,
    )
    return np.asarray(bound, np.float64)


@jax.jit
def _distances(masks: Array, start: PyTree, hard: Array, softs: Array) -> Array:
    """Compute D(u, v_1) to the mask u of each seed, shape (softs, seeds)."""
    total = jax.vmap(mirror.total_divergence, (0, 0, None, None))
    return jax.vmap(total, (None, None, None, 0))({"v": masks}, start, hard, softs)
