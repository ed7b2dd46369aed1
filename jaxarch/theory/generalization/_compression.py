"""Upper bound on the error rate of a network that is a function of a few of its training rows."""

from __future__ import annotations

import math

import numpy as np

from jaxarch._internal.errors import ArgumentError, check_count
from jaxarch.theory.generalization._binomial import EPS, check_delta


def compression_bound(
    errors: int, examples: int, picked: int, delta: float = 0.05, *, choices: int = 1
) -> float:
    r"""Bound the error rate on new examples of a network that a few of n examples determine.

        compression_bound(errors=200, examples=10_000, picked=300)

    With `k = picked + errors`, it is the largest e with

        sum_{m=k}^{n-1} C(m,k)/C(n,k) (1-e)^-(n-m) <= n choices/delta.

    The sum is that of M. C. Campi and S. Garatti, 2023, arXiv:2301.12767. Theirs bounds the chance that a new
    example changes the picked ones. docs/theory.md, `certificate.compression`, proves the bound on errors.

    Two conditions must hold. The network is a function of the picked examples. And whichever examples that
    are neither picked nor wrong are left out, the same examples are picked. `jaxarch.pick_to_learn` fulfils
    both. If only the first holds, take `binomial_upper(errors, n - picked, delta, length=log C(n, picked))`
    for a number of picked examples that was fixed beforehand.

    Args:
      errors: the number of the other `n - picked` examples that the network gets wrong.
      examples: n, drawn independently.
      picked: the number of examples that determine the network.
      delta: the accepted probability that the bound is wrong, in (0, 1).
      choices: the number of networks (rounds, seeds, settings) from which this one is chosen by looking at
        the same examples; it must be fixed beforehand. If you stop adaptively, pass `k * (k + 1)` for the
        k-th network.

    Returns:
      A float in (0, 1], rounded upwards.

    Raises:
      ArgumentError: numbers outside these ranges.

    Example:
      >>> from jaxarch.theory.generalization import compression_bound
      >>> print(round(compression_bound(200, 10_000, 300), 4))  # (200 + 300)/10,000 = .05
      0.0575
    """
    check_count("examples", examples)
    check_count("picked", picked, least=0)
    check_count("errors", errors, least=0)
    check_delta(delta)
    check_count("choices", choices)
    if picked + errors > examples:
        raise ArgumentError(
            f"errors: expected at most the {examples} - {picked} examples that are not picked, got {errors}"
        )
    count = picked + errors
    if count == examples:
        return 1.0
    # C(m, k)/C(n, k) is the product of (i - k)/i over i = m + 1, ..., n. The slowest terms come last.
    left_out = np.arange(1, examples - count + 1)
    shares = np.cumsum(np.log1p(-count / np.arange(examples, count, -1)))
    shares *= 1 + (examples + 8) * EPS
    limit = (math.log(examples) + math.log(choices) - math.log(delta)) * (1 + 8 * EPS)

    def log_sum(e: float) -> float:
        """Compute the logarithm of the sum, rounded downwards."""
        terms = shares - left_out * (math.log1p(-e) * (1 - 8 * EPS))
        largest = terms.max()
        return float(
            largest + np.log(np.exp(terms - largest).sum()) - (examples + 64) * EPS * (1 + abs(largest))
        )

    # The sum increases in e. At `high` it is known to exceed the limit, so the result is safe.
    low, high = 0.0, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if log_sum(middle) > limit:
            high = middle
        else:
            low = middle
    return high
