"""Penalties that prepare a model for the removal of units, in front of any optimizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import ArgumentError, check_instance, check_one_number, check_one_strength
from jaxarch._internal.precision import widened
from jaxarch._internal.trees import (
    PyTree,
    Where,
    map_selected,
    matrices,
    named_leaves,
    path_name,
    select_floating,
)
from jaxarch.optim._masked_leaves import booleans, of_parameters
from jaxarch.structure import Groups
from jaxarch.structure._scored_units import chosen_groups


class GrowingState(NamedTuple):
    """State carried from step to step.

    Attributes:
      step: the number of steps so far, int32.
    """

    step: Array


def add_group_lasso(
    groups: Groups,
    strength: ArrayLike,
    units: str | Sequence[str] | None = None,
    where: Where = matrices,
) -> optax.GradientTransformationExtraArgs:
    r"""Add the gradient of a group lasso on whole units, so that some of them become small in training.

        strength * sum over units u of sqrt(n_u) ||theta_u||

    with theta_u all n_u connections of unit u in the selected leaves, into it and out of it, and in all
    layers of a residual stream. Its gradient is `strength sqrt(n_u) theta / ||theta_u||` for each unit of a
    connection. The weight sqrt(n_u) is that of M. Yuan and Y. Lin, Model selection and estimation in
    regression with grouped variables, 2006. W. Wen et al., Learning structured sparsity in deep neural
    networks, 2016, penalize the filters of a layer; here units are those that `structure.plan` removes.

        groups = jaxarch.structure.axis_groups(apply, params, x)
        tx = optax.chain(jaxarch.optim.add_group_lasso(groups, 1e-4), optax.adam(1e-3))

    Then `structure.plan(...)` removes the units that became small. A gradient step makes no unit exactly 0.
    Under an adaptive optimizer the penalty's gradient is rescaled with the loss's. A connection of a unit to
    itself counts twice, once for each of its axes. Only leaves that `update` gets count.

    Args:
      groups: the groups of the model, from `structure.axis_groups`.
      strength: at least 0. May be traced.
      units: the kinds of units, or names of groups; by default those that `structure.plan` removes.
      where: the leaves whose connections count, by path.

    Returns:
      An optax transformation; its `update` needs the parameters.

    Raises:
      ArgumentError: anything but groups, unknown units, a strength that is negative or not finite; in
        `update`: no parameters, or parameters of another model.

    Example:
      >>> import jax.numpy as jnp, jaxarch, optax
      >>> params = {"in": jnp.array([[3.0, 0.0]]), "out": jnp.array([[4.0], [0.0]])}
      >>> def model(params, x):
      ...     return jnp.tanh(x @ params["in"]) @ params["out"]
      >>> groups = jaxarch.structure.axis_groups(model, params, jnp.ones((1, 1)))
      >>> tx = jaxarch.optim.add_group_lasso(groups, 2**0.5)
      >>> zeros = {"in": jnp.zeros((1, 2)), "out": jnp.zeros((2, 1))}
      >>> updates, _ = tx.update(zeros, tx.init(params), params)  # 2 theta / 5
      >>> print(f"{updates['in'][0, 0]:.2f} {updates['out'][0, 0]:.2f}")
      1.20 1.60
    """
    check_instance("groups", groups, Groups, "the result of structure.axis_groups")
    check_one_strength("strength", strength)
    of_groups = groups.units_of(chosen_groups(groups, units))

    def update(
        updates: PyTree, state: optax.EmptyState, params: PyTree | None = None, **extra: Any
    ) -> tuple[PyTree, optax.EmptyState]:
        if params is None:
            raise ArgumentError("params: add_group_lasso needs them: tx.update(gradients, state, params)")
        selected = select_floating(params, where)
        over = of_groups.over(selected)

        def penalty(selected: PyTree) -> Array:
            # The squares of float16 would overflow.
            squares, counts = over.sums(map_selected(lambda leaf: jnp.square(widened(leaf)), selected))
            norms = [jnp.sqrt(counts[name]) * _root(squares[name]) for name in squares]
            return sum((jnp.sum(norm) for norm in norms), jnp.zeros(()))

        slopes = named_leaves(jax.grad(penalty)(selected))
        return _plus(updates, {path: strength * slope for path, slope in slopes.items()}), state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


def add_growing_penalty(
    mask: PyTree, strength: ArrayLike | Callable[[Array], ArrayLike]
) -> optax.GradientTransformationExtraArgs:
    r"""Add the gradient of an L2 penalty, of growing strength, on the connections that a mask removes.

        strength(t) / 2 * sum of theta^2 over the connections outside the mask

    at step t: the gradient of such a connection grows by `strength(t) theta`. So the connections that are to
    go shrink slowly, and the others take over, before anything is cut (GReg-1 of H. Wang et al., Neural
    pruning via growing regularization, 2021).

        plan = jaxarch.structure.plan(apply, params, x, budget="50% multiply_adds")
        grows = jaxarch.optim.add_growing_penalty(plan.mask, optax.linear_schedule(0.0, 1.0, 1000))
        tx = optax.chain(grows, optax.sgd(1e-2, momentum=0.9))
        ...  # train; then cut the trained parameters
        small = plan.cut(params)

    The penalty's curvature is its strength: gradient descent at learning rate eta diverges where
    `eta * strength` exceeds 2. An adaptive optimizer takes steps of its learning rate, whatever the strength.
    For an NNX module with state, pass `nnx.filter_state(plan.mask, nnx.Param)`.

    Args:
      mask: booleans in the structure of the parameters, or of a part of them; `None` for leaves without a
        mask. True stays.
      strength: a number, or a function from the number of steps so far, such as an optax schedule.

    Returns:
      An optax transformation; its `update` needs the parameters.

    Raises:
      ArgumentError: a mask that is not boolean; a number that is negative or not finite; in `update`: no
        parameters, parameters or gradients that do not fit the mask, a schedule that returns no number.

    Example:
      >>> import jax.numpy as jnp, jaxarch, optax
      >>> schedule = optax.linear_schedule(0.0, 1.0, 4)
      >>> tx = jaxarch.optim.add_growing_penalty(jnp.array([True, False]), schedule)
      >>> params, state = jnp.array([5.0, 5.0]), tx.init(jnp.zeros(2))
      >>> for _ in range(3):
      ...     updates, state = tx.update(jnp.zeros(2), state, params)
      ...     print(updates)
      [0. 0.]
      [0.   1.25]
      [0.  2.5]
    """
    masked = booleans(mask)
    if not callable(strength):
        check_one_strength("strength", strength)

    def update(
        updates: PyTree, state: GrowingState, params: PyTree | None = None, **extra: Any
    ) -> tuple[PyTree, GrowingState]:
        if params is None:
            raise ArgumentError("params: add_growing_penalty needs them: tx.update(gradients, state, params)")
        now = strength(state.step) if callable(strength) else strength
        check_one_number("strength", now)
        leaves = named_leaves(params)
        slopes = {
            path: jnp.where(keeps, jnp.zeros((), leaves[path].dtype), leaves[path]) * now
            for path, keeps in of_parameters(masked, params).items()
        }
        return _plus(updates, slopes), GrowingState(optax.safe_increment(state.step))

    return optax.GradientTransformationExtraArgs(
        lambda params: GrowingState(jnp.zeros((), jnp.int32)), update
    )


def _root(squares: Array) -> Array:
    """Return square roots whose derivative at 0 is 0, the smallest subgradient of a norm."""
    positive = squares > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, squares, 1)), 0)


def _plus(updates: PyTree, slopes: dict[str, Array]) -> PyTree:
    """Add by path, in the dtype of the updates.

    Raises:
      ArgumentError: gradients without a leaf of the parameters.
    """
    if absent := slopes.keys() - named_leaves(updates).keys():
        raise ArgumentError(
            f"updates: they have no {sorted(absent)[0]!r}; put the penalty next to the gradients, as in "
            "optax.lookahead(optax.chain(penalty, optimizer), ...)"
        )

    def added(keys: Any, update: Any) -> Any:
        slope = slopes.get(path_name(keys))
        return update if slope is None else (update + slope).astype(update.dtype)

    return jax.tree_util.tree_map_with_path(added, updates)
