"""The two sides of `two-temperature.convergence` for a recorded run.

The notation of `mirror`: the mask is `v = sigma(H w)`, the step `w+ = w - eta g ds_S(w)`, D the divergence.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxarch import ArgumentError
from jaxarch.lab.checks import as_array, check_broadcast, check_floating, check_positive, is_traced
from jaxarch.lab.claims.checks.core import Sides
from jaxarch.lab.claims.checks.two_temperature import ROUNDINGS, divergence_rounding, step_rounding
from jaxarch.masks import check_temperatures
from jaxarch.theory import mirror


def regret(
    scores: ArrayLike,
    gradients: ArrayLike,
    comparator: ArrayLike,
    hard: ArrayLike,
    soft: ArrayLike,
    rate: ArrayLike,
    constant: ArrayLike | None = None,
) -> Sides:
    """Compute the two sides of `two-temperature.convergence` for a recorded run, whatever the loss.

        sum_t <g_t, v_t - u> <= (D(u, v_1) - D(u, v_{T+1}))/eta + eta K sum_t norm(g_t)^2

    where `K = (1 + rho^2) psi(2 delta) H S/32` is `mirror.regret_constant`, with G the largest absolute entry
    of the gradients.

    Args:
      scores: w_1, ..., w_{T+1}, floating-point array of shape (T+1, d).
      gradients: g_1, ..., g_T with respect to the *mask*, of shape (T, d).
      comparator: u, of shape (d,), in [0, 1]; at equal temperatures in (0, 1).
      hard: inverse temperature of the value, positive.
      soft: inverse temperature of the gradient, positive, at most `hard`.
      rate: the learning rate eta, positive.
      constant: a value to use in place of K.

    Returns:
      The sides, in the scores' precision; `rounding` also covers the rounding of the run's steps. If they are
      traced and a run diverged, they are NaN.

    Raises:
      ArgumentError: shapes that do not fit; a comparator outside the cube; soft above hard; a rate that is
        not positive; scores that do not follow from one another by steps of this rate; a run so far from the
        comparator, or so fast, that the right side is not defined in this precision.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> scores, gradients = jnp.array([[0.0], [-0.5]]), jnp.array([[1.0]])  # ds_soft(0) = 1/2: one step
      >>> sides = jaxarch.lab.claims.regret(scores, gradients, jnp.zeros(1), hard=4.0, soft=2.0, rate=1.0)
      >>> round(float(sides.left), 3), round(float(sides.right), 3)  # v_1 = 1/2
      (0.5, 0.985)
    """
    w = as_array("scores", scores)
    check_floating("scores", w)
    g, u = as_array("gradients", gradients, w.dtype), as_array("comparator", comparator, w.dtype)
    check_temperatures(hard, soft)
    check_positive("rate", rate)
    constant = None if constant is None else _number("constant", constant)
    if w.ndim != 2 or len(w) < 2:
        raise ArgumentError(f"scores: expected w_1, ..., w_T+1, of shape (T+1, d), got {w.shape}")
    if g.shape != (len(w) - 1, w.shape[1]):
        raise ArgumentError(
            f"gradients: expected shape {(len(w) - 1, w.shape[1])}, a row less than the scores, got {g.shape}"
        )
    if u.shape != w.shape[1:]:
        raise ArgumentError(f"comparator: expected shape {w.shape[1:]}, got {u.shape}")
    check_broadcast(scores=w, hard=hard, soft=soft, rate=rate)
    if not is_traced((u, hard, soft)):
        check_comparator(np.asarray(u), np.asarray(hard), np.asarray(soft))
    if not is_traced((w, g, rate, soft)):
        _check_steps(w, g, rate, soft)

    sides = _regret(w, g, u, _number("hard", hard), _number("soft", soft), _number("rate", rate), constant)
    if not is_traced(sides) and not np.isfinite(sides.right).all():
        farthest = np.abs(np.asarray(w)).max()
        raise ArgumentError(
            f"scores: the bound is not finite, since D(u, v_1), D(u, v_T+1) or K overflows {w.dtype}; "
            f"expected a run that did not diverge, got scores up to {farthest:.3g} at rate = {rate}"
        )
    return sides


def _number(name: str, value: ArrayLike) -> Array:
    """Make an array. An integer becomes a float first, since JAX has no integers of more than 64 bits."""
    return as_array(name, float(value) if isinstance(value, int) else value)


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


def check_comparator(u: np.ndarray, hard: np.ndarray, soft: np.ndarray) -> None:
    """Raise if a comparator is outside the cube, or infinitely far."""
    if not ((u >= 0) & (u <= 1)).all():
        raise ArgumentError(f"comparator: expected numbers in [0, 1], got {u.min():.3g} to {u.max():.3g}")
    if (soft >= hard).any() and not ((u > 0) & (u < 1)).all():
        raise ArgumentError(
            "comparator: expected numbers in (0, 1), since at equal temperatures vertices are infinitely far"
        )


def _check_steps(scores: Array, gradients: Array, rate: ArrayLike, soft: ArrayLike) -> None:
    w, g, eta, s = (np.asarray(value, np.float64) for value in (scores, gradients, rate, soft))
    before, size = w[:-1], np.abs(w[:-1])
    flat = np.exp(-s * size)
    step = eta * g * s * flat / (1 + flat) ** 2
    allowed = ROUNDINGS * np.finfo(scores.dtype).eps * (size + np.abs(step) * (1 + s * size))
    fits = np.abs(w[1:] - (before - step)) <= allowed
    if not fits.all():
        t = int(np.argmin(fits.all(axis=1)))
        raise ArgumentError(
            f"scores: w_{t + 2} is not w_{t + 1} - rate g_{t + 1} ds_soft(w_{t + 1}), g the gradient with "
            "respect to the mask; expected a run with one learning rate and no momentum"
        )
