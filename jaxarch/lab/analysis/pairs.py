"""Overlap of two masks: as they are, and with the units of one in the order of the other's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch import Problem, PyTree, merge, overlap
from jaxarch.analysis import Alignment, align, unit_correlations
from jaxarch.lab.analysis.controls import planted, reshuffled, units_kept
from jaxarch.masks import apply_mask

AS_THEY_ARE, BY_UNITS, BY_MASKS = MATCHES = ("as they are", "by units", "by masks")
"""Orders of the second network's units: its own, by correlations of units, by the connections in common."""
FOUND, RESHUFFLED, UNITS_KEPT, PLANTED = "found", "reshuffled", "units kept", "planted"
CONTROLS = {RESHUFFLED: reshuffled, UNITS_KEPT: units_kept}


class Comparer(NamedTuple):
    """Comparison of networks of one kind.

    Attributes:
      apply: `(params, batch) -> outputs`.
      params: parameters of the model, whose values do not matter.
      batch: training examples.
      restarts: further starts of each alignment by masks.
      draws: randomized pairs of masks for each pair and each kind of control.
    """

    apply: Callable[[PyTree, PyTree], Any]
    params: PyTree
    batch: PyTree
    restarts: int
    draws: int

    def by_masks(self, first: PyTree, second: PyTree, key: Array) -> Alignment:
        """Align two masks for the largest number of connections in common."""
        pair = [merge(jax.tree.map(jnp.float32, mask), self._zeros()) for mask in (first, second)]
        return align(self.apply, *pair, self.batch, restarts=self.restarts, key=key)

    def by_units(self, first: PyTree, second: PyTree) -> Alignment:
        """Align two trained networks by the correlations of their units on the examples."""
        units = unit_correlations(self.apply, first, second, [self.batch])
        return align(self.apply, first, second, self.batch, by=units)

    def _zeros(self) -> PyTree:
        return jax.tree.map(jnp.zeros_like, self.params)


def comparer(problem: Problem, rows: np.ndarray, restarts: int, draws: int) -> Comparer:
    """Return the comparison of a problem's networks on some of its rows; the model must have no state."""
    params, state = problem.init(jax.random.key(0))
    predict = problem.predict
    assert predict is not None
    batch = problem.gather(problem.data, None, jnp.asarray(rows))
    return Comparer(lambda tree, batch: predict(tree, state, batch), params, batch, restarts, draws)


def overlaps(
    compare: Comparer,
    masks: tuple[PyTree, PyTree],
    weights: tuple[PyTree, PyTree],
    key: Array,
    plant: bool = True,
) -> dict[str, dict[str, float]]:
    """Return overlaps of two masks and of their controls, by the kind of masks and the order of units.

    Controls are means over draws. With `plant`, `planted` is the overlap of the first mask with itself,
    partly drawn anew: in the true order of units, and in the order that is found after the units are mixed.

    Args:
      compare: the comparison.
      masks: the masks.
      weights: the trained weights, of the same structure as the model's parameters.
      key: a random key.
      plant: whether to measure `planted` as well.
    """
    first, second = (jax.tree.map(np.asarray, mask) for mask in masks)
    trained = [apply_mask(mask, tree) for mask, tree in zip(masks, weights, strict=True)]
    units = compare.by_units(*trained)
    found = {FOUND: _three(compare, first, second, units, key)}
    for number, (name, change) in enumerate(CONTROLS.items()):
        drawn = []
        for one in jax.random.split(jax.random.fold_in(key, number), compare.draws):
            draw = np.random.default_rng(np.asarray(jax.random.key_data(one)))
            drawn.append(_three(compare, change(draw, first), change(draw, second), units, one))
        found[name] = {match: float(np.mean([of[match] for of in drawn])) for match in MATCHES}
    if plant:
        found[PLANTED] = _planted(compare, first, units, jax.random.fold_in(key, len(CONTROLS)))
    return found


def _three(
    compare: Comparer, first: PyTree, second: PyTree, units: Alignment, key: Array
) -> dict[str, float]:
    """Return the overlap of two masks in each order of the second's units."""
    in_order = {
        AS_THEY_ARE: second,
        BY_UNITS: units.permute(second),
        BY_MASKS: compare.by_masks(first, second, key).permute(second),
    }
    return {match: float(overlap(first, of)) for match, of in in_order.items()}


def _planted(compare: Comparer, mask: PyTree, units: Alignment, key: Array) -> dict[str, float]:
    draw = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    second = planted(draw, mask)
    orders = {name: draw.permutation(len(order)) for name, order in units.orders.items()}
    mixed = units.groups.permute(second, orders)
    aligned = compare.by_masks(mask, mixed, key).permute(mixed)
    return {AS_THEY_ARE: float(overlap(mask, second)), BY_MASKS: float(overlap(mask, aligned))}
