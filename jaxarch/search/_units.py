"""Units that a search keeps or removes together; words for them are resolved on a problem's model."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jaxarch._internal.errors import ArgumentError, shown
from jaxarch._internal.trees import PyTree, named_leaves
from jaxarch.masks._units import Blocks, GroupUnits, NOfM, Units, UnitsLike, as_units, as_words
from jaxarch.run._problem import Problem, check_is_problem
from jaxarch.run._stage import Needs
from jaxarch.structure import Groups, axis_groups
from jaxarch.structure._network_function import joined_leaves, problem_function
from jaxarch.structure._uses import Weights, weights_of


def check_units(units: UnitsLike) -> tuple[str, ...] | Units:
    """Return the units in the form that a search keeps: words that need a model, or units that need none.

    Raises:
      ArgumentError: anything else.
    """
    return as_words(units) or as_units(units)


def check_pattern(units: UnitsLike) -> NOfM:
    """Return units that must be N of every M.

    Raises:
      ArgumentError: anything else.
    """
    found = check_units(units)
    if not isinstance(found, NOfM):
        raise ArgumentError(f"units: expected N:M such as '2:4', or masks.NOfM, got {shown(units)}")
    return found


def check_counts(units: tuple[str, ...] | Units, densities: tuple[float, ...]) -> None:
    """Raise if units have a density of their own, and another one is asked for."""
    if isinstance(units, NOfM):
        for density in densities:
            units.counts(None, density)


def needs_of(units: tuple[str, ...] | Units, needs: Needs) -> Needs:
    """Return a search's needs: words for units need a model that predicts."""
    return needs if isinstance(units, Units) else dataclasses.replace(needs, predict=True)


def units_of(
    units: tuple[str, ...] | Units, problem: Problem, params: PyTree, state: PyTree, selection: PyTree
) -> Units:
    """Return the units of the leaves that are scored. Shapes alone are read: all arrays may be traced.

    Args:
      units: connections to keep or remove together: words such as `("neurons",)`, or units themselves.
      problem: the problem of one run.
      params: the model's parameters.
      state: the model's state.
      selection: the parameters that are scored, `None` for all others.

    Raises:
      ArgumentError: a model without such units, leaves that they do not fit.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> params, state = problem.init(jax.random.key(0))
      >>> selected = jaxarch.select(params)
      >>> units = jaxarch.search.units_of(("neurons",), problem, params, state, selected)
      >>> [sizes.shape for sizes in units.score(selected).values()]
      [(8,)]
    """
    units = check_units(units)
    check_is_problem(problem)
    for name, tree in (("params", params), ("state", state), ("selection", selection)):
        if not all(hasattr(leaf, "dtype") for leaf in jax.tree.leaves(tree)):
            raise ArgumentError(f"{name}: expected arrays, or their shapes, got {shown(tree)}")
    if isinstance(units, (NOfM, Blocks)) and problem.predict is not None:
        units = units.along(_weights(problem, params, state).axes)
    if not isinstance(units, Units):
        units = of_params(_groups(problem, params, state).units(*units), params)
    return units.over(selection)


def pattern_of(pattern: NOfM, problem: Problem, params: PyTree, state: PyTree, selection: PyTree) -> NOfM:
    """Return N of every M along the axes that the model's products use, like `units_of`."""
    found = units_of(pattern, problem, params, state, selection)
    assert isinstance(found, NOfM)
    return found


def hidden_units(problem: Problem, params: PyTree, state: PyTree, selection: PyTree) -> GroupUnits:
    """Return all neurons, channels and heads of the scored leaves, from shapes alone like `units_of`.

    Raises:
      ArgumentError: a model without any.
    """
    return groups_and_units((), problem, params, state, selection)[1]


def groups_and_units(
    words: tuple[str, ...], problem: Problem, params: PyTree, state: PyTree, selection: PyTree
) -> tuple[Groups, GroupUnits]:
    """Return the groups of a model, and the units of some kinds in the scored leaves; see `units_of`.

    Args:
      words: kinds of units; all neurons, channels and heads if there are none.
      problem: the problem of one run.
      params: the model's parameters.
      state: the model's state.
      selection: the parameters that are scored, `None` for all others.

    Raises:
      ArgumentError: a model without such units.
    """
    groups = _groups(problem, params, state)
    kinds = {group.kind for group in groups.groups.values()}
    there = words or tuple(word for word in ("neurons", "channels", "heads") if word in kinds)
    if not there:
        raise ArgumentError("model: it has no hidden neurons, channels or heads to score")
    return groups, of_params(groups.units(*there), params).over(selection)


def summed_over(problem: Problem, params: PyTree, state: PyTree) -> dict[str, set[int]]:
    """Return, by path of a weight, the axes that the model's products sum over."""
    return {
        path: {axis for use in uses for axis in use.inputs}
        for path, uses in _weights(problem, params, state).products
    }


def example_shapes(problem: Problem) -> PyTree:
    """Return the shapes of a batch of one example."""
    row = jax.ShapeDtypeStruct((1,), jnp.int32)
    return jax.eval_shape(lambda row: problem.gather(problem.data, problem.per_run, row), row)


def _groups(problem: Problem, params: PyTree, state: PyTree) -> Groups:
    params, state = jax.tree.map(_shape, (params, state))
    function = problem_function(problem, params, state)
    return axis_groups(function, joined_leaves(params, state), example_shapes(problem))


def _weights(problem: Problem, params: PyTree, state: PyTree) -> Weights:
    params, state = jax.tree.map(_shape, (params, state))
    function = problem_function(problem, params, state)
    return weights_of(function, joined_leaves(params, state), example_shapes(problem))


def _shape(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(jnp.shape(leaf), leaf.dtype)


def of_params(units: GroupUnits, params: PyTree) -> GroupUnits:
    """Drop the leaves of the state: running statistics are not masked."""
    own = named_leaves(params)
    return GroupUnits(tuple((path, axes) for path, axes in units.leaves if path in own))
