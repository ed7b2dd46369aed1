r"""The error rate on new examples of a network that a few of n examples determine, exactly (docs/theory.md).

P(chance of an error > e(picked + errors)) <= delta
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from math import comb, prod
from random import Random
from typing import Any, NamedTuple

from jaxarch.lab.claims.checks.core import Claim
from jaxarch.lab.claims.checks.exact import Exact
from jaxarch.theory.generalization import compression_bound

Trained = tuple[int, ...]
"""The inputs that a network was trained on, in the order in which they were picked."""


class Learner(NamedTuple):
    """All networks that a procedure may train, over inputs 0, 1, ...

    Attributes:
      losses: the loss of each input, by what a network was trained on.
      wrong: whether a network gets each input wrong.
    """

    losses: Callable[[Trained], Sequence[int]]
    wrong: Callable[[Trained], Sequence[int]]


def picked(
    learner: Learner,
    sample: Mapping[int, int],
    rounds: int,
    per_round: int,
    stops: bool = False,
    by_count: bool = False,
) -> tuple[int, ...]:
    """Return the places that Pick-to-Learn picks, in order; of equal losses it takes the first place.

    Args:
      learner: the networks.
      sample: inputs by place.
      rounds: the number of rounds.
      per_round: the number of places to pick a round.
      stops: whether it stops once all other inputs are right.
      by_count: whether it begins with the smallest losses if the number of places is odd.
    """
    places: tuple[int, ...] = ()
    for done in range(rounds):
        trained = tuple(sample[place] for place in places)
        losses, wrong = learner.losses(trained), learner.wrong(trained)
        others = [place for place in sorted(sample) if place not in places]
        if stops and not any(wrong[sample[place]] for place in others):
            break
        sign = 1 if by_count and not done and len(others) % 2 else -1
        worst = sorted(others, key=lambda place: sign * losses[sample[place]])
        places += tuple(worst[:per_round])
    return places


def picks_stay(
    learner: Learner,
    sample: Sequence[int],
    rounds: int,
    per_round: int,
    stops: bool = False,
    by_count: bool = False,
) -> bool:
    """Whichever right inputs that were not picked are left out, the same places are picked, in order."""
    whole = dict(enumerate(sample))
    run = functools.partial(
        picked, learner, rounds=rounds, per_round=per_round, stops=stops, by_count=by_count
    )
    places = run(whole)
    wrong = learner.wrong(tuple(whole[place] for place in places))
    needed = {place for place in whole if place in places or wrong[whole[place]]}
    free = sorted(set(whole) - needed)
    subsets = itertools.chain.from_iterable(itertools.combinations(free, size) for size in range(len(free)))
    return all(
        run({place: whole[place] for place in sorted(needed.union(some))}) == places for some in subsets
    )


def excess(count: int, examples: int, chance: Fraction) -> Fraction:
    """Compute `sum_{m=k}^{n-1} C(m, k)/C(n, k) (1 - p)^-(n-m)`, which is above n/delta beyond the bound.

    At `p = 1` it is infinite, or 0 without terms.
    """
    if chance == 1:
        return Fraction(10**12) if count < examples else Fraction(0)
    return sum(
        (Fraction(comb(m, count), comb(examples, count)) / (1 - chance) ** (examples - m))
        for m in range(count, examples)
    ) + Fraction(0)


def bounds_hold(
    learner: Learner,
    chances: Sequence[Fraction],
    examples: int,
    rounds: int,
    per_round: int,
    delta: Fraction,
    paid: str = "picked and errors",
    sizes: int | None = None,
) -> bool:
    """`P(p > e(picked + errors)) <= delta`, p the chance of an error of the network that was trained.

    n inputs are drawn independently, in all ways. `paid` may leave out the picked ones or the errors, and
    `sizes` replaces n in the limit n/delta.
    """
    limit = (examples if sizes is None else sizes) / delta
    broken = Fraction(0)
    for sample in itertools.product(range(len(chances)), repeat=examples):
        places = picked(learner, dict(enumerate(sample)), rounds, per_round)
        wrong = learner.wrong(tuple(sample[place] for place in places))
        errors = sum(wrong[x] for place, x in enumerate(sample) if place not in places)
        count = len(places) * ("picked" in paid) + errors * ("errors" in paid)
        p = sum((c for c, w in zip(chances, wrong, strict=True) if w), Fraction(0))
        if excess(count, examples, p) > limit:
            broken += prod(chances[x] for x in sample)
    return broken <= delta


def printed_bound_is_the_largest(
    errors: int, examples: int, picked: int, delta: Fraction, choices: int, factor: Fraction = Fraction(1)
) -> bool:
    """`compression_bound` is the largest e whose sum is at most n choices/delta, rounded upwards.

    The sum is at least the limit there, and at most the limit a millionth below. `factor` is a factor of
    delta.
    """
    bound = Fraction(compression_bound(errors, examples, picked, float(delta), choices=choices))
    count = picked + errors
    if count == examples:
        return bound == 1
    limit = examples * choices / (factor * delta)
    near = Fraction(1, 10**9)
    rest = 1 - (1 - bound) * (1 + Fraction(1, 10**6))
    at_least = bound == 1 or excess(count, examples, bound) >= limit * (1 - near)
    return at_least and (bound == 1 or excess(count, examples, rest) <= limit)


def some_counts() -> Iterator[Mapping[str, Any]]:
    """0 to n picked or wrong of n examples, n to 12, or 40; delta from 1/1000 to 999/1000."""
    for examples in (*range(1, 13), 40):
        for count in range(0, examples + 1, 1 + examples // 13):
            for delta, choices in ((Fraction(1, 20), 1), (Fraction(1, 1000), 50), (Fraction(999, 1000), 1)):
                yield {
                    "errors": count // 2,
                    "examples": examples,
                    "picked": count - count // 2,
                    "delta": delta,
                    "choices": choices,
                }


def _drawn(inputs: int, seed: int) -> Learner:
    """Draw the networks of a learner; losses are 0, 1 or 2, so that many are equal."""

    @functools.cache
    def of(trained: Trained) -> tuple[tuple[int, ...], tuple[int, ...]]:
        random = Random(f"{seed} {trained}")
        losses = tuple(random.randint(0, 2) for _ in range(inputs))
        return losses, tuple(random.randint(0, 1) for _ in range(inputs))

    return Learner(lambda trained: of(trained)[0], lambda trained: of(trained)[1])


def _remembering(inputs: int) -> Learner:
    """Return networks that are right on what they were trained on, and on nothing else."""

    def wrong(trained: Trained) -> tuple[int, ...]:
        return tuple(int(x not in trained) for x in range(inputs))

    return Learner(wrong, wrong)


def some_samples() -> Iterator[Mapping[str, Any]]:
    """Samples of 6 of 2 to 4 inputs, learners whose losses and errors are drawn, 1 to 3 rounds of 1 or 2."""
    random = Random(0)
    for seed, inputs, (rounds, per_round) in itertools.product(
        range(12), (2, 3, 4), ((1, 1), (1, 2), (2, 1), (2, 2), (3, 1))
    ):
        yield {
            "learner": _drawn(inputs, seed),
            "sample": [random.randrange(inputs) for _ in range(6)],
            "rounds": rounds,
            "per_round": per_round,
        }


def some_learners() -> Iterator[Mapping[str, Any]]:
    """Learners that are drawn, that remember, or that never learn; 1 to 6 examples, 0 to 2 rounds."""
    random = Random(1)
    for seed, examples, rounds in itertools.product(range(3), (2, 4, 5), (0, 1, 2)):
        counts = [random.randint(1, 9) for _ in range(3)]
        yield {
            "learner": _drawn(3, seed),
            "chances": [Fraction(count, sum(counts)) for count in counts],
            "examples": examples,
            "rounds": rounds,
            "per_round": 1,
            "delta": Fraction(random.randint(1, 9), 20),
        }
    for inputs in (6, 8):
        yield {
            "learner": _remembering(inputs),
            "chances": [Fraction(1, inputs)] * inputs,
            "examples": 2,
            "rounds": 1,
            "per_round": 1,
            "delta": Fraction(1, 20),
        }
    never = Learner(lambda trained: (0, 0), lambda trained: (0, 1))
    for examples, p in ((1, 19), (2, 15), (6, 13), (6, 8)):
        yield {
            "learner": never,
            "chances": [Fraction(20 - p, 20), Fraction(p, 20)],
            "examples": examples,
            "rounds": 0,
            "per_round": 1,
            "delta": Fraction(1, 20),
        }


COMPRESSION = Claim(
    id="certificate.compression",
    source="this library; docs/theory.md; of M. C. Campi and S. Garatti, 2023, arXiv:2301.12767, and of D. "
    "Paccagnan, M. C. Campi and S. Garatti, 2023",
    statement="with probability 1 - delta over n independent examples: the chance of an error is at most "
    "e(k), the largest e with sum_{m=k}^{n-1} C(m,k)/C(n,k) (1-e)^-(n-m) <= n/delta; k counts the examples "
    "picked in a fixed number of rounds, each time those of largest loss, and the others that are wrong",
    latex=r"P \Big( p > \sup \lbrace \epsilon : \sum_{m=k}^{n-1} \frac{\binom mk}{\binom nk} "
    r"(1 - \epsilon)^{-(n-m)} \le \frac n\delta \rbrace \Big) \le \delta",
    assumptions="independent examples; a network is a function of the picked examples; of equal losses the "
    "first example is picked",
    verdict="holds",
    remark="The proof is an average over subsets of the examples, and needs no duality.",
    checks=(
        Exact(
            picks_stay,
            some_samples,
            {
                "stopped once all others are right": functools.partial(picks_stay, stops=True),
                "picked by the number of examples": functools.partial(picks_stay, by_count=True),
            },
        ),
        Exact(
            bounds_hold,
            some_learners,
            {
                "picked ones for nothing": functools.partial(bounds_hold, paid="errors"),
                "errors for nothing": functools.partial(bounds_hold, paid="picked"),
                "1/delta for n/delta": functools.partial(bounds_hold, sizes=1),
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

CLAIMS = (COMPRESSION,)
