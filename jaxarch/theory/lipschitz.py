r"""Local Lipschitz constants of JAX functions, proven by linear bounds of their derivatives.

For x and y in a box, `norm(fun(x) - fun(y)) <= L norm(x - y)`, where L is the largest operator norm of the
derivative in the box. At a kink the derivative has several values; bounds enclose them all.

The derivative is that of what the program computes: `stop_gradient` and custom derivatives, by which a
program may state another one, are passed over. It is a program like any other, and its entries are bounded by
`theory.relaxation`. For networks of ReLU this is the bound propagation of Shi et al., *Efficiently computing
local Lipschitz constants of neural networks via bound propagation*, 2022, https://arxiv.org/abs/2210.07394: a
unit whose sign is not decided has a derivative between 0 and 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.flatten_util import ravel_pytree

from jaxarch._internal.errors import ArgumentError, shown
from jaxarch._internal.trees import PyTree, named_leaves
from jaxarch.theory.intervals import Interval, check_box, intervals, sizes
from jaxarch.theory.relaxation import as_computed, by_lines, jumps

__all__ = ["lipschitz_bound"]


def lipschitz_bound(
    fun: Callable[[PyTree], PyTree],
    order: float = np.inf,
    *,
    rows_at_once: int | None = None,
    ascent: int = 0,
) -> Callable[[PyTree, PyTree], Array]:
    r"""Bound how fast a function changes in a box: return a function `(lower, upper) -> L`.

        slope = lipschitz_bound(lambda x: apply(params, x))(image - eps, image + eps)

    All inputs and all outputs are taken as one vector each. With J the derivative, M the largest sizes of its
    entries in the box, C the middles of their intervals and R the radii:

        order inf:  max_i sum_j |J_ij|, each sum bounded as a whole
        order 1:    max_j sum_i M_ij
        order 2:    min(norm_2(C) + sqrt(norm_1(R) norm_inf(R)), sqrt(norm_1(M) norm_inf(M)))

    Args:
      fun: a JAX function of one pytree of floating-point arrays. Values that it closes over are fixed.
      order: the norm of inputs and outputs, 1, 2 or infinity.
      rows_at_once: as in `relaxation.linear_bounds`. Outputs are taken one after the other.
      ascent: as in `relaxation.linear_bounds`.

    Returns:
      A pure function of two pytrees as in `intervals.interval_bounds`. It returns a scalar L with
      `norm(fun(x) - fun(y)) <= L norm(x - y)` for all x and y in the box, rounding included; for order 2 the
      largest singular value of C is assumed right to a part in 10,000. It is infinite where the derivative
      has no bound, and where fun may jump: where it chooses by a comparison whose outcome the box leaves
      open, unless both choices agree there to a thousand roundings of their size. It can be jitted and
      mapped.

    Raises:
      ArgumentError: as `relaxation.linear_bounds`; another order; inputs or outputs that are not of one
        floating-point type of 32 bits or more; a function that uses what jumps by its nature, such as
        `sign`, `round` or a conversion to a shorter type; a sort of more than 32 numbers, or windows without
        an entry.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jaxarch.theory.lipschitz import lipschitz_bound
      >>> box = jnp.array([-1.0, 0.0]), jnp.array([2.0, 1.0])
      >>> round(float(lipschitz_bound(lambda x: x[0] ** 2 + 3 * x[1])(*box)), 2)  # 2 |x_0| + 3
      7.0
      >>> round(float(lipschitz_bound(jax.nn.relu, order=2)(*box)), 2)
      1.0
    """
    if isinstance(order, bool) or not isinstance(order, int | float) or order not in (1, 2, np.inf):
        raise ArgumentError(f"order: expected 1, 2 or infinity, got {shown(order)}")
    narrow = by_lines(rows_at_once, ascent)

    def bound(lower: PyTree, upper: PyTree) -> Array:
        lower, upper = jax.tree.map(jnp.asarray, (lower, upper))
        check_box(lower, upper)
        check_floats("lower", lower)
        check_floats("fun", jax.eval_shape(fun, lower))
        (low, unravel), (high, _) = map(ravel_pytree, (lower, upper))

        def flat(x: Array) -> Array:
            return ravel_pytree(fun(unravel(x)))[0]

        def row(direction: Array) -> tuple[Array, Array, Array]:
            def program(x: Array) -> tuple[Array, Array]:
                _, pull = jax.vjp(computed, x)
                (derivative,) = pull(direction)
                return derivative, jnp.abs(derivative).sum()

            derivative, total = intervals(program, low, high, narrow)
            return derivative.lower, derivative.upper, total.upper

        outputs = intervals(flat, low, high)
        if outputs.exact or not outputs.lower.size or not low.size:
            return jnp.zeros((), low.dtype)
        computed = as_computed(outputs)
        least, largest, totals = lax.map(row, jnp.eye(outputs.lower.size, dtype=outputs.lower.dtype))
        norm = totals.max() if order == np.inf else _norm(least, largest, totals.max(), int(order))
        return jnp.where(jumps(outputs) | jnp.isnan(norm), jnp.inf, norm).astype(low.dtype)

    return bound


def check_floats(name: str, tree: PyTree) -> None:
    """Raise unless inputs, or the outputs of `fun`, are of one floating-point type of 32 bits or more."""
    dtypes = {path: leaf.dtype for path, leaf in named_leaves(tree).items()}
    first = next(iter(dtypes.values()), None)
    others = {
        path: dtype
        for path, dtype in dtypes.items()
        if not jnp.issubdtype(dtype, jnp.floating) or jnp.finfo(dtype).bits < 32
    } or {path: dtype for path, dtype in dtypes.items() if dtype != first}
    for path, dtype in others.items():
        at = f" at {path!r}" if path else ""
        what = "outputs of " if name == "fun" else ""
        raise ArgumentError(f"{name}: expected {what}float32 or float64 everywhere, got {dtype}{at}")


def _norm(least: Array, largest: Array, by_rows: Array, order: int) -> Array:
    """Bound the norm of a matrix of intervals, given the largest sum of a row."""
    by_columns = _sums(sizes(Interval(least, largest)), 0)
    if order == 1:
        return by_columns
    up = 1 + 8 * jnp.finfo(least.dtype).eps
    middle = least + (largest - least) / 2
    radius = jnp.maximum(largest - middle, middle - least) * up
    tiny = jnp.finfo(least.dtype).tiny

    def root(a: Array, b: Array) -> Array:
        return jnp.sqrt(a) * jnp.sqrt(b) * up + tiny  # The product of small sums may be 0.

    spread = root(_sums(radius, 0), _sums(radius, 1))
    return jnp.minimum(1.0001 * jnp.linalg.norm(middle, 2) + spread, root(by_rows, by_columns)) * up


def _sums(sizes_: Array, axis: int) -> Array:
    """Return the largest sum along an axis, rounded up."""
    count: Any = sizes_.shape[axis]
    return sizes_.sum(axis).max() * (1 + (count + 8) * jnp.finfo(sizes_.dtype).eps)
