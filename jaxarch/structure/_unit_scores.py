"""Scores of whole units, from their activations and from the distances between their weights."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch._internal.errors import ArgumentError, check_choice, check_instance
from jaxarch._internal.precision import widened
from jaxarch._internal.trees import PyTree, Where, matrices, named_leaves, select_floating
from jaxarch.masks._units import Span
from jaxarch.structure._captures import run_recorded
from jaxarch.structure._flow import Step
from jaxarch.structure._groups import Groups, span_of
from jaxarch.structure._network_function import check_arrays_given, check_examples
from jaxarch.structure._products import find_products, summed_axes

Statistic = Literal["rms", "std"]
"""A statistic of a unit's values: root mean square or standard deviation."""


class _Moments(NamedTuple):
    """The moments of the values of each unit, by group.

    Attributes:
      counts: the number of values.
      means: their mean.
      spreads: the sum of their squared distances from the mean.
    """

    counts: dict[str, Array]
    means: dict[str, Array]
    spreads: dict[str, Array]


def activation(
    groups: Groups, tree: PyTree, *inputs: PyTree, statistic: Statistic = "rms"
) -> dict[str, Array]:
    r"""Return the size or the spread of each unit's activation, where products with weights read it.

    With a_i the values of unit i over examples, places and the products that read it,

        rms: sqrt(mean a_i^2)        std: sqrt(mean (a_i - mean a_i)^2)

    A unit whose activation is near 0 adds little to the next layer (`rms`). A unit whose activation hardly
    varies adds a constant, which a bias can take up (`std`). The activations are read off the traced program,
    through calls and loops, without hooks: the factor of a product whose other factor is made of leaves. Hu
    et al., Network Trimming, 2016, count the share of zeros in the same place.

    Units that no such product reads have no score, such as the features along which queries and keys are
    multiplied. Products in branches and `while` loops are not read.

    Args:
      groups: the groups of the model, from `structure.axis_groups`.
      tree: the leaves.
      *inputs: inputs of the model: a batch of examples, whose activations are used.
      statistic: `rms` or `std`.

    Returns:
      By group name, float32 arrays of shape (size,): the argument `scores` of `structure.plan`.

    Raises:
      ArgumentError: anything but groups; leaves of other shapes than those of the groups; an unknown
        statistic; inputs without an example.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch
      >>> params = {"in": jnp.array([[1.0, -1.0, 2.0]]), "out": jnp.ones((3, 1))}
      >>> def model(params, x):
      ...     return jax.nn.relu(x @ params["in"]) @ params["out"]
      >>> x = jnp.array([[1.0], [1.0]])
      >>> groups = jaxarch.structure.axis_groups(model, params, x)
      >>> jaxarch.saliency.activation(groups, params, x)["in[1]"].tolist()
      [1.0, 0.0, 2.0]
    """
    check_instance("groups", groups, Groups, "the result of structure.axis_groups")
    check_choice("statistic", statistic, get_args(Statistic))
    groups._check_whole(tree)
    check_arrays_given(tree=tree, inputs=inputs)
    check_examples(inputs)
    again = Groups(groups._function, groups._shapes, inputs, groups._updates, groups._beside)
    moments = jax.jit(partial(_moments, again))
    counts, means, spreads = moments([*jax.tree.leaves(tree), *jax.tree.leaves(inputs)])
    scores = {}
    for name in (name for name in groups.groups if name in counts):
        variance = spreads[name] / counts[name]
        scores[name] = jnp.sqrt(variance if statistic == "std" else variance + means[name] ** 2)
    if not scores:
        raise ArgumentError("groups: no product with leaves reads any of their units")
    return scores


def _moments(groups: Groups, leaves: list[Any]) -> _Moments:
    """Run the program of some groups, and return the moments of the units that its products read."""
    program, names = groups._program, {atom: name for name, atom in groups._atoms.items()}
    read: dict[int, tuple[int, tuple[tuple[int, Span], ...]]] = {}
    for product in find_products(program, dict.fromkeys(groups._leaves)).found:
        if (place := product.activation) is not None:
            axes = summed_axes(product.step, place)
            spans = ((axis, span_of(product.step.inputs[place][axis], names)) for axis in axes)
            read[id(product.step)] = place, tuple(spans)

    def record(step: Step, taken: list[Any], made: list[Any]) -> _Moments | None:
        if id(step) not in read:
            return None
        place, spans = read[id(step)]
        return _of(taken[place], spans)

    joined = _Moments({}, {}, {})
    for of_step in run_recorded(program, leaves, record)[1].values():
        for name in of_step.counts:
            _join(joined, name, *(of[name].reshape(-1, of[name].shape[-1]) for of in of_step))
    return joined


def geometric_median(groups: Groups, tree: PyTree, where: Where = matrices) -> dict[str, Array]:
    r"""Return each unit's distance to all other units of its group: units near the others can be replaced.

        s_i = \sum_j || w_i - w_j ||_2

    with w_i all connections of unit i in the selected leaves, into it and out of it. He et al., Filter
    pruning via geometric median (FPGM), 2019, take the filters of one convolution, the connections
    into a channel. Here a unit of a residual stream belongs to many layers, and has one score.

    Args:
      groups: the groups of the model, from `structure.axis_groups`.
      tree: the leaves.
      where: the leaves whose connections count.

    Returns:
      By group name, float32 arrays of shape (size,): the argument `scores` of `structure.plan`. Groups
      without a selected leaf have none.

    Raises:
      ArgumentError: anything but groups; leaves of other shapes than those of the groups; selected leaves
        that do not exist or are not floating point.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> params = {"in": jnp.array([[0.0, 3.0, 3.0]]), "out": jnp.array([[0.0], [4.0], [4.0]])}
      >>> def model(params, x):
      ...     return jnp.tanh(x @ params["in"]) @ params["out"]
      >>> groups = jaxarch.structure.axis_groups(model, params, jnp.ones((1, 1)))
      >>> jaxarch.saliency.geometric_median(groups, params)["in[1]"].tolist()
      [10.0, 5.0, 5.0]
    """
    check_instance("groups", groups, Groups, "the result of structure.axis_groups")
    groups._check_whole(tree)
    selected = named_leaves(select_floating(tree, where))
    squares: dict[str, Array] = {}
    for path, axes in groups.units_of([*groups.groups]).leaves:
        if path not in selected:
            continue
        leaf = jnp.asarray(selected[path], jnp.float32)
        for index, axis in enumerate(axes):
            for name, rows in axis.rows(jnp.moveaxis(leaf, index, 0)):
                squares[name] = squares.get(name, jnp.zeros(())) + _squared_distances(rows)
    return {name: jnp.sqrt(squares[name]).sum(1) for name in groups.groups if name in squares}


def _squared_distances(rows: Array) -> Array:
    """Return the squared distances between all pairs of rows, by one matrix product."""
    # Distances do not see a shift; without it, less is lost when large squares are subtracted.
    rows = rows - rows.mean(0, keepdims=True)
    squares = jnp.sum(rows**2, 1)
    apart = squares[:, None] + squares[None] - 2 * jnp.matmul(rows, rows.T, precision="highest")
    return jnp.where(jnp.eye(len(rows), dtype=bool), 0, jnp.maximum(apart, 0))


def _of(array: Array, spans: Sequence[tuple[int, Span]]) -> _Moments:
    """Return the moments of each unit of an array, over all its other axes."""
    moments = _Moments({}, {}, {})
    array = widened(jnp.asarray(array))
    for axis, span in spans:
        for name, rows in span.rows(jnp.moveaxis(array, axis, 0)):
            # Squared distances from the mean: a difference of sums of squares would lose a small spread.
            means = rows.mean(1)
            spreads = ((rows - means[:, None]) ** 2).sum(1)
            counts = jnp.full(means.shape, rows.shape[1], jnp.float32)
            _join(moments, name, counts[None], means[None], spreads[None])
    return moments


def _join(moments: _Moments, name: str, counts: Array, means: Array, spreads: Array) -> None:
    """Join the moments of several sets of values, along the first axis, to those of a group."""
    if name in moments.counts:
        before = (of[name][None] for of in moments)
        counts, means, spreads = (
            jnp.concatenate(pair) for pair in zip(before, (counts, means, spreads), strict=True)
        )
    whole = counts.sum(0)
    mean = (counts * means).sum(0) / whole
    spread = (spreads + counts * (means - mean[None]) ** 2).sum(0)
    for into, joined in zip(moments, (whole, mean, spread), strict=True):
        into[name] = joined
