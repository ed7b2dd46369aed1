r"""The dual variables of the two-temperature gradient: mirror map, inverse, and the exact mirror step.

    theta(w) = (2/soft) (w + sinh(soft w) / soft),        d theta / dw = 1 / ds_soft(w)

In these variables the flow of the step is `d theta / dt = -grad_v f`.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import as_array, check_broadcast, check_positive
from jaxarch._internal.precision import widened
from jaxarch._internal.trees import check_floating


def mirror_map(scores: ArrayLike, soft: ArrayLike) -> Array:
    r"""Return the dual variables `theta(w) = (2/soft) (w + sinh(soft w) / soft)`; in them the flow is `-g`.

    Args:
      scores: floating-point array of any shape.
      soft: inverse temperature of the gradient, positive; broadcast against the scores.

    Returns:
      An array of the scores' shape and dtype, odd and increasing in the scores. It is infinite on overflow,
      which in float32 occurs beyond `|soft w|` of about 88.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxarch.theory import mirror
      >>> scores = jnp.log(jnp.array([0.5, 1.0, 2.0]))  # sinh(log 2) = 3/4
      >>> [round(theta, 3) for theta in mirror.mirror_map(scores, soft=1.0).tolist()]
      [-2.886, 0.0, 2.886]
    """
    scores, soft = scores_and_temperature(scores, soft)
    return 2 / soft * (scores + jnp.sinh(soft * scores) / soft)


def inverse_mirror_map(theta: ArrayLike, soft: ArrayLike) -> Array:
    r"""Return the scores whose `mirror_map` is theta, to a few units in the last place.

    With `x = soft w`, it solves `x + sinh x = y`, `y = soft^2 theta / 2`, by a fixed number of Newton steps.
    The equation is solved as written for `|y| < 1`, and in logarithms beyond, so that nothing overflows.

    Args:
      theta: floating-point array of any shape, any finite or infinite values.
      soft: as in `mirror_map`.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxarch.theory import mirror
      >>> theta = mirror.mirror_map(jnp.array([-3.0, 0.5, 40.0]), soft=2.0)
      >>> [round(score, 3) for score in mirror.inverse_mirror_map(theta, soft=2.0).tolist()]
      [-3.0, 0.5, 40.0]
    """
    theta, soft = scores_and_temperature(theta, soft)
    size = jnp.abs(theta)
    small = soft * soft * size / 2
    log = jnp.where(jnp.isinf(small), jnp.log(size) + 2 * jnp.log(soft), jnp.log(small) + _LOG_2)
    root = jnp.where(small < 1, _solve_small(jnp.minimum(small, 1)), _solve_log(jnp.maximum(log, _LOG_2)))
    return jnp.sign(theta) * root / soft


def mirror_update(scores: ArrayLike, gradient: ArrayLike, soft: ArrayLike, rate: ArrayLike) -> Array:
    r"""Return `w+ - w` for the exact mirror step: `theta(w+) = theta(w) - rate g`.

    Args:
      scores: w, floating-point array of any shape.
      gradient: the gradient with respect to the *scores*, as `masks.two_temperature` gives it:
        `c = g ds_soft(w)`.
      soft: inverse temperature of the gradient, positive.
      rate: the learning rate eta.

    Returns:
      An array of the scores' shape and dtype. To first order in the rate it is `-rate c`, the ordinary step.

    The gradient g of the mask is never formed. Divided by ds_soft, the equation is
    `d + sinh(x + d) - sinh(x) = -rate soft c (1 + cosh x)` in `x = soft w`, `d = soft (w+ - w)`. It is solved
    for d itself, scaled by `exp(-|x|)`. So small steps keep their relative accuracy (no difference of two
    large thetas is taken), a gradient of 0 moves nothing, and no score overflows. The limit is set by c: in
    float32 it underflows where `g ds_soft(w) < 1e-38`, beyond `|soft w|` of about 87. The score then stays,
    as it does under any other optimizer.

    Example:
      >>> from jaxarch.theory import mirror
      >>> step = mirror.mirror_update(0.0, gradient=0.5, soft=2.0, rate=10.0)  # ds_soft(0) = 0.5, so g = 1
      >>> round(float(step), 2)  # the ordinary step would be -5
      -1.75
      >>> round(float(mirror.mirror_map(step, soft=2.0)), 3)
      -10.0
    """
    scores, soft = scores_and_temperature(scores, soft)
    gradient, rate = as_array("gradient", gradient, scores.dtype), as_array("rate", rate, scores.dtype)
    check_broadcast(scores=scores, soft=soft, gradient=gradient, rate=rate)
    step = -rate * soft * gradient
    return _displacement(soft * scores, step) / soft


_LOG_2 = float(np.log(2))
_STEPS_SMALL, _STEPS_LOG, _STEPS_DISPLACEMENT = 3, 5, 4
"""Newton steps: enough for float64 everywhere; with one step less, the tests fail."""


def _solve_small(y: Array) -> Array:
    """Solve `x + sinh x = y` for 0 <= y <= 1.

    Newton's method starts at y/2, above the root of a convex function, and descends.
    """
    x = y / 2
    for _ in range(_STEPS_SMALL):
        x = x - (x + jnp.sinh(x) - y) / (1 + jnp.cosh(x))
    return x


def _solve_log(log: Array) -> Array:
    """Solve `log(2 (x + sinh x)) = log` for `log >= log 2`, by Newton's method from `x = log`."""
    x = log
    for _ in range(_STEPS_LOG):
        # Beyond 200 both corrections are 0 in any precision, and infinity is a root.
        near = jnp.minimum(x, 200)
        decay = jnp.exp(-near)
        ratio = 1 + decay * (2 * near - decay)
        residual = x - log + jnp.log(ratio)
        x = x - jnp.where(jnp.isinf(log), 0, residual) * ratio / jnp.square(1 + decay)
    return x


def _displacement(x: Array, step: Array) -> Array:
    """Solve `d + sinh(x + d) - sinh(x) = step (1 + cosh x)` for d; to first order, d is `step`."""
    side = jnp.where(x < 0, -1, 1).astype(x.dtype)
    x, step = jnp.abs(x), side * step
    decay = jnp.exp(-x)

    # Scaled by exp(-x), it is `2 decay d + expm1(d) - decay^2 expm1(-d)`: all terms have the same sign, so
    # nothing cancels.
    small = jnp.clip(step, -0.5, 0.5)
    near = small
    for _ in range(_STEPS_DISPLACEMENT):
        value = 2 * decay * near + jnp.expm1(near) - decay * (decay * jnp.expm1(-near))
        slope = 2 * decay + jnp.exp(near) + decay * (decay * jnp.exp(-near))
        near = near - (value - small * jnp.square(1 + decay)) / slope

    # Large steps solve the whole equation, y = x + sinh(x) + step (1 + cosh x), through log(2 |y|).
    scaled = (1 + step) + 2 * decay * (x + step) + decay * (decay * (step - 1))
    log = x + jnp.log(jnp.abs(scaled))
    root = jnp.where(
        log < _LOG_2,
        _solve_small(jnp.exp(jnp.minimum(log, _LOG_2)) / 2),
        _solve_log(jnp.maximum(log, _LOG_2)),
    )
    far = jnp.sign(scaled) * root - x
    return side * jnp.where(jnp.abs(step) <= 0.5, near, far)


def scores_and_temperature(scores: ArrayLike, soft: ArrayLike) -> tuple[Array, Array]:
    """Check scores and temperature, and return both in the scores' precision, at least float32."""
    check_positive("soft", soft)
    array = as_array("scores", scores)
    check_floating("scores", array)
    check_broadcast(scores=array, soft=soft)
    array = widened(array)
    return array, jnp.asarray(soft, array.dtype)
