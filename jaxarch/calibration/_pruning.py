"""The way of all pruners that read second moments: leaf by leaf, each with an exact number of connections."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch._internal.errors import ArgumentError, check_concrete, check_count, check_one_positive, shown
from jaxarch._internal.trees import PyTree, Where, merge, named_leaves, placed, select_floating
from jaxarch.calibration._calibrate import Valid, outline
from jaxarch.calibration._matrices import Layer, Matrix, layers_of, listed, solvable
from jaxarch.masks._largest import counts_kept
from jaxarch.masks._units import Connections, NOfM, UnitsLike, as_units
from jaxarch.structure._uses import weights_of

Pattern = tuple[int, int] | None
"""N and M of an N:M pattern, or `None` for single connections."""


class Pruner(Protocol):
    """A method that prunes matrices of shape (blocks, inputs, outputs)."""

    def __call__(
        self, weights: Array, products: Array, counts: np.ndarray, pattern: Pattern, damping: float
    ) -> tuple[Array, Array]:
        """Return the matrices with zeros for removed connections, and their mask.

        Args:
          weights: the matrices, in float32 or wider.
          products: the second moments of their inputs, shape (blocks, inputs, inputs).
          counts: how many connections each matrix keeps, shape (blocks,).
          pattern: N and M, which divides the number of inputs; `None` for single connections.
          damping: the share of the mean squared input that is added to each.
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
    # NaN in a weight would make NaN inputs of later layers, and these would be blamed.
    for path, leaf in named_leaves(selection).items():
        if not bool(jnp.isfinite(leaf).all()):
            raise ArgumentError(f"params: {path!r} has weights that are NaN or infinite")
    counts = _counts(selection, density, together)
    if isinstance(together, NOfM):
        # As in searches, single axes of inputs come first; the last of several axes varies fastest.
        last = {path: (axes[-1], 0) for path, axes in read.inputs.items()}
        together = together.along({**last, **weights_of(function, params, batches[0]).axes})
    weights, mask = {}, {}
    for layer in layers_of(function, params, batches, selection, valid, sizes, memory):
        weights[layer.path], mask[layer.path] = _pruned(
            pruner, layer, counts[layer.path], together, float(damping)
        )
        if not bool(jnp.isfinite(weights[layer.path]).all()):
            raise ArgumentError(
                f"damping: {damping:g} is too little for the inputs of {layer.path!r}, which are nearly "
                "dependent; give 0.01 or more"
            )
    return merge(placed(weights, selection), params), placed(mask, selection)


def _pruned(
    pruner: Pruner, layer: Layer, count: int, units: Connections | NOfM, damping: float
) -> tuple[Array, Array]:
    """Prune one leaf, and return it with its mask."""
    made = []
    for values, matrix, share in zip(
        layer.parts(layer.leaf), layer.matrices, _shares(count, layer), strict=True
    ):
        if not isinstance(units, NOfM):
            made.append(pruner(values, matrix.products, share, None, damping))
            continue
        order = _neighbors(layer, matrix, units)
        products = matrix.products[:, order][:, :, order]
        pruned = pruner(values[:, order], products, share, (units.n, units.m), damping)
        back = np.argsort(order)
        made.append((pruned[0][:, back], pruned[1][:, back]))
    weights, masks = zip(*made, strict=True)
    return layer.joined(weights, layer.leaf.dtype), layer.joined(masks, bool)


def _neighbors(layer: Layer, matrix: Matrix, units: NOfM) -> np.ndarray:
    """Return the order of a matrix's inputs in which those along the axis of an N:M pattern are neighbors.

    Raises:
      ArgumentError: inputs that do not lie along the axis in groups of M.
    """
    shape = np.shape(layer.leaf)
    axis = units.axis_of(layer.path, shape)
    at = np.stack(np.unravel_index(matrix.places[0, :, 0], shape))
    along = at[axis].copy()
    at[axis] = 0
    others = np.ravel_multi_index(tuple(at), shape)
    order = np.lexsort((along, others))
    first = order[:: units.m]
    fits = len(order) % units.m == 0 and all(
        (others[order[step :: units.m]] == others[first]).all()
        and (along[order[step :: units.m]] == along[first] + step).all()
        for step in range(units.m)
    )
    if not fits:
        raise ArgumentError(
            f"units: the inputs of {layer.path!r} of shape {shape} lie in no groups of {units.m} along axis "
            f"{axis}; leave it out with `where`, or give another axis to NOfM"
        )
    return order


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
