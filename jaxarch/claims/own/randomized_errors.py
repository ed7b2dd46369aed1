r"""How often a mask that is drawn anew for each example errs on new ones (docs/theory.md).

P(for some Q, kl(mean error on the examples, mean error) > (KL(Q, P) + log xi(n)/delta)/n) <= delta
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from math import comb, prod
from random import Random
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch.claims.checks.core import EPS, Claim, Sides
from jaxarch.claims.checks.cube import cube, often, uniform
from jaxarch.claims.checks.drawn import Inequality
from jaxarch.claims.checks.exact import Exact
from jaxarch.theory.generalization import relaxed_length

LEAVES = (2, 4)
"""Connections of each leaf, where the divergence is summed over all masks."""
MASKS = np.array(list(itertools.product((0, 1), repeat=sum(LEAVES))))


def constant(examples: int, ends: bool = True) -> Fraction:
    """`xi(n) = sum_k C(n, k) (k/n)^k (1 - k/n)^(n - k)`; or without k = 0 and k = n."""
    counts = range(examples + 1) if ends else range(1, examples)
    rates = ((k, Fraction(k, examples)) for k in counts)
    return sum((comb(examples, k) * r**k * (1 - r) ** (examples - k) for k, r in rates), Fraction(0))


def exponential(errors: int, examples: int, chance: Fraction) -> Fraction:
    """`exp(n kl(errors/n, p))`, a fraction."""
    rate = Fraction(errors, examples)
    there = (rate / chance) ** errors if errors else Fraction(1)
    gone = ((1 - rate) / (1 - chance)) ** (examples - errors) if errors < examples else Fraction(1)
    return there * gone


def mean_is_the_constant(examples: int, chance: Fraction, ends: bool = True) -> bool:
    """`E exp(n kl(k/n, p)) = xi(n)` for k of Bin(n, p), whatever p is."""
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
    paid: bool = True,
) -> bool:
    """`P(E_P exp(n kl_m) > xi(n)/delta) <= delta`: that some Q breaks its bound, the largest of all Q.

    `wrong[mask][input]` says which inputs each mask gets wrong, `chances` how likely each input is; n inputs
    are drawn independently, in all ways.
    """
    true = [sum((c for c, w in zip(chances, of, strict=True) if w), Fraction(0)) for of in wrong]
    limit = (constant(examples) if paid else Fraction(1)) / delta
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
    """`KL(prod Bern(v_i), P) <= l(v) - sum h(v_i)`, P that of `certificate.generalization`, by all masks."""
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


def some_chances() -> Iterator[Mapping[str, Any]]:
    """From 1 to 12 examples, chances of an error of 1/97, 1/3, 1/2 and 9/10."""
    errs = (Fraction(1, 97), Fraction(1, 3), Fraction(1, 2), Fraction(9, 10))
    return ({"examples": n, "chance": p} for n in range(1, 13) for p in errs)


def some_learners() -> Iterator[Mapping[str, Any]]:
    """1 to 4 masks, whose errors and prior are drawn, on 1 to 5 examples; one that errs on half of them."""
    half = Fraction(1, 2)
    for delta in (Fraction(3, 10), Fraction(4, 10)):
        yield {
            "prior": [Fraction(1)],
            "wrong": [[0, 1]],
            "chances": [half] * 2,
            "examples": 2,
            "delta": delta,
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
        Exact(bounds_hold, some_learners, {"1 for xi(n)": functools.partial(bounds_hold, paid=False)}),
        Inequality(
            divergence,
            cube(chances=often(0.0, often(1.0, uniform(0, 1, shape=(sum(LEAVES),))))),
            {
                "twice the entropy": functools.partial(divergence, saved=2.0),
                "1.2 times the entropy": functools.partial(divergence, saved=1.2),
            },
        ),
    ),
)

CLAIMS = (RANDOMIZED_ERRORS,)
