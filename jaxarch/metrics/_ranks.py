"""Ranks of several strategies over many runs, with tests of their differences."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from jaxarch._internal.errors import ArgumentError, check_mapping, from_extra, real_numbers, shown

if TYPE_CHECKING:
    import pandas as pd

ROUNDING = 1e-8
"""Relative size below which a mean or a spread counts as 0 beside the other."""
RESAMPLES = 2000
"""Number of bootstrap resamples for the intervals of mean ranks."""


@dataclasses.dataclass(frozen=True)
class Ranking:
    """Mean ranks and their tests: see `ranking`.

    Attributes:
      table: one row per strategy, the best first. Its columns are `strategy`, `rank`, the bounds `low` and
        `high`, and `failures`. `rank` is the mean over runs, with its 95% interval; `failures` counts NaN.
      runs: the number of runs.
      chi_square: Friedman's statistic, corrected for ties; NaN if all values are ties.
      p: the probability of a statistic as large if all strategies are alike.
      critical_difference: of mean ranks, by Nemenyi's test at 5%. Closer mean ranks cannot be told apart.

    Example:
      >>> import jaxarch, numpy as np
      >>> a, b, c = np.array([[3.0, 3, 3, 3], [2, 1, 2, 2], [1, 2, 1, 1]])
      >>> found = jaxarch.metrics.ranking({"a": a, "b": b, "c": c})
      >>> print(f"{found.chi_square:.1f} {found.p:.3f} {found.critical_difference:.2f}")
      6.5 0.039 1.66
    """

    table: pd.DataFrame
    runs: int
    chi_square: float
    p: float
    critical_difference: float

    def alike(self) -> list[list[str]]:
        """Return maximal groups of strategies that cannot be told apart, the best first."""
        names, ranks = self.table["strategy"].tolist(), self.table["rank"].to_numpy()
        groups: list[list[str]] = []
        for first, rank in enumerate(ranks):
            last = int(np.searchsorted(ranks, rank + self.critical_difference, side="right"))
            group = names[first:last]
            if len(group) > 1 and not (groups and set(group) <= set(groups[-1])):
                groups.append(group)
        return groups


def ranking(values: Mapping[str, np.ndarray]) -> Ranking:
    r"""Rank strategies in every run, 1 for the best, and compare their mean ranks.

    A run is a block: all strategies on the same data, split and seed. Equal values share a rank, and NaN, a
    run that failed, ranks last. With several cells per run, values have shape (runs, cells). Strategies are
    then ranked in each cell, their ranks are averaged over the cells of a run, and these averages are ranked
    again: cells of one run share the same data and are not separate runs.

    M. Friedman's test (1937) asks whether all strategies are alike. P. Nemenyi's (1963) asks which pairs
    differ, in the form of J. Demsar, Statistical comparisons of classifiers over multiple data sets, 2006.
    Mean ranks of k strategies over n runs differ if they are at least `q sqrt(k (k + 1) / (6 n))` apart. Here
    q is the 95% point of the studentized range over sqrt(2). Intervals of mean ranks are percentiles over
    resampled runs. Both tests depend on the set of strategies: another strategy changes the ranks. For two
    strategies alone, `metrics.paired_differences` says more.

    Args:
      values: by strategy, larger is better, shape (runs,) or (runs, cells), in the same order of runs.

    Returns:
      A `Ranking`.

    Raises:
      ArgumentError: fewer than two strategies or runs, shapes that differ, or values that are not numbers.

    Example:
      >>> import jaxarch, numpy as np
      >>> values = {"ours": np.array([0.9, 0.8, 0.9]), "theirs": np.array([0.7, 0.8, np.nan])}
      >>> jaxarch.metrics.ranking(values).table[["strategy", "rank", "failures"]].values.tolist()
      [['ours', 1.1666666666666667, 0], ['theirs', 1.8333333333333333, 1]]
    """
    with from_extra("lab", "ranking: a table"):
        import pandas as pd
    from scipy import stats

    by_run, names = blocks(values), list(values)
    runs, _, count = by_run.shape
    ranks = stats.rankdata(np.where(np.isnan(by_run), np.inf, -by_run), axis=-1).mean(axis=1)
    # Round, so that means over cells that are equal in exact arithmetic are ties.
    ranks = stats.rankdata(np.round(ranks, 9), axis=-1)
    drawn = np.random.default_rng(0).integers(runs, size=(RESAMPLES, runs))
    low, high = np.percentile(ranks[drawn].mean(axis=1), (2.5, 97.5), axis=0)
    table = pd.DataFrame(
        {
            "strategy": names,
            "rank": ranks.mean(axis=0),
            "low": low,
            "high": high,
            "failures": np.isnan(by_run).sum(axis=(0, 1)),
        }
    )
    chi_square, p = _friedman(ranks)
    q = stats.studentized_range.ppf(0.95, count, np.inf) / math.sqrt(2)
    distance = float(q * math.sqrt(count * (count + 1) / (6 * runs)))
    ordered = table.sort_values("rank", kind="stable", ignore_index=True)
    return Ranking(ordered, runs, chi_square, p, distance)


def runs_needed(difference: np.ndarray, power: float = 0.8) -> int:
    r"""Estimate the number of runs needed to find a paired difference of this mean and spread.

    This is the smallest n at which a two-sided paired t-test at 5% finds a mean of `d` standard deviations
    with probability `power`. As d is the measured value, n is as uncertain as d. It says nothing about the
    runs at hand.

    Args:
      difference: of two strategies, run by run; NaN, for a run that failed in either, is left out.
      power: in (0, 1).

    Returns:
      A number of runs, at least 2; 0 if the mean difference is 0 up to rounding, since no number of runs
      finds it.

    Raises:
      ArgumentError: fewer than two runs that did not fail; a power outside (0, 1).

    Example:
      >>> import jaxarch, numpy as np
      >>> jaxarch.metrics.runs_needed(np.array([1 - 0.5**0.5, 1 + 0.5**0.5]))  # mean 1, deviation 1
      10
    """
    from scipy import stats

    if real_numbers("power", power).ndim or not 0 < power < 1:
        raise ArgumentError(f"power: expected a number in (0, 1), got {shown(power)}")
    finite = real_numbers("difference", difference)
    finite = finite[np.isfinite(finite)]
    if finite.size < 2:
        raise ArgumentError(f"difference: expected two runs or more, got {finite.size}")
    mean, spread = abs(finite.mean()), finite.std(ddof=1)
    if mean <= ROUNDING * spread:
        return 0
    if spread <= ROUNDING * mean:
        return 2

    def found(runs: int) -> float:
        """Return the probability that this many runs find the difference."""
        bound = stats.t.ppf(0.975, runs - 1.0)
        shift = mean / spread * math.sqrt(runs)
        # SciPy returns NaN for some tails of almost no probability.
        other_side = np.nan_to_num(stats.nct.cdf(-bound, runs - 1.0, shift))
        return float(stats.nct.sf(bound, runs - 1.0, shift) + other_side)

    few, many = 1, 2
    while found(many) < power:
        few, many = many, 2 * many
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (middle, many) if found(middle) < power else (few, middle)
    return many


def blocks(values: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the values in shape (runs, cells, strategies)."""
    check_mapping("values", values, "a dict of values by strategy, shape (runs,) or (runs, cells)")
    arrays = [real_numbers(f"values: {shown(name)}", of) for name, of in values.items()]
    shapes = {array.shape for array in arrays}
    if len(arrays) < 2 or len(shapes) > 1 or arrays[0].ndim not in (1, 2):
        raise ArgumentError(
            "values: expected two strategies or more, each of shape (runs,) or (runs, cells); got "
            f"{shown({name: np.shape(of) for name, of in values.items()})}"
        )
    if arrays[0].shape[0] < 2:
        raise ArgumentError(f"values: expected two runs or more, got {arrays[0].shape[0]}")
    return np.stack([array.reshape(array.shape[0], -1) for array in arrays], axis=-1)


def _friedman(ranks: np.ndarray) -> tuple[float, float]:
    """Return Friedman's statistic and its p, from ranks of shape (runs, strategies), with ties; two will do.

    The form with ties is from W. Conover, Practical nonparametric statistics, 1999, section 5.8.
    """
    from scipy import stats

    runs, count = ranks.shape
    spread = np.square(ranks - (count + 1) / 2).sum()
    if spread == 0:
        return math.nan, 1.0
    between = np.square(ranks.sum(axis=0) - runs * (count + 1) / 2).sum()
    chi_square = (count - 1) * between / spread
    return float(chi_square), float(stats.chi2.sf(chi_square, count - 1))
