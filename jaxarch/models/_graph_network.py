"""Graph convolutional networks, whose edges have weights among the parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import (
    ArgumentError,
    check_array,
    check_leaves,
    check_widths,
    is_traced,
    real_number,
    shown,
)
from jaxarch._internal.trees import PyTree
from jaxarch.io._gather import take_rows
from jaxarch.models._model import Model
from jaxarch.run._problem import Key
from jaxarch.spectral._network import xavier_uniform
from jaxarch.structure._edges import checked_edges, summed_at_nodes


def graph_network(widths: Sequence[int], edges: ArrayLike, *, dropout: float = 0.0) -> Model:
    r"""Make a graph convolutional network whose edges can be masked like weights.

        model = jaxarch.models.graph_network((3703, 16, 6), edges)
        search = jaxarch.search.snip(0.5, where="edges")

    Layer l computes `H_l = relu(D^{-1/2} (A + I) D^{-1/2} H_{l-1} W_l)`, without the ReLU in the last one (T.
    Kipf and M. Welling, Semi-supervised classification with graph convolutional networks, 2017,
    arXiv:1609.02907, equation 2). There are no biases. `A_ij = A_ji` is the weight of the edge between nodes
    i and j, a parameter that starts at 1. `D_ii = 1 + sum_j |A_ij|` is computed from the weights at hand. So
    a network with masked edges equals the network of the graph without them, and no degree is below 1.

    The parameters `{"edges", "w1", "w2", ...}` are leaves of two kinds:

    - `where="edges"` masks edges, and `where="w*"` weights. By default, searches mask weights.
    - Edges are trained like weights. To hold them at 1, freeze them in the optimizer: `optax.partition({True:
      optimizer, False: optax.set_to_zero()}, {"edges": False, "w1": True, "w2": True})`.

    All nodes are computed at once, whatever the batch. For a problem of some labelled nodes, `take_nodes` is
    the `gather` of `supervised`.

    Args:
      widths: features of a node, the widths of hidden layers, and outputs.
      edges: the two nodes of every undirected edge, integers, shape (2, edges). Each edge is there once, in
        either direction, without loops. Nodes are numbered from 0; nodes without edges need no mention.
      dropout: the share of hidden values that a training step drops, in [0, 1).

    Returns:
      A model for `(features, rows)`, of shapes (nodes, widths[0]) and (n,), with outputs of the nodes in
      these rows, shape (n, widths[-1]). Features alone give the outputs of all nodes. The parameters are
      `{"edges": (edges,), "w1": (widths[0], widths[1]), ...}`.

    Raises:
      ArgumentError: fewer than two widths, or widths that are not positive integers; edges of another form,
        loops, repeated edges; a dropout outside [0, 1). When it runs: features of another shape, or fewer
        nodes than the edges name.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch
      >>> model = jaxarch.models.graph_network((1, 1), [[0, 1], [1, 2]])  # the path 0 - 1 - 2
      >>> params, state = model.init(jax.random.key(0))
      >>> params["w1"] = jnp.array([[6.0]])
      >>> features = jnp.array([[1.0], [0.0], [0.0]])
      >>> print(model.apply(params, state, features, None)[0].ravel().round(2))
      [3.   2.45 0.  ]
      >>> params["edges"] = jnp.array([0.0, 1.0])
      >>> print(model.apply(params, state, features, None)[0].ravel())
      [6. 0. 0.]
    """
    check_widths(widths)
    pairs = checked_edges(edges)
    rate = real_number("dropout", dropout)
    if not 0 <= rate < 1:
        raise ArgumentError(f"dropout: expected a share in [0, 1), got {rate}")
    shapes = {f"w{i + 1}": (widths[i], widths[i + 1]) for i in range(len(widths) - 1)}

    def init(key: Array) -> tuple[PyTree, PyTree]:
        keys = zip(shapes, jax.random.split(key, len(shapes)), strict=True)
        params = {name: xavier_uniform(k, shapes[name]) for name, k in keys}
        return {"edges": jnp.ones(pairs.shape[1], params["w1"].dtype)} | params, {}

    def apply(params: PyTree, state: PyTree, x: Any, key: Key) -> tuple[Array, PyTree]:
        features, rows = x if isinstance(x, tuple) else (x, None)
        _check_features(features, widths[0], pairs)
        to_self, to_other = _shares(params["edges"], pairs, len(features))
        hidden = features.astype(params["w1"].dtype)
        for name in shapes:
            hidden = _passed_on(hidden @ params[name], to_self, to_other, pairs)
            if name != f"w{len(shapes)}":
                hidden = jax.nn.relu(hidden)
                if key is not None and rate:
                    key, layer_key = jax.random.split(key)
                    kept = jax.random.bernoulli(layer_key, 1 - rate, hidden.shape)
                    hidden = jnp.where(kept, hidden / (1 - rate), 0)
        return hidden if rows is None else hidden[rows], state

    return Model(init, apply)


def take_nodes(data: PyTree, per_run: PyTree, rows: Array) -> tuple[tuple[Array, Array], PyTree]:
    """Return the batch of some nodes: the features of all nodes and the rows, and the labels in these rows.

        problem = jaxarch.supervised(model, (features, labels), gather=jaxarch.models.take_nodes, ...)

    Args:
      data: `(features, labels)`, with a leading axis of nodes.
      per_run: unused; part of the signature of a `gather`.
      rows: integers, shape (n,).

    Returns:
      `((features, rows), labels[rows])`, the input of a `graph_network`, and labels.

    Raises:
      ArgumentError: data of another form, without a common axis of nodes; rows that are not integers, or not
        in the data.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> data = jnp.ones((3, 2)), jnp.array([5, 6, 7])
      >>> (features, rows), labels = jaxarch.models.take_nodes(data, None, jnp.array([2, 0]))
      >>> print(features.shape, rows, labels)
      (3, 2) [2 0] [7 5]
    """
    if not isinstance(data, tuple) or len(data) != 2:
        raise ArgumentError("data: expected a pair (features, labels) with one leading axis of nodes")
    features, labels = data
    check_array("data: features", features)
    check_leaves("data: labels", labels)
    check_array("rows", rows)
    nodes = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(data)}
    if len(nodes) != 1 or nodes == {()}:
        raise ArgumentError(f"data: expected one leading axis of nodes, got sizes {nodes}")
    if not jnp.issubdtype(rows.dtype, jnp.integer) or jnp.ndim(rows) != 1:
        raise ArgumentError(f"rows: expected integers, shape (n,), got {rows.dtype} of shape {rows.shape}")
    if not is_traced(rows) and not np.isin(rows, np.arange(len(features))).all():
        raise ArgumentError(f"rows: expected rows of {len(features)} nodes, got {shown(rows)}")
    return (features, rows), take_rows(labels, None, rows)


def _check_features(features: Any, width: int, pairs: np.ndarray) -> None:
    check_array("x", features, real=True)
    nodes = int(pairs.max()) + 1
    if features.ndim != 2 or features.shape[1] != width or features.shape[0] < nodes:
        raise ArgumentError(
            f"x: expected features of at least {nodes} nodes, which the edges name, shape (nodes, {width}), "
            f"got shape {features.shape}"
        )


def _shares(weights: Array, pairs: np.ndarray, nodes: int) -> tuple[Array, Array]:
    """Return the diagonal of `D^{-1/2} (A + I) D^{-1/2}`, and its entry for each edge."""
    # bfloat16 would round degrees above 256. Strict promotion has no common type of it and float32.
    wide = weights.astype(jnp.float32) if weights.dtype.itemsize < 4 else weights
    size = jnp.abs(wide)
    scale = jax.lax.rsqrt(1 + summed_at_nodes((size, size), pairs, nodes))
    first, second = pairs
    return scale**2, wide * scale[first] * scale[second]


def _passed_on(values: Array, to_self: Array, to_other: Array, pairs: np.ndarray) -> Array:
    first, second = pairs
    own, others = (share.astype(values.dtype)[:, None] for share in (to_self, to_other))
    from_others = (others * values[second], others * values[first])
    return own * values + summed_at_nodes(from_others, pairs, len(values))
