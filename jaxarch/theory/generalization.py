r"""How often a mask may be wrong on new examples: upper bounds that fail with probability delta at most.

Weights that were there before the data leave a search nothing to choose but the mask. A mask that few others
are like is paid for with its length, `log 1/P(mask)`, P fixed before the data were seen: for all masks at
once the error on new examples is at most

    sup{p : P(Bin(n, p) <= errors) >= delta P(mask)}

(docs/theory.md, `certificate.generalization`). Numbers are Python's, rounded outwards: a bound is never below
the one that exact arithmetic would give.
"""

from __future__ import annotations

import math
import numbers

import jax
import numpy as np

from jaxarch.errors import ArgumentError, check_count, shown
from jaxarch.masks import check_booleans
from jaxarch.trees import PyTree

__all__ = ["binomial_upper", "description_length", "masked_bound"]

EPS = 2.0**-52


def binomial_upper(errors: int, examples: int, delta: float, *, length: float = 0.0) -> float:
    r"""The largest chance of an error under which so few errors are no surprise (Clopper and Pearson, 1934).

        sup{p : P(Bin(n, p) <= errors) >= delta e^-length}

    For a rule that was chosen without looking at n independent examples it is, with probability `1 - delta`,
    at least the rule's chance of an error; with `length = log 1/P(rule)` it is so for all rules at once, also
    for one that was chosen by looking (J. Langford, Tutorial on practical prediction theory for
    classification, 2005, its Occam's razor bound).

    Args:
      errors: on the examples, 0 to n.
      examples: n.
      delta: the chance that is taken of being wrong, in (0, 1).
      length: in nats, at least 0.

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
    if not (isinstance(length, numbers.Real) and 0 <= length < math.inf):
        raise ArgumentError(f"length: expected a number of nats, at least 0, got {shown(length)}")
    if errors == examples:
        return 1.0
    log_delta = math.log(delta) - length
    counts = np.arange(errors + 1)
    choices = np.array([log_binomial(examples, int(k)) for k in counts])

    def log_tail(p: float) -> float:
        """`log P(Bin(n, p) <= errors)`, rounded upwards."""
        terms = choices + counts * math.log(p) + (examples - counts) * math.log1p(-p)
        largest = terms.max()
        size = log_factorial(examples) - examples * math.log1p(-p) - errors * math.log(p)
        return float(largest + np.log(np.exp(terms - largest).sum()) + 64 * EPS * (1 + size))

    # The tail falls in p; `high` is where it is known to be below.
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


def description_length(mask: PyTree) -> float:
    r"""What a mask costs to name, in nats: `log 1/P(mask)`, rounded upwards.

        P = (P_all + P_leaf)/2,    P_all = 1/((D + 1) C(D, k)),    P_leaf = prod_l 1/((D_l + 1) C(D_l, k_l))

    k of all D connections, k_l of the D_l of a leaf, are there. Sizes are equally likely, and so are the
    masks of a size: of all leaves together, or leaf by leaf, which is shorter where densities differ.

    Args:
      mask: booleans, `None` for leaves that are not masked.

    Raises:
      ArgumentError: a mask that is not boolean, or masks nothing.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxarch.theory.generalization import description_length
      >>> mask = {"a": jnp.array([True, False, False, False])}  # one of 5 sizes, one of 4 of that size
      >>> print(round(description_length(mask), 6), round(float(jnp.log(20)), 6))
      2.995732 2.995732
    """
    check_booleans(mask)
    sizes = [(int(np.asarray(leaf).sum()), leaf.size) for leaf in jax.tree.leaves(mask)]
    if not sizes:
        raise ArgumentError("mask: no leaf is masked")
    pooled = _length(*(sum(column) for column in zip(*sizes, strict=True)))
    by_leaf = sum(_length(kept, size) for kept, size in sizes)
    short, long = sorted((pooled, by_leaf))
    mixed = short + math.log(2) - math.log1p(math.exp(short - long))
    return mixed + 64 * EPS * (1 + len(sizes)) * (1 + log_factorial(sum(size for _, size in sizes)))


def masked_bound(errors: int, examples: int, mask: PyTree, delta: float = 0.05, *, choices: int = 1) -> float:
    r"""How often a network of fixed weights, its mask chosen on n examples, is wrong on others at most.

    With probability `1 - delta` over n independent examples, for all masks at once, by `binomial_upper` with
    the length `description_length(mask) + log choices`.

    Args:
      errors: of the masked network on the n examples, counted.
      examples: n.
      mask: booleans, `None` for leaves that are not masked.
      delta: the chance that is taken of being wrong, in (0, 1).
      choices: among how many families of masks (other weights, seeds, temperatures) this one is chosen by
        looking at the same examples, a number fixed before; of the k-th, where one goes on until content,
        `k * (k + 1)`. Densities need no such payment over the same weights: the length pays for all sizes.

    Returns:
      A float in (0, 1], rounded upwards.

    Raises:
      ArgumentError: numbers outside these ranges, a mask that is not boolean.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxarch.theory.generalization import masked_bound
      >>> mask = {"kernel": jnp.arange(20_000) < 500}
      >>> print(round(masked_bound(7_200, 60_000, mask), 3))  # .12 on the examples
      0.229
    """
    check_count("choices", choices)
    length = description_length(mask) + math.log(choices) * (1 + 4 * EPS)
    return binomial_upper(errors, examples, delta, length=length)


def log_binomial(n: int, k: int) -> float:
    """`log C(n, k)`, to rounding."""
    return log_factorial(n) - log_factorial(k) - log_factorial(n - k)


def log_factorial(n: int) -> float:
    """`log n!`, to rounding."""
    return math.lgamma(n + 1)


def check_delta(delta: float) -> None:
    """Raise unless it is a chance, of neither 0 nor 1."""
    if not (isinstance(delta, numbers.Real) and 0 < delta < 1):
        raise ArgumentError(f"delta: expected a chance between 0 and 1, got {shown(delta)}")


def _length(kept: int, size: int) -> float:
    return math.log(size + 1) + log_binomial(size, kept)
