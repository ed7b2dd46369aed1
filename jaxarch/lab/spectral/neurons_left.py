"""What is left of networks that lost neurons, and which of them is the smallest that will do."""

from __future__ import annotations

import jax
import numpy as np
import pandas as pd

from jaxarch import Network, NeuronMask, named_leaves, natural_order
from jaxarch.spectral import is_direct, neuron_norms


def what_is_left(losses: np.ndarray, removed: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The neurons of every run that are left, and its validation loss with all of them and with those.

    Args:
      losses: with 0, 1, ..., H neurons removed, shape (runs, H + 1).
      removed: how many were, shape (runs,).
    """
    losses = losses.astype(np.float64)
    pruned = np.take_along_axis(losses, removed[:, None], axis=1)[:, 0]
    return losses.shape[1] - 1 - removed, losses[:, 0], pruned


def left_by_layer(network: Network) -> np.ndarray:
    """How many neurons or channels of each hidden layer are left, shape (runs, layers)."""
    if (neurons := network.get(NeuronMask)) is not None:
        kept = named_leaves(neurons.kept)
    elif is_direct(network.params):
        kept = {name: norms > 0 for name, norms in jax.vmap(neuron_norms)(network.params).items()}
    else:
        kept = {path: of for path, of in named_leaves(network.mask).items() if path.endswith("scale")}
    layers = [np.asarray(kept[path]).sum(axis=-1) for path in sorted(kept, key=natural_order)]
    return np.stack(layers, axis=-1)


def smallest(runs: pd.DataFrame, enough: pd.Series, quality: str) -> pd.Series | None:
    """Of runs that are good enough, the one with the fewest neurons; of equally few, the best.

    Args:
      runs: with a column `neurons`, a row a run.
      enough: which of them are good enough.
      quality: a column of which more is better.

    Returns:
      A row, or `None` where no run is good enough.
    """
    few = runs[enough].sort_values(["neurons", quality], ascending=[True, False])
    return few.iloc[0] if len(few) else None


def by_strength(runs: pd.DataFrame, column: str) -> np.ndarray:
    """A quantity of a rival, shape (seeds, strengths)."""
    return runs.pivot(index="seed", columns="strength", values=column).to_numpy(float)
