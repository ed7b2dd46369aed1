"""Charts of runs as points, with a tooltip for each point."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import pandas as pd

from jaxarch import ArgumentError
from jaxarch.lab.checks import check_known, shown


@dataclasses.dataclass(frozen=True)
class Chart:
    """Chart of runs as points: two quantities, or one against names; series can be selected.

    Attributes:
      title: the title.
      table: one row per run.
      x: a column of numbers.
      y: a column of numbers, or of names; the rows of the chart follow the names' order of appearance.
      series: the column that defines the series; each series has a color and a shape.
      at: the column of a setting. A line joins the medians over the runs of each value, in the values' order.
        If `y` has names, the median of each name is marked in any case.
      labels: labels of columns, for axes and tooltips; by default the columns' names.
      tells: further columns for the tooltips.
      logarithmic: whether x and y have logarithmic axes, which show only values above 0.

    Raises:
      ArgumentError: the table lacks a column.
    """

    title: str
    table: pd.DataFrame
    x: str
    y: str
    series: str
    at: str = ""
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tells: tuple[str, ...] = ("seed",)
    logarithmic: tuple[bool, bool] = (False, False)

    def __post_init__(self) -> None:
        check_known("columns", self.columns, self.table.columns)
        if not pd.api.types.is_numeric_dtype(self.table[self.x]):
            raise ArgumentError(f"x: expected a column of numbers, got {shown(self.x)}")

    @property
    def columns(self) -> list[str]:
        """All columns that are shown, each once."""
        named = (self.series, self.y, self.x, self.at, *self.tells)
        return list(dict.fromkeys(name for name in named if name))

    @property
    def by_name(self) -> bool:
        """True if y has names rather than numbers."""
        return not pd.api.types.is_numeric_dtype(self.table[self.y])

    @property
    def points(self) -> pd.DataFrame:
        """Runs that the chart can show: finite numbers, above 0 on logarithmic axes."""
        return self._placed(self._finite)

    @property
    def _finite(self) -> pd.DataFrame:
        runs = self.table[self.columns]
        numbers = [self.x] if self.by_name else [self.x, self.y]
        return runs[np.isfinite(runs[numbers].to_numpy(float)).all(axis=1)]

    def _placed(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Keep the rows that are above 0 on logarithmic axes."""
        for name, logarithmic in zip((self.x, self.y), self.logarithmic, strict=True):
            if logarithmic and name in rows:
                rows = rows[rows[name] > 0]
        return rows

    @property
    def medians(self) -> pd.DataFrame:
        """Medians over runs, with the number of runs in a column `runs`; empty without names or a setting.

        Medians that the chart cannot show are left out, as runs are.
        """
        within = self.y if self.by_name else self.at
        if not within:
            return pd.DataFrame()
        keys = list(dict.fromkeys((self.series, within)))
        numbers = [name for name in dict.fromkeys((self.x, self.y)) if name not in keys]
        # A run that a logarithmic axis cannot show, such as an empty layer, still counts in the median.
        groups = self._finite.groupby(keys, sort=False)
        return self._placed(groups[numbers].median().assign(runs=groups.size()).reset_index())

    def label(self, column: str) -> str:
        """Return the label of a column."""
        return self.labels.get(column, column.replace("_", " "))

    @property
    def description(self) -> str:
        """Description of the chart in words, for readers who cannot see it."""
        names = ", ".join(map(str, self.points[self.series].unique()))
        return (
            f"{self.title}: {len(self.points)} runs as points, {self.label(self.x)} on the horizontal "
            f"axis and {self.label(self.y)} on the vertical axis. {self.label(self.series)}: {names}."
        )
