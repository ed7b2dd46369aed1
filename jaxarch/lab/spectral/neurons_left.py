"""Neurons left in pruned networks, and the smallest network that is good enough."""

from __future__ import annotations

import jax
import numpy as np
import pandas as pd

from jaxarch import Network, NeuronMask, named_leaves, natural_order
from jaxarch.lab.charts import Chart
from jaxarch.spectral import is_direct, neuron_norms


def what_is_left(losses: np.ndarray, removed: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return each run's neurons left, its validation loss with all neurons, and its loss with those left.

    Args:
      losses: validation losses with 0, 1, ..., H neurons removed, shape (runs, H + 1).
      removed: number of removed neurons, shape (runs,).
    """
    losses = losses.astype(np.float64)
    pruned = np.take_along_axis(losses, removed[:, None], axis=1)[:, 0]
    return losses.shape[1] - 1 - removed, losses[:, 0], pruned


def left_by_layer(network: Network) -> np.ndarray:
    """Count the neurons or channels left in each hidden layer, shape (runs, layers)."""
    if (neurons := network.get(NeuronMask)) is not None:
        kept = named_leaves(neurons.kept)
    elif is_direct(network.params):
        kept = {name: norms > 0 for name, norms in jax.vmap(neuron_norms)(network.params).items()}
    else:
        kept = {path: of for path, of in named_leaves(network.mask).items() if path.endswith("scale")}
    layers = [np.asarray(kept[path]).sum(axis=-1) for path in sorted(kept, key=natural_order)]
    return np.stack(layers, axis=-1)


def smallest(runs: pd.DataFrame, enough: pd.Series, quality: str) -> pd.Series | None:
    """Return the good-enough run with the fewest neurons; among equally few, the best one.

    Args:
      runs: table with a column `neurons`, one row a run.
      enough: marks the runs that are good enough.
      quality: name of a column in which larger is better.

    Returns:
      A row, or `None` if no run is good enough.
    """
    few = runs[enough].sort_values(["neurons", quality], ascending=[True, False])
    return few.iloc[0] if len(few) else None


def by_strength(runs: pd.DataFrame, column: str) -> np.ndarray:
    """Return a quantity of a rival as an array, shape (seeds, strengths)."""
    return runs.pivot(index="seed", columns="strength", values=column).to_numpy(float)


def error_charts(table: pd.DataFrame, by: str, at: str) -> list[Chart]:
    """Chart the test error of every run against its neurons left.

    Args:
      table: has columns `neurons` and `r2`, one row a run.
      by: name of the column that tells the lines apart.
      at: name of the column along each line.
    """
    labels = {"neurons": "hidden neurons left", "error": "1 - R^2 on the test rows"}
    return [
        Chart(
            "test error against neurons left",
            table.assign(error=1 - table["r2"]),
            "neurons",
            "error",
            by,
            at=at,
            labels=labels,
            tells=(at, "seed"),
            logarithmic=(False, True),
        )
    ]
