r"""The theorem on convergence: the regret of the two-temperature step on any vectors g_t (docs/theory.md).

    sum_t <g_t, v_t - u> <= (D(u, v_1) - D(u, v_{T+1}))/eta + eta K sum_t norm(g_t)^2

u is any mask, D the divergence of `mirror.bregman_divergence`, K `mirror.regret_constant`.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch.lab.claims.checks import proofs
from jaxarch.lab.claims.checks.core import EPS, Claim, Sides
from jaxarch.lab.claims.checks.cube import cube, integer, log_uniform, often, symlog, uniform
from jaxarch.lab.claims.checks.drawn import Inequality
from jaxarch.lab.claims.checks.mirror_cases import (
    COMPARATOR,
    DIMENSION,
    HARD,
    POSITION,
    POSITIONS,
    RATIO,
    inside,
)
from jaxarch.lab.claims.checks.recorded_run import regret
from jaxarch.lab.claims.checks.two_temperature import slope, trajectory
from jaxarch.theory import mirror


def curvature(position: Array, comparator: Array, ratio: Array) -> tuple[Array, Array]:
    """Compute `ds_S(w)^2 Phi''(w)` and a bound on its rounding, for `Phi(w) = D(u, sigma_H(w))`.

    The unit is `H S/16`. `Phi' = (v - u)/ds_S(w)` is differentiated. H is 1, since only x = H w and rho are
    left in these units.
    """

    def first(x: Array) -> Array:
        return (jax.nn.sigmoid(x) - comparator) / slope(x, ratio)

    _, second = jax.jvp(first, (position,), (jnp.ones_like(position),))
    return 16 / ratio * slope(position, ratio) ** 2 * second, EPS * (64 + 16 * ratio * jnp.abs(position))


def curvature_is_positive(position: Array, comparator: Array, ratio: Array, least: float = 0.0) -> Sides:
    """`0 <= ds_S(w)^2 Phi''(w)`, in units of `H S/16`."""
    value, rounding = curvature(position, comparator, ratio)
    return Sides(jnp.full_like(value, least), value, rounding)


def curvature_bound(
    position: Array, comparator: Array, ratio: Array, constant: float = 1.0, square: float = 1.0
) -> Sides:
    """`ds_S(w)^2 Phi''(w) <= 1 + rho^2`, in units of `H S/16`."""
    value, rounding = curvature(position, comparator, ratio)
    return Sides(value, constant * (1 + square * ratio**2), rounding)


STEPS = 8

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


def constant_is_its_integral(
    hard: Array, ratio: Array, reach: Array, square: float = 1.0, twice: float = 2.0
) -> Sides:
    """`K = (1 + rho^2) (H S/16) int_0^1 (1 - r) e^{2 r delta} dr`, as in the proof, `delta = eta G S^2/4`."""
    soft = ratio * hard
    rate = 16 * reach / (hard * soft)
    r = (1 + _NODES) / 2
    integral = jnp.sum(_WEIGHTS / 2 * (1 - r) * jnp.exp(twice * r * rate * soft**2 / 4))
    written = (1 + square * ratio**2) * hard * soft / 16 * integral
    found = mirror.regret_constant(rate, hard, soft, gradient_bound=1.0)
    return Sides(jnp.abs(found - written), 256 * EPS * found)


def regret_bound(
    gradients: Array,
    positions: Array,
    comparator: Array,
    hard: Array,
    ratio: Array,
    reach: Array,
    constant: float = 1.0,
    with_ratio: bool = True,
    with_psi: bool = True,
) -> Sides:
    """`sum_t <g_t, v_t - u> <= (D(u, v_1) - D(u, v_{T+1}))/eta + eta K sum_t norm(g_t)^2`.

    `reach` is in units of the largest entry. A gradient of 0 moves nothing, so T is the number of nonzero
    gradients.
    """
    soft = ratio * hard
    largest = jnp.max(jnp.abs(gradients))
    rate = 16 * reach / (largest * hard * soft)
    scores, _ = trajectory(
        lambda _, g: g, positions / hard, gradients, jnp.full(len(gradients), rate), hard, soft
    )
    grown = 1 + ratio**2
    written = mirror.regret_constant(rate, hard, soft, gradient_bound=largest)
    if not with_psi:
        written = grown * hard * soft / 32
    if not with_ratio:
        written = written / grown
    return regret(scores, gradients, inside(comparator, ratio), hard, soft, rate, constant * written)


def some_steps(steps: Array, gradients: Array) -> Array:
    """Keep the first `steps` gradients, and set the others to 0."""
    return jnp.where(jnp.arange(len(gradients))[:, None] < steps, gradients, 0)


def convergence(steps: Array, gradients: Array, **case: Any) -> Sides:
    """`sum_t <g_t, v_t - u> <= (D(u, v_1) - D(u, v_{T+1}))/eta + eta K sum_t norm(g_t)^2`, T = `steps`.

    See `regret_bound`.
    """
    return regret_bound(some_steps(steps, gradients), **case)


RUNS = cube(
    steps=integer(1, STEPS),
    gradients=often(1.0, symlog(1.0, 0.01, (STEPS, DIMENSION))),
    positions=POSITIONS,
    comparator=COMPARATOR,
    hard=HARD,
    ratio=RATIO,
    reach=log_uniform(1e-3, 10.0),
)
"""Variables for a few steps on any vectors, at any rate."""

CONVERGENCE = Claim(
    id="two-temperature.convergence",
    source="this library, what [D] theorem 4.3 and [A] theorem 2.1 wanted; docs/theory.md",
    statement="sum_t <g_t, v_t - u> <= (D(u, v_1) - D(u, v_{T+1}))/eta + eta K sum_t |g_t|^2 for any "
    "vectors g_t, with K = (1 + rho^2) psi(2 delta) H S/32, delta = eta G S^2/4, psi(x) = 2 (e^x - 1 - "
    "x)/x^2",
    latex=r"\sum_{t=1}^T \langle g_t, v_t - u \rangle \le \frac{D(u, v_1) - D(u, v_{T+1})}{\eta} + \eta K "
    r"\sum_{t=1}^T \|g_t\|^2, \quad K = (1 + \rho^2) \psi(2 \delta) \frac{H S}{32}",
    assumptions="entries of g_t at most G in size, one rate eta > 0, u in [0, 1]^d, in (0, 1)^d if S = H",
    verdict="holds",
    remark="Of the step as it is run, rounding apart, whatever the g_t. Behind it is 0 <= ds_S(w)^2 "
    "(d^2/dw^2) D(u, sigma_H(w)) <= (1 + rho^2) H S/16, which is sharp as rho -> 0. As eta -> 0 both sides "
    "agree to first order, so their ratio comes as near 1 as one likes.",
    checks=(
        Inequality(
            convergence,
            RUNS,
            {
                "K 1% too small": functools.partial(convergence, constant=0.99),
                "K without 1 + rho^2": functools.partial(convergence, with_ratio=False),
                "K without psi": functools.partial(convergence, with_psi=False),
                "minus eta K": functools.partial(convergence, constant=-1.0),
            },
        ),
        Inequality(
            curvature_is_positive,
            cube(position=POSITION, comparator=often(0.0, uniform(1.0, 0.0)), ratio=RATIO),
            {"at least 1e-4 H S/16": functools.partial(curvature_is_positive, least=1e-4)},
        ),
        Inequality(
            curvature_bound,
            cube(
                position=often(float(np.log(3)), uniform(-3.0, 3.0)),
                comparator=often(0.0, uniform(1.0, 0.0)),
                ratio=often(1.0, uniform(1.0, 1e-3)),
            ),
            {
                "constant 1% too small": functools.partial(curvature_bound, constant=0.99),
                "1 + .7 rho^2": functools.partial(curvature_bound, square=0.7),
            },
        ),
        Inequality(
            constant_is_its_integral,
            cube(hard=HARD, ratio=RATIO, reach=log_uniform(1e-3, 1.0)),
            {
                "1 + .99 rho^2": functools.partial(constant_is_its_integral, square=0.99),
                "psi(1.99 delta)": functools.partial(constant_is_its_integral, twice=1.99),
            },
        ),
        *proofs.RATIO_BOUND,
    ),
    see=(
        "two-temperature.average-iterate",
        "two-temperature.last-iterate",
        "two-temperature.anytime",
        "two-temperature.heavy-ball",
        "D.theorem-4.3",
        "A.theorem-2.1",
    ),
)

CLAIMS = (CONVERGENCE,)
