r"""How far inside the bound of `two-temperature.convergence` a run of one's own is.

Notation as in `mirror`: the mask is `v = sigma(H w)`, the step `w+ = w - eta g ds_S(w)`, D the divergence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from scipy import optimize

from jaxarch.claims.convexity import check_convex
from jaxarch.claims.core import Sides
from jaxarch.claims.two_temperature import slope
from jaxarch.errors import ArgumentError, check_count, check_positive, is_traced
from jaxarch.masks import check_temperatures
from jaxarch.running.devices import float64
from jaxarch.theory import mirror
from jaxarch.trees import PyTree, check_floating

_ROUNDINGS = 16
"""Of the score, the step and its exponential, that a step can suffer."""

DRAWN_MASKS = 1000
"""At which gradients are looked at for the largest one, half of them corners of the cube."""


def trajectory(
    gradient: Callable[[Array, PyTree], Array],
    scores: Array,
    examples: PyTree,
    rates: Array,
    hard: ArrayLike,
    soft: ArrayLike,
) -> tuple[Array, Array]:
    """T steps of the two-temperature gradient, one for each example.

    Args:
      gradient: `(v, z) -> g`.
      scores: w_1, of shape (d,).
      examples: z_1, ..., z_T along the leading axis.
      rates: of shape (T,).
      hard: inverse temperature of the value.
      soft: inverse temperature of the gradient.

    Returns:
      w_1, ..., w_{T+1} and g_1, ..., g_T, of shapes (T+1, d) and (T, d).
    """

    def step(w: Array, at: tuple[PyTree, Array]) -> tuple[Array, tuple[Array, Array]]:
        example, rate = at
        g = gradient(jax.nn.sigmoid(hard * w), example)
        return w - rate * g * slope(w, soft), (w, g)

    last, (before, gradients) = jax.lax.scan(step, scores, (examples, rates))
    return jnp.concatenate([before, last[None]]), gradients


def regret(
    scores: ArrayLike,
    gradients: ArrayLike,
    comparator: ArrayLike,
    hard: ArrayLike,
    soft: ArrayLike,
    rate: ArrayLike,
    constant: ArrayLike | None = None,
) -> Sides:
    """The two sides of `two-temperature.convergence` for a run that was recorded, whatever the loss.

        sum_t <g_t, v_t - u> <= (D(u, v_1) - D(u, v_{T+1}))/eta + eta K sum_t norm(g_t)^2

    where `K = (1 + rho^2) psi(2 delta) H S/32` is `mirror.regret_constant` with the largest entry of the
    gradients for G.

    Args:
      scores: w_1, ..., w_{T+1}, floating-point array of shape (T+1, d).
      gradients: g_1, ..., g_T with respect to the *mask*, of shape (T, d).
      comparator: u, of shape (d,), in [0, 1]; at equal temperatures in (0, 1).
      hard: inverse temperature of the value, positive.
      soft: inverse temperature of the gradient, positive, at most `hard`.
      rate: eta, positive.
      constant: for K, instead of it.

    Returns:
      The sides, in the scores' precision; `rounding` covers that of the run's steps as well.

    Raises:
      ArgumentError: shapes that do not fit; a comparator outside the cube; soft above hard; a rate that is
        not positive; scores that do not follow from one another by steps of this rate.
    """
    w = jnp.asarray(scores)
    check_floating("scores", w)
    g, u = (jnp.asarray(array, w.dtype) for array in (gradients, comparator))
    check_temperatures(hard, soft)
    check_positive("rate", rate)
    if w.ndim != 2 or len(w) < 2:
        raise ArgumentError(f"scores: expected w_1, ..., w_T+1, of shape (T+1, d), got {w.shape}")
    if g.shape != (len(w) - 1, w.shape[1]):
        raise ArgumentError(
            f"gradients: expected shape {(len(w) - 1, w.shape[1])}, a row less than the scores, got {g.shape}"
        )
    if u.shape != w.shape[1:]:
        raise ArgumentError(f"comparator: expected shape {w.shape[1:]}, got {u.shape}")
    if not is_traced((u, hard, soft)):
        _check_comparator(np.asarray(u), np.asarray(hard), np.asarray(soft))
    if not is_traced((w, g, rate, soft)):
        _check_steps(w, g, rate, soft)

    return _regret(w, g, u, hard, soft, rate, constant)


@jax.jit
def _regret(
    w: Array,
    g: Array,
    u: Array,
    hard: ArrayLike,
    soft: ArrayLike,
    rate: ArrayLike,
    constant: ArrayLike | None,
) -> Sides:
    eps = jnp.finfo(w.dtype).eps
    if constant is None:
        largest = jnp.maximum(jnp.max(jnp.abs(g)), jnp.finfo(w.dtype).tiny)
        constant = mirror.regret_constant(rate, hard, soft, gradient_bound=largest)
    v = jax.nn.sigmoid(hard * w)
    near, far = (mirror.bregman_divergence(u, at, hard, soft) for at in (w[0], w[-1]))
    noise = rate * constant * jnp.sum(g**2)
    rounding = jnp.sum(
        divergence_rounding(u, w[0], near, hard, soft) + divergence_rounding(u, w[-1], far, hard, soft)
    )
    rounding = (rounding + step_rounding(w, g, u, rate, hard, soft)) / rate
    rounding = rounding + eps * (16 + g.size) * (jnp.sum(jnp.abs(g)) + noise)
    return Sides(jnp.sum(g * (v[:-1] - u[None])), jnp.sum(near - far) / rate + noise, rounding)


def divergence_rounding(
    comparator: Array, scores: Array, distance: Array, hard: ArrayLike, soft: ArrayLike
) -> Array:
    """How far off `distance = mirror.bregman_divergence(u, w, H, S)` can be, entry by entry.

    Its formula, whose terms are at most `1 + |logit u|` times as large as their sum, and what rounding of
    `H w` makes of it, `|v - u|/ds_S(w)` being the derivative.
    """
    eps = jnp.finfo(scores.dtype).eps
    inside = (comparator > 0) & (comparator < 1)
    u = jnp.where(inside, comparator, 0.5)
    formula = 64 + 64 * jnp.abs(jnp.log(u) - jnp.log1p(-u)) + 4 * soft * jnp.abs(scores)
    return eps * (
        formula * distance + (4 / hard + 4 * jnp.abs(scores)) * _pull(comparator, scores, hard, soft)
    )


def step_rounding(
    scores: Array, gradients: Array, comparator: Array, rates: ArrayLike, hard: ArrayLike, soft: ArrayLike
) -> Array:
    """By how much rounding w_2, ..., w_{T+1} can change the divergences, all together."""
    before, after = scores[:-1], scores[1:]
    size, step = jnp.abs(before), jnp.abs(rates * gradients * slope(before, soft))
    error = _ROUNDINGS * jnp.finfo(scores.dtype).eps * (size + step * (1 + soft * size))
    return jnp.sum(error * _pull(jnp.broadcast_to(comparator, after.shape), after, hard, soft))


def _pull(comparator: Array, scores: Array, hard: ArrayLike, soft: ArrayLike) -> Array:
    """`|v - u|/ds_S(w)`, the size of the derivative of `D(u, v)` in w."""
    return jnp.abs(jax.nn.sigmoid(hard * scores) - comparator) / slope(scores, soft)


def _check_comparator(u: np.ndarray, hard: np.ndarray, soft: np.ndarray) -> None:
    if not ((u >= 0) & (u <= 1)).all():
        raise ArgumentError("comparator: expected numbers in [0, 1]")
    if (soft >= hard).any() and not ((u > 0) & (u < 1)).all():
        raise ArgumentError(
            "comparator: expected numbers in (0, 1), for at equal temperatures vertices are infinitely far"
        )


def _check_steps(scores: Array, gradients: Array, rate: ArrayLike, soft: ArrayLike) -> None:
    w, g, eta, s = (np.asarray(value, np.float64) for value in (scores, gradients, rate, soft))
    before, size = w[:-1], np.abs(w[:-1])
    flat = np.exp(-s * size)
    step = eta * g * s * flat / (1 + flat) ** 2
    allowed = _ROUNDINGS * np.finfo(scores.dtype).eps * (size + np.abs(step) * (1 + s * size))
    fits = np.abs(w[1:] - (before - step)) <= allowed
    if not fits.all():
        t = int(np.argmin(fits.all(axis=1)))
        raise ArgumentError(
            f"scores: w_{t + 2} is not w_{t + 1} - rate g_{t + 1} ds_soft(w_{t + 1}), g the gradient with "
            "respect to the mask; expected a run of one rate, without momentum"
        )


class InsideBound(NamedTuple):
    """What `inside_bound` finds.

    Attributes:
      gap: the mean over the runs of `F(average iterate) - F(u)`, which estimates what is bounded.
      bound: `D(u, v_1)/(eta T) + eta K G^2`, as `mirror.average_iterate_bound`.
      gaps: of each run.
      rate: eta.
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
        """`gap/bound`; 1 would be the worst loss there is."""
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
    """How much of the bound on the average iterate is used up by runs on a convex loss of one's own.

        found = jaxarch.claims.inside_bound(loss, {"x": x, "y": y}, np.zeros(d), hard=50.0, soft=5.0)
        found.ratio

    Each run takes T steps of the two-temperature gradient, each on one example drawn uniformly from the data,
    with replacement. Computed in float64 where the loss lets it.

    Args:
      loss: `f(v, z)` of a mask of shape (d,) and one example; a scalar, convex and differentiable in v.
      data: the examples, a pytree of arrays with one leading axis.
      scores: w_1, of shape (d,).
      hard: inverse temperature of the value, positive.
      soft: inverse temperature of the gradient, positive, below `hard` unless a comparator inside the cube is
        given.
      steps: T.
      runs: how many, over whose gaps the mean is taken.
      rate: eta; by default the prescribed one, `mirror.prescribed_rate`.
      comparator: u, of shape (d,); by default where F, the mean over the data, is least on the cube.
      gradient_bound: G; by default the largest norm of a gradient found, over the data, at 1,000 masks drawn
        from the cube and its corners, or met in a run.
      key: a `jax.random.key`.

    Raises:
      ArgumentError: a loss that is not convex, naming the two points between which it is not; a gradient
        above a `gradient_bound` that was given; shapes that do not fit; soft above hard; a rate that is not
        positive, or none where the comparator is v_1 itself; a comparator that is infinitely far.
    """
    check_count("steps", steps)
    check_count("runs", runs)
    check_temperatures(hard, soft)
    for name, value in (("rate", rate), ("gradient_bound", gradient_bound)):
        if value is not None:
            check_positive(name, value)
    start = np.asarray(scores, np.float64)
    if start.ndim != 1 or not start.size:
        raise ArgumentError(f"scores: expected shape (d,), got {start.shape}")
    sizes = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(data)}
    if len(sizes) != 1 or sizes & {(), (0,)}:
        raise ArgumentError("data: expected arrays with one leading axis, that of the examples")
    (count,) = sizes.pop()
    keys = jax.random.split(jax.random.key(0) if key is None else key, runs + 2)

    with float64():
        data = jax.tree.map(jnp.asarray, data)
        _check_scalar(loss, start, data)

        @jax.jit
        def mean(v: Array) -> Array:
            return jnp.mean(jax.vmap(loss, in_axes=(None, 0))(v, data))

        check_convex(mean, start.size, key=keys[0])
        u = _minimiser(mean, start.size) if comparator is None else np.asarray(comparator, np.float64)
        if u.shape != start.shape:
            raise ArgumentError(f"comparator: expected shape {start.shape}, got {u.shape}")
        _check_comparator(u, np.asarray(hard), np.asarray(soft))
        distance = float(mirror.bregman_divergence(u, start, hard, soft).sum())
        if gradient_bound is None:
            bound_on_gradients = float(_largest_gradient(loss, data, start.size, keys[1]))
        else:
            bound_on_gradients = float(gradient_bound)
        if rate is None:
            if distance == 0:
                raise ArgumentError("rate: none is prescribed where the comparator is v_1 itself; give one")
            rate = float(
                mirror.prescribed_rate(distance, hard, soft, gradient_bound=bound_on_gradients, steps=steps)
            )

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
                f"gradient_bound: expected at least the largest norm of a gradient, which is {met.max():.6g} "
                f"or more, got {gradient_bound}"
            )
        bound = mirror.average_iterate_bound(
            distance, rate, hard, soft, gradient_bound=bound_on_gradients, steps=steps
        )
        return InsideBound(float(gaps.mean()), float(bound), gaps, rate, bound_on_gradients, u)


def _check_scalar(loss: Callable[[Array, PyTree], Array], mask: np.ndarray, data: PyTree) -> None:
    example = jax.tree.map(lambda leaf: leaf[0], data)
    value = jax.eval_shape(loss, mask, example)
    if getattr(value, "shape", None) != () or not jnp.issubdtype(value.dtype, jnp.floating):
        raise ArgumentError(f"loss: expected a real scalar of a mask and one example, got {value}")


def _minimiser(mean: Callable[[Array], Array], dimension: int) -> np.ndarray:
    """Where a convex loss is least on the cube (L-BFGS-B)."""
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
    """The largest norm of `grad f(v, z)` over the examples and drawn masks."""
    masks = jax.random.uniform(key, (DRAWN_MASKS, dimension), jnp.float64)
    masks = jnp.where(jnp.arange(DRAWN_MASKS)[:, None] < DRAWN_MASKS // 2, jnp.round(masks), masks)

    def largest(v: Array) -> Array:
        return jnp.max(jnp.linalg.norm(jax.vmap(jax.grad(loss), in_axes=(None, 0))(v, data), axis=1))

    return jnp.max(jax.jit(lambda masks: jax.lax.map(largest, masks))(masks))
