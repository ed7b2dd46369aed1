"""Masks as graphs: the spectrum of each layer's bipartite graph, and the paths through a network."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, overload

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch._internal.errors import ArgumentError, check_leaves, shown
from jaxarch._internal.trees import PyTree, Where, check_distinct, named_leaves, placed, select
from jaxarch.masks import check_booleans, check_fits
from jaxarch.masks._sharding import automatic
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.structure._network_function import check_examples, function_of
from jaxarch.structure._paths import graph_sums
from jaxarch.structure._tracing import hashable, traced


class Connectivity(NamedTuple):
    """The bipartite graph of one leaf of a mask, as returned by `connectivity`; scalars but for one.

    Attributes:
      density: the share of connections kept.
      inputs: the number of inputs with a connection.
      outputs: the number of outputs with a connection.
      input_degree: the mean number of connections of these inputs; NaN if there are none.
      output_degree: the mean number of connections of these outputs; NaN if there are none.
      singular_values: the two largest singular values of the leaf as a matrix of ones and zeros, shape (2,).
        The second is 0 for a matrix with one row or column.
      bound: `sqrt(input_degree - 1) + sqrt(output_degree - 1)`; NaN for an empty leaf.
      gap: the bound minus the second singular value: negative if the graph is not Ramanujan.
    """

    density: Array
    inputs: Array
    outputs: Array
    input_degree: Array
    output_degree: Array
    singular_values: Array
    bound: Array
    gap: Array


class Paths(NamedTuple):
    """The paths of a masked network, as returned by `paths`.

    Attributes:
      log_count: the natural logarithm of the number of paths from the inputs to the outputs; -inf without
        any. A unit drops out of the number if another of its layer is reached by 1e38 times as many paths.
      effective: the mask without the connections that are on no path; a dict by path for a network.
      density: the share of effective connections among all connections that the mask could keep.
    """

    log_count: Array
    effective: PyTree
    density: Array


def connectivity(
    mask: PyTree, outputs: int | Mapping[str, int] | None = None, stacked: Where | None = None
) -> dict[str, Connectivity]:
    r"""Measure the bipartite graph of each leaf of a mask: degrees, singular values, Ramanujan bound.

        layers = jaxarch.analysis.connectivity(mask)
        figure = jaxarch.plots.connectivity({"snip": layers})

    A leaf is a matrix A of ones and zeros that links inputs with outputs. Its singular values, with their
    negatives, are the eigenvalues of the graph. With all inputs of degree d and all outputs of degree c, the
    first one is `sqrt(d c)`. The graph is Ramanujan if the second one is at most

        sqrt(d - 1) + sqrt(c - 1)

    (Marcus, Spielman and Srivastava, *Interlacing families I: bipartite Ramanujan graphs of all degrees*,
    2015, https://arxiv.org/abs/1304.4132). A small second value means that no part of the graph is nearly
    cut off. It equals the first one if there are two parts of the same first value and no link between
    them. Random graphs with these degrees come near the bound (Brito, Dumitriu and Harris, 2022,
    https://arxiv.org/abs/1804.07808).

    Masks are not regular, and no theorem covers them. d and c are mean degrees here, over the units that have
    a connection: the difference of bound of Hoang, Liu, Marculescu and Wang, *Revisiting pruning at
    initialization through the lens of Ramanujan graph*, 2023 (https://openreview.net/forum?id=uVcDssQff_), as
    their code computes it. It leaves out leaves with a mean degree below 3, and this function does not. Their
    iterative mean over regular subgraphs and their weighted gap are not computed. Pal et al., *A study on the
    Ramanujan graph property of winning lottery tickets*, 2022, also study layers by their spectra. Whether
    the gap predicts accuracy is contested. On the digits it says nothing about masks of one method: see
    *Comparing networks*.

    Args:
      mask: booleans with two axes or more; `None` for leaves that are not masked. Masks between 0 and 1 are
        refused: threshold them first.
      outputs: the axis of the outputs, -1 for kernels (..., inputs, outputs) as in Flax, 0 for (outputs,
        inputs, ...) as in PyTorch; or axes by path. All other axes are inputs: every tap of a convolution
        kernel is an input of its own, as in the code of Hoang et al. For links between channels, pass
        `kernel.any((0, 1))`. All outputs of a grouped convolution count as reading the same inputs: pass each
        group's kernel by itself. Leaves with two axes need no axis, and have their outputs last. All others
        do.
      stacked: leaves with a first axis of layers, by path. Each layer is a graph of its own, `path[0]` first.

    Returns:
      `Connectivity` of each masked leaf by path, in float32. `jax.jit` works, and `jax.vmap` measures the
      masks of many runs. Singular values are exact up to rounding, 1e-6 of the first one. Time grows with the
      cube of the size: 35 seconds for a leaf of shape (4096, 4096) on two CPU cores, 7 for (2048, 2048).

    Raises:
      ArgumentError: leaves that are not booleans, have fewer than two axes or no entry; more than two axes
        without `outputs`; axes or paths that do not exist; no masked leaf.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> block = jnp.ones((2, 3), bool)
      >>> apart = jnp.block([[block, ~block], [~block, block]])  # two parts without a link
      >>> found = jaxarch.analysis.connectivity({"whole": jnp.ones((4, 6), bool), "apart": apart})
      >>> {name: layer.singular_values.round(2).tolist() for name, layer in found.items()}
      {'apart': [2.450000047683716, 2.450000047683716], 'whole': [4.900000095367432, 0.0]}
      >>> print(found["apart"].gap.round(2))  # sqrt(2) + sqrt(1) - sqrt(6)
      -0.04
    """
    _check_mask(mask)
    leaves = named_leaves(mask)
    if not leaves:
        raise ArgumentError("mask: expected at least one masked leaf, got none")
    of_layers = {} if stacked is None else named_leaves(select(mask, stacked, "stacked"))
    axes = _axes_of(outputs, leaves, of_layers)
    found = {}
    for path, leaf in leaves.items():
        if path not in of_layers:
            found[path] = automatic(functools.partial(_measured, axis=axes[path]), jnp.asarray(leaf))
            continue
        each = automatic(jax.vmap(functools.partial(_measured, axis=axes[path])), jnp.asarray(leaf))
        for layer in range(len(leaf)):
            found[f"{path}[{layer}]"] = jax.tree.map(operator.itemgetter(layer), each)
    return found


@overload
def paths(model: Network, about: Problem, /) -> Paths: ...
@overload
def paths(model: Callable[..., Any], about: PyTree, /, *inputs: PyTree, mask: PyTree) -> Paths: ...
def paths(model: Any, about: Any = None, /, *inputs: Any, mask: Any = None) -> Paths:
    r"""Count the paths from inputs to outputs that a mask leaves, and find the connections on them.

        found = jaxarch.analysis.paths(apply, params, x[:1], mask=mask)
        layers = jaxarch.analysis.connectivity(found.effective)  # counts units on a path

    A path enters at an entry of the input and follows kept connections to an entry of the output. Without
    skips the number of paths is the sum of the entries of the product of all layers' masks. It is computed
    from the traced program, so layers come in the order of the model, skips and shared weights included.

    A connection on no path does nothing to the outputs but add a constant. The share of all others is the
    *effective* density of Vysogorets and Kempe, *Connectivity matters: neural network pruning through the
    lens of effective sparsity*, 2023, https://arxiv.org/abs/2107.02306. `jaxarch.cost` counts effective
    connections too, of any model and by the values of its weights, so it may count fewer: a ReLU behind ReLUs
    whose weights are all negative is always 0. Here the mask alone decides. A neuron that only its bias feeds
    is on no path, and a kept weight of 0 is a connection.

    All entries of unmasked leaves are connections. Biases begin no path: leave them out of the mask, or they
    count as not effective. Two branches of a unit that meet again are two paths. Pooling adds the paths of
    the entries of its windows, by maxima or means. Where an activation chooses between two values, as leaky
    ReLU and maxout do, the larger number goes on. If a gate of its own chooses by a comparison, its paths are
    among them. A kernel of a convolution counts at all its places.

    Args:
      model: a function `(tree, *inputs) -> outputs`, in evaluation mode; or a network of one run. It consists
        of products, sums, pooling, batch norm and activations of one value, such as ReLU or tanh.
      about: for a function, its parameters, arrays or their shapes; for a network, its problem.
      *inputs: for a function, floating-point examples along the first axis of each leaf. One of them is
        traced, and only shapes count.
      mask: for a function, booleans, and `None` for leaves that are not masked. A network has its own mask.

    Returns:
      `Paths`. `jax.jit` works over the mask of a function, and `jax.vmap` over the masks of many runs.

    Raises:
      ArgumentError: operations whose paths are not known, by name, such as a layer norm, a softmax, a loop,
        or a product of two activations; a mask that does not fit, or is not of booleans; inputs that are not
        floating point.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch
      >>> params = {"in": jnp.ones((2, 3)), "out": jnp.ones((3, 1))}
      >>> def apply(params, x):
      ...     return jax.nn.relu(x @ params["in"]) @ params["out"]
      >>> into = jnp.array([[1, 1, 0], [1, 0, 0]], bool)  # the third neuron reads nothing
      >>> mask = {"in": into, "out": jnp.array([[1], [0], [1]], bool)}
      >>> found = jaxarch.analysis.paths(apply, params, jnp.ones((1, 2)), mask=mask)
      >>> print(jnp.exp(found.log_count).round(3), found.effective["out"].ravel(), found.density)
      2.0 [ True False False] 0.33333334
    """
    is_network = isinstance(model, Network)
    function, tree, inputs = function_of(model, about, inputs, examples=1)
    if is_network:
        if mask is not None:
            raise ArgumentError("mask: the network has its own mask; leave mask out")
        mask = named_leaves(model.mask)
    _check_mask(mask)
    if not is_network:
        check_fits(mask, tree)
    kept = named_leaves(mask)
    if not kept:
        raise ArgumentError("mask: expected at least one masked leaf, got none")
    one = _one_example(inputs)
    check_leaves("tree", tree, keys=True)
    check_distinct("tree", tree)
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), leaf.dtype), tree)
    leaves, structure = jax.tree.flatten((shapes, one))
    log_count, effective = _found(
        kept, function=hashable(function), structure=structure, shapes=tuple(leaves)
    )
    shares = [jnp.mean(leaf, dtype=jnp.float32) * leaf.size for leaf in effective.values()]
    density = jnp.stack(shares).sum() / float(sum(leaf.size for leaf in effective.values()))
    return Paths(log_count, placed(effective, mask), density)


@functools.partial(jax.jit, static_argnames=("function", "structure", "shapes"))
def _found(
    kept: dict[str, Array], *, function: Callable[..., Any], structure: Any, shapes: tuple[Any, ...]
) -> tuple[Array, dict[str, Array]]:
    """Return the logarithm of the number of paths, and the connections on them.

    Args:
      kept: the mask of each masked leaf, by path.
      function: the model.
      structure: the structure of its tree and of its inputs, together.
      shapes: the shapes of the leaves of both.
    """
    tree, inputs = jax.tree.unflatten(structure, shapes)
    closed, _ = traced(function, tree, *inputs, name="model")
    order = [*named_leaves(tree)]
    numbers = {path: leaf.astype(jnp.float32) for path, leaf in kept.items()}

    def total(masks: dict[str, Array], reached: bool) -> tuple[Array, Array]:
        sums = graph_sums(closed, [masks.get(path) for path in order], reached)
        return jnp.stack([jnp.sum(leaf) for leaf in sums.outputs]).sum(), sums.log

    slopes, _ = jax.grad(total, has_aux=True)(numbers, reached=True)
    effective = {path: leaf & (slopes[path] > 0) for path, leaf in kept.items()}
    # Units are counted relative to the largest count of their layer. Those on no path do not count here: they
    # could be so many that the others vanish.
    count, log = total({path: leaf.astype(jnp.float32) for path, leaf in effective.items()}, reached=False)
    return jnp.log(count) + log, effective


def _check_mask(mask: PyTree) -> None:
    check_booleans(mask)
    check_leaves("mask", mask)
    check_distinct("mask", mask)
    if any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(mask)):
        raise ArgumentError("mask: expected arrays, got shapes")


def _axes_of(outputs: Any, leaves: Mapping[str, Any], stacked: Mapping[str, Any]) -> dict[str, int]:
    """Return the axis of each leaf's outputs, not counting an axis of layers before it.

    Raises:
      ArgumentError: see `connectivity`.
    """
    by_path = outputs if isinstance(outputs, Mapping) else dict.fromkeys(leaves, outputs)
    for path in by_path:
        if path not in leaves:
            raise ArgumentError(f"outputs: the mask has no leaf {shown(path)}; it has {', '.join(leaves)}")
    return {path: _axis(path, leaf, by_path.get(path), path in stacked) for path, leaf in leaves.items()}


def _axis(path: str, leaf: Any, axis: Any, is_stacked: bool) -> int:
    rank = jnp.ndim(leaf) - is_stacked
    if rank < 2 or not leaf.size:
        raise ArgumentError(
            f"mask: expected an axis of inputs and one of outputs, with entries, got leaf {path!r} of shape "
            f"{jnp.shape(leaf)}; leave it out"
        )
    if axis is None:
        if rank > 2:
            raise ArgumentError(
                f"outputs: leaf {path!r} has the shape {jnp.shape(leaf)}; say which axis its outputs are: -1 "
                "for (..., inputs, outputs), 0 for (outputs, inputs, ...); or name it in `stacked`"
            )
        axis = -1
    if type(axis) is not int or not -rank <= axis < rank:
        raise ArgumentError(
            f"outputs: expected an axis of the {rank} of leaf {path!r}"
            f"{' behind its layers' if is_stacked else ''}, got {shown(axis)}"
        )
    return axis % rank


@functools.partial(jax.jit, static_argnames="axis")
def _measured(leaf: Array, *, axis: int) -> Connectivity:
    numbers = jnp.moveaxis(leaf.astype(jnp.float32), axis, -1)
    matrix = numbers.reshape(-1, numbers.shape[-1])
    inputs, of_inputs = _units_and_degree(matrix.sum(1))
    outputs, of_outputs = _units_and_degree(matrix.sum(0))
    found = jnp.linalg.svd(matrix, compute_uv=False)[:2]
    # A matrix with one row or column has one singular value.
    values = jnp.pad(found, (0, 2 - len(found)))
    # A mean degree of 1 may be rounded to less.
    bound = jnp.sqrt(jnp.maximum(of_inputs - 1, 0)) + jnp.sqrt(jnp.maximum(of_outputs - 1, 0))
    density = matrix.mean()
    return Connectivity(density, inputs, outputs, of_inputs, of_outputs, values, bound, bound - values[1])


def _units_and_degree(degrees: Array) -> tuple[Array, Array]:
    """Return the number of units that have a connection, and their mean degree."""
    units = jnp.sum(degrees > 0, dtype=jnp.float32)
    mean = degrees.sum() / jnp.maximum(units, 1)
    return units, jnp.where(units > 0, mean, jnp.nan)


def _one_example(inputs: PyTree) -> PyTree:
    """Return the shapes of one example.

    Raises:
      ArgumentError: no inputs; inputs without an axis of examples, without entries, or not floating point.
    """
    check_leaves("inputs", inputs)
    leaves = jax.tree.leaves(inputs)
    if not leaves or not all(jnp.ndim(leaf) for leaf in leaves):
        raise ArgumentError("inputs: expected arrays with examples along their first axis; give x[:1]")
    check_examples(inputs)
    for leaf in leaves:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise ArgumentError(
                f"inputs: expected floating-point numbers, where paths begin, got {leaf.dtype}; convert "
                "them, or give the part of the model behind its embedding"
            )
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape[1:]), leaf.dtype), inputs)
