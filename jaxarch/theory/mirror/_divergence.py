r"""The Bregman divergence of the mirror map's potential h: the distance of an architecture from given scores.

    D(u, v) = h(u) - h(v) - h'(v) (u - v),        h'(v) = theta(logit(v) / hard)

theta is `mirror_map`, v the mask `sigma(hard w)`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import (
    ArgumentError,
    check_broadcast,
    check_count,
    is_traced,
    real_numbers,
    shown,
)
from jaxarch._internal.trees import PyTree, check_floating, check_structure, map_selected
from jaxarch.masks import check_temperatures
from jaxarch.theory.mirror._dual_variables import scores_and_temperature


def vertex_distance(scores: ArrayLike, hard: ArrayLike, soft: ArrayLike) -> Array:
    r"""Return `D(1, sigma(hard w))`: how far a connection is from being kept.

    For the distance from 0, flip the sign of the scores. The result is `(2/(hard soft)) V(hard w)`, with

        V(b) = int_b^inf (1 + cosh(rho x)) / (1 + e^x) dx
             = log(1 + e^-b) + sum_{k>=1} (-1)^(k-1) (e^{-(k-rho) b}/(k-rho) + e^{-(k+rho) b}/(k+rho)) / 2

    for b >= 0 and `V(-b) = V(b) + b + sinh(rho b)/rho`. The alternating sum is accelerated (H. Cohen, F.
    Rodriguez Villegas and D. Zagier, Convergence acceleration of alternating series, 2000, algorithm 1), with
    24 terms for float64. At `v = 1/2`, `V(0) = log 2 + I(rho)`, `I(rho) = (beta(1-rho) + beta(1+rho))/2`,
    `beta(s) = (digamma((s+1)/2) - digamma(s/2))/2`; `I(0) = log 2`, `I(1/2) = 1`.

    The distance is finite exactly when soft < hard: binary architectures are at a finite distance if and only
    if the soft temperature is strictly softer than the hard one.

    Args:
      scores: floating-point array of any shape.
      hard: inverse temperature of the value, positive; broadcast against the scores.
      soft: inverse temperature of the gradient, positive, at most `hard`.

    Returns:
      An array of the scores' shape and dtype; infinite at `soft == hard`, and where the result overflows.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxarch.theory import mirror
      >>> scores = jnp.array([-1.0, 0.0, 1.0])  # at 0 it is log 2 + 1
      >>> [round(distance, 3) for distance in mirror.vertex_distance(scores, hard=2.0, soft=1.0).tolist()]
      [4.845, 1.693, 0.495]
      >>> mirror.vertex_distance(scores, hard=2.0, soft=2.0).tolist()
      [inf, inf, inf]
    """
    scores, hard, soft, ratio, gap = _with_ratio(scores, hard, soft)
    return 2 / (hard * soft) * _from_vertex(hard * scores, ratio, gap)


def bregman_divergence(mask: ArrayLike, scores: ArrayLike, hard: ArrayLike, soft: ArrayLike) -> Array:
    r"""Return `D(u, sigma(hard w))` for each connection, u in [0, 1].

    It is 0 where u and the mask agree, and positive elsewhere.

        D(u, v) = h(u) - h(v) - h'(v) (u - v)
                = (2/(hard soft)) int_{logit u}^{hard w} (sigma(x) - u) (1 + cosh(rho x)) dx

    Its derivative in w is `(v - u) / ds_soft(w)`. Near agreement the integral is computed by Gauss-Legendre
    quadrature. Farther off it is computed through `vertex_distance`, since
    `D(u, v) = u D(1, v) + (1 - u) D(0, v) - (the same at v = u)`.

    Args:
      mask: u, numbers in [0, 1] or booleans, of the scores' shape or broadcast to it.
      scores: w, floating-point array.
      hard: inverse temperature of the value, positive.
      soft: inverse temperature of the gradient, positive, at most `hard`.

    Returns:
      An array of the scores' shape and dtype. At the vertices 0 and 1 it is finite exactly when soft < hard.
      Inside it is always finite (until it overflows).

    Raises:
      ArgumentError: a mask outside [0, 1]; scores or temperatures that the search would refuse.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxarch.theory import mirror
      >>> mask, scores = jnp.array([0.0, 0.5, 1.0]), jnp.zeros(3)  # v = 1/2; at 0 and 1 it is log 2 + 1
      >>> divergences = mirror.bregman_divergence(mask, scores, hard=2.0, soft=1.0)
      >>> [round(divergence, 3) for divergence in divergences.tolist()]
      [1.693, 0.0, 1.693]
    """
    if not is_traced(mask):
        numbers = real_numbers("mask", mask)
        if not ((numbers >= 0) & (numbers <= 1)).all():
            raise ArgumentError(f"mask: expected numbers in [0, 1], got {shown(mask)}")
    scores, hard, soft, ratio, gap = _with_ratio(scores, hard, soft)
    check_broadcast(scores=scores, hard=hard, soft=soft, mask=mask)
    u, b = jnp.asarray(mask, scores.dtype), hard * scores
    u, b = jnp.broadcast_arrays(u, b)
    inside = (u > 0) & (u < 1)
    at_vertex = _from_vertex(jnp.where(u > 0, b, -b), ratio, gap)
    # The branch that `where` discards at the vertices must stay finite.
    u = jnp.where(inside, u, 0.5)
    a = jnp.log(u) - jnp.log1p(-u)
    far = jnp.abs(b - a) > 1
    interior = jnp.where(far, _from_afar(u, a, b, ratio, gap), _nearby(a, jnp.where(far, a, b), ratio))
    return 2 / (hard * soft) * jnp.where(inside, interior, at_vertex)


def total_divergence(mask: PyTree, scores: PyTree, hard: ArrayLike, soft: ArrayLike) -> Array:
    """Return `D(u, v)` of the theorems: the sum of `bregman_divergence` over all masked connections.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxarch.theory import mirror
      >>> scores = {"kernel": jnp.zeros(2), "bias": None}
      >>> mask = {"kernel": jnp.array([1.0, 0.0]), "bias": None}
      >>> round(float(mirror.total_divergence(mask, scores, hard=2.0, soft=1.0)), 3)  # 2 (log 2 + 1)
      3.386
    """
    check_floating("scores", scores)
    check_structure("mask", scores, mask, "the scores")
    divergences = map_selected(lambda w, u: bregman_divergence(u, w, hard, soft).sum(), scores, mask)
    return jnp.asarray(sum(jax.tree.leaves(divergences)))


def start_distance(connections: int, hard: ArrayLike, soft: ArrayLike) -> Array:
    r"""Return `(2 d/(hard soft)) (log 2 + I(rho))`: the distance from `v = 1/2` to each of 2^d architectures.

    Raises:
      ArgumentError: soft = hard, where no architecture is at a finite distance.

    Example:
      >>> from jaxarch.theory import mirror
      >>> round(float(mirror.start_distance(1000, hard=2.0, soft=1.0)), 1)  # 1000 (log 2 + 1)
      1693.1
    """
    check_count("connections", connections)
    check_temperatures(hard, soft)
    if not is_traced((hard, soft)) and (np.asarray(soft) >= np.asarray(hard)).any():
        raise ArgumentError(
            f"soft: expected less than hard = {shown(hard)} (at equal temperatures every architecture is at "
            f"an infinite distance), got {shown(soft)}"
        )
    return connections * vertex_distance(0.0, hard, soft)


def _acceleration(terms: int) -> np.ndarray:
    """Return the weights of the first terms of an alternating series, signs included."""
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
    """Compute `V(-b) - V(b)`."""
    return b + jnp.sinh(ratio * b) / ratio


def _from_vertex(b: Array, ratio: Array, gap: Array) -> Array:
    """Compute V(b)."""
    # Unlike `abs`, this has the derivative 1 at 0.
    size = jnp.where(b < 0, -b, b)
    value = jnp.exp(-gap * size) / (2 * gap) + _beyond_the_first_term(size, ratio, gap)
    return value + jnp.where(b < 0, _growth(size, ratio), 0)


def _beyond_the_first_term(b: Array, ratio: Array, gap: Array) -> Array:
    """Compute `V(b) - e^{-(1-rho) b} / (2 (1-rho))` for b >= 0, the part that stays finite as rho -> 1."""

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
    # The first terms of both series go to infinity as rho -> 1, but their difference does not.
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
    """Return scores, both temperatures, their ratio, and one minus the ratio."""
    check_temperatures(hard, soft)
    scores, soft = scores_and_temperature(scores, soft)
    check_broadcast(scores=scores, soft=soft, hard=hard)
    hard = jnp.asarray(hard, scores.dtype)
    return scores, hard, soft, soft / hard, jnp.maximum((hard - soft) / hard, 0)
