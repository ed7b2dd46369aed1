r"""The two-temperature step, computed without cancellation, and bounds on its rounding errors.

Notation: `v = sigma(H w)`; the step is `w+ = w - eta g ds_S(w)`, elementwise. Here `g` is the gradient in v,
`ds_M(w) = M sigma(M w) (1 - sigma(M w))`, H = `hard`, S = `soft`, eta = `rate`. By the mean value theorem
`v+ = v - eta p g` with `p = ds_H(xi) ds_S(w)`, xi between w and w+. D is the divergence of
`mirror.bregman_divergence`.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxarch import PyTree
from jaxarch.lab.claims.checks.core import EPS


def slope(scores: ArrayLike, sharpness: ArrayLike) -> Array:
    """Compute `ds_M(w) = M sigma(M w) (1 - sigma(M w))`, without cancellation in the tails."""
    below = jax.nn.sigmoid(-jnp.abs(jnp.multiply(sharpness, scores)))
    return jnp.multiply(sharpness, below * (1 - below))


def mean_slope(scores: ArrayLike, step: ArrayLike, sharpness: ArrayLike) -> Array:
    """Compute the mean of `ds_M` from w to w - step: the difference quotient of `sigma_M`.

    `sigma(a) - sigma(b) = sigma(a) sigma(-b) (1 - e^(b - a))` avoids cancellation.
    """
    start, length = jnp.multiply(sharpness, scores), jnp.multiply(sharpness, step)
    low, high = jnp.minimum(start, start - length), jnp.maximum(start, start - length)
    length = jnp.abs(length)
    positive = jnp.where(length > 0, length, 1)
    shortened = jnp.where(length > 0, -jnp.expm1(-positive) / positive, 1)
    return jnp.multiply(sharpness, jax.nn.sigmoid(high) * jax.nn.sigmoid(-low) * shortened)


def update_factor(
    gradient: ArrayLike, scores: ArrayLike, rate: ArrayLike, hard: ArrayLike, soft: ArrayLike
) -> tuple[Array, Array]:
    """Return `p = ds_H(xi) ds_S(w)`, for which `v+ = v - eta p g`, and a bound on its rounding error."""
    step = rate * jnp.asarray(gradient) * slope(scores, soft)
    factor = mean_slope(scores, step, hard) * slope(scores, soft)
    arguments = jnp.add(hard, soft) * jnp.abs(jnp.asarray(scores)) + hard * jnp.abs(step)
    return factor, EPS * (32 + 4 * arguments) * factor


ROUNDINGS = 16
"""Number of roundings in one step: of the score, of the step and of its exponential."""


def trajectory(
    gradient: Callable[[Array, PyTree], Array],
    scores: Array,
    examples: PyTree,
    rates: Array,
    hard: ArrayLike,
    soft: ArrayLike,
) -> tuple[Array, Array]:
    """Take T steps of the two-temperature gradient, one for each example.

    Args:
      gradient: `(v, z) -> g`.
      scores: w_1, of shape (d,).
      examples: z_1, ..., z_T along the leading axis.
      rates: the learning rates, of shape (T,).
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


def divergence_rounding(
    comparator: Array, scores: Array, distance: Array, hard: ArrayLike, soft: ArrayLike
) -> Array:
    """Bound the rounding error of `distance = mirror.bregman_divergence(u, w, H, S)`, entry by entry.

    One part is the error of the formula, whose terms are at most `1 + |logit u|` times as large as their sum.
    The other is the effect of rounding `H w`; the derivative in w has size `|v - u|/ds_S(w)`.
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
    """Bound the total change of the divergences through the rounding of w_2, ..., w_{T+1}."""
    before, after = scores[:-1], scores[1:]
    size, step = jnp.abs(before), jnp.abs(rates * gradients * slope(before, soft))
    error = ROUNDINGS * jnp.finfo(scores.dtype).eps * (size + step * (1 + soft * size))
    return jnp.sum(error * _pull(jnp.broadcast_to(comparator, after.shape), after, hard, soft))


def _pull(comparator: Array, scores: Array, hard: ArrayLike, soft: ArrayLike) -> Array:
    """Compute `|v - u|/ds_S(w)`, the size of the derivative of `D(u, v)` in w."""
    return jnp.abs(jax.nn.sigmoid(hard * scores) - comparator) / slope(scores, soft)
