"""Overlap of two masks: as they are, and with the units of one in the order of the other's."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch import Network, Problem, PyTree, merge, overlap
from jaxarch.analysis import Alignment, align, unit_correlations
from jaxarch.lab.analysis.controls import planted, reshuffled, units_kept

AS_THEY_ARE, BY_UNITS, BY_MASKS = MATCHES = ("as they are", "by units", "by masks")
"""Orders of the second network's units: its own, by correlations of units, by the connections in common."""
FOUND, RESHUFFLED, UNITS_KEPT, PLANTED = "found", "reshuffled", "units kept", "planted"
CONTROLS = {RESHUFFLED: reshuffled, UNITS_KEPT: units_kept}


class Comparer(NamedTuple):
    """Comparison of networks of one kind.

    Attributes:
      apply: `((params, state), batch) -> outputs`, in evaluation mode.
      params: parameters of the model, whose values do not matter.
      state: the model's state, if any, as it is initialized.
      batch: training examples.
      restarts: further starts of each alignment by masks.
      draws: randomized pairs of masks for each pair and each kind of control.
    """

    apply: Callable[[PyTree, PyTree], Any]
    params: PyTree
    state: PyTree
    batch: PyTree
    restarts: int
    draws: int

    def by_masks(self, first: PyTree, second: PyTree, key: Array) -> Alignment:
        """Align two masks for the largest number of connections in common."""
        one, other = (self._of_mask(mask) for mask in (first, second))
        return align(self.apply, one, other, self.batch, restarts=self.restarts, key=key)

    def by_units(self, first: Network, second: Network) -> Alignment:
        """Align two trained networks by the correlations of their units on the examples."""
        one, other = ((network.params, network.state) for network in (first, second))
        units = unit_correlations(self.apply, one, other, [self.batch])
        return align(self.apply, one, other, self.batch, by=units)

    def _of_mask(self, mask: PyTree) -> tuple[PyTree, PyTree]:
        """Return a network whose only weights are the mask's; all have the same state."""
        zeros = jax.tree.map(jnp.zeros_like, self.params)
        return merge(jax.tree.map(jnp.float32, mask), zeros), self.state


def comparer(problem: Problem, rows: np.ndarray, restarts: int, draws: int) -> Comparer:
    """Return the comparison of a problem's networks on some of its rows."""
    predict = problem.predict
    assert predict is not None

    def apply(tree: PyTree, batch: PyTree) -> Any:
        params, state = tree
        return predict(params, state, batch)

    batch = problem.gather(problem.data, None, jnp.asarray(rows))
    return Comparer(apply, *problem.init(jax.random.key(0)), batch, restarts, draws)


def overlaps(
    compare: Comparer, first: Network, second: Network, key: Array, plant: bool = True
) -> dict[str, dict[str, float]]:
    """Return overlaps of two masks and of their controls, by the kind of masks and the order of units.

    Controls are means over draws. With `plant`, `planted` is the overlap of the first mask with itself,
    partly drawn anew: in the true order of units, and in the order that is found after the units are mixed.

    Args:
      compare: the comparison.
      first: a trained network of one run, with its mask.
      second: the other.
      key: a random key.
      plant: whether to measure `planted` as well.
    """
    one, other = (jax.tree.map(np.asarray, network.mask) for network in (first, second))
    units = compare.by_units(first, second)
    found = {FOUND: _three(compare, one, other, units, key)}
    for number, (name, change) in enumerate(CONTROLS.items()):
        drawn = []
        for of_draw in jax.random.split(jax.random.fold_in(key, number), compare.draws):
            draw = np.random.default_rng(np.asarray(jax.random.key_data(of_draw)))
            drawn.append(_three(compare, change(draw, one), change(draw, other), units, of_draw))
        found[name] = {match: float(np.mean([of[match] for of in drawn])) for match in MATCHES}
    if plant:
        found[PLANTED] = _planted(compare, one, units, jax.random.fold_in(key, len(CONTROLS)))
    return found


def _three(
    compare: Comparer, first: PyTree, second: PyTree, units: Alignment, key: Array
) -> dict[str, float]:
    """Return the overlap of two masks in each order of the second's units."""
    in_order = {
        AS_THEY_ARE: second,
        BY_UNITS: _permuted(second, units),
        BY_MASKS: _permuted(second, compare.by_masks(first, second, key)),
    }
    return {match: float(overlap(first, of)) for match, of in in_order.items()}


def _planted(compare: Comparer, mask: PyTree, units: Alignment, key: Array) -> dict[str, float]:
    draw = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    second = planted(draw, mask)
    orders = {name: draw.permutation(len(order)) for name, order in units.orders.items()}
    mixed = _permuted(second, dataclasses.replace(units, orders=orders))
    aligned = _permuted(mixed, compare.by_masks(mask, mixed, key))
    return {AS_THEY_ARE: float(overlap(mask, second)), BY_MASKS: float(overlap(mask, aligned))}


def _permuted(mask: PyTree, alignment: Alignment) -> PyTree:
    """Put a mask in the order of an alignment of parameters and state."""
    ordered, _ = alignment.permute((mask, None))
    return ordered
