"""Paired comparison of strategies, run by run."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from jaxarch._internal.errors import ArgumentError, check_mapping, from_extra, real_numbers, shown

if TYPE_CHECKING:
    import pandas as pd


def quartiles(values: pd.Series | np.ndarray) -> tuple[float, float, float]:
    """Return the median, first and third quartile of the finite values; NaN if there are none.

    Raises:
      ArgumentError: values that are not real numbers, or are traced.

    Example:
      >>> import jaxarch, numpy as np
      >>> jaxarch.metrics.quartiles(np.array([1.0, 2.0, 3.0, 4.0, 5.0, np.nan]))
      (3.0, 2.0, 4.0)
    """
    finite = real_numbers("values", values)
    finite = finite[np.isfinite(finite)]
    if not finite.size:
        return (float("nan"),) * 3
    q25, median, q75 = np.percentile(finite, [25, 50, 75])
    return float(median), float(q25), float(q75)


def paired_differences(values: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """Compare every pair of strategies run by run, on the same splits.

    Args:
      values: by strategy, one value per run, in the same order of runs; NaN for a run that failed.

    Returns:
      One row per pair, for the difference `first - second`. The columns are `runs`, the median with
      quartiles, and `mean` with the bounds of its 95% t interval. `wins` counts runs with a positive
      difference, ties half. `effect` is the matched-pairs rank-biserial correlation (1: better in every run,
      -1: worse in every run, 0: no difference). `p` is from the two-sided Wilcoxon signed-rank test, and
      `p_adjusted` is adjusted over all pairs (false discovery rate, valid under any dependence). With fewer
      than two runs there is no test, and these are NaN.

    Raises:
      ArgumentError: values that are not a dict of real numbers, each of the same shape (runs,).

    Example:
      >>> import jaxarch, numpy as np
      >>> values = {"ours": np.array([2.0, 4.0, 6.0, 1.0]), "theirs": np.array([1.0, 2.0, 3.0, 5.0])}
      >>> table = jaxarch.metrics.paired_differences(values)  # of 1, 2, 3 and -4
      >>> table[["median", "wins", "effect", "p"]].iloc[0].tolist()
      [1.5, 3.0, 0.2, 0.875]
    """
    with from_extra("lab", "paired_differences: a table"):
        import pandas as pd
    from scipy import stats

    check_mapping("values", values, "a dict of values by strategy, shape (runs,)")
    arrays = {name: real_numbers(f"values: {shown(name)}", of) for name, of in values.items()}
    if len({array.shape for array in arrays.values()}) > 1 or any(a.ndim != 1 for a in arrays.values()):
        shapes = shown({name: array.shape for name, array in arrays.items()})
        raise ArgumentError(f"values: expected the same shape (runs,) for every strategy, got {shapes}")
    rows = []
    for first, second in itertools.combinations(arrays, 2):
        difference = arrays[first] - arrays[second]
        # Round, so that differences that are equal in exact arithmetic (AUCs lie on a grid) are ties.
        difference = np.round(difference[np.isfinite(difference)], 12)
        rows.append({"first": first, "second": second, **_summary(difference)})
    columns = ["first", "second", *_summary(np.empty(0))]
    table = pd.DataFrame(rows, columns=columns).assign(p_adjusted=np.nan)
    tested = table["p"].notna()
    if tested.any():
        adjusted = stats.false_discovery_control(table.loc[tested, "p"], method="by")
        table.loc[tested, "p_adjusted"] = adjusted
    return table


EXACT = 13
"""Most runs at which SciPy's signed-rank test is exact whether there are ties or not."""


def _signed_rank_p(difference: np.ndarray, ranks: np.ndarray) -> float:
    """Compute the p of the two-sided Wilcoxon signed-rank test as SciPy does, in a hundredth of its time.

    With ties SciPy tries all 2^n signs, and takes a quarter of a second. Their sums have few values, so the
    signs of each sum are counted here, rank by rank.

    Args:
      difference: differences, zeros included.
      ranks: ranks of the sizes of those that are not 0.
    """
    from scipy import stats

    if difference.size > EXACT:
        return float(stats.wilcoxon(difference).pvalue)
    # Tied ranks are halves, so twice a rank is an integer.
    doubled = np.rint(2 * ranks).astype(int)
    counts = np.zeros(doubled.sum() + 1)
    counts[0] = 1
    for rank in doubled:
        counts[rank:] += counts[: len(counts) - rank].copy()
    below = counts.cumsum() / counts.sum()
    positive = int(doubled[difference[difference != 0] > 0].sum())
    above = 1 - below[positive - 1] if positive else 1.0
    return float(min(1.0, 2 * min(below[positive], above)))


def _summary(difference: np.ndarray) -> dict[str, float]:
    from scipy import stats

    nan = float("nan")
    if not difference.size:
        names = ("q25", "median", "q75", "mean", "mean_low", "mean_high", "wins", "effect", "p")
        return {"runs": 0, **dict.fromkeys(names, nan)}
    median, q25, q75 = quartiles(difference)
    mean = float(difference.mean())
    low = high = p = effect = nan
    if difference.size >= 2:
        half = stats.t.ppf(0.975, difference.size - 1) * stats.sem(difference)
        low, high = mean - half, mean + half
        ranks = stats.rankdata(np.abs(difference[difference != 0]))
        total = ranks.sum()
        effect = float((np.sign(difference[difference != 0]) * ranks).sum() / total) if total else 0.0
        p = _signed_rank_p(difference, ranks) if total else 1.0
    wins = float((difference > 0).sum() + (difference == 0).sum() / 2)
    return {
        "runs": difference.size,
        "q25": q25,
        "median": median,
        "q75": q75,
        "mean": mean,
        "mean_low": low,
        "mean_high": high,
        "wins": wins,
        "effect": effect,
        "p": p,
    }
