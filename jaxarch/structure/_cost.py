"""The cost of a model: parameters, multiply-adds and activations, read from its traced program."""

from __future__ import annotations

import dataclasses
import itertools
import math
import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, overload

import jax
import jax.numpy as jnp
import numpy as np

from jaxarch._internal.errors import ArgumentError, check_count, check_instance, is_traced, shown
from jaxarch._internal.trees import PyTree, named_leaves
from jaxarch.masks import apply_mask, check_booleans
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.structure._axes import Axis
from jaxarch.structure._constants import is_key
from jaxarch.structure._cost_table import BatchIs, Cost, Counts, LayerCost
from jaxarch.structure._flops import Work, effective_work, nonzero_work, whole_work
from jaxarch.structure._flow import Program, shape_of
from jaxarch.structure._groups import Groups, axis_groups
from jaxarch.structure._liveness import Sums, find_needed
from jaxarch.structure._network_function import function_of
from jaxarch.structure._products import NO_PARAMETERS, Product, Products, find_products, module_of
from jaxarch.structure._scans import scan_counts
from jaxarch.structure._smaller import sizes


@overload
def cost(model: Network, about: Problem, /) -> Cost: ...
@overload
def cost(
    model: Callable[..., Any],
    about: PyTree,
    /,
    *inputs: PyTree,
    mask: PyTree | None = None,
    batch: int | None = None,
) -> Cost: ...
def cost(model: Any, about: Any = None, /, *inputs: Any, mask: Any = None, batch: int | None = None) -> Cost:
    r"""Compute the cost of a model, layer by layer, from its traced program.

        print(jaxarch.cost(network.of_run(0), problem))
        print(jaxarch.cost(apply, params, x[:1], mask=mask))

    Nothing is run on data. The counts are parameters, their bytes, the multiply-adds of products and
    convolutions, and activations: the values that at least one such multiply-add contributes to. Each is
    counted for four kinds of connections:

    - *dense*: all connections.
    - *masked*: the connections that the mask leaves: nonzero entries of masked leaves, and the multiply-adds
      of nonzero weights. Hardware that skips every 0 does this work. Leaves without a mask count whole.
    - *effective*: the masked connections that matter to the outputs, on a path from inputs to outputs in the
      sense of Vysogorets & Kempe, Connectivity Matters, 2023. They follow from the values of all leaves, as
      described at `Groups.fold`. A value that is the same for all inputs costs no work: a neuron without
      inputs is a constant. A weight that is multiplied by constants alone still counts as a parameter.
    - *shrunk*: all connections of the units that `shrink` leaves, in arrays cut to these units. Dense
      hardware does this work.

    The layer of a product is the module of the leaf that is its factor: the leaf's path without the last
    part. Leaves are followed through everything computed from leaves alone, such as transposes, slices or a
    mask. A product with a factor made of several modules' leaves has a line of its own, as do products
    without leaves, as in attention. A leaf that is used twice counts once in parameters and twice in
    multiply-adds.

    Functions of entries (activation functions, norms, masks), sums and lookups are not counted. A convolution
    counts the multiply-adds of all places of its window, padding included, as the literature does. Each
    kernel weight that counts is counted at all these places. A loop counts once for each round, and a
    connection in a loop is effective if it is effective in any round. Of the branches of a `cond`, the one
    with the most dense multiply-adds counts. A `while` loop does not count and is named in `uncounted`, as
    are primitives that are not understood.

    Args:
      model: a network of one run, or a function `(tree, *inputs) -> outputs`, traceable by JAX.
      about: for a network, its problem, whose `predict` is traced with one example. The network's parameters
        count as parameters, its state (running statistics) does not. For a function, its leaves, which all
        count as parameters; with shapes alone (`jax.ShapeDtypeStruct`) only *dense* is known.
      *inputs: for a function, example inputs: a batch, or one example.
      mask: for a function, booleans, and `None` for leaves that are not masked. A network has its own mask.
      batch: for a function, the number of examples in its inputs. Multiply-adds and activations are divided
        by it. By default the first axis of an input is the batch if the function can be traced with twice its
        size. Outputs and multiply-adds must then double exactly. The parameters fix every other axis. An axis
        that a convolution or a loop moves along, or that a product sums over, is not a batch. Without a batch
        axis the whole call is counted. The first line of the table shows the choice.

    Returns:
      `Cost`: `cost.total.dense.multiply_adds`, `cost.layers["hidden"].masked.parameters`.

    Raises:
      ArgumentError: a function that cannot be traced or has side effects, leaves that are no arrays, a mask
        of another model, many runs at once, a bare architecture, traced values.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch
      >>> params = {"in": jnp.ones((3, 8)), "bias": jnp.zeros(8), "out": jnp.ones((8, 2))}
      >>> def model(params, x):
      ...     return jax.nn.relu(x @ params["in"] + params["bias"]) @ params["out"]
      >>> into = jnp.ones((3, 8), bool).at[:, :4].set(False).at[0].set(False)
      >>> mask = {"in": into, "bias": None, "out": jnp.ones((8, 2), bool)}
      >>> cost = jaxarch.cost(model, params, jnp.ones((1, 3)), mask=mask)
      >>> print(cost)  # four of eight neurons read nothing, the others two of three inputs
             parameters                        multiply-adds of one example
      layer  dense  masked  effective  shrunk  dense  masked  effective  shrunk
      in        24       8          8      12     24       8          8      12
      bias       8       8          4       4      0       0          0       0
      out       16      16          8       8     16      16          8       8
      total     48      32         20      24     40      24         16      20
      bytes of parameters: 192 dense, 128 masked, 80 effective, 96 shrunk
      activations: 10 dense, 6 masked, 6 effective, 6 shrunk
      >>> cost.layers["in"].masked.parameters, cost.total.shrunk.multiply_adds
      (8, 20)
    """
    function, tree, examples = function_of(model, about, inputs, examples=1)
    if isinstance(model, Network):
        if mask is not None:
            raise ArgumentError("mask: the network has its own mask; leave mask out")
        if batch is not None:
            raise ArgumentError("batch: a network is always traced with one example; leave batch out")
        parameters, masked = named_leaves(model.params), named_leaves(model.mask)
        groups = axis_groups(function, tree, *examples)
        return _cost(groups, tree, (1, "given"), set(masked), set(parameters))
    if batch is not None:
        check_count("batch", batch)
        shapes = list(map(jnp.shape, jax.tree.leaves(inputs)))
        # Tokens of sequences may count as examples too, so that a batch may span several leading axes.
        sizes = {size for shape in shapes for size in (*shape, *itertools.accumulate(shape, operator.mul))}
        if batch > 1 and batch not in sizes:
            raise ArgumentError(
                f"batch: expected the number of examples in the inputs, got {batch}; the inputs have shapes "
                f"{shapes}"
            )
    has_values = not any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(tree))
    if is_traced((tree, mask)):
        raise ArgumentError("tree: its values are traced; call this outside of jit and vmap")
    if mask is not None:
        if not has_values:
            raise ArgumentError(
                "mask: a masked count needs arrays, but the tree has only shapes; pass arrays"
            )
        check_booleans(mask)
        tree = apply_mask(mask, tree)
    groups = axis_groups(function, tree, *examples)
    leaves = named_leaves(tree) if has_values else {}
    found: tuple[int, BatchIs] = (batch, "given") if batch else batch_of(groups, examples)
    return _cost(groups, leaves, found, set(named_leaves(mask)), set(groups._leaves))


def batch_of(groups: Groups, inputs: tuple[PyTree, ...]) -> tuple[int, BatchIs]:
    """Return the number of examples in the inputs, if it can be found; see `cost`."""
    firsts = [shape[0] for leaf in jax.tree.leaves(inputs) if (shape := jnp.shape(leaf))]
    for size in dict.fromkeys(firsts):
        if size and _is_batch(groups, inputs, size):
            return size, "found"
    return 1, "unknown"


def _is_batch(groups: Groups, inputs: tuple[PyTree, ...], size: int) -> bool:
    """Return whether the first axes of this size are batch axes: twice the examples are twice the work."""

    def twice(shape: tuple[int, ...]) -> tuple[int, ...]:
        return (2 * size, *shape[1:]) if shape[:1] == (size,) else shape

    outputs = [shape_of(output) for output in groups._program.closed.jaxpr.outvars]
    if all(shape == twice(shape) for shape in outputs):
        return False  # No output has such a first axis, so no output can double.
    shapes = [
        jax.ShapeDtypeStruct(twice(jnp.shape(leaf)), getattr(leaf, "dtype", None) or jnp.result_type(leaf))
        for leaf in jax.tree.leaves(inputs)
    ]
    try:
        more = axis_groups(
            groups._function, groups._shapes, *jax.tree.unflatten(jax.tree.structure(inputs), shapes)
        )
    except ArgumentError:
        return False
    after = [shape_of(output) for output in more._program.closed.jaxpr.outvars]
    if any(now not in (shape, twice(shape)) for shape, now in zip(outputs, after, strict=True)):
        return False
    if after == outputs or _whole(more) != tuple(2 * count for count in _whole(groups)):
        return False
    of_inputs = more._program.inputs[len(more._leaves) :]
    grown = [axes[0] for axes, leaf in zip(of_inputs, shapes, strict=True) if leaf.shape[:1] == (2 * size,)]
    return not _is_moved_along(more._program, {atom for axis in grown for atom in axis.atoms()})


def _whole(groups: Groups) -> tuple[int, int]:
    """Count all multiply-adds and activations of the traced program."""
    work = [whole_work(product, {}) for product in _products(groups, {}).found]
    return sum(each.multiply_adds for each in work), sum(each.activations for each in work)


def _is_moved_along(program: Program, atoms: set[Axis]) -> bool:
    """Return whether a loop or a convolution moves along one of the atoms, or a product sums over it."""
    for step in program.steps:
        name, params, along = step.eqn.primitive.name, step.eqn.params, []
        if name == "scan":
            counts = scan_counts(step.eqn)
            along = [axes[0] for axes in step.inputs[counts.consts + counts.carries :]]
        elif name == "dot_general":
            along = [step.inputs[0][axis] for axis in params["dimension_numbers"][0][0]]
        elif name == "conv_general_dilated":
            along = [step.inputs[0][axis] for axis in params["dimension_numbers"].lhs_spec[1:]]
        if any(atom in atoms for axis in along for atom in axis.atoms()):
            return True
        if any(_is_moved_along(inside, atoms) for inside in step.programs):
            return True
    return False


def cost_of(
    groups: Groups, kept: Mapping[str, Any], *, batch: int = 1, parameters: Collection[str] | None = None
) -> dict[str, Counts]:
    """Compute the cost of a model without the units that were cut: all other connections, by layer.

    Args:
      groups: the groups of the model.
      kept: by group name, the units that stay, as in `Groups.cut`; `{}` for the dense model.
      batch: the number of examples that the model was traced with.
      parameters: the paths of the leaves that count as parameters; by default all.

    Raises:
      ArgumentError: anything but groups; a batch that is not a positive integer; paths that no leaf has; the
        errors of `Groups.cut`.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jaxarch.structure import axis_groups, cost_of
      >>> params = {"in": jnp.ones((3, 8)), "out": jnp.ones((8, 2))}
      >>> groups = axis_groups(lambda p, x: jnp.tanh(x @ p["in"]) @ p["out"], params, jnp.ones((1, 3)))
      >>> for layer, counts in cost_of(groups, {"in[1]": jnp.arange(8) < 5}).items():
      ...     print(layer, counts)
      in Counts(parameters=15, bytes=60, multiply_adds=15, activations=5)
      out Counts(parameters=10, bytes=40, multiply_adds=10, activations=2)
    """
    check_instance("groups", groups, Groups, "the result of axis_groups")
    check_count("batch", batch)
    if parameters is not None and (
        isinstance(parameters, str)
        or not isinstance(parameters, Collection)
        or set(parameters) - set(groups._leaves)
    ):
        raise ArgumentError(f"parameters: expected paths of leaves, got {shown(parameters)}")
    return cost_without(groups, kept, batch, parameters, _products(groups, {}))


def cost_without(
    groups: Groups,
    kept: Mapping[str, Any],
    batch: int,
    parameters: Collection[str] | None,
    products: Products,
) -> dict[str, Counts]:
    """Compute the cost without some units, given the result of `find_products`; see `cost_of`."""
    of_atoms = groups._of_atoms(kept)
    entries = {path: math.prod(sizes(axes, of_atoms)) for path, axes in groups._leaves.items()}
    return _by_layer(
        groups, products, entries, lambda product: whole_work(product, of_atoms), batch, parameters
    )


def _products(groups: Groups, values: Mapping[str, Any]) -> Products:
    return find_products(groups._program, {path: values.get(path) for path in groups._leaves})


def _by_layer(
    groups: Groups,
    products: Products,
    entries: Mapping[str, int],
    work_of: Callable[[Product], Work],
    batch: int,
    parameters: Collection[str] | None,
) -> dict[str, Counts]:
    """Count by layer, given the number of entries of each leaf and the work of each product."""
    shapes = named_leaves(groups._shapes)
    paths = [path for path in groups._leaves if parameters is None or path in parameters]
    paths = [path for path in paths if not is_key(shapes[path])]
    used = {module_of(path) for path in paths} | {product.layer for product in products.found}
    names = [name for name in dict.fromkeys([*products.layers, *map(module_of, paths)]) if name in used]
    # The sort is stable: layers keep the program's order, and products without parameters come last.
    names.sort(key=lambda name: name == NO_PARAMETERS)
    counts = dict.fromkeys(names, Counts())
    for path in paths:
        itemsize = np.dtype(shapes[path].dtype).itemsize
        counts[module_of(path)] += Counts(parameters=entries[path], bytes=entries[path] * itemsize)
    for product in products.found:
        work = work_of(product)
        of_all = Counts(multiply_adds=work.multiply_adds, activations=work.activations)
        counts[product.layer] += of_all
    return {
        name: dataclasses.replace(
            of, multiply_adds=_share(of.multiply_adds, batch), activations=_share(of.activations, batch)
        )
        for name, of in counts.items()
    }


def _share(number: float, batch: int) -> float:
    """Divide a number by a batch size; return an integer if the result is one."""
    return number / batch if number % batch else int(number) // batch


def _cost(
    groups: Groups,
    leaves: Mapping[str, Any],
    examples: tuple[int, BatchIs],
    masked: Collection[str],
    parameters: Collection[str],
) -> Cost:
    """Compute the cost of a model from its groups.

    Args:
      groups: the groups of the model.
      leaves: the masked leaves by path; empty if only shapes are known.
      examples: the number of examples that the model was traced with, and the source of this number.
      masked: the paths of the leaves that have a mask.
      parameters: the paths of the leaves that count as parameters.
    """
    # Values of factors matter only if a mask may have made them 0.
    products = _products(groups, leaves if masked else {})
    batch, batch_is = examples

    def counted(entries: Mapping[str, int], work_of: Callable[[Product], Work]) -> dict[str, Counts]:
        return _by_layer(groups, products, entries, work_of, batch, parameters)

    columns = [cost_without(groups, {}, batch, parameters, products)]
    if leaves:
        there = {
            path: np.asarray(leaf) != 0 if path in masked else np.ones(jnp.shape(leaf), bool)
            for path, leaf in leaves.items()
        }
        left = {path: int(entries.sum()) for path, entries in there.items()}
        columns.append(counted(left, lambda product: nonzero_work(product, masked)))
        tree, pruned = _tree(groups, leaves), [path for path in masked if not there[path].all()]
        kept = groups.fold(tree, fixed=pruned).kept
        record, sums = groups._known(tree), Sums.none({})
        outputs = [np.ones(shape_of(output), bool) for output in groups._program.closed.jaxpr.outvars]
        needs = find_needed(groups._program, outputs, record, groups._of_atoms(kept), sums)
        of_leaves = dict(zip(groups._leaves, needs, strict=False))
        matter = {path: int((there[path] & of_leaves[path]).sum()) for path in there}
        columns.append(counted(matter, lambda product: effective_work(product, masked, record, sums)))
        columns.append(cost_without(groups, kept, batch, parameters, products))
    layers = {name: LayerCost(*(column[name] for column in columns)) for name in columns[0]}
    total = LayerCost(*(sum(column.values(), Counts()) for column in columns))
    notes = tuple(_notes(products, masked, total))
    return Cost(layers, total, batch, batch_is, bool(masked), tuple(products.uncounted), notes)


def _tree(groups: Groups, leaves: Mapping[str, Any]) -> PyTree:
    """Put the leaves into the tree structure that the groups were found with."""
    return jax.tree.unflatten(jax.tree.structure(groups._shapes), [leaves[path] for path in groups._leaves])


def _notes(products: Products, masked: Collection[str], total: LayerCost) -> Iterable[str]:
    if products.chosen:
        yield "of the branches of a cond, the most expensive is counted"
    computed = [
        product.layer
        for product in products.found
        for factor in product.factors
        if factor is not None and factor.value is None and set(factor.paths) & set(masked)
    ]
    if computed:
        names = ", ".join(dict.fromkeys(computed))
        yield (
            f"the weights of {names} are chosen at run time, so the mask does not reduce the count of their "
            "products"
        )
    if total.masked is not None and total.shrunk is not None:
        is_masked = total.masked.parameters < total.dense.parameters
        if is_masked and total.shrunk == total.dense:
            yield "the zeros are scattered, so no array becomes smaller and dense hardware saves nothing"
