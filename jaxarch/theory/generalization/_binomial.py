"""Upper confidence bound on an error probability, from a count of errors."""

from __future__ import annotations

import math
import numbers

import numpy as np

from jaxarch._internal.errors import ArgumentError, check_count, shown

EPS = 2.0**-52
"""The spacing of Python floats at 1."""


def binomial_upper(errors: int, examples: int, delta: float, *, length: float = 0.0) -> float:
    r"""Return the upper confidence bound on an error probability (Clopper and Pearson, 1934).

        sup{p : P(Bin(n, p) <= errors) >= delta e^-length}

    For a rule that was chosen without looking at n independent examples, it is at least the rule's error
    probability, with probability `1 - delta`. With `length = log 1/P(rule)` this holds for all rules at once,
    and so for one that was chosen by looking at the examples (J. Langford, Tutorial on practical prediction
    theory for classification, 2005, its Occam's razor bound).

    Args:
      errors: the number of errors on the examples, 0 to n.
      examples: n.
      delta: the accepted probability that the bound is wrong, in (0, 1).
      length: in nats, at least 0; infinite for a rule of probability 0, for which the bound is 1.

    Returns:
      A float in (0, 1], rounded upwards; at least `errors / examples`.

    Raises:
      ArgumentError: numbers outside these ranges.

    Example:
      >>> from jaxarch.theory.generalization import binomial_upper
      >>> print(round(binomial_upper(0, 60, 0.05), 4), round(1 - 0.05 ** (1 / 60), 4))
      0.0487 0.0487
    """
    check_count("examples", examples)
    check_count("errors", errors, least=0)
    if errors > examples:
        raise ArgumentError(f"errors: expected at most the {examples} examples, got {errors}")
    check_delta(delta)
    check_length(length)
    if errors == examples or length == math.inf:
        return 1.0
    log_delta = math.log(delta) - length
    counts = np.arange(errors + 1)
    choices = np.array([log_binomial(examples, int(k)) for k in counts])

    def log_tail(p: float) -> float:
        """Compute `log P(Bin(n, p) <= errors)`, rounded upwards."""
        terms = choices + counts * math.log(p) + (examples - counts) * math.log1p(-p)
        largest = terms.max()
        size = log_factorial(examples) - examples * math.log1p(-p) - errors * math.log(p)
        return float(largest + np.log(np.exp(terms - largest).sum()) + 64 * EPS * (1 + size))

    # The tail decreases in p. At `high` it is known to be below the threshold, so the result is safe.
    low, high = errors / examples, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if log_tail(middle) < log_delta:
            high = middle
        else:
            low = middle
    return high


def log_binomial(n: int, k: float) -> float:
    """Compute `log C(n, k)`, up to rounding; by gamma functions if k is no integer."""
    return log_factorial(n) - log_factorial(k) - log_factorial(n - k)


def log_factorial(n: float) -> float:
    """Compute `log n!`, up to rounding."""
    return math.lgamma(n + 1)


def check_delta(delta: float) -> None:
    """Raise unless delta is a probability strictly between 0 and 1."""
    if not (isinstance(delta, numbers.Real) and 0 < delta < 1):
        raise ArgumentError(f"delta: expected a probability between 0 and 1, got {shown(delta)}")


def check_length(length: float) -> None:
    """Raise unless length is a nonnegative number of nats, possibly infinite."""
    if not (isinstance(length, numbers.Real) and length >= 0):
        raise ArgumentError(f"length: expected a number of nats, at least 0, got {shown(length)}")
