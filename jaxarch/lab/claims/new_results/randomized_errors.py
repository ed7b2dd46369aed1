r"""The error rate on new examples of a mask that is drawn anew for each of them (docs/theory.md).

P(for some Q, kl(mean error on the examples, mean error) > (KL(Q, P) + log xi(n)/delta)/n) <= delta
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from math import comb, prod
from random import Random
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch.lab.claims.checks.core import EPS, Claim, Sides
from jaxarch.lab.claims.checks.cube import cube, often, uniform
from jaxarch.lab.claims.checks.drawn import Inequality
from jaxarch.lab.claims.checks.exact import Exact
from jaxarch.theory.generalization import binomial_upper, description_length, randomized_bound, relaxed_length

LEAVES = (2, 4)
"""Number of connections of each leaf in the check that sums the divergence over all masks."""
MASKS = np.array(list(itertools.product((0, 1), repeat=sum(LEAVES))))


def constant(examples: int, ends: bool = True) -> Fraction:
    """Compute `xi(n) = sum_k C(n, k) (k/n)^k (1 - k/n)^(n - k)`; or without k = 0 and k = n."""
    counts = range(examples + 1) if ends else range(1, examples)
    rates = ((k, Fraction(k, examples)) for k in counts)
    return sum((comb(examples, k) * r**k * (1 - r) ** (examples - k) for k, r in rates), Fraction(0))


def exponential(errors: int, examples: int, chance: Fraction) -> Fraction:
    """Compute `exp(n kl(errors/n, p))`, a fraction."""
    rate = Fraction(errors, examples)
    there = (rate / chance) ** errors if errors else Fraction(1)
    gone = ((1 - rate) / (1 - chance)) ** (examples - errors) if errors < examples else Fraction(1)
    return there * gone


def mean_is_the_constant(examples: int, chance: Fraction, ends: bool = True) -> bool:
    """`E exp(n kl(k/n, p)) = xi(n)` for k from Bin(n, p), whatever p is."""
    mean = sum(
        comb(examples, k) * chance**k * (1 - chance) ** (examples - k) * exponential(k, examples, chance)
        for k in range(examples + 1)
    )
    return mean == constant(examples, ends)


def bounds_hold(
    prior: Sequence[Fraction],
    wrong: Sequence[Sequence[int]],
    chances: Sequence[Fraction],
    examples: int,
    delta: Fraction,
    paid: Fraction | None = Fraction(1),
) -> bool:
    """`P(E_P exp(n kl_m) > xi(n)/delta) <= delta`: the chance that some Q, of all Q, breaks its bound.

    `wrong[mask][input]` tells if the mask gets the input wrong, and `chances` has the probability of each
    input. n inputs are drawn independently, in all ways. `paid` is a factor of xi(n); `None` leaves it out.
    """
    true = [sum((c for c, w in zip(chances, of, strict=True) if w), Fraction(0)) for of in wrong]
    limit = (Fraction(1) if paid is None else paid * constant(examples)) / delta
    broken = Fraction(0)
    for sample in itertools.product(range(len(chances)), repeat=examples):
        errors = [sum(of[x] for x in sample) for of in wrong]
        mean = sum(
            share * exponential(k, examples, p) for share, k, p in zip(prior, errors, true, strict=True)
        )
        if mean > limit:
            broken += prod(chances[x] for x in sample)
    return broken <= delta


def divergence(chances: Array, saved: float = 1.0) -> Sides:
    """`KL(prod Bern(v_i), P) <= l(v) - sum h(v_i)`, P from `certificate.generalization`, over all masks."""
    there = jnp.where(jnp.asarray(MASKS, bool), chances, 1 - chances).prod(axis=-1)
    parts = np.split(MASKS, np.cumsum(LEAVES)[:-1], axis=1)

    def share(masks: np.ndarray) -> np.ndarray:
        size = masks.shape[1]
        return np.array([1 / ((size + 1) * comb(size, int(k))) for k in masks.sum(axis=1)])

    prior = (share(MASKS) + np.prod([share(part) for part in parts], axis=0)) / 2
    exact = jnp.where(there > 0, there * jnp.log(jnp.where(there > 0, there, 1) / prior), 0).sum()
    inside = (chances > 0) & (chances < 1)
    v = jnp.where(inside, chances, 0.5)
    entropy = jnp.where(inside, -v * jnp.log(v) - (1 - v) * jnp.log1p(-v), 0).sum()
    leaves = dict(enumerate(jnp.split(chances, np.cumsum(LEAVES)[:-1].tolist())))
    return Sides(exact, relaxed_length(leaves) - saved * entropy, 4096 * EPS)


def printed_length_is_enough(sizes: Sequence[int], chances: Mapping[int, float], saved: float = 1.0) -> bool:
    """`KL(prod Bern(v_i), P) <= description_length(v)`, over all masks that v may draw, in 40 digits.

    v is 1 in every third place and 0 in the others, except in the places that `chances` sets. `saved` is a
    factor of `sum h(v_i)`.
    """
    v = np.array([float(i % 3 == 0) for i in range(sum(sizes))])
    v[list(chances)] = list(chances.values())
    leaves = dict(enumerate(np.split(v, np.cumsum(sizes)[:-1])))
    entropy = -sum(p * math.log(p) + (1 - p) * math.log1p(-p) for p in chances.values())
    said = description_length(leaves) - (saved - 1) * entropy

    def share(mask: np.ndarray) -> Fraction:
        return Fraction(1, (len(mask) + 1) * comb(len(mask), int(mask.sum())))

    exact = Decimal(0)
    with localcontext(prec=40):
        for drawn in itertools.product((0, 1), repeat=len(chances)):
            mask = v.copy()
            mask[list(chances)] = drawn
            parts = np.split(mask, np.cumsum(sizes)[:-1])
            prior = (share(mask) + prod(map(share, parts))) / 2
            there = Decimal(1)
            for bit, p in zip(drawn, chances.values(), strict=True):
                there *= Decimal(p) if bit else 1 - Decimal(p)
            exact += there * (there * prior.denominator / prior.numerator).ln()
        return exact <= Decimal(said)


def some_masks() -> Iterator[Mapping[str, Any]]:
    """Two leaves of 6 to 700 connections, 1 to 4 of which are drawn."""
    for sizes in ((6, 7), (60, 90), (700, 500)):
        for drawn in ((0.5,), (0.5, 0.5), (0.9, 0.2, 0.01), (0.5, 0.4, 0.6, 0.999)):
            yield {"sizes": sizes, "chances": {i * 5 % sum(sizes): chance for i, chance in enumerate(drawn)}}


def printed_bound_is_the_largest(
    errors: int,
    draws: int,
    examples: int,
    delta: float,
    share: float,
    choices: int,
    risk: float = 1.0,
    known: float = 1.0,
    chosen: bool = True,
    drawn: bool = True,
) -> bool:
    """`randomized_bound` is the p of `n kl(r, p) = KL + log choices + log xi(n)/((1 - share) delta)`.

    Compared in 40 digits, from p to a millionth below; r is `binomial_upper` of the draws. `risk` is a factor
    of delta, `known` a factor of xi(n).
    """
    mask = {"w": np.array([0.5, 0.25, 1.0, 0.0])}
    found = randomized_bound(errors, draws, examples, mask, delta, share=share, choices=choices)
    r = binomial_upper(errors, draws, share * delta, length=math.log(choices)) if drawn else errors / draws
    paid = choices if chosen else 1
    xi = constant(examples)
    with localcontext(prec=40):
        budget = Decimal(description_length(mask)) + (paid * xi.numerator / Decimal(xi.denominator)).ln()
        budget += (Decimal(known) / (1 - Decimal(share)) / Decimal(delta) / Decimal(risk)).ln()

        def divergence(p: Decimal) -> Decimal:
            return Decimal(r) * (Decimal(r) / p).ln() + (1 - Decimal(r)) * ((1 - Decimal(r)) / (1 - p)).ln()

        below = Decimal(found) * (1 - Decimal(10) ** -6)
        return examples * divergence(below) <= budget <= examples * divergence(Decimal(found))


def some_draws() -> Iterator[Mapping[str, Any]]:
    """Up to 100 of 1,000 draws wrong, of 20 to 200 examples; delta to .97, for draws a half of it at most."""
    for errors, examples, delta in itertools.product((1, 30, 100), (20, 200), (0.01, 0.97)):
        for share, choices in ((0.2, 1), (0.5, 12)):
            yield {
                "errors": errors,
                "draws": 1000,
                "examples": examples,
                "delta": delta,
                "share": share,
                "choices": choices,
            }


def some_chances() -> Iterator[Mapping[str, Any]]:
    """From 1 to 12 examples, chances of an error of 1/97, 1/3, 1/2 and 9/10."""
    errs = (Fraction(1, 97), Fraction(1, 3), Fraction(1, 2), Fraction(9, 10))
    return ({"examples": n, "chance": p} for n in range(1, 13) for p in errs)


def some_learners() -> Iterator[Mapping[str, Any]]:
    """1 to 4 masks, whose errors and prior are drawn, on 1 to 5 examples; one that errs on half of them."""
    half = Fraction(1, 2)
    # For delta near 1, an xi(n) that is only a little too small breaks the bound with a chance near 1.
    for examples, thousandths in ((2, 300), (2, 400), (1, 970), (1, 995), (2, 970), (2, 995)):
        yield {
            "prior": [Fraction(1)],
            "wrong": [[0, 1]],
            "chances": [half] * 2,
            "examples": examples,
            "delta": Fraction(thousandths, 1000),
        }
    random = Random(0)
    for masks, inputs, examples in itertools.product((1, 2, 4), (2, 3), (1, 3, 5)):
        shares, counts = ([random.randint(1, 9) for _ in range(size)] for size in (masks, inputs))
        # Each mask errs on some inputs and not on all, so that no chance of an error is 0 or 1.
        wrong = [random.sample([1] + [0] * (inputs - 1), inputs) for _ in range(masks)]
        yield {
            "prior": [Fraction(share, sum(shares)) for share in shares],
            "wrong": wrong,
            "chances": [Fraction(count, sum(counts)) for count in counts],
            "examples": examples,
            "delta": Fraction(random.randint(1, 9), 10),
        }


RANDOMIZED_ERRORS = Claim(
    id="certificate.randomized",
    source="this library; docs/theory.md; of M. Seeger, 2002, and A. Maurer, 2004",
    statement="with probability 1 - delta over n independent examples, for all distributions Q of masks at "
    "once: kl(r, p) <= (KL(Q, P) + log xi(n)/delta)/n, r and p the mean errors of masks drawn by Q, on the "
    "examples and on new ones, xi(n) = sum_k C(n,k) (k/n)^k (1 - k/n)^(n-k); and KL(prod Bern(v_i), P) <= "
    "l(v) - sum h(v_i), l the length of masks with sum v connections by gamma functions",
    latex=r"P \Big( \exists Q : \mathrm{kl}(r_Q, p_Q) \gt \frac{\mathrm{KL}(Q, P) + "
    r"\log \frac{\xi(n)}{\delta}}{n} \Big) \le \delta",
    assumptions="independent examples; weights, P, and all else but Q, chosen without them",
    verdict="holds",
    remark="Of one mask, which is not drawn, `certificate.generalization` says as much without xi(n).",
    checks=(
        Exact(
            mean_is_the_constant,
            some_chances,
            {"no ends": functools.partial(mean_is_the_constant, ends=False)},
        ),
        Exact(
            bounds_hold,
            some_learners,
            {
                "1 for xi(n)": functools.partial(bounds_hold, paid=None),
                "1% less than xi(n)": functools.partial(bounds_hold, paid=Fraction(99, 100)),
            },
        ),
        Inequality(
            divergence,
            cube(chances=often(0.0, often(1.0, uniform(0, 1, shape=(sum(LEAVES),))))),
            {
                "twice the entropy": functools.partial(divergence, saved=2.0),
                "1.2 times the entropy": functools.partial(divergence, saved=1.2),
            },
        ),
        Exact(
            printed_length_is_enough,
            some_masks,
            {"1.01 times the entropy": functools.partial(printed_length_is_enough, saved=1.01)},
        ),
        Exact(
            printed_bound_is_the_largest,
            some_draws,
            {
                "1.0001 delta": functools.partial(printed_bound_is_the_largest, risk=1.0001),
                "xi(n) 0.01% less": functools.partial(printed_bound_is_the_largest, known=0.9999),
                "choices for nothing": functools.partial(printed_bound_is_the_largest, chosen=False),
                "draws for nothing": functools.partial(printed_bound_is_the_largest, drawn=False),
            },
        ),
    ),
)

CLAIMS = (RANDOMIZED_ERRORS,)
