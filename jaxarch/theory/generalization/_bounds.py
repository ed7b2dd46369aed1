"""Bounds on the error rate on new examples, of one mask or of a mask drawn anew for each example."""

from __future__ import annotations

import math
import numbers

import numpy as np

from jaxarch._internal.errors import ArgumentError, check_count, shown
from jaxarch._internal.trees import PyTree
from jaxarch.masks import check_booleans
from jaxarch.theory.generalization._binomial import (
    EPS,
    binomial_upper,
    check_delta,
    check_length,
    log_binomial,
    log_factorial,
)
from jaxarch.theory.generalization._description import description_length


def masked_bound(
    errors: int,
    examples: int,
    mask: PyTree,
    delta: float = 0.05,
    *,
    choices: int = 1,
    prior: PyTree = None,
) -> float:
    r"""Bound the error rate on new examples of a network with fixed weights and a mask chosen on n examples.

    The bound holds with probability `1 - delta` over n independent examples, for all masks at once. It is
    `binomial_upper` with the length `description_length(mask, prior) + log choices`.

    Args:
      errors: the number of errors of the masked network on the n examples.
      examples: n.
      mask: booleans, `None` for leaves that are not masked.
      delta: the accepted probability that the bound is wrong, in (0, 1).
      choices: the number of families of masks (other weights, seeds, temperatures) from which this one is
        chosen by looking at the same examples; it must be fixed beforehand. If you stop adaptively, pass
        `k * (k + 1)` for the k-th family. Several densities over the same weights need no such correction:
        the length covers all sizes.
      prior: the probability of each connection, guessed before the n examples were looked at, for instance
        from another half of the rows. By default all masks of a size are equally likely.

    Returns:
      A float in (0, 1], rounded upwards.

    Raises:
      ArgumentError: numbers outside these ranges, a mask that is not boolean; a prior as in
        `description_length`.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxarch.theory.generalization import masked_bound
      >>> mask = {"kernel": jnp.arange(20_000) < 500}
      >>> print(round(masked_bound(7_200, 60_000, mask), 3))  # .12 on the examples
      0.229
    """
    check_booleans(mask)
    return binomial_upper(errors, examples, delta, length=_paid(mask, choices, prior))


def randomized_bound(
    errors: int,
    draws: int,
    examples: int,
    mask: PyTree,
    delta: float = 0.05,
    *,
    share: float = 0.2,
    choices: int = 1,
    prior: PyTree = None,
) -> float:
    r"""Bound the error rate on new examples of a network with fixed weights and a new random mask for each.

    Connections exist with probabilities v, which are chosen on n examples before masks are drawn from them.
    With probability `1 - delta`, the error probability on a new example is at most `kl_inverse(r, b)`,

        r = binomial_upper(errors, draws, share delta / choices),
        b = (KL + log xi(n) + log 1/((1 - share) delta)) / n,    xi(n) = sum_k C(n,k) (k/n)^k (1-k/n)^(n-k),

    with KL the `description_length` of v plus `log choices`. This is the PAC-Bayes bound of M. Seeger, 2002,
    with A. Maurer's constant, 2004; the constant is at most `2 sqrt(n)` and is computed here.

    Args:
      errors: the number of errors in the draws.
      draws: the number of pairs of a mask drawn from v and an example drawn from the n, all independent. The
        number must be fixed once, beforehand: drawing again adaptively is one more choice. With fewer than n
        draws, most of the bound's excess comes from not knowing the error on the examples.
      examples: n.
      mask: v, numbers in [0, 1], `None` for leaves that are not masked.
      delta: the accepted probability that the bound is wrong, in (0, 1).
      share: the share of delta for the draws, in (0, 1).
      choices: as in `masked_bound`.
      prior: as in `masked_bound`.

    Returns:
      A float in (0, 1], rounded upwards.

    Raises:
      ArgumentError: numbers outside these ranges; a mask or a prior as in `description_length`.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxarch.theory.generalization import randomized_bound
      >>> mask = {"kernel": jnp.where(jnp.arange(20_000) < 500, 0.9, 0.001)}
      >>> print(round(randomized_bound(120_000, 1_000_000, 60_000, mask), 3))  # .12 of the draws
      0.219
    """
    check_delta(delta)
    if not (isinstance(share, numbers.Real) and 0 < share < 1):
        raise ArgumentError(f"share: expected a number between 0 and 1, got {shown(share)}")
    check_count("choices", choices)
    paid_for_draws = math.log(choices) * (1 + 4 * EPS)
    rate = binomial_upper(errors, draws, share * delta, length=paid_for_draws)
    check_count("examples", examples)
    paid = _paid(mask, choices, prior) + _log_maurer(examples) - math.log((1 - share) * delta)
    return kl_inverse(rate, paid * (1 + 8 * EPS) / examples)


def kl_inverse(rate: float, budget: float) -> float:
    r"""Return the largest p with `kl(rate, p) <= budget`, rounded upwards.

        kl(r, p) = r log(r/p) + (1 - r) log((1 - r)/(1 - p))

    Args:
      rate: r, in [0, 1].
      budget: at least 0, in nats per example; if it is infinite, the result is 1.

    Returns:
      A float in [rate, 1].

    Raises:
      ArgumentError: numbers outside these ranges.

    Example:
      >>> from jaxarch.theory.generalization import kl_inverse
      >>> print(round(kl_inverse(0.0, 0.05), 6), round(1 - 2.718281828**-0.05, 6))
      0.048771 0.048771
    """
    if not (isinstance(rate, numbers.Real) and 0 <= rate <= 1):
        raise ArgumentError(f"rate: expected a number in [0, 1], got {shown(rate)}")
    check_length(budget)
    if rate == 1 or budget == math.inf:
        return 1.0

    def divergence(p: float) -> float:
        """Compute `kl(rate, p)`, rounded downwards."""
        there = rate * (math.log(rate) - math.log(p)) if rate else 0.0
        gone = (1 - rate) * (math.log1p(-rate) - math.log1p(-p))
        size = rate * (-math.log(rate) - math.log(p)) if rate else 0.0
        return there + gone - 8 * EPS * (size - math.log1p(-rate) - math.log1p(-p) + abs(there) + abs(gone))

    # The divergence increases in p above the rate. At `high` it is known to exceed the budget.
    low, high = rate, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if divergence(middle) > budget:
            high = middle
        else:
            low = middle
    return high


def _paid(mask: PyTree, choices: int, prior: PyTree) -> float:
    check_count("choices", choices)
    return description_length(mask, prior) + math.log(choices) * (1 + 4 * EPS)


def _log_maurer(n: int) -> float:
    """Compute `log xi(n)`, rounded upwards."""
    counts = np.arange(1, n)
    terms = np.array([log_binomial(n, int(k)) for k in counts])
    rates = counts / n
    terms = terms + counts * np.log(rates) + (n - counts) * np.log1p(-rates)
    return math.log(2 + math.fsum(np.exp(terms))) + 64 * EPS * (1 + log_factorial(n))
