"""What pruners that read second moments share: which leaves, how many connections, and one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch._internal.errors import ArgumentError, check_concrete, check_count, check_one_positive, shown
from jaxarch._internal.trees import PyTree, Where, merge, named_leaves, placed, select_floating
from jaxarch.calibration._calibrate import Valid, outline
from jaxarch.calibration._matrices import Layer, layers_of, listed, solvable
from jaxarch.masks._largest import counts_kept
from jaxarch.masks._sharding import beside
from jaxarch.masks._units import Connections, NOfM, UnitsLike, as_units

Pattern = tuple[int, int] | None
"""N and M of an N:M pattern, or `None` for single connections."""


class Pruner(Protocol):
    """A method that prunes matrices of shape (blocks, inputs, outputs)."""

    def __call__(
        self, weights: Array, products: Array, counts: np.ndarray, pattern: Pattern
    ) -> tuple[Array, Array]:
        """Return the matrices with zeros for removed connections, and their mask.

        Args:
          weights: the matrices, in float32 or wider.
          products: the second moments of their inputs, shape (blocks, inputs, inputs).
          counts: how many connections each matrix keeps, shape (blocks,).
          pattern: N and M, which divides the number of inputs; `None` for single connections.
        """


def pruned_by(
    pruner: Pruner,
    function: Callable[[PyTree, PyTree], Any],
    params: PyTree,
    batches: Iterable[PyTree],
    density: float | Mapping[str, float] | None,
    units: UnitsLike,
    *,
    where: Where | None,
    valid: Valid | None,
    damping: float,
    memory: int,
) -> tuple[PyTree, PyTree]:
    """Prune a model's weight matrices one after the other, and return its parameters and the mask.

    Raises:
      ArgumentError: as documented for `sparsegpt`.
    """
    together = as_units(units)
    if not isinstance(together, (Connections, NOfM)):
        raise ArgumentError(f"units: expected single connections or N:M, got {shown(units)}")
    check_concrete("density", density)
    check_one_positive("damping", damping)
    check_count("memory", memory)
    batches = listed(batches)
    read, sizes = outline(function, params, batches[0])
    selection = select_floating(params, solvable(read, params) if where is None else where)
    counts = _counts(selection, density, together)
    pattern = (together.n, together.m) if isinstance(together, NOfM) else None
    weights, mask = {}, {}
    for layer in layers_of(function, params, batches, selection, valid, sizes, memory):
        weights[layer.path], mask[layer.path] = _pruned(pruner, layer, counts[layer.path], pattern)
        if not bool(jnp.isfinite(weights[layer.path]).all()):
            raise ArgumentError(
                f"damping: {damping:g} is too little for the inputs of {layer.path!r}, which are nearly "
                "dependent; give 0.01 or more"
            )
    return merge(placed(weights, selection), params), placed(mask, selection)


def _pruned(pruner: Pruner, layer: Layer, count: int, pattern: Pattern) -> tuple[Array, Array]:
    """Prune one leaf, and return it with its mask."""
    if count == np.size(layer.leaf):
        return layer.leaf, beside(layer.leaf, jnp.ones(np.shape(layer.leaf), bool))
    made = []
    for values, matrix, share in zip(
        layer.parts(layer.leaf), layer.matrices, _shares(count, layer), strict=True
    ):
        inputs = values.shape[1]
        if pattern and inputs % pattern[1]:
            raise ArgumentError(f"units: {pattern[1]} does not divide the {inputs} inputs of {layer.path!r}")
        made.append(pruner(values, matrix.products, share, pattern))
    weights, masks = zip(*made, strict=True)
    return layer.joined(weights, layer.leaf.dtype), layer.joined(masks, bool)


def _counts(selection: PyTree, density: Any, units: Connections | NOfM) -> dict[str, int]:
    """Return how many connections each leaf keeps."""
    leaves = named_leaves(selection)
    if isinstance(units, NOfM):
        units.counts(selection, density)
        return {path: leaf.size * units.n // units.m for path, leaf in leaves.items()}
    if density is None:
        raise ArgumentError("density: expected a fraction in (0, 1], or units such as '2:4'; got None")
    counts = counts_kept(selection, density, "global" if isinstance(density, Mapping) else "layer")
    return dict(zip(leaves, map(int, counts), strict=True))


def _shares(count: int, layer: Layer) -> list[np.ndarray]:
    """Divide a leaf's count among the blocks of its matrices, in proportion to their sizes."""
    sizes = [np.full(len(matrix.places), matrix.places[0].size) for matrix in layer.matrices]
    ends = rounded(np.cumsum(np.concatenate(sizes)) / np.size(layer.leaf) * count)
    return np.split(np.diff(ends, prepend=0), np.cumsum([len(of) for of in sizes])[:-1])


def rounded(shares: np.ndarray) -> np.ndarray:
    """Round halves up, so that no difference of neighbors is rounded by 1 or more."""
    return np.floor(shares + 0.5).astype(np.int32)
