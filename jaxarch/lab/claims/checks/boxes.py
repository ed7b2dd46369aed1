"""Inequalities proved on a whole box of their variables: interval arithmetic with branch and bound.

If the interval of a statement's slack has no negative number, the statement holds on the whole box of cases.
Boxes that leave this open are halved. A slack may be rewritten so that intervals can show that it is not
negative. It must then equal the statement's slack by the rules of algebra. Without python-flint, the
statement is sampled.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
import itertools
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from jaxarch.lab.claims.checks.commuting import Symbols, variable
from jaxarch.lab.claims.checks.core import Evidence, Sides
from jaxarch.lab.claims.checks.cube import cube, log_uniform, uniform
from jaxarch.lab.claims.checks.drawn import Inequality
from jaxarch.lab.claims.checks.interval_arithmetic import (
    Interval,
    Intervals,
    Reals,
    Slack,
    flint_is_installed,
    interval,
)

POINTS = 1000
"""Number of points at which a statement must hold before its proof is tried."""

LIMIT = 20_000
"""Number of sub-boxes after which a proof is given up."""


class Rewritten(NamedTuple):
    """A mutated slack that is nowhere negative, so only the comparison with the statement can reject it."""

    slack: Slack


@dataclasses.dataclass(frozen=True)
class Box:
    """An inequality on a box: proved if python-flint is installed, else sampled.

    Attributes:
      statement: the slack of the inequality, written as it is stated.
      box: the ends of each variable's range. Positive ranges are halved, and drawn, in the logarithm.
      mutations: statements that must fail somewhere in the box, and rewritten slacks that differ from the
        statement's, keyed by what was broken.
      slack: the slack rewritten so that intervals show that it is not negative; `statement` itself if None.
    """

    statement: Slack
    box: Mapping[str, tuple[float, float]]
    mutations: Mapping[str, Slack | Rewritten] = dataclasses.field(default_factory=dict)
    slack: Slack | None = None

    @property
    def kind(self) -> str:
        """`proved on the box`, which is the kind with python-flint."""
        return "proved on the box"

    def run(self, key: Array, cases: int, mutation: str | None = None) -> Evidence:
        """Find a proof or a counterexample by halving boxes; without python-flint, draw cases.

        A rewritten slack that differs from the statement's proves nothing, and counts as failing.
        """
        changed = None if mutation is None else self.mutations[mutation]
        if changed is None or isinstance(changed, Rewritten):
            slack = self.slack if changed is None else changed.slack
            if slack is not None and not self.is_rewritten(slack):
                worst = {"slack": "not the statement's"}
                return Evidence("formal", False, -1.0, 1, worst, 0.0, self.domain)
            if flint_is_installed():
                return self.proof(slack or self.statement)
            return self.sampled.run(key, cases)
        return self.proof(changed) if flint_is_installed() else self.sampled.run(key, cases, mutation)

    def is_rewritten(self, slack: Slack) -> bool:
        """Tell if a slack equals the statement's, as polynomials in variables and functions of them."""
        case = {name: variable(name) for name in self.box}
        return bool(self.statement(Symbols, **case) == slack(Symbols, **case))

    @functools.cached_property
    def sampled(self) -> Inequality:
        """The statement and its mutations as an inequality, in floating point at points of the box."""
        fields = {
            name: log_uniform(low, high) if low > 0 else uniform(low, high)
            for name, (low, high) in self.box.items()
        }
        mutations = {
            name: _sides(changed)
            for name, changed in self.mutations.items()
            if not isinstance(changed, Rewritten)
        }
        return Inequality(_sides(self.statement), cube(**fields), mutations)

    @property
    def domain(self) -> str:
        """The box in words."""
        return ", ".join(f"{name} in [{low:g}, {high:g}]" for name, (low, high) in self.box.items())

    def proof(self, slack: Slack, limit: int = LIMIT) -> Evidence:
        """Prove or refute that the slack is nowhere negative in the box.

        The corners and some drawn points come first, then halving.

        Args:
          slack: the slack of the statement, rewritten or not, or of a mutation.
          limit: the number of sub-boxes to examine at most.

        Returns:
          Evidence of kind `proved on the box`. If the slack is nowhere negative, the margin is a lower bound
          of it, and `worst` is the sub-box with that bound. Otherwise `worst` is a point at which the slack
          is certainly negative. If `limit` does not suffice, the kind is `undecided`, which counts as
          failing.
        """
        start, order = time.perf_counter(), itertools.count()
        whole = {name: interval(*ends) for name, ends in self.box.items()}
        for point in self._points():
            if (found := slack(Intervals, **point)).high < 0:
                return self._evidence("proved on the box", False, float(found.high), 1, point, start)
        smallest, at = math.inf, whole
        # The sub-box with the smallest lower bound comes first. The counter breaks ties: dicts have no order.
        queue = [(0.0, next(order), 0, whole, slack(Intervals, **whole))]
        for count in range(1, limit + 1):
            if not queue:
                return self._evidence("proved on the box", True, smallest, count - 1, at, start)
            _, _, depth, box, found = heapq.heappop(queue)
            if found.low >= 0:
                if float(found.low) < smallest:
                    smallest, at = float(found.low), box
                continue
            middle = {name: interval(_middle(side)) for name, side in box.items()}
            if (there := slack(Intervals, **middle)).high < 0:
                return self._evidence("proved on the box", False, float(there.high), count, middle, start)
            names = sorted(box, key=lambda name: _width(box[name]) / _width(whole[name]))
            for half, on_half in _halves(slack, box, names[-1:] if depth % 2 else names):
                heapq.heappush(queue, (float(on_half.low), next(order), depth + 1, half, on_half))
        return self._evidence("undecided", False, -1.0, limit, queue[0][3], start)

    def _points(self) -> Iterator[dict[str, Interval]]:
        """Yield the corners of the box and points inside, always the same."""
        for corner in itertools.product(*self.box.values()):
            yield {name: interval(end) for name, end in zip(self.box, corner, strict=True)}
        draw = random.Random(0)
        for _ in range(POINTS):
            yield {
                name: interval(low * (high / low) ** draw.random() if low > 0 else draw.uniform(low, high))
                for name, (low, high) in self.box.items()
            }

    def _evidence(
        self, kind: str, holds: bool, margin: float, count: int, at: Mapping[str, Interval], start: float
    ) -> Evidence:
        worst = {name: f"[{float(side.low):g}, {float(side.high):g}]" for name, side in at.items()}
        return Evidence(kind, holds, margin, count, worst, time.perf_counter() - start, self.domain)


def _sides(slack: Slack) -> Callable[..., Sides]:
    """Write a slack as a statement for sampling: `1 - slack <= 1`."""

    def statement(**case: Array) -> Sides:
        one = jnp.ones(())
        return Sides(one - slack(Reals, **case), one, 64 * jnp.finfo(one.dtype).eps)

    return statement


def _middle(side: Interval) -> float:
    """Return the geometric mean of a positive interval's ends, and the arithmetic mean of other ends."""
    low, high = float(side.low), float(side.high)
    return math.sqrt(low * high) if low > 0 else (low + high) / 2


def _width(side: Interval) -> float:
    """Return an interval's width; for a positive interval, the width in the logarithm."""
    low, high = float(side.low), float(side.high)
    return math.log(high / low) if low > 0 else high - low


def _halves(
    slack: Slack, box: dict[str, Interval], names: list[str]
) -> list[tuple[dict[str, Interval], Interval]]:
    """Halve a box along the side in `names` for which the worse half is best.

    Returns both halves, each with its slack.
    """

    def along(name: str) -> list[tuple[dict[str, Interval], Interval]]:
        low, middle, high = float(box[name].low), _middle(box[name]), float(box[name].high)
        halves = [{**box, name: interval(low, middle)}, {**box, name: interval(middle, high)}]
        return [(half, slack(Intervals, **half)) for half in halves]

    return max(map(along, names), key=lambda halves: sorted(float(on_half.low) for _, on_half in halves))
