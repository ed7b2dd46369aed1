r"""Learning rates, and bounds on the gap of a loss after T steps.

The bounds hold for f convex in v, gradients `norm(g) <= gradient_bound` at every step, and examples drawn
independently of the past. `jaxarch.theory.bounds` certifies gradient bounds. The bounds called `descent` need
no convexity. rho = soft / hard.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import (
    LARGEST_COUNT,
    ArgumentError,
    check_flag,
    check_positive,
    is_traced,
    real_numbers,
    shown,
)
from jaxarch._internal.precision import widened
from jaxarch.masks import check_clip, check_temperatures


def prescribed_rate(
    distance: ArrayLike, hard: ArrayLike, soft: ArrayLike, *, gradient_bound: ArrayLike, steps: ArrayLike
) -> Array:
    r"""Return the constant rate with the smallest average-iterate bound, `(4/G) sqrt(2 D / (hard soft T))`.

        distance = mirror.start_distance(connections, hard, soft)
        rate = mirror.prescribed_rate(distance, hard, soft, gradient_bound=G, steps=1000)

    From `v = 1/2` to an architecture of d connections, the rate eta is `(8/(hard soft G)) sqrt(d A / T)`,
    `A = log 2 + I(rho)`. For `T >= 16 rho^2 d A` the gap of the average iterate is then at most
    `(G/2) sqrt(d A / T)` with the exact mirror step. With the actual step it is at most
    `(1 + 1.44 (1 + rho^2)) / 2` times this bound.

    Args:
      distance: `D(u, v_1)`, from `start_distance` or `total_divergence`; positive and finite.
      hard: inverse temperature of the value, positive.
      soft: inverse temperature of the gradient, positive, at most `hard`.
      gradient_bound: G, with `norm(grad_v f) <= G` for every example.
      steps: T.

    Example:
      >>> from jaxarch.theory import mirror
      >>> rate = mirror.prescribed_rate(2.0, hard=4.0, soft=1.0, gradient_bound=2.0, steps=100)
      >>> round(float(rate), 3)  # 4/2 sqrt(4/400)
      0.2
    """
    check_temperatures(hard, soft)
    _check_numbers(distance=distance, gradient_bound=gradient_bound, steps=steps)
    return 4 / _number(gradient_bound) * jnp.sqrt(2 * _number(distance) / (hard * soft * _number(steps)))


def regret_constant(
    rate: ArrayLike, hard: ArrayLike, soft: ArrayLike, *, gradient_bound: ArrayLike, exact: bool = False
) -> Array:
    r"""Return `K = (1 + rho^2) psi(2 delta) hard soft / 32` of the regret bound, at constant rate eta.

    For any vectors `g_1, ..., g_T` of norm at most G and any mask u,
    `sum <g_t, v_t - u> <= (D(u, v_1) - D(u, v_{T+1})) / eta + eta K sum norm(g_t)^2`, where
    `delta = eta G soft^2 / 4` and `psi(x) = 2 (e^x - 1 - x) / x^2`.

    Args:
      rate: eta.
      hard: inverse temperature of the value, positive.
      soft: inverse temperature of the gradient, positive, at most `hard`.
      gradient_bound: G.
      exact: whether the step is `optim.mirror_descent`, for which `K = hard soft / 32` at every rate.

    Example:
      >>> from jaxarch.theory import mirror
      >>> float(mirror.regret_constant(0.5, hard=8.0, soft=4.0, gradient_bound=1.0, exact=True))
      1.0
      >>> rates = (1e-9, 0.5)  # (1 + 1/4) psi(0), and (1 + 1/4) psi(4)
      >>> [round(float(mirror.regret_constant(rate, 8.0, 4.0, gradient_bound=1.0)), 2) for rate in rates]
      [1.25, 7.75]
    """
    check_temperatures(hard, soft)
    _check_numbers(rate=rate, gradient_bound=gradient_bound)
    product = _number(hard) * _number(soft)
    check_flag("exact", exact)
    if exact:
        return product / 32
    delta = _delta(rate, soft, gradient_bound)
    return (1 + jnp.square(_number(soft) / _number(hard))) * _psi(2 * delta) * product / 32


def saturation_steps(
    position: ArrayLike, rate: ArrayLike, hard: ArrayLike, soft: ArrayLike, *, least_gradient: ArrayLike
) -> Array:
    r"""Return the steps until an entry can be read off: `2 (b + sinh(rho b)/rho) / (hard soft eta gamma)`.

    Start at `v = 1/2`, and let all gradients in this entry have one sign and a size of at least gamma. Then
    this number of steps, rounded up, brings the entry to `|hard w| >= b`, within `1/(1 + e^b)` of its vertex.
    Of hard, soft and eta, only `hard soft eta` and rho matter (`two-temperature.scaling`). At a given
    `hard soft eta` the number grows with rho: by at most 9% up to `rho = 1/b`, and like `e^(rho b)` beyond
    (docs/theory.md, `two-temperature.time-to-read-off`).

    Args:
      position: b, positive; at 16, v differs from its vertex by one unit in the last place of float32.
      rate: eta.
      hard: inverse temperature of the value, positive.
      soft: inverse temperature of the gradient, positive, at most `hard`.
      least_gradient: gamma, positive.

    Example:
      >>> from jaxarch.theory import mirror
      >>> def steps(ratio):
      ...     return mirror.saturation_steps(16.0, 1 / ratio, 1.0, ratio, least_gradient=0.1)
      >>> [round(float(steps(ratio))) for ratio in (0.03, 0.06, 0.1, 0.5)]
      [652, 691, 795, 59939]
    """
    check_temperatures(hard, soft)
    _check_numbers(position=position, rate=rate, least_gradient=least_gradient)
    b, ratio = _number(position), _number(soft) / _number(hard)
    product = _number(hard) * _number(soft) * _number(rate) * _number(least_gradient)
    return 2 * (b + jnp.sinh(ratio * b) / ratio) / product


def average_iterate_bound(
    distance: ArrayLike,
    rate: ArrayLike,
    hard: ArrayLike,
    soft: ArrayLike,
    *,
    gradient_bound: ArrayLike,
    steps: ArrayLike,
    exact: bool = False,
) -> Array:
    """Return `D/(eta T) + eta K G^2`, a bound on the expected gap of the average iterate, f convex.

    The gap is `E F((v_1 + ... + v_T)/T) - F(u)`. The arguments are as in `prescribed_rate` and
    `regret_constant`.

    Example:
      >>> from jaxarch.theory import mirror
      >>> given = {"hard": 4.0, "soft": 1.0, "gradient_bound": 2.0, "steps": 100}
      >>> rate = mirror.prescribed_rate(2.0, **given)
      >>> round(float(mirror.average_iterate_bound(2.0, rate, **given, exact=True)), 3)  # 0.1 + 0.1
      0.2
      >>> round(float(mirror.average_iterate_bound(2.0, rate, **given)), 3)
      0.214
    """
    _check_numbers(rate=rate, gradient_bound=gradient_bound, steps=steps)
    _check_real(distance=distance)
    constant = regret_constant(rate, hard, soft, gradient_bound=gradient_bound, exact=exact)
    eta, G, T = _number(rate), _number(gradient_bound), _number(steps)
    return _number(distance) / (eta * T) + eta * constant * jnp.square(G)


def last_iterate_bound(
    distance: ArrayLike,
    rate: ArrayLike,
    hard: ArrayLike,
    soft: ArrayLike,
    *,
    gradient_bound: ArrayLike,
    steps: ArrayLike,
    exact: bool = False,
) -> Array:
    """Return `D/(eta T) + eta K G^2 (2 + log T)`, a bound on the expected gap of the last iterate.

    The gap is `E F(v_T) - F(u)`.

    Example:
      >>> from jaxarch.theory import mirror
      >>> given = {"hard": 4.0, "soft": 1.0, "gradient_bound": 2.0, "steps": 100}
      >>> bound = mirror.last_iterate_bound(2.0, 0.2, **given, exact=True)  # 0.1 + 0.1 (2 + log 100)
      >>> round(float(bound), 3)
      0.761
    """
    _check_numbers(rate=rate, gradient_bound=gradient_bound, steps=steps)
    _check_real(distance=distance)
    constant = regret_constant(rate, hard, soft, gradient_bound=gradient_bound, exact=exact)
    eta, G, T = _number(rate), _number(gradient_bound), _number(steps)
    return _number(distance) / (eta * T) + eta * constant * jnp.square(G) * (2 + jnp.log(T))


def anytime_bound(
    distance: ArrayLike,
    scale: ArrayLike,
    hard: ArrayLike,
    soft: ArrayLike,
    *,
    gradient_bound: ArrayLike,
    steps: ArrayLike,
    exact: bool = False,
) -> Array:
    """Return `(D + K G^2 c^2 (1 + log T)) / (2 c (sqrt(T+1) - 1))`, a bound for every T.

    With rates `eta_t = c / sqrt(t)`, it bounds the expected gap of the average of the iterates, weighted by
    their rates. `scale` is c; K is `regret_constant` at the largest rate, c.

    Example:
      >>> from jaxarch.theory import mirror
      >>> given = {"hard": 4.0, "soft": 1.0, "gradient_bound": 2.0, "exact": True}
      >>> bounds = [mirror.anytime_bound(2.0, 1.0, steps=steps, **given) for steps in (3, 99, 9999)]
      >>> [round(float(bound), 3) for bound in bounds]  # at 99: (2 + (1 + log 99)/2) / 18
      [1.525, 0.267, 0.036]
    """
    _check_numbers(scale=scale, gradient_bound=gradient_bound, steps=steps)
    _check_real(distance=distance)
    constant = regret_constant(scale, hard, soft, gradient_bound=gradient_bound, exact=exact)
    c, G, T = _number(scale), _number(gradient_bound), _number(steps)
    numerator = _number(distance) + constant * jnp.square(G * c) * (1 + jnp.log(T))
    return numerator / (2 * c * (jnp.sqrt(T + 1) - 1))


def heavy_ball_bound(
    distance: ArrayLike,
    rate: ArrayLike,
    hard: ArrayLike,
    soft: ArrayLike,
    *,
    momentum: ArrayLike,
    gradient_bound: ArrayLike,
    steps: ArrayLike,
) -> Array:
    r"""Bound the average iterate's gap with momentum: `m <- mu m + g ds_soft(w)`, `w <- w - eta m`.

    With `eta' = eta/(1 - mu)` and `delta' = eta' G soft^2 / 4`, the bound is

        D/(eta' T) + eta' K' G^2
        K' = (1 + rho^2) (hard soft/32) e^{2 delta'/(1-mu)} (1 + 2 mu e^-delta'/(1 - mu e^delta'))

    if `mu e^delta' < 1`, and infinite (no guarantee) otherwise.

    Args:
      distance: `D(u, v_1)`.
      rate: eta.
      hard: inverse temperature of the value, positive.
      soft: inverse temperature of the gradient, positive, at most `hard`.
      momentum: mu, in [0, 1).
      gradient_bound: G.
      steps: T.

    Example:
      >>> from jaxarch.theory import mirror
      >>> given = {"hard": 4.0, "soft": 1.0, "momentum": 0.5, "gradient_bound": 2.0, "steps": 100}
      >>> round(float(mirror.heavy_ball_bound(2.0, 0.1, **given)), 3)
      0.579
      >>> float(mirror.heavy_ball_bound(2.0, 1.0, **given))  # delta' = 1, and e/2 is not below 1
      inf
    """
    check_temperatures(hard, soft)
    _check_numbers(rate=rate, gradient_bound=gradient_bound, steps=steps)
    _check_real(distance=distance, momentum=momentum)
    if not is_traced(momentum) and not ((np.asarray(momentum) >= 0) & (np.asarray(momentum) < 1)).all():
        raise ArgumentError(f"momentum: expected a number in [0, 1), got {shown(momentum)}")
    mu, G = _number(momentum), _number(gradient_bound)
    eta = _number(rate) / (1 - mu)
    delta = _delta(eta, soft, gradient_bound)
    kept = 1 - mu * jnp.exp(delta)
    constant = (1 + jnp.square(_number(soft) / _number(hard))) * _number(hard) * _number(soft) / 32
    constant = constant * jnp.exp(2 * delta / (1 - mu)) * (1 + 2 * mu * jnp.exp(-delta) / kept)
    bound = _number(distance) / (eta * _number(steps)) + eta * constant * jnp.square(G)
    return jnp.where(kept > 0, bound, jnp.inf)


def largest_descent_rate(hard: ArrayLike, soft: ArrayLike, *, smoothness: ArrayLike) -> Array:
    """Return `16 / (L hard soft)`: up to this rate no full-gradient step raises an L-smooth F.

    F need not be convex.

    Example:
      >>> from jaxarch.theory import mirror
      >>> float(mirror.largest_descent_rate(hard=4.0, soft=2.0, smoothness=2.0))
      1.0
    """
    check_temperatures(hard, soft)
    _check_numbers(smoothness=smoothness)
    return 16 / (_number(smoothness) * _number(hard) * _number(soft))


def descent_bound(
    gap: ArrayLike,
    rate: ArrayLike,
    hard: ArrayLike,
    soft: ArrayLike,
    *,
    smoothness: ArrayLike,
    steps: ArrayLike,
) -> Array:
    r"""Return `2 (F(v_1) - inf F) / (eta T)`, a bound on `min_t g_t^T D_t g_t` of full-gradient steps.

    F is L-smooth, and `D_t = diag(ds_hard(xi_t) ds_soft(w_t))`, xi_t between w_t and w_{t+1}. D_t goes to 0
    at every vertex, so a small value does not mean that F is stationary there.

    Args:
      gap: `F(v_1) - inf F`.
      rate: eta; beyond `largest_descent_rate` there is no guarantee, and the bound is infinite.
      hard: inverse temperature of the value, positive.
      soft: inverse temperature of the gradient, positive, at most `hard`.
      smoothness: L, with grad F L-Lipschitz on [0, 1]^d.
      steps: T.

    Example:
      >>> from jaxarch.theory import mirror
      >>> given = {"hard": 4.0, "soft": 2.0, "smoothness": 2.0, "steps": 100}  # up to a rate of 1
      >>> [round(float(mirror.descent_bound(1.0, rate, **given)), 3) for rate in (0.5, 1.0, 1.5)]
      [0.04, 0.02, inf]
    """
    largest = largest_descent_rate(hard, soft, smoothness=smoothness)
    _check_numbers(rate=rate, steps=steps)
    _check_real(gap=gap)
    bound = 2 * _number(gap) / (_number(rate) * _number(steps))
    return jnp.where(_number(rate) <= largest, bound, jnp.inf)


def clipped_descent_bound(
    gap: ArrayLike,
    clip: ArrayLike,
    rate: ArrayLike,
    hard: ArrayLike,
    soft: ArrayLike,
    *,
    smoothness: ArrayLike,
    connections: ArrayLike,
    largest_sum: ArrayLike,
    steps: ArrayLike,
) -> Array:
    r"""Bound `min_t gap(v_t)` of full-gradient steps with clipped scores, F L-smooth, convex or not:

        Q/2 + (1 - 2 eps) omega sqrt(d L Q / (2 omega - 1)) + eps G_1,    Q = 2 (F(v_1) - inf F)/T,
        omega = (cosh(b/2) cosh(rho b/2))^2,    b = log((1 - eps)/eps)

    The gap is `theory.optimality.duality_gap`, 0 where no direction into the cube descends. The scores begin
    in the box `|hard w| <= b` and are clipped to it after every step. This keeps D_t of `descent_bound` away
    from 0, so a small bound does mean that some mask on the way is nearly stationary. This holds for v_t in
    [eps, 1 - eps]^d, not for the mask that is read off it, and without momentum (docs/theory.md,
    `two-temperature.clipped-descent`).

    Args:
      gap: `F(v_1) - inf F`.
      clip: eps, in (0, 1/2).
      rate: eta; L is `16/(eta hard soft)`. Beyond `largest_descent_rate` there is no guarantee, and the bound
        is infinite.
      hard: inverse temperature of the value, positive.
      soft: inverse temperature of the gradient, positive, at most `hard`.
      smoothness: a constant with which grad F is Lipschitz on [eps, 1 - eps]^d.
      connections: d.
      largest_sum: G_1, with `sum_i abs(dF/dv_i) <= G_1` at all v_t.
      steps: T.

    Raises:
      ArgumentError: a clip outside (0, 1/2), numbers that are not positive, soft > hard.

    Example:
      >>> from jaxarch.theory import mirror
      >>> given = {"smoothness": 1.0, "connections": 100, "largest_sum": 10.0, "steps": 10_000}
      >>> def bound(soft):
      ...     rate = mirror.largest_descent_rate(50.0, soft, smoothness=1.0)
      ...     return float(mirror.clipped_descent_bound(1.0, 0.01, rate, 50.0, soft, **given))
      >>> [round(bound(soft), 2) for soft in (5.0, 50.0)]  # 10 is an upper bound without any step
      [0.61, 2.58]
    """
    check_clip(clip)
    largest = largest_descent_rate(hard, soft, smoothness=smoothness)
    _check_numbers(rate=rate, connections=connections, largest_sum=largest_sum, steps=steps)
    _check_real(gap=gap)
    eps, ratio = _number(clip), _number(soft) / _number(hard)
    drop = 2 * _number(gap) / _number(steps)
    moving, _ = _from_the_corner(jnp.log1p(-eps) - jnp.log(eps), ratio)
    moving = (1 - 2 * eps) * moving * _curved(drop, rate, hard, soft, connections)
    bound = drop / 2 + moving + eps * _number(largest_sum)
    return jnp.where(_number(rate) <= largest, bound, jnp.inf)


def prescribed_clip(
    gap: ArrayLike,
    rate: ArrayLike,
    hard: ArrayLike,
    soft: ArrayLike,
    *,
    connections: ArrayLike,
    largest_sum: ArrayLike,
    steps: ArrayLike,
) -> Array:
    r"""Return the eps with the smallest `clipped_descent_bound`.

    Both eps and the bound decrease like `T^(-1/(3 + rho))`. The derivative of the bound in b has one zero, or
    none up to `T = 8 d L (F(v_1) - inf F)/G_1^2`, with L = `16/(eta hard soft)`. With so few steps clipping
    has no benefit: 1/2 is returned, a box of one mask.

    Args:
      gap: `F(v_1) - inf F`.
      rate: eta, at most `largest_descent_rate`.
      hard: inverse temperature of the value, positive.
      soft: inverse temperature of the gradient, positive, at most `hard`.
      connections: d.
      largest_sum: G_1, with `sum_i abs(dF/dv_i) <= G_1`.
      steps: T.

    Returns:
      A number of at most 1/2, and at least `e^-40`.

    Raises:
      ArgumentError: numbers that are not positive, soft > hard.

    Example:
      >>> from jaxarch.theory import mirror
      >>> rate = mirror.largest_descent_rate(50.0, 5.0, smoothness=1.0)
      >>> def clip(steps):
      ...     return mirror.prescribed_clip(
      ...         1.0, rate, 50.0, 5.0, connections=100, largest_sum=10.0, steps=steps
      ...     )
      >>> [round(float(clip(steps)), 4) for steps in (1, 100, 10_000, 1_000_000)]
      [0.5, 0.0919, 0.019, 0.0041]
    """
    check_temperatures(hard, soft)
    _check_numbers(gap=gap, rate=rate, connections=connections, largest_sum=largest_sum, steps=steps)
    ratio = _number(soft) / _number(hard)
    curved = _curved(2 * _number(gap) / _number(steps), rate, hard, soft, connections)

    def halved(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = (low + high) / 2
        value, slope = _from_the_corner(middle, ratio)
        rises = 2 * curved * (value + jnp.sinh(middle) * slope) > _number(largest_sum)
        return jnp.where(rises, low, middle), jnp.where(rises, middle, high)

    like = curved * ratio * _number(largest_sum)
    # The zero of the derivative is found by bisection of b in [0, 40].
    ends = jnp.zeros_like(like), jnp.full_like(like, 40.0)
    return jax.nn.sigmoid(-jax.lax.fori_loop(0, 50, halved, ends)[0])


def _curved(drop: Array, rate: ArrayLike, hard: ArrayLike, soft: ArrayLike, connections: ArrayLike) -> Array:
    """Compute `sqrt(d L Q)`, with the L for which this is the largest descent rate."""
    smoothness = 16 / (_number(rate) * _number(hard) * _number(soft))
    return jnp.sqrt(_number(connections) * smoothness * drop)


def _from_the_corner(position: Array, ratio: Array) -> tuple[Array, Array]:
    """Compute `omega / sqrt(2 omega - 1)` at b, and its derivative."""
    root = jnp.cosh(position / 2) * jnp.cosh(ratio * position / 2)
    less = 1 / jnp.square(root)
    growth = jnp.tanh(position / 2) + ratio * jnp.tanh(ratio * position / 2)
    return root / jnp.sqrt(2 - less), root * (1 - less) * (2 - less) ** -1.5 * growth


def stochastic_descent_bound(
    gap: ArrayLike,
    rate: ArrayLike,
    hard: ArrayLike,
    soft: ArrayLike,
    *,
    smoothness: ArrayLike,
    largest_entry: ArrayLike,
    second_moment: ArrayLike,
    steps: ArrayLike,
) -> Array:
    r"""Bound `min_t E grad F^T D_t grad F`, `D_t = diag(ds_hard(w_t) ds_soft(w_t))`, with random examples:

        (F(v_1) - inf F)/(eta T) + eta ((hard soft)^2/32) (L/16 + G_inf/(6 sqrt 3)) V

    As in `descent_bound`, D_t goes to 0 at every vertex: a small value does not mean stationarity.

    Args:
      gap: `F(v_1) - inf F`.
      rate: eta.
      hard: inverse temperature of the value, positive.
      soft: inverse temperature of the gradient, positive, at most `hard`.
      smoothness: L, with grad F L-Lipschitz on [0, 1]^d.
      largest_entry: G_inf, with `abs(dF/dv_i) <= G_inf`.
      second_moment: V, with `E norm(g_t)^2 <= V`; g_t is unbiased.
      steps: T.

    Example:
      >>> from jaxarch.theory import mirror
      >>> given = {"smoothness": 16.0, "largest_entry": 1.0, "second_moment": 1.0, "steps": 1000}
      >>> bound = mirror.stochastic_descent_bound(1.0, 0.01, hard=4.0, soft=2.0, **given)
      >>> round(float(bound), 3)  # 0.1 + 0.02 (1 + 1/(6 sqrt 3))
      0.122
    """
    check_temperatures(hard, soft)
    _check_numbers(rate=rate, smoothness=smoothness, second_moment=second_moment, steps=steps)
    _check_real(gap=gap, largest_entry=largest_entry)
    eta, product = _number(rate), _number(hard) * _number(soft)
    curvature = _number(smoothness) / 16 + _number(largest_entry) / (6 * np.sqrt(3))
    noise = jnp.square(product) / 32 * curvature * _number(second_moment)
    return _number(gap) / (eta * _number(steps)) + eta * noise


def _delta(rate: ArrayLike, soft: ArrayLike, gradient_bound: ArrayLike) -> Array:
    """Compute `eta G soft^2 / 4`: the farthest that a step can move `soft w`."""
    return _number(rate) * _number(gradient_bound) * jnp.square(_number(soft)) / 4


def _psi(x: Array) -> Array:
    """Compute `2 (e^x - 1 - x) / x^2`, by its series where the difference cancels."""
    near = jnp.minimum(x, 1)
    series = jnp.zeros_like(near)
    for k in range(18, 1, -1):
        series = 1 + series * near / (k + 1)
    far = jnp.maximum(x, 1)
    return jnp.where(x < 1, series, 2 * (jnp.expm1(far) - far) / jnp.square(far))


def _number(value: ArrayLike) -> Array:
    if isinstance(value, int) and abs(value) > LARGEST_COUNT:
        value = float(value)  # JAX has no integers of so many bits.
    return widened(jnp.asarray(value))


def _check_real(**numbers: ArrayLike) -> None:
    """Raise unless the values are real numbers, infinite ones included. Traced values pass."""
    for name, value in numbers.items():
        if not is_traced(value):
            real_numbers(name, value)


def _check_numbers(**numbers: ArrayLike) -> None:
    for name, value in numbers.items():
        check_positive(name, value)
