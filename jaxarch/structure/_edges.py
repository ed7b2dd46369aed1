"""Edges of an undirected graph, as pairs of nodes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import ArgumentError, real_numbers

REMEDY = (
    "give each undirected edge once, and no loops: edges = np.unique(np.sort(edges, axis=0), axis=1); "
    "edges = edges[:, edges[0] != edges[1]]"
)


def checked_edges(edges: ArrayLike) -> np.ndarray:
    """Return the two nodes of every undirected edge, int32, shape (2, edges).

    Raises:
      ArgumentError: edges that are traced, of another shape or dtype, or none; nodes that are no numbers from
        0 on; an edge from a node to itself, or one that is there twice, in either direction.
    """
    real_numbers("edges", edges)
    pairs = np.asarray(edges)
    if pairs.ndim != 2 or pairs.shape[0] != 2 or not pairs.shape[1]:
        raise ArgumentError(
            f"edges: expected the two nodes of each edge, shape (2, edges), got shape {pairs.shape}"
        )
    if pairs.dtype.kind not in "iu" or pairs.min() < 0 or pairs.max() > np.iinfo(np.int32).max:
        raise ArgumentError(
            f"edges: expected the numbers of nodes, integers from 0 on, got {pairs.dtype} from {pairs.min()}"
        )
    ordered = np.sort(pairs.astype(np.int32), axis=0)
    loops = int((ordered[0] == ordered[1]).sum())
    repeated = pairs.shape[1] - np.unique(ordered, axis=1).shape[1]
    if loops or repeated:
        raise ArgumentError(f"edges: {loops} are loops and {repeated} repeat another one; {REMEDY}")
    return pairs.astype(np.int32)


def summed_at_nodes(values: tuple[Array, Array], edges: np.ndarray, nodes: int) -> Array:
    """Sum values over the edges of each node.

    Args:
      values: for each edge, what its first and its second node get, shape (edges, ...).
      edges: as `checked_edges` returns them.
      nodes: number of nodes.
    """
    return jax.ops.segment_sum(jnp.concatenate(values), np.concatenate(edges), nodes)
