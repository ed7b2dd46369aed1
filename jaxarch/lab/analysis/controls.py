"""Masks to compare found masks with: randomized ones, and ones of which a share is known to be the same."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np

from jaxarch import PyTree

TRADES = 10
"""Trades per row of a leaf. With four times as many, masks of perceptrons have at most .005 less of their
original, measured by the overlap of leaves of 64 x 100 to 784 x 300."""
PLANTED = 0.5
"""Share of the connections that `planted` keeps."""

Draw = np.random.Generator


def reshuffled(draw: Draw, mask: PyTree) -> PyTree:
    """Permute the entries of each leaf: all layers keep their densities."""
    return jax.tree.map(lambda leaf: draw.permutation(leaf.ravel()).reshape(leaf.shape), mask)


def units_kept(draw: Draw, mask: PyTree) -> PyTree:
    """Draw connections anew, so that each unit keeps its numbers of incoming and of outgoing connections.

    The sums of all rows and columns of each leaf stay, those of inputs and outputs included. The rows of a
    convolution are its input channels, and its columns the output channels at each place. In a trade, two
    rows pool the connections that only one of them has, and draw from them as many as each had. Many trades
    make all such masks equally likely (G. Strona et al., A fast and unbiased procedure to randomize
    ecological binary matrices with fixed row and column totals, 2014; proof: C. J. Carstens, 2015).
    """
    return jax.tree.map(partial(_traded, draw), mask)


def planted(draw: Draw, mask: PyTree) -> PyTree:
    """Keep a share `PLANTED` of each leaf's connections, and put the others in places without connections."""
    return jax.tree.map(partial(_partly_moved, draw), mask)


def _traded(draw: Draw, leaf: np.ndarray) -> np.ndarray:
    """Trade between the rows of a leaf, as said in `units_kept`."""
    by_input = np.moveaxis(leaf, -2, 0)
    rows = by_input.reshape(len(by_input), -1).copy()
    for _ in range(TRADES * len(rows) if len(rows) > 1 else 0):
        one, other = draw.choice(len(rows), 2, replace=False)
        apart = np.flatnonzero(rows[one] != rows[other])
        kept = draw.permutation(apart)[: rows[one, apart].sum()]
        rows[one, apart], rows[other, apart] = False, True
        rows[one, kept], rows[other, kept] = True, False
    return np.moveaxis(rows.reshape(by_input.shape), 0, -2)


def _partly_moved(draw: Draw, leaf: np.ndarray) -> np.ndarray:
    """Move some entries of a leaf to free places."""
    there, free = (draw.permutation(np.flatnonzero(leaf == value)) for value in (True, False))
    moved = min(round((1 - PLANTED) * len(there)), len(free))
    made = leaf.copy().ravel()
    made[there[:moved]], made[free[:moved]] = False, True
    return made.reshape(leaf.shape)
