r"""Inequalities in few variables behind the theorems on the two-temperature step, proved on boxes.

Notation: `t = tanh(S |w|/2)` and `tau = tanh(H |w|/2)`, with H = `hard`, S = `ratio` H and 0 < ratio <= 1. So
`t <= tau`, and

    ds_H(w) = (H/4) (1 - tau^2),    ds_S(w) = (S/4) (1 - t^2),    sinh(S |w|) ds_S(w) = (S/2) t.

If a slack contains only H w and S/H, (w, H, S) -> (w/c, c H, c S) changes nothing. Each statement is written
twice: in the claim's form, and as sums of squares and of products of nonnegative terms. The second form lets
intervals show it despite equality at w = 0 and as w grows: one box may suffice. Both forms are compared in
symbols, with one symbol for `tanh` of each argument.
"""

from __future__ import annotations

import functools
from typing import Any

from jaxarch.lab.claims.checks.boxes import Box, Rewritten
from jaxarch.lab.claims.checks.interval_arithmetic import Numbers, Slack


def _tanh_of_half(n: Numbers, x: Any) -> Any:
    return n.tanh(0.5 * x)


def _slope(n: Numbers, scores: Any, sharpness: Any) -> Any:
    """`ds_M(w)`."""
    return 0.25 * sharpness * (1 - n.square(_tanh_of_half(n, sharpness * scores)))


def slope(n: Numbers, scores: Any, sharpness: Any, constant: float = 0.25) -> Any:
    """`ds_M(w) <= constant M`, in units of M/4."""
    return n.divide(constant * sharpness - _slope(n, scores, sharpness), 0.25 * sharpness)


def slope_as_a_square(n: Numbers, scores: Any, sharpness: Any, half: float = 0.5) -> Any:
    """`tanh(M w/2)^2`."""
    return n.square(n.tanh(half * (sharpness * scores)))


def lemma_4_2(
    n: Numbers,
    scores: Any,
    hard: Any,
    ratio: Any,
    step: Any,
    position: Any,
    factor: float = 1.0,
) -> Any:
    """`|1 - ds_H(xi) ds_S(w)| <= max(1, H S/16 - 1)` for xi between w and w+, in units of the right side.

    Args:
      n: the numbers.
      scores: w.
      hard: H.
      ratio: S/H.
      step: eta g, of either sign.
      position: the place of xi, from 0 at w to 1 at `w+ = w - eta g ds_S(w)`.
      factor: a factor of the right side.
    """
    soft_slope = _slope(n, scores, ratio * hard)
    p = _slope(n, scores - position * step * soft_slope, hard) * soft_slope
    right = n.maximum(1.0, 0.0625 * hard * (ratio * hard) - 1)
    return n.divide(n.minimum(right - (1 - p), right - (p - 1)), right) - (1 - factor)


def lemma_4_2_in_terms(
    n: Numbers, scores: Any, hard: Any, ratio: Any, step: Any, position: Any, share: float = 0.0625
) -> Any:
    """The slack of `lemma_4_2` from `right - (1 - p)` and `right - (p - 1)` rewritten; `share` is 1/16."""
    soft = ratio * hard
    largest = share * hard * soft
    t_squared = n.square(_tanh_of_half(n, soft * scores))
    xi = scores - position * step * (0.25 * soft * (1 - t_squared))
    tau_squared = n.square(_tanh_of_half(n, hard * xi))
    # `lost` is 1 - p/largest, p = ds_H(xi) ds_S(w). Both it and the product for p are visibly nonnegative.
    lost = t_squared + tau_squared * (1 - t_squared)
    p = largest * ((1 - t_squared) * (1 - tau_squared))
    above = n.maximum(0.0, largest - 2) + p
    below = n.maximum(2 - largest, 0.0) + largest * lost
    return n.divide(n.minimum(above, below), n.maximum(1.0, largest - 1))


def convexity(n: Numbers, scores: Any, hard: Any, ratio: Any, constant: float = 16.0) -> Any:
    """`constant/(H S) <= h''(v) = 1/(ds_H(w) ds_S(w))`, in units of the right side."""
    soft = ratio * hard
    slopes = _slope(n, scores, hard) * _slope(n, scores, soft)
    return n.divide(hard * soft - constant * slopes, hard * soft)


def convexity_in_terms(n: Numbers, scores: Any, hard: Any, ratio: Any, both: float = 1.0) -> Any:
    """`t^2 + tau^2 (1 - t^2)`; `both` is a factor of the last term."""
    t_squared = n.square(_tanh_of_half(n, ratio * hard * scores))
    tau_squared = n.square(_tanh_of_half(n, hard * scores))
    return t_squared + both * tau_squared * (1 - t_squared)


def _curvature(n: Numbers, tau: Any, share: Any, ratio: Any, comparator: Any) -> Any:
    """`ds_S(w)^2 (d^2/dw^2) D(u, sigma_H(w))` in units of H S/16, w >= 0: (14) of docs/theory.md.

    Args:
      n: the numbers.
      tau: `tanh(H w/2)`.
      share: `t/tau`.
      ratio: r.
      comparator: u.
    """
    t = share * tau
    return (1 - n.square(t)) * ((1 - n.square(tau)) + 2 * ratio * t * (1 + tau - 2 * comparator))


def curvature_below(n: Numbers, tau: Any, share: Any, ratio: Any, comparator: Any, least: float = 0.0) -> Any:
    """`least <= (1 - t^2) ((1 - tau^2) + 2 r t (1 + tau - 2 u))`."""
    return _curvature(n, tau, share, ratio, comparator) - least


def curvature_below_in_terms(
    n: Numbers, tau: Any, share: Any, ratio: Any, comparator: Any, two: float = 2.0
) -> Any:
    """`(1 - t^2) ((1 - u) (1 + tau) (1 - tau + 2 r t) + u (1 - tau) (1 + tau - 2 r t))`: affine in u.

    Here `1 + tau - 2 r t = (1 - tau) + 2 tau (1 - r t/tau)`.
    """
    t = share * tau
    at_0 = (1 + tau) * ((1 - tau) + 2 * ratio * t)
    at_1 = (1 - tau) * ((1 - tau) + two * tau * (1 - ratio * share))
    return (1 - n.square(t)) * ((1 - comparator) * at_0 + comparator * at_1)


def curvature_above(
    n: Numbers,
    tau: Any,
    share: Any,
    ratio: Any,
    comparator: Any,
    constant: float = 1.0,
) -> Any:
    """`(1 - t^2) ((1 - tau^2) + 2 r t (1 + tau - 2 u)) <= constant (1 + r^2)`."""
    return constant * (1 + n.square(ratio)) - _curvature(n, tau, share, ratio, comparator)


def curvature_above_in_terms(
    n: Numbers, tau: Any, share: Any, ratio: Any, comparator: Any, last: float = 0.75
) -> Any:
    """The slack of `curvature_above`, affine in u.

    At u = 0, with `d = tau - t`, it is its value at tau = t plus

        (1 - t^2) d (d + 2 t (1 - r)),

    and the value at tau = t is the polynomial `(r - t (1 - t^2) (1 + t))^2 + t^2 p(t)` with

        p(t) = (1 - t - t^2/2)^2 + t^3 (3 (1 - t^2) + t^2 (1 - t) + 3 t/4).

    At u = 1 it is `r^2 + t^2 + tau^2 (1 - t^2) + 2 r t (1 - t^2) (1 - tau)`. `last` is 3/4.
    """
    t, apart = share * tau, tau * (1 - share)
    squared = n.square(t)
    rest = 1 - squared
    p = n.square(1 - t - 0.5 * squared) + squared * t * (3 * rest + squared * (1 - t) + last * t)
    at_0 = n.square(ratio - t * rest * (1 + t)) + squared * p + rest * apart * (apart + 2 * t * (1 - ratio))
    at_1 = n.square(ratio) + squared + n.square(tau) * rest + 2 * ratio * t * rest * (1 - tau)
    return (1 - comparator) * at_0 + comparator * at_1


def _of_scores(curvature: Slack) -> Slack:
    """Turn a bound on `ds_S(w)^2 (d^2/dw^2) D(u, sigma_H(w))` into a function of w, H, S/H and u.

    The unit stays H S/16.
    """

    @functools.wraps(curvature)
    def slack(n: Numbers, scores: Any, hard: Any, ratio: Any, comparator: Any) -> Any:
        tau = _tanh_of_half(n, hard * scores)
        share = n.share(_tanh_of_half(n, ratio * hard * scores), tau)
        return curvature(n, tau, share, ratio, comparator)

    return slack


_SCORES = {"scores": (-10.0, 10.0)}

_TEMPERATURES = {"hard": (1.0, 1000.0), "ratio": (0.001, 1.0)}

_HALF = {"scores": (0.0, 10.0), **_TEMPERATURES, "comparator": (0.0, 1.0)}

SLOPE: Box = Box(
    slope,
    {**_SCORES, "sharpness": (1.0, 1000.0)},
    {
        "constant 1% too small": functools.partial(slope, constant=0.2475),
        "rewritten with M w for M w/2": Rewritten(functools.partial(slope_as_a_square, half=1.0)),
    },
    slope_as_a_square,
)
"""`ds_M(w) <= M/4`."""

LEMMA_4_2_IN_ONE_COORDINATE: Box = Box(
    lemma_4_2,
    {**_SCORES, **_TEMPERATURES, "step": (-10.0, 10.0), "position": (0.0, 1.0)},
    {
        "1% too small": functools.partial(lemma_4_2, factor=0.99),
        "rewritten with H S/8 for H S/16": Rewritten(functools.partial(lemma_4_2_in_terms, share=0.125)),
    },
    lemma_4_2_in_terms,
)
"""`|1 - ds_H(xi) ds_S(w)| <= max(1, H S/16 - 1)`, which is at most `1 + H S/16` ([D] 9)."""

STRONG_CONVEXITY: Box = Box(
    convexity,
    {**_SCORES, **_TEMPERATURES},
    {
        "16.1 for 16": functools.partial(convexity, constant=16.1),
        "rewritten with half of a term": Rewritten(functools.partial(convexity_in_terms, both=0.5)),
    },
    convexity_in_terms,
)
"""`h'' = 1/(ds_H ds_S) >= 16/(H S)`: the potential is strongly convex."""

RATIO_BOUND: tuple[Box, ...] = (
    Box(
        _of_scores(curvature_below),
        _HALF,
        {
            "at least 1/100": _of_scores(functools.partial(curvature_below, least=0.01)),
            "rewritten with 3 for 2": Rewritten(
                _of_scores(functools.partial(curvature_below_in_terms, two=3.0))
            ),
        },
        _of_scores(curvature_below_in_terms),
    ),
    Box(
        _of_scores(curvature_above),
        _HALF,
        {
            "10% too small": _of_scores(functools.partial(curvature_above, constant=0.9)),
            "rewritten with 1/2 for 3/4": Rewritten(
                _of_scores(functools.partial(curvature_above_in_terms, last=0.5))
            ),
        },
        _of_scores(curvature_above_in_terms),
    ),
)
"""`0 <= ds_S^2 (d^2/dw^2) D(u, sigma_H(w)) <= (1 + (S/H)^2) H S/16`.

The boxes have w >= 0, since (w, u) -> (-w, 1 - u) changes nothing.
"""
