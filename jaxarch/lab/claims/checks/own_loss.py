"""Runs on a user's loss, compared with the bound of `two-temperature.average-iterate`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxarch import ArgumentError, PyTree
from jaxarch.lab.checks import (
    check_arrays,
    check_callable,
    check_concrete,
    check_count,
    check_one_key,
    positive_number,
    real_number,
    real_numbers,
)
from jaxarch.lab.claims.checks.convexity import check_convex, check_scalar, half_corners
from jaxarch.lab.claims.checks.core import float64
from jaxarch.lab.claims.checks.recorded_run import check_comparator
from jaxarch.lab.claims.checks.two_temperature import trajectory
from jaxarch.masks import check_temperatures
from jaxarch.theory import mirror

DRAWN_MASKS = 1000
"""Number of masks that are searched for the largest gradient; half of them are corners of the cube."""


class InsideBound(NamedTuple):
    """The result of `inside_bound`.

    Attributes:
      gap: the mean over the runs of `F(average iterate) - F(u)`, an estimate of the bounded expectation.
      bound: `D(u, v_1)/(eta T) + eta K G^2`, as `mirror.average_iterate_bound`.
      gaps: `F(average iterate) - F(u)` of each run.
      rate: the learning rate eta.
      gradient_bound: G.
      comparator: u.
    """

    gap: float
    bound: float
    gaps: np.ndarray
    rate: float
    gradient_bound: float
    comparator: np.ndarray

    @property
    def ratio(self) -> float:
        """`gap/bound`; 1 would be the worst possible loss."""
        return self.gap / self.bound


def inside_bound(
    loss: Callable[[Array, PyTree], Array],
    data: PyTree,
    scores: ArrayLike,
    hard: float,
    soft: float,
    *,
    steps: int = 1000,
    runs: int = 32,
    rate: float | None = None,
    comparator: ArrayLike | None = None,
    gradient_bound: float | None = None,
    key: Array | None = None,
) -> InsideBound:
    """Compare runs on your convex loss with the bound on the gap of the average iterate.

        found = jaxarch.lab.claims.inside_bound(loss, {"x": x, "y": y}, np.zeros(d), hard=50.0, soft=5.0)
        found.ratio

    Each run takes T steps of the two-temperature gradient, each on one example drawn uniformly from the data,
    with replacement. Runs are in float64 where the loss permits.

    Args:
      loss: `f(v, z)` of a mask of shape (d,) and one example; a scalar, convex and differentiable in v.
      data: the examples, a pytree of arrays with one leading axis.
      scores: w_1, of shape (d,).
      hard: inverse temperature of the value, positive.
      soft: inverse temperature of the gradient, positive, below `hard` unless a comparator inside the cube is
        given.
      steps: T.
      runs: the number of runs.
      rate: the learning rate eta; by default `mirror.prescribed_rate`.
      comparator: u, of shape (d,); by default the minimizer on the cube of F, the mean loss over the data.
      gradient_bound: G; by default the largest gradient norm found. The search covers all examples, at 1,000
        masks drawn from the cube and its corners, and the gradients met in the runs.
      key: a `jax.random.key`.

    Raises:
      ArgumentError: a loss that is not convex (the message names two points between which it is not); a
        gradient above the given `gradient_bound`; shapes that do not fit; soft above hard; a rate that is not
        positive, or no rate where the comparator is v_1 itself; a comparator that is infinitely far.

    Example:
      >>> import jaxarch, numpy as np
      >>> loss = lambda v, z: z @ v  # least where no connection is kept; the norm of its gradient is 1
      >>> known = {"comparator": np.zeros(1), "gradient_bound": 1.0, "steps": 100, "runs": 2}
      >>> found = jaxarch.lab.claims.inside_bound(loss, np.ones((2, 1)), np.zeros(1), 4.0, 2.0, **known)
      >>> round(found.gap, 3), round(found.bound, 3)
      (0.034, 0.077)
    """
    check_callable("loss", loss, "v", "z")
    check_count("steps", steps)
    check_count("runs", runs)
    check_temperatures(hard, soft)
    hard, soft = real_number("hard", hard), real_number("soft", soft)
    rate = None if rate is None else positive_number("rate", rate)
    gradient_bound = None if gradient_bound is None else positive_number("gradient_bound", gradient_bound)
    start, count = _start(scores), _count_of(data)
    key = jax.random.key(0) if key is None else key
    check_one_key(key)
    keys = jax.random.split(key, runs + 2)

    with float64():
        data = jax.tree.map(jnp.asarray, data)
        check_scalar(loss, start.size, jax.tree.map(lambda leaf: leaf[0], data))

        @jax.jit
        def mean(v: Array) -> Array:
            return jnp.mean(jax.vmap(loss, in_axes=(None, 0))(v, data))

        check_convex(mean, start.size, key=keys[0])
        u = _minimiser(mean, start.size) if comparator is None else real_numbers("comparator", comparator)
        _check_comparator(u, start, hard, soft)
        distance = float(mirror.bregman_divergence(u, start, hard, soft).sum())
        bound_on_gradients = gradient_bound or float(_largest_gradient(loss, data, start.size, keys[1]))
        if rate is None:
            rate = _prescribed_rate(distance, hard, soft, bound_on_gradients, steps)

        @jax.jit
        @jax.vmap
        def run(key: Array) -> tuple[Array, Array]:
            rows = jax.random.randint(key, (steps,), 0, count)

            def gradient(v: Array, row: Array) -> Array:
                return jax.grad(loss)(v, jax.tree.map(lambda leaf: leaf[row], data)).astype(v.dtype)

            w, g = trajectory(gradient, jnp.asarray(start), rows, jnp.full(steps, rate), hard, soft)
            average = jax.nn.sigmoid(hard * w[:-1]).mean(axis=0)
            return mean(average) - mean(jnp.asarray(u)), jnp.max(jnp.linalg.norm(g, axis=1))

        gaps, met = map(np.asarray, run(keys[2:]))
        if gradient_bound is None:
            bound_on_gradients = max(bound_on_gradients, float(met.max()))
        elif met.max() > gradient_bound:
            raise ArgumentError(
                f"gradient_bound: expected at least {met.max():.6g}, the largest norm of a gradient in these "
                f"runs, got {gradient_bound}"
            )
        bound = mirror.average_iterate_bound(
            distance, rate, hard, soft, gradient_bound=bound_on_gradients, steps=steps
        )
        return InsideBound(float(gaps.mean()), float(bound), gaps, rate, bound_on_gradients, u)


def _start(scores: ArrayLike) -> np.ndarray:
    start = real_numbers("scores", scores)
    if start.ndim != 1 or not start.size:
        raise ArgumentError(f"scores: expected shape (d,), got {start.shape}")
    return start


def _count_of(data: PyTree) -> int:
    """Count the examples."""
    check_arrays("data", data)
    check_concrete("data", data)
    sizes = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(data)}
    if len(sizes) != 1 or sizes & {(), (0,)}:
        raise ArgumentError(
            f"data: expected arrays with one leading axis of examples, got leading axes {sorted(sizes)}"
        )
    (count,) = sizes.pop()
    return count


def _check_comparator(u: np.ndarray, start: np.ndarray, hard: float, soft: float) -> None:
    if u.shape != start.shape:
        raise ArgumentError(f"comparator: expected shape {start.shape}, got {u.shape}")
    check_comparator(u, np.asarray(hard), np.asarray(soft))


def _prescribed_rate(distance: float, hard: float, soft: float, gradient_bound: float, steps: int) -> float:
    if distance == 0:
        raise ArgumentError("rate: missing; no rate is prescribed where the comparator is v_1 itself")
    return float(mirror.prescribed_rate(distance, hard, soft, gradient_bound=gradient_bound, steps=steps))


def _minimiser(mean: Callable[[Array], Array], dimension: int) -> np.ndarray:
    """Return the minimizer of a convex loss on the cube, by L-BFGS-B."""
    from scipy import optimize

    slopes = jax.jit(jax.value_and_grad(mean))

    def value_and_slope(v: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = slopes(v)
        return float(value), np.asarray(gradient, np.float64)

    middle = np.full(dimension, 0.5)
    return optimize.minimize(
        value_and_slope, middle, jac=True, method="L-BFGS-B", bounds=[(0.0, 1.0)] * dimension
    ).x


def _largest_gradient(
    loss: Callable[[Array, PyTree], Array], data: PyTree, dimension: int, key: Array
) -> Array:
    """Return the largest norm of `grad f(v, z)` over the examples and drawn masks."""
    masks = half_corners(jax.random.uniform(key, (DRAWN_MASKS, dimension), jnp.float64))

    def largest(v: Array) -> Array:
        return jnp.max(jnp.linalg.norm(jax.vmap(jax.grad(loss), in_axes=(None, 0))(v, data), axis=1))

    return jnp.max(jax.jit(lambda masks: jax.lax.map(largest, masks))(masks))
