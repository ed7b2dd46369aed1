r"""Masks of one size: the two-temperature step that keeps the size, and the duality gap (docs/theory.md).

    w' = -ds_S(w - tau) (g - lambda),        lambda = sum p g / sum p,        p = ds_H(w - tau) ds_S(w - tau)

The mask is `v = sigma(H (w - tau))`, and its size `sum v = k` fixes tau.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch.lab.claims.checks.core import EPS, Claim, Sides
from jaxarch.lab.claims.checks.cube import choice, cube, normal, often, symlog, uniform
from jaxarch.lab.claims.checks.drawn import Inequality
from jaxarch.lab.claims.checks.mirror_cases import HARD, RATIO
from jaxarch.lab.claims.checks.two_temperature import slope
from jaxarch.lab.claims.new_results.duality_gap import CONVEX_LOSSES, convex_loss, loss_size
from jaxarch.masks import sized_mask
from jaxarch.theory.optimality import duality_gap

DIMENSION = 4
"""Connections of the masks that are drawn; half of them are kept."""


def _slopes(positions: Array, hard: Array, ratio: Array) -> tuple[Array, Array]:
    """Return ds_H and ds_S at scores whose threshold is 0."""
    w = positions / hard
    return slope(w, hard), slope(w, ratio * hard)


def _mean(weights: Array, gradient: Array) -> Array:
    return jnp.sum(weights * gradient) / jnp.sum(weights)


def _held(positions: Array) -> Array:
    """Return positions whose mask has half of the connections: pairs of opposite numbers."""
    return jnp.concatenate([positions, -positions])


def gradient_of_the_mask(
    gradient: Array, positions: Array, hard: Array, ratio: Array, bent: float = 1.0
) -> Sides:
    """The gradient of `<g, v>` through `masks.sized_mask` is `ds_S (g - lambda)`; `bent`: a power of ds_H."""
    positions = _held(positions)
    of_hard, of_soft = _slopes(positions, hard, ratio)
    multiplier = _mean(of_soft * of_hard**bent, gradient)
    right = of_soft * (gradient - multiplier)

    def along(w: Array) -> Array:
        return jnp.sum(gradient * sized_mask(w, 0.5, hard, ratio * hard))

    left = jax.grad(along)(positions / hard)
    # The threshold is found up to 1e-5 of the size, and moves every slope.
    size = jnp.sum(jnp.abs(gradient)) * ratio * hard
    return Sides(jnp.max(jnp.abs(left - right)), 1e-3 * size)


def loss_descends(
    gradient: Array, positions: Array, hard: Array, ratio: Array, power: float = 1.0, constant: float = 1.0
) -> Sides:
    """`sum p (g - lambda)^2 <= -dF/dt` along `w' = -ds_S (g - lambda)`, with the size held by tau.

    `power` is that of ds_H in the weights of lambda. Positions are those less the threshold, at any size.
    """
    of_hard, of_soft = _slopes(positions, hard, ratio)
    pace = of_hard * of_soft
    velocity = -of_soft * (gradient - _mean(of_soft * of_hard**power, gradient))
    threshold = _mean(of_hard, velocity)
    descent = -jnp.sum(gradient * of_hard * (velocity - threshold))
    left = constant * jnp.sum(pace * (gradient - _mean(pace, gradient)) ** 2)
    return Sides(left, descent, 64 * EPS * jnp.sum(pace) * jnp.max(jnp.abs(gradient)) ** 2)


def loss_descends_beside_one_far_off(
    slopes: Array, near: Array, far: Array, amount: Array, hard: Array, ratio: Array, **changes: float
) -> Sides:
    """`loss_descends` for two undecided connections and one far below, whose gradient is large.

    The far one hardly moves, but weighs as much as the others in a mean by ds_S.
    """
    positions = jnp.stack([0 * near, near, -far])
    _, of_soft = _slopes(positions, hard, ratio)
    gradient = jnp.stack([*slopes, amount * of_soft[0] / of_soft[2]])
    return loss_descends(gradient, positions, hard, ratio, **changes)


def threshold_stays(
    gradient: Array, positions: Array, hard: Array, ratio: Array, power: float = 1.0
) -> Sides:
    """`tau' = sum ds_H w'/sum ds_H = 0` along the flow, at any size."""
    of_hard, of_soft = _slopes(positions, hard, ratio)
    velocity = -of_soft * (gradient - _mean(of_soft * of_hard**power, gradient))
    rounding = 64 * EPS * jnp.max(jnp.abs(gradient)) * jnp.sum(of_hard * of_soft) / jnp.sum(of_hard)
    return Sides(jnp.abs(_mean(of_hard, velocity)), rounding)


HELD_SIZE = Claim(
    id="two-temperature.held-size",
    source="this library; docs/theory.md",
    statement="v = sigma(H (w - tau)), sum v = k: along w' = -ds_S (g - lambda), lambda = sum p g/sum p, p = "
    "ds_H ds_S at w - tau, tau stays, h'(v)' = -(g - lambda), and F(v)' = -sum p (g - lambda)^2",
    latex=r"w' = -\sigma_S' \, (g - \lambda), \quad \lambda = \frac{\sum p g}{\sum p}, \quad "
    r"\frac{d}{dt} h'(v) = -(g - \lambda), \quad \frac{d}{dt} F(v) = - \sum p (g - \lambda)^2",
    assumptions="F differentiable, p = ds_H ds_S; for F(v(t)) - F(u) <= D(u, v(0))/t, F convex and sum u = k",
    verdict="holds",
    remark="Mirror flow among the masks of one size. With lambda weighted by ds_S alone, the loss may rise. "
    "The equality for F(v)' and the bound D(u, v(0))/t are proved, and not sampled.",
    checks=(
        Inequality(
            gradient_of_the_mask,
            cube(
                gradient=symlog(10.0, 0.01, (DIMENSION,)),
                positions=symlog(5.0, 0.1, (DIMENSION // 2,)),
                hard=HARD,
                ratio=RATIO,
            ),
            {"lambda weighted by ds_S": functools.partial(gradient_of_the_mask, bent=0.0)},
        ),
        Inequality(
            loss_descends,
            cube(
                gradient=symlog(10.0, 0.01, (DIMENSION,)),
                positions=symlog(30.0, 0.01, (DIMENSION,)),
                hard=HARD,
                ratio=RATIO,
            ),
            {"2% more": functools.partial(loss_descends, constant=1.02)},
        ),
        Inequality(
            loss_descends_beside_one_far_off,
            cube(
                slopes=uniform(-1.0, 1.0, (2,)),
                near=uniform(1.0, 3.0),
                far=uniform(15.0, 22.0),
                amount=symlog(100.0, 1.0),
                hard=HARD,
                ratio=uniform(0.4, 0.6),
            ),
            {
                "lambda weighted by ds_S": functools.partial(
                    loss_descends_beside_one_far_off, power=0.0, constant=0.0
                ),
                "2% more": functools.partial(loss_descends_beside_one_far_off, constant=1.02),
            },
        ),
        Inequality(
            threshold_stays,
            cube(
                gradient=symlog(10.0, 0.01, (DIMENSION,)),
                positions=symlog(30.0, 0.01, (DIMENSION,)),
                hard=HARD,
                ratio=RATIO,
            ),
            {"lambda weighted by ds_S": functools.partial(threshold_stays, power=0.0)},
        ),
    ),
    see=("two-temperature.mirror-flow", "certificate.gap-of-a-size"),
)


def _of_size(shares: Array, size: Array) -> Array:
    """Return numbers in the cube that sum to 1, or to all but 1, from shares of any sum."""
    ones = shares / jnp.sum(shares)
    return jnp.where(size == 1, ones, 1 - ones)


def distance_to_the_best_of_a_size(
    point: Array, other: Array, size: Array, constant: float = 1.0, far: float = 1.0, **loss: Array
) -> Sides:
    """For a convex F, `F(v) - F(u) <= gap_k(v)` for all u that sum to k, also where the tangent is lowest."""
    point, other = _of_size(point, size), _of_size(other, size)
    gradient = jax.grad(convex_loss)(point, **loss)
    kept = jnp.argsort(jnp.argsort(gradient)) < size
    bound = duality_gap(point, gradient, size.astype(int))
    below = jnp.max(gradient, where=kept, initial=-jnp.inf) - gradient
    left_out = jnp.sum(jnp.where(kept, (1 - point) * below, 0))
    best = jnp.minimum(convex_loss(other, **loss), convex_loss(kept.astype(point.dtype), **loss))
    difference = convex_loss(point, **loss) - best
    right = constant * (bound - (1 - far) * left_out)
    return Sides(difference, right, 64 * EPS * loss_size(**loss))


def smaller_than_over_the_cube(point: Array, size: Array, gradient: Array, constant: float = 1.0) -> Sides:
    """`gap_k(v) <= gap(v)`."""
    point = _of_size(point, size)
    of_size = duality_gap(point, gradient, size.astype(int))
    return Sides(of_size, constant * duality_gap(point, gradient), 64 * EPS * jnp.sum(jnp.abs(gradient)))


_SHARES = often(1.0, uniform(0.01, 1.0, (3,)))

GAP_OF_A_SIZE = Claim(
    id="certificate.gap-of-a-size",
    source="this library; docs/theory.md; of M. Frank and P. Wolfe, 1956, on the masks of one size",
    statement="F(v) - min F <= gap_k(v) = sum_i max((g_i - lambda) v_i, -(g_i - lambda) (1 - v_i)), lambda "
    "the k-th smallest of g, the minimum over {u in [0, 1]^d: sum u = k}; gap_k(v) <= gap(v)",
    latex=r"F(v) - \min_{\sum u = k} F \le \sum_i \max((g_i - \lambda) v_i, - (g_i - \lambda) (1 - v_i)), "
    r"\quad \lambda = g_{(k)}",
    assumptions="F convex on [0, 1]^d, differentiable at v, sum v = k",
    verdict="holds",
    remark="Equality for linear F. No other lambda gives a smaller bound.",
    checks=(
        Inequality(
            distance_to_the_best_of_a_size,
            cube(point=_SHARES, other=_SHARES, size=choice(1.0, 2.0), **CONVEX_LOSSES),
            {
                "2% too small": functools.partial(distance_to_the_best_of_a_size, constant=0.98),
                "entries that should grow left out": functools.partial(
                    distance_to_the_best_of_a_size, far=0.0
                ),
            },
        ),
        Inequality(
            smaller_than_over_the_cube,
            cube(point=_SHARES, size=choice(1.0, 2.0), gradient=normal(2.0, (3,))),
            {"2% less": functools.partial(smaller_than_over_the_cube, constant=0.98)},
        ),
    ),
    see=("certificate.gap", "two-temperature.held-size"),
)

CLAIMS = (HELD_SIZE, GAP_OF_A_SIZE)
