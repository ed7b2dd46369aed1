"""Numbers of units that each group keeps, so that the model meets its budgets."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from jaxarch._internal.errors import ArgumentError
from jaxarch.structure._size_costs import Polynomial

Limits = Sequence[tuple[Polynomial, float]]
"""Costs, and the most that each may be."""

_VARIABLES = 40_000
"""Most variables of the linear program; above it, fewer sizes of each group are tried."""
_SIZES = 16
_SECONDS = 60.0


class Candidates(NamedTuple):
    """The numbers of units that a group may keep.

    Attributes:
      counts: these numbers, from the largest down.
      scores: the scores of the group's units, from the largest down.
    """

    counts: tuple[int, ...]
    scores: np.ndarray

    def value(self, count: int) -> float:
        """Return the sum of the scores of that many best units."""
        return float(self.scores[:count].sum())


def allowed_counts(size: int, least: float, most: float, round_to: int) -> tuple[int, ...]:
    """Return the numbers of units that a group may keep, from the largest down.

    They are the multiples of `round_to` among the shares from `least` to `most`, and the whole group if
    `most` is 1. If no multiple lies there, it is the largest one below; a group keeps at least one unit.
    """
    low, high = max(1, int(np.ceil(least * size - 1e-9))), max(1, int(most * size + 1e-9))
    multiples = range(high // round_to * round_to, low - 1, -round_to)
    counts = [count for count in multiples if count > 0]
    if high == size and size not in counts:
        counts = [size, *counts]
    return tuple(counts or [max(high // round_to * round_to, min(round_to, size))])


def ranks(scores: Mapping[str, np.ndarray], classes: Mapping[str, Hashable]) -> dict[str, np.ndarray]:
    """Replace scores by ranks among all units of a class of groups, as shares in (0, 1]."""
    made: dict[str, np.ndarray] = {}
    for group in dict.fromkeys(classes.values()):
        names = [name for name in scores if classes[name] == group]
        pooled = np.concatenate([scores[name] for name in names])
        order = np.empty(len(pooled))
        order[np.argsort(pooled, kind="stable")] = np.arange(1, len(pooled) + 1) / len(pooled)
        ends = np.cumsum([len(scores[name]) for name in names])
        made.update(zip(names, np.split(order, ends[:-1]), strict=True))
    return {name: made[name] for name in scores}


def smallest(candidates: Sequence[Candidates]) -> np.ndarray:
    """Return the smallest numbers of units that are allowed."""
    return np.array([group.counts[-1] for group in candidates], int)


def fits(counts: np.ndarray, limits: Limits) -> bool:
    """Return whether all costs are within their limits."""
    return all(cost(counts) <= limit * (1 + 1e-12) for cost, limit in limits)


def by_score(candidates: Sequence[Candidates], limits: Limits) -> np.ndarray:
    """Remove the units with the smallest scores, whatever their group, until all costs fit.

    Then units come back, from the largest score down, wherever the limits have room for them.

    Args:
      candidates: the numbers of units that each group may keep, and scores that compare groups.
      limits: the limits on the costs; the smallest allowed counts must be within them.
    """
    order = np.array([number for _, _, number, _ in _steps(candidates)], int)
    sizes = [group.counts for group in candidates]

    def counts(removed: int) -> np.ndarray:
        gone = np.bincount(order[:removed], minlength=len(sizes))
        return np.array([of[steps] for of, steps in zip(sizes, gone, strict=True)], int)

    low, high = 0, len(order)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(counts(middle), limits) else (middle + 1, high)
    return _filled(counts(low), order[:low], sizes, limits)


def _steps(candidates: Sequence[Candidates]) -> list[tuple[float, float, int, int]]:
    """Return the steps from each size to the next smaller one, in the order in which they are taken.

    Each is the mean score of the units that go, the share of the group that is gone then, the number of the
    group, and its size then. Of equal scores, groups lose equal shares. Scores fall and shares rise within a
    group, so its steps stay in order.
    """
    return sorted(
        (float(group.scores[after:before].mean()), 1 - after / len(group.scores), number, after)
        for number, group in enumerate(candidates)
        for before, after in itertools.pairwise(group.counts)
    )


def _filled(
    counts: np.ndarray, removed: np.ndarray, sizes: Sequence[tuple[int, ...]], limits: Limits
) -> np.ndarray:
    """Undo steps from the last one on, wherever the limits allow it."""
    counts, blocked = counts.copy(), set()
    for number in removed[::-1].tolist():
        if number in blocked:
            continue
        before = counts[number]
        counts[number] = sizes[number][sizes[number].index(before) - 1]
        if not fits(counts, limits):
            counts[number] = before
            blocked.add(number)
    return counts


class Knapsack(NamedTuple):
    """A choice of sizes with a large total score.

    Attributes:
      counts: the number of units that each group keeps.
      bound: the largest total score of any choice among the sizes that were tried, or more.
    """

    counts: np.ndarray
    bound: float


def knapsack(candidates: Sequence[Candidates], limits: Limits) -> Knapsack:
    r"""Choose sizes with the largest total score within the limits, by integer linear programming.

    With V_g(k) the sum of the k largest scores of group g, it solves

        max \sum_g V_g(k_g)  such that  C_j(k) <= B_j for all j.

    A binary z_{g,k} says that group g has size k. A monomial of C_j in several groups has one variable y >= 0
    for each combination of their sizes; sums of y over all other groups equal z. Then C_j is linear. If
    groups have many sizes, some evenly spaced ones are tried, and the rest of the budget is filled by score.
    `bound` is the solver's and holds for the sizes that were tried; filling may exceed it.

    Raises:
      ArgumentError: no solution in a minute.
    """
    # SciPy comes with JAX. It is imported here, since it takes longer than a small plan.
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array

    supports = {tuple(sorted(set(monomial))) for cost, _ in limits for monomial in cost.terms}
    joint = sorted(support for support in supports if len(support) > 1)
    sizes = _tried(candidates, joint)
    # Columns: first the sizes of each group, then the combinations of each support.
    starts = np.cumsum([0, *map(len, sizes)])
    single = int(starts[-1])
    shapes = {support: tuple(len(sizes[number]) for number in support) for support in joint}
    ends = np.cumsum([single, *(int(np.prod(shape)) for shape in shapes.values())])
    first = dict(zip(shapes, ends[:-1].tolist(), strict=True))
    columns = int(ends[-1])

    rows = [*_ties(sizes, starts, shapes, first)]
    rows += [_of_limit(*limit, sizes, starts, first, columns) for limit in limits]
    values = [group.value(count) for group, of in zip(candidates, sizes, strict=True) for count in of]
    scale = max(map(abs, values)) or 1.0
    matrix = coo_array(
        (
            np.concatenate([of for _, of, _, _ in rows]),
            (
                np.repeat(np.arange(len(rows)), [len(of) for _, of, _, _ in rows]),
                np.concatenate([places for places, _, _, _ in rows]),
            ),
        ),
        shape=(len(rows), columns),
    )
    solved = milp(
        np.append(-np.array(values) / scale, np.zeros(columns - single)),
        integrality=np.append(np.ones(single), np.zeros(columns - single)),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(matrix.tocsr(), [row[2] for row in rows], [row[3] for row in rows]),
        options={"time_limit": _SECONDS, "mip_rel_gap": 1e-4},
    )
    if solved.x is None and solved.status == 2:  # Infeasible to the solver's precision: nothing else fits.
        least = smallest(candidates)
        return Knapsack(least, sum(map(Candidates.value, candidates, least.tolist())))
    if solved.x is None:
        raise ArgumentError(
            f"scope: the knapsack has no solution after {_SECONDS:.0f} s; take scope='global', or a larger "
            "round_to"
        )
    chosen = [
        of[int(np.argmax(solved.x[start : start + len(of)]))]
        for start, of in zip(starts, sizes, strict=False)
    ]
    counts = np.array(chosen, int)
    bound = -solved.mip_dual_bound * scale
    return Knapsack(_topped_up(_fitting(counts, candidates, limits), candidates, limits), bound)


Row = tuple[np.ndarray, np.ndarray, float, float]
"""A row of a linear program: its columns, their coefficients, and the least and the largest value."""


def _ties(
    sizes: Sequence[tuple[int, ...]],
    starts: np.ndarray,
    shapes: Mapping[tuple[int, ...], tuple[int, ...]],
    first: Mapping[tuple[int, ...], int],
) -> Iterator[Row]:
    """Yield the rows by which each group has one size, and combinations of sizes agree with it."""
    for start, of in zip(starts, sizes, strict=False):
        yield np.arange(start, start + len(of)), np.ones(len(of)), 1.0, 1.0
    for support, shape in shapes.items():
        places = np.arange(first[support], first[support] + int(np.prod(shape))).reshape(shape)
        for axis, number in enumerate(support):
            for index in range(shape[axis]):
                inside = places.take(index, axis).ravel()
                row = np.append(inside, starts[number] + index)
                yield row, np.append(np.ones(inside.size), -1.0), 0.0, 0.0


def _of_limit(
    cost: Polynomial,
    limit: float,
    sizes: Sequence[tuple[int, ...]],
    starts: np.ndarray,
    first: Mapping[tuple[int, ...], int],
    columns: int,
) -> Row:
    """Return the row of a limited cost, in units of the limit: costs of 1e9 would cost precision."""
    whole, fixed = np.zeros(columns), 0.0
    for monomial, coefficient in cost.terms.items():
        support = tuple(sorted(set(monomial)))
        if not support:
            fixed += coefficient
            continue
        table = np.array(coefficient, float)
        for number in support:
            table = np.multiply.outer(table, np.array(sizes[number], float) ** monomial.count(number))
        start = first[support] if len(support) > 1 else starts[support[0]]
        whole[start : start + table.size] += table.ravel()
    # The limit is a little wider, or a choice that costs exactly the budget could be lost to rounding.
    return np.arange(columns), whole / limit, -np.inf, 1.0 - fixed / limit + 1e-6


def _tried(candidates: Sequence[Candidates], joint: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return evenly spaced sizes of each group, as many as the linear program has room for."""
    for most in range(_SIZES, 1, -1):
        sizes = []
        for group in candidates:
            places = np.linspace(0, len(group.counts) - 1, min(most, len(group.counts)))
            sizes.append(tuple(group.counts[place] for place in np.unique(places.round().astype(int))))
        if sum(int(np.prod([len(sizes[number]) for number in of])) for of in joint) <= _VARIABLES:
            break
    return sizes


def _fitting(counts: np.ndarray, candidates: Sequence[Candidates], limits: Limits) -> np.ndarray:
    """Remove the units with the smallest scores until the limits hold; the solver may exceed them by 1e-6."""
    counts = counts.copy()
    while not fits(counts, limits):
        steps = [
            (group.value(count) - group.value(below), number, below)
            for number, (group, count) in enumerate(zip(candidates, counts.tolist(), strict=True))
            for below in [next((size for size in group.counts if size < count), None)]
            if below is not None
        ]
        _, number, below = min(steps)
        counts[number] = below
    return counts


def _topped_up(counts: np.ndarray, candidates: Sequence[Candidates], limits: Limits) -> np.ndarray:
    """Add the units with the largest scores that the limits have room for, if their scores are positive."""
    order = [
        number for score, _, number, after in _steps(candidates) if after >= counts[number] and score > 0
    ]
    return _filled(counts, np.array(order, int), [group.counts for group in candidates], limits)
