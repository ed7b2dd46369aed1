r"""The two-temperature gradient as mirror descent: mirror map, exact step, divergence, rates and bounds.

The mask is `v = sigma(hard w)`. The step of [D] eq. (5) is `w <- w - eta g ds_soft(w)` with `g = grad_v f`
and `ds_M(w) = M sigma(M w) (1 - sigma(M w))`. It is Euler's method for the flow `d theta / dt = -g` in the
dual variables

    theta(w) = (2/soft) (w + sinh(soft w) / soft),        d theta / dw = 1 / ds_soft(w).

This is mirror flow for the convex potential h on (0, 1)^d with `h'(v) = theta(logit(v) / hard)`, which is
`16 / (hard soft)`-strongly convex; `D(u, v)` is its Bregman divergence. It gives the distance of an
architecture, the learning rate to take, and a bound on the gap after T steps. All of this depends on the
temperatures only through their ratio, `rho = soft / hard`, once the rate is scaled: (hard, soft, eta, w) and
(c hard, c soft, eta / c^2, w / c) give the same masks.

All functions are pure and accept traced values. They are elementwise where they take arrays.

[D] Colombo & Gao, Disentangling Neural Architectures and Weights, 2021.
"""

from jaxarch.theory.mirror._divergence import (
    bregman_divergence,
    start_distance,
    total_divergence,
    vertex_distance,
)
from jaxarch.theory.mirror._dual_variables import inverse_mirror_map, mirror_map, mirror_update
from jaxarch.theory.mirror._rates import (
    anytime_bound,
    average_iterate_bound,
    clipped_descent_bound,
    descent_bound,
    heavy_ball_bound,
    largest_descent_rate,
    last_iterate_bound,
    prescribed_clip,
    prescribed_rate,
    regret_constant,
    saturation_steps,
    stochastic_descent_bound,
)

__all__ = [
    "anytime_bound",
    "average_iterate_bound",
    "bregman_divergence",
    "clipped_descent_bound",
    "descent_bound",
    "heavy_ball_bound",
    "inverse_mirror_map",
    "largest_descent_rate",
    "last_iterate_bound",
    "mirror_map",
    "mirror_update",
    "prescribed_clip",
    "prescribed_rate",
    "regret_constant",
    "saturation_steps",
    "start_distance",
    "stochastic_descent_bound",
    "total_divergence",
    "vertex_distance",
]
