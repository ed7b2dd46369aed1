"""The loss of the network that [D] trains is not convex in the mask ([D] assumption 1, eq. (6)).

The network is (11), the loss (12).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch.lab.claims.checks.core import Claim, Control, Counterexample, Sides


def network_loss_at_a_midpoint(
    first: tuple[float, float], second: tuple[float, float], x: float, y: int
) -> Sides:
    """`f((u + v)/2) <= (f(u) + f(v))/2`, `f(v) = (1 - 2 y) log(1 + exp(tanh(v_2 tanh(v_1 x))))`.

    That is the loss (12) of the network (11) with one unit a layer and weights of 1.
    """

    def loss(v: Array) -> Array:
        return (1 - 2 * y) * jax.nn.softplus(jnp.tanh(v[1] * jnp.tanh(v[0] * x)))

    u, v = jnp.asarray(first), jnp.asarray(second)
    return Sides(loss((u + v) / 2), (loss(u) + loss(v)) / 2)


ASSUMPTION_1 = Claim(
    id="D.assumption-1",
    source="[D] eq. (6), assumption 1, (14), (15), with (11), (12); [A] assumption 1, (10), (20)",
    statement="the loss (12) of the network (11) is convex in the mask v",
    latex=r"f(v, z) - f(v', z) \ge \nabla f(v', z)^T (v - v'), \quad v, v' \in [0, 1]^d",
    verdict="refuted",
    remark="Not of the network that is trained, for neither label: so no theorem of the paper applies to "
    "it. What [A] trains in section 3.1, logistic regression with its weights fixed, is convex.",
    printed=(
        Counterexample(
            network_loss_at_a_midpoint, {"first": (1.0, 0.0), "second": (0.0, 1.0), "x": 1.0, "y": 0}
        ),
        Counterexample(
            network_loss_at_a_midpoint, {"first": (0.0, 0.0), "second": (1.0, 1.0), "x": 1.0, "y": 1}
        ),
    ),
    controls=(
        Control(network_loss_at_a_midpoint, {"first": (0.0, 0.0), "second": (1.0, 1.0), "x": 1.0, "y": 0}),
    ),
    see=("A.logistic-convex",),
)

CLAIMS = (ASSUMPTION_1,)
