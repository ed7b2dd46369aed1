r"""The error rate on new examples of a mask that was chosen on others, exactly (docs/theory.md).

P(some mask errs with a chance above its bound) <= delta
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from math import comb, prod
from random import Random
from typing import Any, Literal, get_args

import numpy as np

from jaxarch.lab.claims.checks.core import Claim
from jaxarch.lab.claims.checks.exact import Exact
from jaxarch.theory.generalization import binomial_upper, masked_bound

Leaves = tuple[int, ...]
"""The number of connections of each leaf."""
Paid = Literal["both", "sizes", "masks", "nothing"]
"""The parts of a mask's price."""


def prior(leaves: Leaves, mask: Sequence[int], paid: Paid = "both") -> Fraction:
    """Return `P(mask) = (P_all + P_leaf)/2`; `paid` may keep one part of the price, or charge nothing."""
    if paid == "nothing":
        return Fraction(1)

    def of_size(kept: int, size: int) -> Fraction:
        sizes = 1 if paid == "masks" else size + 1
        masks = 1 if paid == "sizes" else comb(size, kept)
        return Fraction(1, sizes * masks)

    ends = list(itertools.accumulate(leaves, initial=0))
    by_leaf = prod(of_size(sum(mask[i:j]), j - i) for i, j in itertools.pairwise(ends))
    return (of_size(sum(mask), len(mask)) + by_leaf) / 2


def tail(errors: int, examples: int, chance: Fraction) -> Fraction:
    """Compute `P(Bin(n, p) <= errors)`."""
    return sum(
        (comb(examples, k) * chance**k * (1 - chance) ** (examples - k) for k in range(errors + 1)),
        Fraction(0),
    )


def prices_are_a_distribution(leaves: Leaves, paid: Paid = "both") -> bool:
    """`sum P = 1` over all masks."""
    masks = itertools.product((0, 1), repeat=sum(leaves))
    return sum(prior(leaves, mask, paid) for mask in masks) == 1


def bounds_hold(
    leaves: Leaves,
    wrong: Sequence[Sequence[int]],
    chances: Sequence[Fraction],
    examples: int,
    delta: Fraction,
    paid: Paid = "both",
    more: Fraction = Fraction(1),
) -> bool:
    """`P(for some mask, P(Bin(n, p) <= errors) < delta P(mask)) <= delta`, p the mask's chance of an error.

    `wrong[mask][input]` tells if the mask gets the input wrong, and `chances` has the probability of each
    input. n inputs are drawn independently, in all ways. p is above the bound exactly if this tail is below
    `delta P(mask)`.
    """
    masks = list(itertools.product((0, 1), repeat=sum(leaves)))
    shares = [prior(leaves, mask, paid) for mask in masks]
    true = [sum((c for c, w in zip(chances, of, strict=True) if w), Fraction(0)) for of in wrong]
    limits = [
        [tail(errors, examples, p) < more * delta * share for errors in range(examples + 1)]
        for p, share in zip(true, shares, strict=True)
    ]
    broken = Fraction(0)
    for sample in itertools.product(range(len(chances)), repeat=examples):
        if any(limit[sum(of[x] for x in sample)] for of, limit in zip(wrong, limits, strict=True)):
            broken += prod(chances[x] for x in sample)
    return broken <= delta


def printed_bounds_hold(
    leaves: Leaves,
    wrong: Sequence[Sequence[int]],
    chances: Sequence[Fraction],
    examples: int,
    delta: Fraction,
    print_: Callable[..., float] = masked_bound,
) -> bool:
    """`P(for some mask, its chance of an error is above what masked_bound prints) <= delta`."""
    ends = list(itertools.accumulate(leaves, initial=0))
    true = [sum((c for c, w in zip(chances, of, strict=True) if w), Fraction(0)) for of in wrong]

    @functools.cache
    def is_broken(mask: tuple[int, ...], p: Fraction, errors: int) -> bool:
        parts = {str(i): np.array(mask[i:j], bool) for i, j in itertools.pairwise(ends)}
        return p > Fraction(print_(errors, examples, parts, float(delta)))

    masks = list(itertools.product((0, 1), repeat=sum(leaves)))
    broken = Fraction(0)
    for sample in itertools.product(range(len(chances)), repeat=examples):
        made = [sum(of[x] for x in sample) for of in wrong]
        if any(is_broken(*case) for case in zip(masks, true, made, strict=True)):
            broken += prod(chances[x] for x in sample)
    return broken <= delta


def _without_a_price(errors: int, examples: int, mask: Any, delta: float) -> float:
    return binomial_upper(errors, examples, delta)


def _at_more_risk(errors: int, examples: int, mask: Any, delta: float) -> float:
    return masked_bound(errors, examples, mask, 1.002 * delta)


def printed_bound_is_the_largest(
    errors: int, examples: int, delta: Fraction, length: float, factor: Fraction = Fraction(1)
) -> bool:
    """`binomial_upper` is `sup{p : P(Bin(n, p) <= errors) >= delta e^-length}`, rounded upwards.

    The tail is at most `delta e^-length` there, and at least `delta e^-length` a millionth below. `factor` is
    a factor of delta.
    """
    bound = Fraction(binomial_upper(errors, examples, float(delta), length=length))
    if errors == examples:
        return bound == 1
    wanted = factor * delta * Fraction(math.exp(-length))
    near = Fraction(1, 10**9)
    below = bound * (1 - Fraction(1, 10**6))
    return tail(errors, examples, bound) <= wanted * (1 + near) and tail(
        errors, examples, below
    ) >= wanted * (1 - near)


def some_counts() -> Iterator[Mapping[str, Any]]:
    """0 to n errors on n examples, n to 12, or 40; delta from 1/1000 to 999/1000; lengths of 0 to 30 nats."""
    for examples in (*range(1, 13), 40):
        for errors in range(0, examples + 1, 1 + examples // 13):
            for delta, length in (
                (Fraction(1, 20), 0.0),
                (Fraction(1, 1000), 30.0),
                (Fraction(999, 1000), 2.5),
            ):
                yield {"errors": errors, "examples": examples, "delta": delta, "length": length}


def _worst(leaves: Leaves, delta: Fraction, paid: Paid, share: Fraction) -> Mapping[str, Any]:
    """Return masks that are each right on one input only, with chance `share` times delta times the price.

    Here the chances that bounds are broken nearly add up. For a share just below 1, bounds are broken about
    as often as they may be, and for a share above 1 none is broken.
    """
    masks = list(itertools.product((0, 1), repeat=sum(leaves)))
    prices = [prior(leaves, mask, paid) for mask in masks]
    likely = [delta * share * price for price in prices]
    rest = 1 - sum(likely)
    wrong = [[int(x != mask) for x in range(len(masks))] + [1] for mask in range(len(masks))]
    return {
        "leaves": leaves,
        "wrong": wrong,
        "chances": [*likely, rest],
        "examples": 1,
        "delta": delta,
    }


def some_leaves() -> Iterator[Mapping[str, Any]]:
    """All masks of 1 to 3 leaves of 1 to 6 connections together."""
    return ({"leaves": leaves} for leaves in ((1,), (4,), (2, 3), (1, 2, 3)))


def some_learners() -> Iterator[Mapping[str, Any]]:
    """All masks of 2 or 3 connections, whose errors are drawn, on 1 to 4 examples; and the worst errors."""
    tight: tuple[Leaves, ...] = ((2,), (1, 2), (3,))
    for leaves, paid in itertools.product(tight, get_args(Paid)):
        for share in (Fraction(999, 1000), Fraction(1001, 1000)):
            yield _worst(leaves, Fraction(1, 20), paid, share)
    random = Random(0)
    drawn: tuple[Leaves, ...] = ((2,), (1, 1), (1, 2))
    for leaves, inputs, examples in itertools.product(drawn, (2, 3), (1, 2, 4)):
        counts = [random.randint(1, 9) for _ in range(inputs)]
        yield {
            "leaves": leaves,
            "wrong": [[random.randint(0, 1) for _ in range(inputs)] for _ in range(2 ** sum(leaves))],
            "chances": [Fraction(count, sum(counts)) for count in counts],
            "examples": examples,
            "delta": Fraction(random.randint(1, 9), 10),
        }


NEW_ERRORS = Claim(
    id="certificate.generalization",
    source="this library; docs/theory.md; of J. Langford, 2005, its Occam's razor bound",
    statement="with probability 1 - delta over n independent examples, for all masks at once: the chance of "
    "an error is at most sup{p : P(Bin(n, p) <= errors) >= delta P(mask)}, P = (P_all + P_leaf)/2, P_all = "
    "1/((D+1) C(D,k)), P_leaf the product of the same over leaves",
    latex=r"P \Big( \exists m : p_m > \sup \lbrace p : P(\mathrm{Bin}(n, p) \le k_m) \ge \delta P(m) "
    r"\rbrace \Big) \le \delta",
    assumptions="independent examples; weights, and all else but the mask, chosen without them",
    verdict="holds",
    remark="Never above Seeger's bound, whose right side has log (2 sqrt n/delta) for log (1/delta).",
    checks=(
        Exact(
            prices_are_a_distribution,
            some_leaves,
            {
                "sizes for nothing": functools.partial(prices_are_a_distribution, paid="masks"),
                "masks of a size for nothing": functools.partial(prices_are_a_distribution, paid="sizes"),
            },
        ),
        Exact(
            bounds_hold,
            some_learners,
            {
                "delta for delta P": functools.partial(bounds_hold, paid="nothing"),
                "1.002 delta for delta": functools.partial(bounds_hold, more=Fraction(1002, 1000)),
                "sizes for nothing": functools.partial(bounds_hold, paid="masks"),
                "masks of a size for nothing": functools.partial(bounds_hold, paid="sizes"),
            },
        ),
        Exact(
            printed_bounds_hold,
            some_learners,
            {
                "delta for delta P": functools.partial(printed_bounds_hold, print_=_without_a_price),
                "1.002 delta for delta": functools.partial(printed_bounds_hold, print_=_at_more_risk),
            },
        ),
        Exact(
            printed_bound_is_the_largest,
            some_counts,
            {
                "1.00001 delta": functools.partial(
                    printed_bound_is_the_largest, factor=1 + Fraction(1, 10**5)
                ),
                ".99999 delta": functools.partial(
                    printed_bound_is_the_largest, factor=1 - Fraction(1, 10**5)
                ),
            },
        ),
    ),
)

CLAIMS = (NEW_ERRORS,)
