r"""Duality gap of a mask on losses convex in it, and the effect of a flip (docs/theory.md).

F(v) - F(u) <= sum_i max(g_i v_i, -g_i (1 - v_i)),        g = grad F(v)
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch.lab.claims.checks.core import EPS, Claim, Sides
from jaxarch.lab.claims.checks.cube import choice, cube, normal, often, uniform
from jaxarch.lab.claims.checks.drawn import Inequality
from jaxarch.theory.optimality import duality_gap, flip_slopes

DIMENSION = 3


def convex_loss(v: Array, slopes: Array, directions: Array, tilt: Array) -> Array:
    """Return a loss that is convex in the mask."""
    return jax.nn.softplus(slopes @ v).mean() + ((directions @ v) ** 2).mean() / 2 + tilt @ v


def loss_size(slopes: Array, directions: Array, tilt: Array) -> Array:
    """Bound the size of all terms of the loss on the cube."""
    return 1 + jnp.abs(slopes).sum() + jnp.abs(directions).sum() ** 2 + jnp.abs(tilt).sum()


def distance_to_the_best(
    point: Array, other: Array, constant: float = 1.0, far: float = 1.0, **loss: Array
) -> Sides:
    """For a convex F, `F(v) - F(u) <= gap(v)`, also for the u where the tangent plane is lowest."""
    gradient = jax.grad(convex_loss)(point, **loss)
    right = duality_gap(point, jnp.where(gradient < 0, far, 1.0) * gradient)
    lowest = jnp.where(gradient > 0, 0.0, 1.0)
    difference = convex_loss(point, **loss) - jnp.minimum(
        convex_loss(other, **loss), convex_loss(lowest, **loss)
    )
    return Sides(difference, constant * right, 64 * EPS * loss_size(**loss))


def unique_minimiser(mask: Array, other: Array, sign: float = 1.0, **loss: Array) -> Sides:
    """`sum_i s_i g_i |v_i - u_i| <= F(v) - F(u)` for a convex F and a mask u: if all s g > 0, u is best."""
    slopes = flip_slopes(mask > 0, jax.grad(convex_loss)(mask, **loss))
    left = sign * slopes @ jnp.abs(other - mask)
    return Sides(left, convex_loss(other, **loss) - convex_loss(mask, **loss), 64 * EPS * loss_size(**loss))


def single_flip(
    mask: Array, curvatures: Array, amplitude: Array, direction: Array, center: Array, half: float = 0.5
) -> Sides:
    """`s_i g_i - L_ii/2 <= F(u with u_i flipped) - F(u)` for all i, F smooth, convex or not."""

    def loss(v: Array) -> Array:
        away = v - center
        return jnp.sum(curvatures * away**2) / 2 + amplitude * (1 - jnp.cos(direction @ away))

    slopes = flip_slopes(mask > 0, jax.grad(loss)(mask))
    flips = jnp.abs(mask[None] - jnp.eye(DIMENSION))
    changes = jax.vmap(loss)(flips) - loss(mask)
    bounds = slopes - half * (jnp.abs(curvatures) + jnp.abs(amplitude) * direction**2)
    worst = jnp.argmax(bounds - changes)
    size = 1 + jnp.sum(jnp.abs(curvatures) * (1 + jnp.abs(center)) ** 2)
    size = size + jnp.abs(amplitude) * (1 + jnp.abs(direction).sum()) ** 2
    return Sides(bounds[worst], changes[worst], 64 * EPS * size)


CONVEX_LOSSES = {
    "slopes": often(0.0, normal(3.0, (4, DIMENSION))),
    "directions": often(0.0, normal(1.0, (4, DIMENSION))),
    "tilt": normal(2.0, (DIMENSION,)),
}
"""Variables of `convex_loss`."""

_MASK = choice(0.0, 1.0, shape=(DIMENSION,))

GAP = Claim(
    id="certificate.gap",
    source="this library; docs/theory.md; of M. Frank and P. Wolfe, 1956, on the cube",
    statement="F(v) - min F <= gap(v) = sum_i max(g_i v_i, -g_i (1 - v_i)), g = grad F(v), the minimum over "
    "[0, 1]^d; and a mask is the only minimiser if s_i g_i > 0 for all i",
    latex=r"F(v) - \min_{[0, 1]^d} F \le \sum_i \max(g_i v_i, - g_i (1 - v_i)), \quad g = \nabla F(v)",
    assumptions="F convex on [0, 1]^d, differentiable at v",
    verdict="holds",
    remark="Equality for linear F. Without convexity the gap is 0 exactly where no direction into the cube "
    "descends.",
    checks=(
        Inequality(
            distance_to_the_best,
            cube(
                point=often(1.0, uniform(0.0, 1.0, (DIMENSION,))),
                other=often(0.0, uniform(0.0, 1.0, (DIMENSION,))),
                **CONVEX_LOSSES,
            ),
            {
                "2% too small": functools.partial(distance_to_the_best, constant=0.98),
                "entries that should grow left out": functools.partial(distance_to_the_best, far=0.0),
            },
        ),
        Inequality(
            unique_minimiser,
            cube(mask=_MASK, other=uniform(0.0, 1.0, (DIMENSION,)), **CONVEX_LOSSES),
            {
                "s of the other sign": functools.partial(unique_minimiser, sign=-1.0),
                "2% more": functools.partial(unique_minimiser, sign=1.02),
            },
        ),
    ),
    see=("certificate.flips",),
)

FLIPS = Claim(
    id="certificate.flips",
    source="this library; docs/theory.md",
    statement="F(u with u_i flipped) - F(u) >= s_i g_i - L_ii/2, s_i = 1 where u_i = 0 and -1 where u_i = 1: "
    "if s_i g_i >= L_ii/2 for all i, no single flip lowers F",
    latex=r"F(u^{(i)}) - F(u) \ge s_i g_i - \tfrac12 L_{ii}, \quad g = \nabla F(u)",
    assumptions="F twice differentiable, |d^2 F/dv_i^2| <= L_ii along the edge; convex or not",
    verdict="holds",
    remark="1/2 is sharp, for F = -L (v - u)^2/2.",
    checks=(
        Inequality(
            single_flip,
            cube(
                mask=_MASK,
                curvatures=often(-1.0, uniform(1.0, -1.0, (DIMENSION,))),
                amplitude=often(0.0, uniform(1.0, -1.0)),
                direction=normal(3.0, (DIMENSION,)),
                center=normal(1.0, (DIMENSION,)),
            ),
            {".49 L_ii for L_ii/2": functools.partial(single_flip, half=0.49)},
        ),
    ),
    see=("certificate.gap",),
)

CLAIMS = (GAP, FLIPS)
