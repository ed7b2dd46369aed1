r"""The two-temperature gradient as mirror descent: its mirror map, exact step, divergence, rates and bounds.

With the mask `v = sigma(hard w)`, the step of [D] eq. (5), `w <- w - eta g ds_soft(w)`, `g = grad_v f`,
`ds_M(w) = M sigma(M w) (1 - sigma(M w))`, is Euler's method for the flow `d theta / dt = -g` in the dual
variables

    theta(w) = (2/soft) (w + sinh(soft w) / soft),        d theta / dw = 1 / ds_soft(w).

That is mirror flow for the convex potential h on (0, 1)^d with `h'(v) = theta(logit(v) / hard)`, which is
`16 / (hard soft)`-strongly convex; `D(u, v)` is its Bregman divergence. From it follow how far an
architecture is, which learning rate to take, and how large the gap can be after T steps. In all of it only
the ratio of the temperatures matters, `rho = soft / hard`, once the rate is scaled: (hard, soft, eta, w) and
(c hard, c soft, eta / c^2, w / c) give the same masks.

The bounds hold for f convex in v and gradients `norm(g) <= gradient_bound` at every step (`theory.bounds`
certifies such numbers), examples drawn independently of the past; those called `descent` need no convexity.
All functions are pure, elementwise where they take arrays, and take traced values.

[D] Colombo & Gao, Disentangling Neural Architectures and Weights, 2021.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.typing import ArrayLike

from jaxarch.errors import ArgumentError, check_count, check_positive, check_strength, is_traced
from jaxarch.masks import check_temperatures
from jaxarch.trees import PyTree, check_floating, map_selected

# The mirror map --------------------------------------------------------------------------------------


def mirror_map(scores: ArrayLike, soft: ArrayLike) -> Array:
    r"""`theta(w) = (2/soft) (w + sinh(soft w) / soft)`: the dual variables, in which the flow is `-g`.

    Args:
      scores: floating-point array of any shape.
      soft: inverse temperature of the gradient, positive; broadcast against the scores.

    Returns:
      An array of the scores' shape and dtype, odd and increasing in them; infinite where it overflows, in
      float32 beyond `|soft w|` of about 88.
    """
    scores, soft = _scores(scores, soft)
    return 2 / soft * (scores + jnp.sinh(soft * scores) / soft)


def inverse_mirror_map(theta: ArrayLike, soft: ArrayLike) -> Array:
    r"""The scores whose `mirror_map` is theta, to a few units in the last place.

    With `x = soft w` it solves `x + sinh x = y`, `y = soft^2 theta / 2`, by a fixed number of Newton steps:
    as it stands for `|y| < 1`, in logarithms beyond, where nothing overflows.

    Args:
      theta: floating-point array of any shape, any finite or infinite values.
      soft: as of `mirror_map`.
    """
    theta, soft = _scores(theta, soft)
    size = jnp.abs(theta)
    small = soft * soft * size / 2
    log = jnp.where(jnp.isinf(small), jnp.log(size) + 2 * jnp.log(soft), jnp.log(small) + _LOG_2)
    root = jnp.where(small < 1, _solve_small(jnp.minimum(small, 1)), _solve_log(jnp.maximum(log, _LOG_2)))
    return jnp.sign(theta) * root / soft


def mirror_update(scores: ArrayLike, gradient: ArrayLike, soft: ArrayLike, rate: ArrayLike) -> Array:
    r"""`w+ - w` for the exact mirror step: `theta(w+) = theta(w) - rate g`.

    Args:
      scores: w, floating-point array of any shape.
      gradient: the gradient with respect to the *scores* as `masks.two_temperature` gives it,
        `c = g ds_soft(w)`.
      soft: inverse temperature of the gradient, positive.
      rate: the learning rate eta.

    Returns:
      An array of the scores' shape and dtype. To first order in the rate it is `-rate c`, the ordinary step.

    The gradient g of the mask is never formed: dividing by ds_soft, the equation is
    `d + sinh(x + d) - sinh(x) = -rate soft c (1 + cosh x)` in `x = soft w`, `d = soft (w+ - w)`, which is
    solved for d itself, scaled by `exp(-|x|)`. So small steps keep their relative accuracy (no difference of
    two large thetas is taken), a gradient of 0 moves nothing, and no score overflows. The limit is that of c:
    in float32 it underflows where `g ds_soft(w) < 1e-38`, beyond `|soft w|` of about 87, and the score
    stays, as it does under any other optimiser.
    """
    scores, soft = _scores(scores, soft)
    step = -jnp.asarray(rate, scores.dtype) * soft * jnp.asarray(gradient, scores.dtype)
    return _displacement(soft * scores, step) / soft


def mirror_descent(
    learning_rate: float | Array | optax.Schedule, soft: ArrayLike
) -> optax.GradientTransformation:
    r"""The exact mirror step as an optimiser of scores: `theta(w+) = theta(w) - eta grad_v f`.

        search = jaxarch.search.two_temperature(
            50.0, 5.0, optimizer=jaxarch.theory.mirror.mirror_descent(0.3, soft=5.0)
        )

    Args:
      learning_rate: eta, a number (traced or not) or an optax schedule.
      soft: the search's inverse temperature of the gradient. The search must keep its `factor`; without it
        this is the mirror step of rate `eta / soft`.

    Returns:
      An optax transformation, for `optax.chain` as any other; its `update` needs the scores as `params`.
      Leaves that are `None` stay so.

    Raises:
      ArgumentError: a `soft` that is not positive; an update without the scores.
    """
    check_positive("soft", soft)
    if not callable(learning_rate):
        check_strength("learning_rate", learning_rate)

    def init(scores: PyTree) -> optax.ScaleByScheduleState:
        check_floating("scores", scores)
        return optax.ScaleByScheduleState(count=jnp.zeros((), jnp.int32))

    def update(
        gradient: PyTree, state: optax.ScaleByScheduleState, scores: PyTree | None = None
    ) -> tuple[PyTree, optax.ScaleByScheduleState]:
        if scores is None:
            raise ArgumentError("params: mirror descent needs the scores: update(gradient, state, scores)")
        rate = learning_rate(state.count) if callable(learning_rate) else learning_rate

        def moved(g: Array, w: Array) -> Array:
            return mirror_update(w, g, soft, rate).astype(g.dtype)

        count = optax.safe_increment(state.count)
        return jax.tree.map(moved, gradient, scores), optax.ScaleByScheduleState(count=count)

    return optax.GradientTransformation(init, update)


_LOG_2 = float(np.log(2))
_STEPS_SMALL, _STEPS_LOG, _STEPS_DISPLACEMENT = 3, 5, 4
"""Newton steps: enough for float64 everywhere; the tests find one less wanting."""


def _solve_small(y: Array) -> Array:
    """`x + sinh x = y` for 0 <= y <= 1. From y/2, above the root of a convex function, Newton descends."""
    x = y / 2
    for _ in range(_STEPS_SMALL):
        x = x - (x + jnp.sinh(x) - y) / (1 + jnp.cosh(x))
    return x


def _solve_log(log: Array) -> Array:
    """`log(2 (x + sinh x)) = log` for `log >= log 2`, by Newton from `x = log`."""
    x = log
    for _ in range(_STEPS_LOG):
        # Both corrections are 0 in any precision long before; and infinity is a root.
        near = jnp.minimum(x, 200)
        decay = jnp.exp(-near)
        ratio = 1 + decay * (2 * near - decay)
        residual = x - log + jnp.log(ratio)
        x = x - jnp.where(jnp.isinf(log), 0, residual) * ratio / jnp.square(1 + decay)
    return x


def _displacement(x: Array, step: Array) -> Array:
    """`d` with `d + sinh(x + d) - sinh(x) = step (1 + cosh x)`, of which `step` is the first order."""
    side = jnp.where(x < 0, -1, 1).astype(x.dtype)
    x, step = jnp.abs(x), side * step
    decay = jnp.exp(-x)

    # Scaled by exp(-x), `2 decay d + expm1(d) - decay^2 expm1(-d)`: all of one sign, so nothing cancels.
    small = jnp.clip(step, -0.5, 0.5)
    near = small
    for _ in range(_STEPS_DISPLACEMENT):
        value = 2 * decay * near + jnp.expm1(near) - decay * (decay * jnp.expm1(-near))
        slope = 2 * decay + jnp.exp(near) + decay * (decay * jnp.exp(-near))
        near = near - (value - small * jnp.square(1 + decay)) / slope

    # The whole equation, y = x + sinh(x) + step (1 + cosh x), through log(2 |y|).
    scaled = (1 + step) + 2 * decay * (x + step) + decay * (decay * (step - 1))
    log = x + jnp.log(jnp.abs(scaled))
    root = jnp.where(
        log < _LOG_2,
        _solve_small(jnp.exp(jnp.minimum(log, _LOG_2)) / 2),
        _solve_log(jnp.maximum(log, _LOG_2)),
    )
    far = jnp.sign(scaled) * root - x
    return side * jnp.where(jnp.abs(step) <= 0.5, near, far)


def _scores(scores: ArrayLike, soft: ArrayLike) -> tuple[Array, Array]:
    check_positive("soft", soft)
    scores = jnp.asarray(scores)
    check_floating("scores", scores)
    scores = scores.astype(jnp.promote_types(scores.dtype, jnp.float32))
    return scores, jnp.asarray(soft, scores.dtype)


# The divergence --------------------------------------------------------------------------------------


def vertex_distance(scores: ArrayLike, hard: ArrayLike, soft: ArrayLike) -> Array:
    r"""`D(1, sigma(hard w))`, how far a connection is from being kept; for 0 flip the sign of the scores.

    It is `(2/(hard soft)) V(hard w)`, with

        V(b) = int_b^inf (1 + cosh(rho x)) / (1 + e^x) dx
             = log(1 + e^-b) + sum_{k>=1} (-1)^(k-1) (e^{-(k-rho) b}/(k-rho) + e^{-(k+rho) b}/(k+rho)) / 2

    for b >= 0 and `V(-b) = V(b) + b + sinh(rho b)/rho`. The alternating sum is accelerated (H. Cohen,
    F. Rodriguez Villegas and D. Zagier, Convergence acceleration of alternating series, 2000, algorithm 1),
    24 terms for float64. From `v = 1/2`, `V(0) = log 2 + I(rho)`, `I(rho) = (beta(1-rho) + beta(1+rho))/2`,
    `beta(s) = (digamma((s+1)/2) - digamma(s/2))/2`; `I(0) = log 2`, `I(1/2) = 1`.

    It is finite exactly when soft < hard: binary architectures are at a finite distance if and only if the
    soft temperature is strictly softer than the hard one.

    Args:
      scores: floating-point array of any shape.
      hard: inverse temperature of the value, positive; broadcast against the scores.
      soft: inverse temperature of the gradient, positive, at most `hard`.

    Returns:
      An array of the scores' shape and dtype; infinite at `soft == hard`, and where it overflows.
    """
    scores, hard, soft, ratio, gap = _with_ratio(scores, hard, soft)
    return 2 / (hard * soft) * _from_vertex(hard * scores, ratio, gap)


def bregman_divergence(mask: ArrayLike, scores: ArrayLike, hard: ArrayLike, soft: ArrayLike) -> Array:
    r"""`D(u, sigma(hard w))` for each connection, u in [0, 1]: 0 where they agree, positive elsewhere.

        D(u, v) = h(u) - h(v) - h'(v) (u - v)
                = (2/(hard soft)) int_{logit u}^{hard w} (sigma(x) - u) (1 + cosh(rho x)) dx

    Its derivative in w is `(v - u) / ds_soft(w)`. Near agreement the integral is taken by Gauss-Legendre
    quadrature, farther off through `vertex_distance`, since
    `D(u, v) = u D(1, v) + (1 - u) D(0, v) - (the same at v = u)`.

    Args:
      mask: u, numbers in [0, 1] or booleans, of the scores' shape or broadcast to it.
      scores: w, floating-point array.
      hard: inverse temperature of the value, positive.
      soft: inverse temperature of the gradient, positive, at most `hard`.

    Returns:
      An array of the scores' shape and dtype. At the vertices 0 and 1 it is finite exactly when soft < hard;
      inside, always (until it overflows).

    Raises:
      ArgumentError: a mask outside [0, 1]; scores or temperatures that the search would refuse.
    """
    if not is_traced(mask) and not ((np.asarray(mask) >= 0) & (np.asarray(mask) <= 1)).all():
        raise ArgumentError("mask: expected numbers in [0, 1]")
    scores, hard, soft, ratio, gap = _with_ratio(scores, hard, soft)
    u, b = jnp.asarray(mask, scores.dtype), hard * scores
    u, b = jnp.broadcast_arrays(u, b)
    inside = (u > 0) & (u < 1)
    at_vertex = _from_vertex(jnp.where(u > 0, b, -b), ratio, gap)
    u = jnp.where(inside, u, 0.5)
    a = jnp.log(u) - jnp.log1p(-u)
    far = jnp.abs(b - a) > 1
    interior = jnp.where(far, _from_afar(u, a, b, ratio, gap), _nearby(a, jnp.where(far, a, b), ratio))
    return 2 / (hard * soft) * jnp.where(inside, interior, at_vertex)


def total_divergence(mask: PyTree, scores: PyTree, hard: ArrayLike, soft: ArrayLike) -> Array:
    """`D(u, v)` of the theorems: `bregman_divergence` summed over all connections of all masked leaves."""
    check_floating("scores", scores)
    divergences = map_selected(lambda w, u: bregman_divergence(u, w, hard, soft).sum(), scores, mask)
    return jnp.asarray(sum(jax.tree.leaves(divergences)))


def start_distance(connections: int, hard: ArrayLike, soft: ArrayLike) -> Array:
    r"""`(2 d/(hard soft)) (log 2 + I(rho))`: from `v = 1/2` to each of the 2^d architectures.

    Raises:
      ArgumentError: soft = hard, where no architecture is at a finite distance.
    """
    check_count("connections", connections)
    check_temperatures(hard, soft)
    if not is_traced((hard, soft)) and (np.asarray(soft) >= np.asarray(hard)).any():
        raise ArgumentError(
            f"soft: expected less than hard = {hard} (at equal temperatures every architecture is at an "
            f"infinite distance), got {soft}"
        )
    return connections * vertex_distance(0.0, hard, soft)


def _acceleration(terms: int) -> np.ndarray:
    """Weights of the first terms of an alternating series, signs included."""
    scale = (3 + np.sqrt(8)) ** terms
    scale = (scale + 1 / scale) / 2
    weights, b, c = np.zeros(terms), -1.0, -scale
    for k in range(terms):
        c = b - c
        weights[k] = c / scale
        b *= (k + terms) * (k - terms) / ((k + 0.5) * (k + 1))
    return weights


_WEIGHTS = _acceleration(24)
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(12)


def _growth(b: Array, ratio: Array) -> Array:
    """`V(-b) - V(b)`."""
    return b + jnp.sinh(ratio * b) / ratio


def _from_vertex(b: Array, ratio: Array, gap: Array) -> Array:
    """V(b)."""
    size = jnp.where(b < 0, -b, b)
    value = jnp.exp(-gap * size) / (2 * gap) + _beyond_the_first_term(size, ratio, gap)
    return value + jnp.where(b < 0, _growth(size, ratio), 0)


def _beyond_the_first_term(b: Array, ratio: Array, gap: Array) -> Array:
    """`V(b) - e^{-(1-rho) b} / (2 (1-rho))` for b >= 0: what stays finite as rho -> 1."""

    def later_term(k: Array, weight: Array) -> Array:
        less, more = (k - 1) + gap, k + ratio
        return weight * (jnp.exp(-less * b) / less + jnp.exp(-more * b) / more)

    first = jnp.exp(-(1 + ratio) * b) / (1 + ratio)
    k, weights = jnp.arange(2, _WEIGHTS.size + 1, dtype=b.dtype), jnp.asarray(_WEIGHTS[1:], b.dtype)
    return (
        jnp.log1p(jnp.exp(-b))
        + (first + jax.vmap(later_term)(jnp.asarray(k), jnp.asarray(weights)).sum(0)) / 2
    )


def _from_afar(u: Array, a: Array, b: Array, ratio: Array, gap: Array) -> Array:
    def toward_both(x: Array) -> tuple[Array, Array]:
        size = jnp.where(x < 0, -x, x)
        growth = jnp.where(x < 0, u, 1 - u) * _growth(size, ratio)
        return size, growth + _beyond_the_first_term(size, ratio, gap)

    (size_a, at_a), (size_b, at_b) = toward_both(a), toward_both(b)
    # The series' first terms go to infinity as rho -> 1; their difference does not.
    length = size_b - size_a
    distance = jnp.abs(length)
    share = jnp.where(gap > 0, -jnp.expm1(-gap * distance) / jnp.where(gap > 0, gap, 1), distance)
    first = jnp.exp(-gap * jnp.minimum(size_a, size_b)) * share / 2
    return at_b - at_a - jnp.sign(length) * first


def _nearby(a: Array, b: Array, ratio: Array) -> Array:
    half = (b - a) / 2

    def term(node: Array, weight: Array) -> Array:
        along = half * (1 + node)
        rise = -jnp.expm1(-along) * jax.nn.sigmoid(a + along) * jax.nn.sigmoid(-a)
        return weight * rise * (1 + jnp.cosh(ratio * (a + along)))

    nodes, weights = jnp.asarray(_NODES, a.dtype), jnp.asarray(_NODE_WEIGHTS, a.dtype)
    return half * jax.vmap(term)(nodes, weights).sum(0)


def _with_ratio(
    scores: ArrayLike, hard: ArrayLike, soft: ArrayLike
) -> tuple[Array, Array, Array, Array, Array]:
    """Scores and temperatures, the temperatures' ratio, and one less the ratio."""
    check_temperatures(hard, soft)
    scores, soft = _scores(scores, soft)
    hard = jnp.asarray(hard, scores.dtype)
    return scores, hard, soft, soft / hard, jnp.maximum((hard - soft) / hard, 0)


# Rates and bounds ------------------------------------------------------------------------------------


def prescribed_rate(
    distance: ArrayLike, hard: ArrayLike, soft: ArrayLike, *, gradient_bound: ArrayLike, steps: ArrayLike
) -> Array:
    r"""The constant rate of least bound on the average iterate, `eta = (4/G) sqrt(2 D / (hard soft T))`.

        distance = mirror.start_distance(connections, hard, soft)
        rate = mirror.prescribed_rate(distance, hard, soft, gradient_bound=G, steps=1000)

    From `v = 1/2` to an architecture of d connections it is `(8/(hard soft G)) sqrt(d A / T)`,
    `A = log 2 + I(rho)`; for `T >= 16 rho^2 d A` the gap of the average iterate is then at most
    `(G/2) sqrt(d A / T)` for the exact mirror step, and `(1 + 1.44 (1 + rho^2)) / 2` times that for the
    actual one.

    Args:
      distance: `D(u, v_1)`, as of `start_distance` or `total_divergence`; positive and finite.
      hard: inverse temperature of the value, positive.
      soft: inverse temperature of the gradient, positive, at most `hard`.
      gradient_bound: G, with `norm(grad_v f) <= G` for every example.
      steps: T.
    """
    check_temperatures(hard, soft)
    _check_numbers(distance=distance, gradient_bound=gradient_bound, steps=steps)
    return 4 / _number(gradient_bound) * jnp.sqrt(2 * _number(distance) / (hard * soft * _number(steps)))


def regret_constant(
    rate: ArrayLike, hard: ArrayLike, soft: ArrayLike, *, gradient_bound: ArrayLike, exact: bool = False
) -> Array:
    r"""`K = (1 + rho^2) psi(2 delta) hard soft / 32` of the regret bound, at constant rate eta.

    For any vectors `g_1, ..., g_T` of norm at most G and any mask u,
    `sum <g_t, v_t - u> <= (D(u, v_1) - D(u, v_{T+1})) / eta + eta K sum norm(g_t)^2`, where
    `delta = eta G soft^2 / 4` and `psi(x) = 2 (e^x - 1 - x) / x^2`.

    Args:
      rate: eta.
      hard: inverse temperature of the value, positive.
      soft: inverse temperature of the gradient, positive, at most `hard`.
      gradient_bound: G.
      exact: whether the step is `mirror_descent`, for which `K = hard soft / 32` at every rate.
    """
    check_temperatures(hard, soft)
    _check_numbers(rate=rate, gradient_bound=gradient_bound)
    product = _number(hard) * _number(soft)
    if exact:
        return product / 32
    delta = _delta(rate, soft, gradient_bound)
    return (1 + jnp.square(_number(soft) / _number(hard))) * _psi(2 * delta) * product / 32


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
    """`D/(eta T) + eta K G^2` bounds the expected gap `E F((v_1 + ... + v_T)/T) - F(u)`, f convex.

    Arguments as of `prescribed_rate` and `regret_constant`.
    """
    _check_numbers(rate=rate, gradient_bound=gradient_bound, steps=steps)
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
    """`D/(eta T) + eta K G^2 (2 + log T)` bounds the expected gap of the last iterate, `E F(v_T) - F(u)`."""
    _check_numbers(rate=rate, gradient_bound=gradient_bound, steps=steps)
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
    """`(D + K G^2 c^2 (1 + log T)) / (2 c (sqrt(T+1) - 1))` at rates `eta_t = c / sqrt(t)`, for every T.

    It bounds the expected gap of the average of the iterates, weighted by their rates. `scale` is c; K is
    `regret_constant` at the largest rate, c.
    """
    _check_numbers(scale=scale, gradient_bound=gradient_bound, steps=steps)
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
    r"""The gap of the average iterate with momentum: `m <- mu m + g ds_soft(w)`, `w <- w - eta m`.

    With `eta' = eta/(1 - mu)` and `delta' = eta' G soft^2 / 4`,

        D/(eta' T) + eta' (1 + rho^2) (hard soft/32) e^{2 delta'/(1-mu)} (1 + 2 mu/(1 - mu e^delta')) G^2

    where `mu e^delta' < 1`, and infinite (no guarantee) elsewhere.

    Args:
      distance: `D(u, v_1)`.
      rate: eta.
      hard: inverse temperature of the value, positive.
      soft: inverse temperature of the gradient, positive, at most `hard`.
      momentum: mu, in [0, 1).
      gradient_bound: G.
      steps: T.
    """
    check_temperatures(hard, soft)
    _check_numbers(rate=rate, gradient_bound=gradient_bound, steps=steps)
    if not is_traced(momentum) and not ((np.asarray(momentum) >= 0) & (np.asarray(momentum) < 1)).all():
        raise ArgumentError(f"momentum: expected a number in [0, 1), got {momentum}")
    mu, G = _number(momentum), _number(gradient_bound)
    eta = _number(rate) / (1 - mu)
    delta = _delta(eta, soft, gradient_bound)
    kept = 1 - mu * jnp.exp(delta)
    constant = (1 + jnp.square(_number(soft) / _number(hard))) * _number(hard) * _number(soft) / 32
    constant = constant * jnp.exp(2 * delta / (1 - mu)) * (1 + 2 * mu / kept)
    bound = _number(distance) / (eta * _number(steps)) + eta * constant * jnp.square(G)
    return jnp.where(kept > 0, bound, jnp.inf)


def largest_descent_rate(hard: ArrayLike, soft: ArrayLike, *, smoothness: ArrayLike) -> Array:
    """`16 / (L hard soft)`: up to this rate every full-gradient step lowers an L-smooth F, convex or not."""
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
    r"""`2 (F(v_1) - inf F) / (eta T)` bounds `min_t g_t^T D_t g_t` of full-gradient steps, F L-smooth.

    `D_t = diag(ds_hard(xi_t) ds_soft(w_t))`, xi_t between w_t and w_{t+1}. It goes to 0 at every vertex, so a
    small value does not mean that F is stationary there.

    Args:
      gap: `F(v_1) - inf F`.
      rate: eta; beyond `largest_descent_rate` there is no guarantee, and the bound is infinite.
      hard: inverse temperature of the value, positive.
      soft: inverse temperature of the gradient, positive, at most `hard`.
      smoothness: L, with grad F L-Lipschitz on [0, 1]^d.
      steps: T.
    """
    largest = largest_descent_rate(hard, soft, smoothness=smoothness)
    _check_numbers(rate=rate, steps=steps)
    bound = 2 * _number(gap) / (_number(rate) * _number(steps))
    return jnp.where(_number(rate) <= largest, bound, jnp.inf)


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
    r"""Bounds `min_t E grad F^T D_t grad F`, `D_t = diag(ds_hard(w_t) ds_soft(w_t))`, with random examples:

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
    """
    check_temperatures(hard, soft)
    _check_numbers(rate=rate, smoothness=smoothness, second_moment=second_moment, steps=steps)
    eta, product = _number(rate), _number(hard) * _number(soft)
    curvature = _number(smoothness) / 16 + _number(largest_entry) / (6 * np.sqrt(3))
    noise = jnp.square(product) / 32 * curvature * _number(second_moment)
    return _number(gap) / (eta * _number(steps)) + eta * noise


def _delta(rate: ArrayLike, soft: ArrayLike, gradient_bound: ArrayLike) -> Array:
    """`eta G soft^2 / 4`: how far a step can move `soft w`."""
    return _number(rate) * _number(gradient_bound) * jnp.square(_number(soft)) / 4


def _psi(x: Array) -> Array:
    """`2 (e^x - 1 - x) / x^2`, by its series where the difference cancels."""
    near = jnp.minimum(x, 1)
    series = jnp.zeros_like(near)
    for k in range(18, 1, -1):
        series = 1 + series * near / (k + 1)
    far = jnp.maximum(x, 1)
    return jnp.where(x < 1, series, 2 * (jnp.expm1(far) - far) / jnp.square(far))


def _number(value: ArrayLike) -> Array:
    value = jnp.asarray(value)
    return value.astype(jnp.promote_types(value.dtype, jnp.float32))


def _check_numbers(**numbers: ArrayLike) -> None:
    for name, value in numbers.items():
        check_positive(name, value)
