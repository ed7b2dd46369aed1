"""Graphs of the units of any model; for a chain of dense layers, the graph of [D]."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, overload

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch._internal.errors import ArgumentError, check_flag, is_traced
from jaxarch._internal.trees import PyTree, named_leaves
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.structure._axes import Axis
from jaxarch.structure._flow import MOVED_ALONG, POOLED_ALONG
from jaxarch.structure._groups import Groups, axis_groups
from jaxarch.structure._network_function import function_of
from jaxarch.structure._products import Factor, Product, find_products


class UnitGraph(NamedTuple):
    """A graph whose nodes are the units of a model.

    Attributes:
      adjacency: shape (nodes, nodes), symmetric, for `graphs.normalized_laplacian`.
      layers: by name, the number of nodes of each layer or residual stream. Nodes are in this order, from the
        outputs to the inputs.
    """

    adjacency: Array
    layers: dict[str, int]


@overload
def unit_graph(model: Network, about: Problem, *, self_loops: bool = True) -> UnitGraph: ...
@overload
def unit_graph(
    model: Callable[..., Any], about: PyTree, *inputs: PyTree, self_loops: bool = True
) -> UnitGraph: ...
def unit_graph(model: Any, about: Any, *inputs: PyTree, self_loops: bool = True) -> UnitGraph:
    r"""Build the graph of a model's units, with their weights as edges ([D] footnote 14).

    Nodes are inputs, units and outputs, as read from the program. A unit that is shared in the computation is
    one node: a feature of a residual stream, for example, in all layers that write or read it. Edges are the
    entries of arrays made of leaves alone (a kernel, or a mask times one) in products with values that depend
    on the inputs. An edge leads from the unit that the entry is multiplied with to the unit that the product
    is added to. For a chain of dense layers this is the graph of `graphs.adjacency`, outputs first.

    The paper has dense layers alone. For other models, the weights of several edges between two nodes are
    added, as for any graph. This applies to the places of a convolution's window, to the places of a
    flattened picture, and to weights that are used several times. Products of two activations, as in
    attention, have no weights. Biases and scales are not part of the graph.

    Args:
      model: a network of one run, or a function `(tree, *inputs) -> outputs`.
      about: the network's problem, or the function's tree, with pruned entries set to 0.
      *inputs: example inputs of the function.
      self_loops: whether every node has an edge of weight 1 to itself, as in [D] (see `graphs.adjacency`).

    Raises:
      ArgumentError: many runs at once, traced values, a function that cannot be traced, a model without a
        product with leaves.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jaxarch.structure import unit_graph
      >>> params = {"in": [[2.0, 3.0]], "out": [[5.0], [0.0]], "skip": [[7.0]]}
      >>> params = {name: jnp.array(kernel) for name, kernel in params.items()}
      >>> def model(params, x):  # one input, two hidden units, one output, and a connection past them
      ...     return jax.nn.relu(x @ params["in"]) @ params["out"] + x @ params["skip"]
      >>> graph = unit_graph(model, params, jnp.ones((1, 1)))
      >>> print(graph.adjacency.astype(int), graph.layers)
      [[1 5 0 7]
       [5 1 0 2]
       [0 0 1 3]
       [7 2 3 1]] {'out[1]': 1, 'in[1]': 2, 'in[0]': 1}
    """
    check_flag("self_loops", self_loops)
    function, leaves, traced = function_of(model, about, inputs, examples=1)
    groups = axis_groups(function, leaves, *traced)
    if is_traced(leaves):
        raise ArgumentError("tree: its values are traced; call this outside of jit and vmap")
    return _graph(groups, named_leaves(leaves), self_loops)


Node = tuple[tuple[Axis, int], ...]
"""A unit of one atom, or one unit each of several atoms, such as heads and their features."""
Layer = tuple[Axis, ...]
"""The atoms whose units form the nodes of a layer."""
Edges = tuple[list[Node], list[Node], np.ndarray]
"""Source nodes, target nodes, and the weights between them, shape (from, to)."""


def _graph(groups: Groups, leaves: dict[str, Any], self_loops: bool) -> UnitGraph:
    edges = [edge for product in find_products(groups._program, leaves).found for edge in _edges(product)]
    if not edges:
        raise ArgumentError(
            "function: it has no product of its leaves with values that depend on its inputs, so no edges"
        )
    layers: dict[Layer, set[Node]] = {}
    last: dict[Layer, int] = {}
    for place, (rows, columns, _) in enumerate(edges):
        for node in (*rows, *columns):
            layers.setdefault(_layer(node), set()).add(node)
            last.setdefault(_layer(node), -1)
        last |= dict.fromkeys(map(_layer, columns), place)
    # Layers are ordered from the one that is computed last, the outputs, to those only read, the inputs.
    order = sorted(layers, key=lambda layer: -last[layer])
    nodes = [node for layer in order for node in sorted(layers[layer], key=_units)]
    numbers = {node: number for number, node in enumerate(nodes)}
    directed = np.zeros((len(nodes), len(nodes)), np.result_type(*(weights for *_, weights in edges)))
    for rows, columns, weights in edges:
        into, of = (np.array([numbers[node] for node in side]) for side in (columns, rows))
        np.add.at(directed, (into[None, :], of[:, None]), weights)
    # An edge from a node to itself must not count twice.
    graph = directed + directed.T - np.diag(np.diag(directed))
    names = _names(groups, order)
    adjacency = jnp.asarray(graph + np.eye(len(graph), dtype=graph.dtype) * self_loops)
    return UnitGraph(adjacency, {names[layer]: len(layers[layer]) for layer in order})


def _layer(node: Node) -> Layer:
    return tuple(atom for atom, _ in node)


def _units(node: Node) -> list[int]:
    return [unit for _, unit in node]


def _edges(product: Product) -> list[Edges]:
    """Return the edges of a product; there are none unless exactly one factor is made of leaves alone."""
    known = [factor is not None for factor in product.factors]
    if sum(known) != 1:
        return []
    index = known.index(True)
    factor: Factor = product.factors[index]  # type: ignore[assignment]
    if not factor.paths:
        return []
    weights = np.asarray(factor.value)
    of_rounds = weights if factor.by_round else weights[None]
    find = _of_dot if product.step.eqn.primitive.name == "dot_general" else _of_convolution
    return [edge for of_round in of_rounds for edge in find(product, index, of_round)]


def _of_dot(product: Product, index: int, weights: np.ndarray) -> list[Edges]:
    step = product.step
    contracted, batched = (pair[index] for pair in step.eqn.params["dimension_numbers"])
    free = [axis for axis in range(weights.ndim) if axis not in (*contracted, *batched)]
    axes = step.inputs[index]
    whole = np.transpose(weights, (*batched, *contracted, *free))
    sizes = [math.prod(weights.shape[axis] for axis in part) for part in (batched, contracted, free)]
    side_by_side = _nodes([axes[axis] for axis in batched])
    rows, columns = (_nodes([axes[axis] for axis in part]) for part in (contracted, free))
    return [
        ([(*beside, *node) for node in rows], [(*beside, *node) for node in columns], part)
        for beside, part in zip(side_by_side, whole.reshape(sizes), strict=True)
    ]


def _of_convolution(product: Product, index: int, weights: np.ndarray) -> list[Edges]:
    """Return the edges of each group of channels: the weights summed over the places of the window."""
    step = product.step
    if index == 0:
        return []
    numbers, count = step.eqn.params["dimension_numbers"], step.eqn.params["feature_group_count"]
    outputs, inputs = numbers.rhs_spec[:2]
    between = np.moveaxis(weights, (inputs, outputs), (0, 1)).sum(tuple(range(2, weights.ndim)))
    rows = np.array_split(np.arange(len(between) * count), count)
    columns = np.array_split(np.arange(between.shape[1]), count)
    channels, made = _nodes([step.inputs[0][numbers.lhs_spec[1]]]), _nodes([step.inputs[1][outputs]])
    return [
        ([channels[i] for i in of], [made[i] for i in into], between[:, into])
        for of, into in zip(rows, columns, strict=True)
    ]


def _nodes(axes: Sequence[Axis]) -> list[Node]:
    """Return the node of every index of some axes, row by row."""
    pairs = [_of_axis(axis) for axis in axes]
    return [tuple(itertools.chain(*parts)) for parts in itertools.product(*pairs)]


def _of_axis(axis: Axis) -> list[Node]:
    axis = axis.root()
    if axis.form == "sum":
        return [node for part in axis.parts for node in _of_axis(part)]
    if axis.form == "product":
        return _nodes(axis.parts)
    # The places of a picture are not units. A channel is one unit at all places.
    if axis.frozen in (MOVED_ALONG, POOLED_ALONG):
        return [()] * axis.size
    return [((axis, unit),) for unit in range(axis.size)]


def _names(groups: Groups, layers: Sequence[Layer]) -> dict[Layer, str]:
    """Name each layer by the first leaf and axis that has its atoms."""
    found: dict[Axis, str] = {}
    for path, axes in groups._leaves.items():
        for index, axis in enumerate(axes):
            for atom in axis.atoms():
                found.setdefault(atom, f"{path}[{index}]")
    names = {
        layer: " x ".join(dict.fromkeys(found.get(atom, "") for atom in layer)) or "1" for layer in layers
    }
    counts = Counter(names.values())
    seen: Counter[str] = Counter()
    for layer, name in names.items():
        seen[name] += 1
        if counts[name] > 1 and seen[name] > 1:
            names[layer] = f"{name}#{seen[name]}"
    return names
