r"""The number of steps after which an entry of a mask can be read off (docs/theory.md).

2 (b + sinh(rho b)/rho) / (H S eta gamma) steps, |g_t| >= gamma of one sign, from v = 1/2 to |H w| >= b
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch.lab.claims.checks.core import EPS, Claim, Sides
from jaxarch.lab.claims.checks.cube import cube, integer, log_uniform, often
from jaxarch.lab.claims.checks.drawn import Inequality
from jaxarch.lab.claims.checks.mirror_cases import HARD, RATIO
from jaxarch.lab.claims.checks.two_temperature import slope
from jaxarch.theory import mirror

STEPS = 40


def saturation(
    position: Array,
    hard: Array,
    ratio: Array,
    extra: Array,
    steps: Array,
    share: float = 1.0,
    bent: float = 1.0,
) -> Sides:
    """`b <= |H w|` after T = `steps` steps, at the learning rate for which the claim asks for T steps."""
    soft = ratio * hard
    ratio = soft / hard
    needed = mirror.saturation_steps(position, 1.0, hard, soft, least_gradient=1.0)
    straight = 4 * position / (hard * soft)
    rate = share * (straight + bent * (needed - straight)) / steps

    def step(w: Array, at: tuple[Array, Array]) -> tuple[Array, None]:
        number, gradient = at
        return jnp.where(number < steps, w + rate * (1 + gradient) * slope(w, soft), w), None

    w, _ = jax.lax.scan(step, jnp.zeros_like(position), (jnp.arange(STEPS), extra))
    return Sides(position, hard * w, EPS * (64 + 8 * steps) * (1 + ratio * position) * position)


def time_of_the_flow(position: Array, hard: Array, ratio: Array, bent: float = 1.0) -> Sides:
    """Along the flow theta grows at the rate gamma; from w = 0 to `b/H` takes `eta` times the steps."""
    soft = ratio * hard
    needed = mirror.saturation_steps(position, 1.0, hard, soft, least_gradient=1.0)
    straight = 4 * position / (hard * soft)
    taken = mirror.mirror_map(position / hard, soft)
    rounding = EPS * (64 + 8 * ratio * position) * taken
    return Sides(jnp.abs(straight + bent * (needed - straight) - taken), rounding)


TIME_TO_READ_OFF = Claim(
    id="two-temperature.time-to-read-off",
    source="this library; docs/theory.md",
    statement="2 (b + sinh(rho b)/rho)/(H S eta gamma) steps, rounded up, with |g_t| >= gamma of one sign "
    "bring an entry from v = 1/2 to |H w| >= b; the flow with |g| = gamma takes exactly eta times that",
    latex=r"\lvert H w_{n+1} \rvert \ge b \quad \text{for} \quad n \ge \frac{2}{H S \eta \gamma} \Big( b + "
    r"\frac{\sinh \rho b}{\rho} \Big)",
    verdict="holds",
    remark="At a given H S eta it grows with rho: at rho = 1/b by 8.8% over its limit at rho = 0, beyond "
    "like e^(rho b).",
    checks=(
        Inequality(
            saturation,
            cube(
                position=log_uniform(0.01, 30.0),
                hard=HARD,
                ratio=RATIO,
                extra=often(0.0, log_uniform(1e-3, 10.0, (STEPS,))),
                steps=integer(1, STEPS),
            ),
            {
                "1% fewer": functools.partial(saturation, share=0.99),
                "b for sinh(rho b)/rho": functools.partial(saturation, bent=0.0),
            },
        ),
        Inequality(
            time_of_the_flow,
            cube(position=log_uniform(0.01, 30.0), hard=HARD, ratio=RATIO),
            {"1% less beyond 2 b": functools.partial(time_of_the_flow, bent=0.99)},
        ),
    ),
    see=("two-temperature.vertex-distance",),
)

CLAIMS = (TIME_TO_READ_OFF,)
