r"""Descent of the two-temperature step on a smooth loss, convex or not (docs/theory.md).

    F(v+) <= F(v) - (eta/2) sum_i p_i g_i^2,        p = ds_H(xi) ds_S(w),  eta <= 16/(L H S)

g is the gradient of F, which is L-Lipschitz; there is a bound for random examples too.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxarch.lab.claims.checks.core import EPS, Claim, Sides
from jaxarch.lab.claims.checks.cube import cube, integer, log_uniform, normal, often, symlog, uniform
from jaxarch.lab.claims.checks.drawn import Inequality
from jaxarch.lab.claims.checks.expected_runs import EXAMPLES_STEPS, SEQUENCES, weakened
from jaxarch.lab.claims.checks.mirror_cases import DIMENSION, HARD, POSITION, POSITIONS, RATIO
from jaxarch.lab.claims.checks.two_temperature import mean_slope, slope, update_factor
from jaxarch.theory import mirror

INFLECTION = -float(np.log(2 + np.sqrt(3)))
"""`H w` at which `sigma_H''` is largest: `tanh(H w/2) = -1/sqrt 3`."""


class Smooth(NamedTuple):
    """`F(v) = sum_i c_i/2 (v_i - m_i)^2 + a (1 - cos(b^T (v - m)))`, convex or not."""

    curvatures: Array
    center: Array
    amplitude: Array
    direction: Array

    @property
    def smoothness(self) -> Array:
        """L, a bound on the Lipschitz constant of the gradient."""
        return jnp.max(jnp.abs(self.curvatures)) + jnp.abs(self.amplitude) * jnp.sum(self.direction**2)

    @property
    def largest_entry(self) -> Array:
        """A bound on the entries of the gradient, on the cube."""
        farthest = jnp.maximum(jnp.abs(self.center), jnp.abs(1 - self.center))
        return jnp.max(jnp.abs(self.curvatures) * farthest + jnp.abs(self.amplitude * self.direction))

    def gradient(self, v: Array) -> Array:
        """Compute the gradient, of shape (d,)."""
        away = v - self.center
        return self.curvatures * away + self.amplitude * jnp.sin(self.direction @ away) * self.direction

    def change(self, v: Array, step: Array) -> tuple[Array, Array]:
        """Compute `F(v + step) - F(v)` without cancellation, and the size of its terms."""
        away, angle = v - self.center + step / 2, self.direction @ step
        quadratic = self.curvatures * away * step
        wave = 2 * self.amplitude * jnp.sin(self.direction @ away) * jnp.sin(angle / 2)
        size = jnp.sum(jnp.abs(self.curvatures * step) * (jnp.abs(away) + jnp.abs(step)))
        far = 1 + jnp.sum(jnp.abs(self.direction))
        size = size + jnp.abs(self.amplitude) * far * jnp.sum(jnp.abs(self.direction * step))
        return jnp.sum(quadratic) + wave, size + EPS * jnp.sum(jnp.abs(self.curvatures * step))


DESCENT_STEPS = 6


def _smooth(curvatures: Array, offset: Array, amplitude: Array, direction: Array, positions: Array) -> Smooth:
    """Return a loss whose center is at an offset from the first mask."""
    return Smooth(curvatures, jax.nn.sigmoid(positions) + offset, amplitude, direction)


class _Move(NamedTuple):
    """The effect of one step: `F(v+) - F(v)`, `sum_i p_i g_i^2`, and the rounding error of the former."""

    change: Array
    square: Array
    rounding: Array


def _move(
    loss: Smooth, gradient: Array, w: Array, rate: Array, hard: Array, soft: Array
) -> tuple[Array, _Move]:
    """Return w+ and the effect of the step with this gradient; `p = ds_H(xi) ds_S(w)`."""
    step = rate * gradient * slope(w, soft)
    p = mean_slope(w, step, hard) * slope(w, soft)
    change, size = loss.change(jax.nn.sigmoid(hard * w), -rate * p * gradient)
    arguments = 64 + 16 * (hard + soft) * jnp.max(jnp.abs(w)) + 16 * hard * jnp.max(jnp.abs(step))
    return w - step, _Move(change, jnp.sum(p * gradient**2), EPS * arguments * size)


def descent(
    positions: Array,
    hard: Array,
    ratio: Array,
    share: Array,
    steps: Array,
    largest: float = 16.0,
    constant: float = 1.0,
    **loss: Array,
) -> Sides:
    """`min_{t <= T} sum_i p_i g_i^2 <= 2 (F(v_1) - F(v_{T+1}))/(eta T)` at `eta <= 16/(L H S)`.

    The right side is `mirror.descent_bound`, and `constant` is a factor of it. With T = 1 the statement is
    `F(v+) <= F(v) - (eta/2) sum_i p_i g_i^2`.
    """
    soft, smooth = ratio * hard, _smooth(positions=positions, **loss)
    rate = share * largest / 16 * mirror.largest_descent_rate(hard, soft, smoothness=smooth.smoothness)

    def step(w: Array, _: None) -> tuple[Array, _Move]:
        return _move(smooth, smooth.gradient(jax.nn.sigmoid(hard * w)), w, rate, hard, soft)

    _, moves = jax.lax.scan(step, positions / hard, None, length=DESCENT_STEPS)
    run = jnp.arange(DESCENT_STEPS) < steps

    def bound(drop: ArrayLike) -> Array:
        # Beyond the largest rate there is no bound. Mutations of `largest` need one, to show that it fails.
        allowed = jnp.minimum(rate, mirror.largest_descent_rate(hard, soft, smoothness=smooth.smoothness))
        given = {"smoothness": smooth.smoothness, "steps": steps}
        return mirror.descent_bound(drop, allowed, hard, soft, **given) * allowed / rate

    right = constant * bound(-jnp.sum(jnp.where(run, moves.change, 0)))
    left = jnp.min(jnp.where(run, moves.square, jnp.inf))
    return Sides(left, right, bound(jnp.sum(jnp.where(run, moves.rounding, 0))) + 64 * EPS * left)


def descent_from_the_middle(offset: Array, hard: Array, ratio: Array, constant: float = 1.0) -> Sides:
    """`descent` for T = 1 and `F = |v - u|^2/2`, u near `v_1 = 1/2`: sharp as u comes nearer."""
    one, every = jnp.ones(()), jnp.ones(DIMENSION)
    return descent(
        0 * every,
        hard,
        ratio,
        one,
        one,
        constant=constant,
        curvatures=every,
        offset=offset * every,
        amplitude=0 * one,
        direction=0 * every,
    )


def stochastic_descent(
    positions: Array,
    hard: Array,
    ratio: Array,
    reach: Array,
    steps: Array,
    spread: Array,
    noise: Array,
    second: float = 1.0,
    **loss: Array,
) -> Sides:
    """A bound on `min_t E sum_i p_i (dF/dv_i)^2`, `p = ds_H(w) ds_S(w)`, with random gradients.

        (F(v_1) - E F(v_{T+1}))/(eta T) + eta ((H S)^2/32) (L/16 + G_inf/(6 sqrt 3)) V

    The gradients are `grad F + n` and `grad F - n` with equal chance. n is `noise` times a direction that is
    `spread` off the direction of the wave in F. Expectations are over all sequences.
    """
    soft, smooth = ratio * hard, _smooth(positions=positions, **loss)
    noises = noise * (smooth.direction + spread)
    rate = 16 * reach / (hard * soft * (smooth.largest_entry + jnp.max(jnp.abs(noises))))

    def run(signs: Array) -> tuple[Array, Array, _Move]:
        def step(w: Array, sign: Array) -> tuple[Array, tuple[Array, Array, _Move]]:
            true = smooth.gradient(jax.nn.sigmoid(hard * w))
            after, move = _move(smooth, true + sign * noises, w, rate, hard, soft)
            square = jnp.sum(slope(w, hard) * slope(w, soft) * true**2)
            return after, (square, jnp.sum((true + sign * noises) ** 2), move)

        return jax.lax.scan(step, positions / hard, signs)[1]

    squares, norms, moves = jax.tree.map(
        lambda leaf: leaf.mean(axis=0), jax.vmap(run)(jnp.asarray(2.0 * SEQUENCES - 1))
    )
    ran = jnp.arange(EXAMPLES_STEPS) < steps
    left = jnp.min(jnp.where(ran, squares, jnp.inf))

    def bound(gap: ArrayLike) -> Array:
        return mirror.stochastic_descent_bound(
            gap,
            rate,
            hard,
            soft,
            smoothness=smooth.smoothness,
            largest_entry=smooth.largest_entry,
            second_moment=jnp.max(jnp.where(ran, norms, 0)),
            steps=steps,
        )

    right = weakened(bound, -jnp.sum(jnp.where(ran, moves.change, 0)), 1.0, second)
    rounding = jnp.sum(jnp.where(ran, moves.rounding, 0)) / (rate * steps)
    return Sides(left, right, rounding + 64 * EPS * (left + bound(0.0)))


def stochastic_descent_of_a_linear_loss(
    position: Array, hard: Array, ratio: Array, reach: Array, curving: float = 1.0
) -> Sides:
    """`stochastic_descent` for one step on `F(v) = v` in one coordinate: L = 0 leaves only the term of G_inf.

    `curving` is a factor of that term. The bound is sharp at the inflection of sigma_H below 0, for rho -> 0.
    """
    soft, w = ratio * hard, position / hard
    rate = 16 * reach / (hard * soft)
    factor, error = update_factor(1.0, w, rate, hard, soft)
    none = jnp.zeros_like(w)
    noise = mirror.stochastic_descent_bound(
        none, rate, hard, soft, smoothness=none, largest_entry=curving, second_moment=1.0, steps=1
    )
    left = slope(w, hard) * slope(w, soft)
    return Sides(left, factor + noise, error + EPS * (64 + 8 * (hard + soft) * jnp.abs(w)) * (left + noise))


_LOSSES = {
    "curvatures": often(1.0, uniform(1.0, -1.0, (DIMENSION,))),
    "offset": symlog(1.0, 0.01, (DIMENSION,)),
    "amplitude": often(0.0, uniform(1.0, -1.0)),
    "direction": normal(3.0, (DIMENSION,)),
}

DESCENT = Claim(
    id="two-temperature.descent",
    source="this library; docs/theory.md",
    statement="F(v+) <= F(v) - (eta/2) sum_i p_i g_i^2 for g = grad F(v), eta <= 16/(L H S), p = ds_H(xi) "
    "ds_S(w); with random examples, min_t E sum_i p_i (dF/dv_i)^2 <= (F(v_1) - inf F)/(eta T) + eta ((H "
    "S)^2/32) (L/16 + G_inf/(6 sqrt 3)) V",
    latex=r"F(v^+) \le F(v) - \frac{\eta}{2} \sum_i p_i g_i^2, \quad \min_t E \sum_i p_{t,i} (\partial_i "
    r"F(v_t))^2 \le \frac{F(v_1) - \inf F}{\eta T} + \eta \frac{(H S)^2}{32} \Big(\frac{L}{16} + "
    r"\frac{G_\infty}{6 \sqrt 3}\Big) V",
    assumptions="grad F L-Lipschitz on [0, 1]^d, not convex; for the second, g_t unbiased, E |g_t|^2 <= V, "
    "|dF/dv_i| <= G_inf",
    verdict="holds",
    remark="16 is sharp, for F = (v - 1/2)^2 near 1/2, and so is the term of G_inf, for a linear loss at the "
    "inflection of sigma_H as rho -> 0. p goes to 0 at every vertex of the cube: a small "
    "sum may mean saturated scores and no stationary mask.",
    checks=(
        Inequality(
            descent,
            cube(
                **_LOSSES,
                positions=POSITIONS,
                hard=HARD,
                ratio=RATIO,
                share=often(1.0, log_uniform(1.0, 1e-3)),
                steps=integer(1, DESCENT_STEPS),
            ),
            {
                "17 for 16": functools.partial(descent, largest=17.0),
                "1.7 for 2": functools.partial(descent, constant=0.85),
            },
        ),
        Inequality(
            descent_from_the_middle,
            cube(offset=log_uniform(1e-3, 1.0), hard=HARD, ratio=RATIO),
            {"1.99 for 2": functools.partial(descent_from_the_middle, constant=0.995)},
        ),
        Inequality(
            stochastic_descent,
            cube(
                curvatures=often(0.0, uniform(0.0, 1.0, (DIMENSION,))),
                offset=often(0.0, symlog(1.0, 0.01, (DIMENSION,))),
                amplitude=often(1.0, uniform(1.0, -1.0)),
                direction=often(1000.0, normal(30.0, (DIMENSION,))),
                positions=POSITIONS,
                hard=HARD,
                ratio=RATIO,
                reach=log_uniform(1e-5, 10.0),
                steps=integer(1, EXAMPLES_STEPS),
                spread=often(0.0, normal(1.0, (DIMENSION,))),
                noise=log_uniform(1.0, 1e-3),
            ),
            {
                "without the noise": functools.partial(stochastic_descent, second=0.0),
                "noise 2% too small": functools.partial(stochastic_descent, second=0.98),
            },
        ),
        Inequality(
            stochastic_descent_of_a_linear_loss,
            cube(
                position=often(INFLECTION, POSITION),
                hard=HARD,
                ratio=often(1e-3, RATIO),
                reach=log_uniform(1e-3, 1.0),
            ),
            {
                "without G_inf": functools.partial(stochastic_descent_of_a_linear_loss, curving=0.0),
                "half of G_inf": functools.partial(stochastic_descent_of_a_linear_loss, curving=0.5),
                "G_inf 1% too small": functools.partial(stochastic_descent_of_a_linear_loss, curving=0.99),
            },
        ),
    ),
)

CLAIMS = (DESCENT,)
