"""Measured latency of compiled functions, and models whose latency meets a budget."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxarch._internal.errors import ArgumentError
from jaxarch._internal.trees import PyTree

_ROUNDS, _SECONDS = 11, 0.3
_TRIES = 10
_CLOSE = 0.95
"""The search ends with a model that takes this share of the budget, or more, ..."""
_NARROW = 0.1
"""... if the next larger one that was measured, and takes too long, has at most this share of work more."""
Measure = Callable[[Any], float]


def latency(function: Callable[..., Any], tree: PyTree, inputs: tuple[PyTree, ...]) -> float:
    """Return the median seconds of a call of a compiled function, after one call that compiles it.

    There are at least 11 calls, and calls for at least .3 seconds.
    """
    compiled = jax.jit(function)
    tree, inputs = jax.device_put((tree, inputs))
    jax.block_until_ready(compiled(tree, *inputs))
    seconds: list[float] = []
    while len(seconds) < _ROUNDS or sum(seconds) < _SECONDS:
        start = time.perf_counter()
        jax.block_until_ready(compiled(tree, *inputs))
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds))


def within_latency(
    choose: Callable[[float], Any], measure: Measure, dense: float, limit: float, text: str
) -> tuple[Any, float]:
    """Find the largest choice whose measured latency is within a limit.

    The latency as a function of the share of multiply-adds is interpolated between the two measured shares
    around the limit, by regula falsi. It aims a little below the limit.

    Args:
      choose: the choice with at most some share of the multiply-adds; at share 0, the smallest choice.
      measure: the latency of a choice, in seconds.
      dense: the latency at share 1.
      limit: the largest latency.
      text: the budget, for messages.

    Returns:
      The choice and its latency.

    Raises:
      ArgumentError: a limit below the latency of the smallest choice.
    """
    if dense <= limit:
        whole = choose(1.0)
        return whole, measure(whole)
    smallest = choose(0.0)
    fastest = measure(smallest)
    if fastest > limit:
        raise ArgumentError(
            f"budget: {text} cannot be met; the smallest model takes {1e3 * fastest:.3g} ms, the dense one "
            f"{1e3 * dense:.3g} ms"
        )
    found, took = smallest, fastest
    aim = limit * (1 + _CLOSE) / 2
    low, high = (0.0, fastest - aim), (1.0, dense - aim)
    for _ in range(_TRIES):
        if took >= _CLOSE * limit and high[0] - low[0] <= _NARROW:
            break
        # Where latency hardly depends on the share, even the smallest model takes nearly the limit.
        part = np.clip(low[1] / (low[1] - high[1]), 0.05, 0.95) if low[1] < 0 else 0.5
        share = low[0] + float(part) * (high[0] - low[0])
        choice = choose(share)
        seconds = measure(choice)
        # The Illinois rule: an end that stays counts half, or the line would never move it.
        if seconds <= limit:
            found, took = choice, seconds
            low, high = (share, seconds - aim), (high[0], high[1] / 2)
        else:
            low, high = (low[0], low[1] / 2), (share, seconds - aim)
    return found, took
