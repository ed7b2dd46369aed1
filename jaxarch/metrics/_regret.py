"""Regret of each strategy: its distance to the best one, in every cell of a comparison."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from jaxarch.metrics._ranks import blocks


def regret(values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    r"""Compute the regret of each strategy: the best median of a cell, minus its own median.

    For medians `m_s` over runs, the regret of s in a cell is `max_t m_t - m_s`: what you lose if you take s
    there. It is in the units of the values, whatever other strategies take part, as long as the best does.
    The best strategy has regret 0 by definition. It was chosen by the same runs, so among many that are
    alike, the regrets of the others are a little too large.

    Args:
      values: by strategy, larger is better, shape (runs,) or (runs, cells), in the same order of runs. NaN,
        a run that failed, counts as worse than every number.

    Returns:
      By strategy, one regret a cell, at least 0, shape (cells,); (1,) for values of shape (runs,). It is
      infinite where half of the runs or more failed, and NaN in a cell where this holds for all strategies.

    Raises:
      ArgumentError: fewer than two strategies or runs, shapes that differ, or values that are not numbers.

    Example:
      >>> import jaxarch, numpy as np
      >>> dense = np.array([[0.9, 0.5], [0.8, 0.6], [0.7, 0.7]])  # three runs, two cells
      >>> random = np.array([[0.6, 0.7], [0.7, 0.8], [0.8, 0.9]])
      >>> found = jaxarch.metrics.regret({"dense": dense, "random": random})
      >>> {name: of.round(3).tolist() for name, of in found.items()}
      {'dense': [0.0, 0.2], 'random': [0.1, 0.0]}
    """
    by_run = blocks(values)
    medians = np.median(np.where(np.isnan(by_run), -np.inf, by_run), axis=0)
    best = medians.max(axis=-1, keepdims=True)
    # Without a strategy that works there is nothing to regret, and inf - inf would warn.
    distance = np.where(np.isfinite(best), best - np.where(np.isfinite(best), medians, 0.0), np.nan)
    return dict(zip(values, distance.T, strict=True))
