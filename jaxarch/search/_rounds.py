"""Densities after each round of pruning, from given targets or from a share that each round removes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Literal

from jaxarch._internal.errors import ArgumentError, check_count, is_traced, shown
from jaxarch._internal.trees import PyTree, by_path, named_leaves
from jaxarch.transforms._densities import Densities, check_densities
from jaxarch.transforms._prune import check_fraction

Scope = Literal["global", "layer"]
"""Comparison of weights over all leaves together, or in each leaf by itself."""


@dataclasses.dataclass(frozen=True)
class ByDensity:
    """Rounds that meet given densities.

    Attributes:
      densities: the density after each round.
      targets: the densities among them that were asked for.
      scope: whether densities apply to all leaves together or to each leaf.
    """

    densities: tuple[float, ...]
    targets: tuple[float, ...]
    scope: Scope

    @property
    def count(self) -> int:
        """Number of rounds."""
        return len(self.densities)

    @property
    def met_in(self) -> tuple[int, ...]:
        """Index of the round, from 0 on, that meets each target."""
        return tuple(self.densities.index(target) for target in self.targets)

    def after_each(self, measured: PyTree) -> list[Any]:
        """Return the density after each round, in the form that `Units.counts` takes.

        Args:
          measured: the sizes of units, as `Units.score` returns them.
        """
        return [of_each(density, self.scope, measured) for density in self.densities]


@dataclasses.dataclass(frozen=True)
class ByFraction:
    """A number of rounds, each of which removes `round(fraction n)` of the n units that are left.

    Attributes:
      count: number of rounds.
      fraction: one number, or pairs of a path and that leaf's fraction.
      scope: whether one number applies to all leaves together or to each leaf.
      targets: empty, since no density is asked for.
      met_in: empty, too.
    """

    count: int
    fraction: float | tuple[tuple[str, float], ...]
    scope: Scope
    targets: tuple[float, ...] = ()
    met_in: tuple[int, ...] = ()

    def after_each(self, measured: PyTree) -> list[Any]:
        """Return the density after each round, in the form that `Units.counts` takes.

        Args:
          measured: the sizes of units, as `Units.score` returns them.

        Raises:
          ArgumentError: paths other than those of the leaves; rounds that leave nothing.
        """
        sizes = {path: leaf.size for path, leaf in named_leaves(measured).items()}
        if isinstance(self.fraction, tuple):
            return self._left(by_path("fraction", dict(self.fraction), sizes), sizes)
        if self.scope == "layer":
            return self._left(dict.fromkeys(sizes, self.fraction), sizes)
        together = "all leaves"
        left = self._left({together: self.fraction}, {together: sum(sizes.values())})
        return [shares[together] for shares in left]

    def _left(self, fractions: Mapping[str, float], sizes: Mapping[str, int]) -> list[dict[str, float]]:
        left, shares = dict(sizes), []
        for number in range(1, self.count + 1):
            left = {path: count - round(fractions[path] * count) for path, count in left.items()}
            for path, count in left.items():
                if not count:
                    raise ArgumentError(
                        f"rounds: nothing is left of {path} after {number} of {self.count} rounds; give "
                        "fewer rounds, or a smaller fraction"
                    )
            shares.append({path: count / sizes[path] for path, count in left.items()})
        return shares


Rounds = ByDensity | ByFraction


def by_density(targets: tuple[float, ...], fraction: Any, scope: Scope) -> ByDensity:
    """Return rounds that each remove at most a fraction.

    Raises:
      ArgumentError: a fraction that is not a number in (0, 1).
    """
    if isinstance(fraction, Mapping):
        raise ArgumentError(
            "fraction: one for each leaf works only with rounds, not with densities; give one number"
        )
    _check_share(fraction)
    return ByDensity(tuple(round_densities(targets, fraction)), targets, scope)


def by_fraction(rounds: int, fraction: Any, scope: Scope) -> ByFraction:
    """Return a number of rounds that each remove one fraction, or one fraction per leaf.

    Raises:
      ArgumentError: a number of rounds that is not positive, a fraction that is not a number in (0, 1).
    """
    check_count("rounds", rounds)
    if not isinstance(fraction, Mapping):
        _check_share(fraction)
        return ByFraction(int(rounds), float(fraction), scope)
    for path, share in fraction.items():
        _check_known(f"fraction of {shown(path)}", share)
    if not any(fraction.values()):
        raise ArgumentError(
            "fraction: expected at least one above 0, since each round has to remove something"
        )
    return ByFraction(int(rounds), tuple((path, float(share)) for path, share in fraction.items()), "layer")


def round_densities(densities: Densities, fraction: float) -> list[float]:
    """Return the density after each round of iterative pruning.

    The densities are geometric from one target to the next, in as few rounds as possible.

    Args:
      densities: the targets, each a share of connections to keep, in (0, 1].
      fraction: the largest share of the connections left that a round may remove, in (0, 1).

    Raises:
      ArgumentError: a density or a fraction outside its range.

    Example:
      >>> import jaxarch
      >>> print([f"{density:.3f}" for density in jaxarch.search.round_densities(0.25, 0.5)])
      ['0.500', '0.250']
    """
    _check_share(fraction)
    steps = []
    for before, after in pairwise([1.0, *check_densities(densities)]):
        # Without the tolerance, rounding errors could add a round.
        count = max(math.ceil(math.log(after / before) / math.log1p(-fraction) - 1e-9), 1)
        steps += [before * (after / before) ** (step / count) for step in range(1, count)] + [after]
    return steps


def of_each(density: float, scope: Scope, measured: PyTree) -> float | dict[str, float]:
    """Return a density in the form that `Units.counts` takes: one per leaf if each leaf is to meet it."""
    # Each leaf is rounded by itself: shares of an exact total could give back to a leaf what it has lost.
    return dict.fromkeys(named_leaves(measured), density) if scope == "layer" else density


def _check_share(fraction: Any) -> None:
    _check_known("fraction", fraction)
    if fraction == 0:
        raise ArgumentError(
            "fraction: expected a number in (0, 1), since each round has to remove something; got 0"
        )


def _check_known(name: str, fraction: Any) -> None:
    if is_traced(fraction):
        raise ArgumentError(
            f"{name}: expected a concrete number, since it sets the sizes of masks; got a traced one"
        )
    check_fraction(name, fraction)
