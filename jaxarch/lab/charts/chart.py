"""What a chart shows: runs as points, which tell what they are when they are pointed at."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import pandas as pd

from jaxarch import ArgumentError
from jaxarch.lab.checks import check_known, shown


@dataclasses.dataclass(frozen=True)
class Chart:
    """Runs as points: two quantities, or one against names; series can be picked.

    Attributes:
      title: what is shown of what.
      table: a row a run.
      x: a column of numbers.
      y: a column of numbers, or of names, in whose order of appearance the rows of the chart are.
      series: the column that the points of a series have in common; each has a colour and a shape.
      at: the column of a setting: medians over the runs of each are joined, in the order of its values. Where
        `y` has names, the medians of each are marked in any case.
      labels: words for columns, for the axes and for what a point tells; else their names are used.
      tells: further columns whose values a point tells.
      logarithmic: whether x and y have logarithmic axes, on which only what is above 0 has a place.

    Raises:
      ArgumentError: a column that the table lacks.
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
        """Whether y has names, and not numbers."""
        return not pd.api.types.is_numeric_dtype(self.table[self.y])

    @property
    def points(self) -> pd.DataFrame:
        """The runs that have a place: those with finite numbers, above 0 on logarithmic axes."""
        return self._placed(self._finite)

    @property
    def _finite(self) -> pd.DataFrame:
        runs = self.table[self.columns]
        numbers = [self.x] if self.by_name else [self.x, self.y]
        return runs[np.isfinite(runs[numbers].to_numpy(float)).all(axis=1)]

    def _placed(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Those rows that are above 0 where an axis is logarithmic."""
        for name, logarithmic in zip((self.x, self.y), self.logarithmic, strict=True):
            if logarithmic and name in rows:
                rows = rows[rows[name] > 0]
        return rows

    @property
    def medians(self) -> pd.DataFrame:
        """The medians over runs, and how many these are, in a column `runs`; none without a setting.

        A median has a place or not, as a run has.
        """
        within = self.y if self.by_name else self.at
        if not within:
            return pd.DataFrame()
        keys = list(dict.fromkeys((self.series, within)))
        numbers = [name for name in dict.fromkeys((self.x, self.y)) if name not in keys]
        # Of all runs: one without a place on a logarithmic axis, an empty layer, counts all the same.
        groups = self._finite.groupby(keys, sort=False)
        return self._placed(groups[numbers].median().assign(runs=groups.size()).reset_index())

    def label(self, column: str) -> str:
        """What a column is called."""
        return self.labels.get(column, column.replace("_", " "))

    @property
    def description(self) -> str:
        """What is to be seen, in words, for who cannot see it."""
        names = ", ".join(map(str, self.points[self.series].unique()))
        return (
            f"{self.title}: {len(self.points)} runs as points, {self.label(self.x)} across and "
            f"{self.label(self.y)} up. {self.label(self.series)}: {names}."
        )
