"""Paired differences in reports: rows of `jaxarch.metrics.paired_differences`, selected and in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from jaxarch.metrics import paired_differences

LEVEL = 0.05
"""Level below which a p counts in a conclusion."""
TURNED = {"median": "median", "q25": "q75", "q75": "q25", "mean": "mean", "mean_low": "mean_high"}
TURNED |= {"mean_high": "mean_low", "effect": "effect"}


def against(comparisons: pd.DataFrame, reference: str, other: str | None = None) -> pd.DataFrame:
    """Select one method's comparisons with all others or with one, signed as `reference - against`."""
    first, second = (comparisons[comparisons[side] == reference] for side in ("first", "second"))
    turned = second.copy()
    turned[list(TURNED)] = -second[list(TURNED.values())].to_numpy()
    turned["wins"] = second["runs"] - second["wins"]
    both = pd.concat([first.assign(against=first["second"]), turned.assign(against=second["first"])])
    both = both.drop(columns=["first", "second"]).sort_index()
    return both if other is None else both[both["against"] == other]


def difference(first: pd.Series, second: pd.Series) -> dict[str, Any]:
    """Compare two measurements of the same runs, by index, as `paired_differences` does; without names."""
    values = {"first": first.to_numpy(), "second": second.reindex(first.index).to_numpy()}
    (row,) = paired_differences(values).drop(columns=["first", "second"]).to_dict("records")
    return {str(name): value for name, value in row.items()}


def adjusted(pairs: pd.DataFrame, questions: list[str]) -> pd.DataFrame:
    """Add `p_adjusted`, by Benjamini and Yekutieli over all pairs with the same entries of some columns."""
    table = pairs.assign(p_adjusted=np.nan)
    for _, of in table[table["p"].notna()].groupby(questions):
        table.loc[of.index, "p_adjusted"] = stats.false_discovery_control(of["p"], method="by")
    return table


def in_words(pair: Mapping[str, Any] | pd.Series, form: str, column: str = "p") -> str:
    """Format a difference, as in +0.014 [+0.010, +0.020], n = 6, p = 0.03.

    With too few runs for a test there is no p; without a run there is a dash. `column` may be `p_adjusted`.
    """
    if np.isnan(pair["median"]):
        return "-"
    middle, low, high = (format(pair[name], f"+{form}") for name in ("median", "q25", "q75"))
    name = "adjusted p" if column == "p_adjusted" else "p"
    tested = "" if np.isnan(pair[column]) else f", {name} = {pair[column]:.2g}"
    return f"{middle} [{low}, {high}], n = {pair['runs']:.0f}{tested}"


def decidable(runs: float, tests: int = 1) -> bool:
    """Return whether so many pairs can have a p below `LEVEL`, adjusted for a number of tests.

    The least two-sided p of Wilcoxon's test is that of differences that all have the same sign. The
    adjustment by Benjamini and Yekutieli multiplies equal p by 1 + 1/2 + ... + 1/tests.
    """
    return bool(2.0 ** (1 - runs) * sum(1 / (i + 1) for i in range(tests)) < LEVEL)


def significant(pairs: pd.DataFrame, column: str, tests: int = 1) -> str:
    """Count the differences of each sign whose p, in a column, is below `LEVEL`; say so if none can be.

    Args:
      pairs: rows of `against`.
      column: `p`, or `p_adjusted` for a number of tests.
      tests: that number.
    """
    runs = pairs["runs"].max()
    if not decidable(runs, tests):
        return f"none of {len(pairs)} can be with n = {runs:.0f}"
    small = pairs[pairs[column] < LEVEL]
    return f"{(small['median'] > 0).sum()} above and {(small['median'] < 0).sum()} below 0, of {len(pairs)}"
