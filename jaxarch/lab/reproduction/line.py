"""Lines of the record: a paper's claim, its measurement here, and whether the two agree."""

from __future__ import annotations

import dataclasses
import datetime
import math

from jaxarch import ArgumentError
from jaxarch.lab.checks import check_count, did_you_mean, shown

VERDICTS = ("reproduced", "partly", "not reproduced", "not run")
"""Possible verdicts on a paper's result."""
LONGEST_CLAIM = 80


@dataclasses.dataclass(frozen=True)
class Measurement:
    """Measurement of one quantity over several runs.

    Attributes:
      what: the quantity in words, with its data; for a paired difference, with both sides (A minus B).
      median: median over the runs; if nothing is random, the number itself.
      q25: first quartile over the runs, with `q75`.
      q75: third quartile over the runs.
      runs: number of runs; for a paired difference, number of pairs.
      mean: mean of a paired difference over the runs.
      mean_low: lower bound of the 95% t interval of the mean, with `mean_high`.
      mean_high: upper bound of that interval.
      p: p-value of the two-sided Wilcoxon signed-rank test of a paired difference. It is not adjusted for
        other tests unless `what` says so.

    Raises:
      ArgumentError: values that are not finite, are out of order, or lack a value that belongs to them.
    """

    what: str
    median: float
    q25: float | None = None
    q75: float | None = None
    runs: int | None = None
    mean: float | None = None
    mean_low: float | None = None
    mean_high: float | None = None
    p: float | None = None

    def __post_init__(self) -> None:
        _check_text("what", self.what)
        for name, value in vars(self).items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ArgumentError(f"{name}: expected a finite number, got {value}")
        if self.runs is not None:
            check_count("runs", self.runs)
        _check_ordered(self, "q25", "median", "q75")
        _check_ordered(self, "mean_low", "mean", "mean_high")
        if self.p is not None and not 0 <= self.p <= 1:
            raise ArgumentError(f"p: expected a number in [0, 1], got {self.p}")
        for name in ("q25", "mean", "p"):
            if getattr(self, name) is not None and self.runs is None:
                raise ArgumentError(f"runs: missing; {name} needs the number of runs")


@dataclasses.dataclass(frozen=True)
class Line:
    """Line of the record: a figure, table or sentence of a paper, and its result here.

    Attributes:
      id: the paper's key and the place, such as `D.figure-4`.
      source: the place in words, such as "figure 4 and section 5".
      claim: what the paper says, in at most 80 characters.
      says: what the paper says, in its own words or in one or two sentences.
      verdict: one of `VERDICTS`.
      conclusion: comparison of measurement and claim, and reason for the verdict; for `not run`, why not.
      settings: the settings of the runs: data, task, sizes, steps; differences from the paper.
      commands: the commands that reproduce it.
      measured: the measurements, the most telling one first; none for `not run`.
      version: version of jaxarch that measured it.
      date: date of the measurement.

    Raises:
      ArgumentError: an unknown verdict, a verdict that does not fit the other fields, or an empty text.
    """

    id: str
    source: str
    claim: str
    says: str
    verdict: str
    conclusion: str
    settings: str = ""
    commands: tuple[str, ...] = ()
    measured: tuple[Measurement, ...] = ()
    version: str = ""
    date: datetime.date | None = None

    def __post_init__(self) -> None:
        for name in ("id", "source", "claim", "says", "conclusion"):
            _check_text(name, getattr(self, name))
        if len(self.claim) > LONGEST_CLAIM:
            raise ArgumentError(f"claim: expected at most {LONGEST_CLAIM} characters, got {len(self.claim)}")
        if self.verdict not in VERDICTS:
            raise ArgumentError(
                f"verdict: unknown {shown(self.verdict)}; {did_you_mean(self.verdict, VERDICTS)}"
            )
        for name in ("measured", "settings", "commands"):
            if self.verdict == "not run" and getattr(self, name):
                raise ArgumentError(
                    f"{name}: expected nothing with the verdict 'not run'; remove it, or change the verdict"
                )
            if self.verdict != "not run" and not getattr(self, name):
                raise ArgumentError(f"{name}: missing, but the verdict is {shown(self.verdict)}")


@dataclasses.dataclass(frozen=True)
class Paper:
    """Paper and its lines.

    Attributes:
      key: the key, as in [D].
      authors: the authors, as they are cited.
      title: the title of the paper.
      year: the year of the cited version.
      lines: the lines, in the order in which they are shown.

    Raises:
      ArgumentError: an id that occurs twice or belongs to another paper.
    """

    key: str
    authors: str
    title: str
    year: int
    lines: tuple[Line, ...]

    def __post_init__(self) -> None:
        for name in ("key", "authors", "title"):
            _check_text(name, getattr(self, name))
        seen = set()
        for line in self.lines:
            if line.id in seen:
                raise ArgumentError(f"id: {line.id} occurs twice")
            if not line.id.startswith(f"{self.key}."):
                raise ArgumentError(f"id: expected {self.key}.SOMETHING, got {shown(line.id)}")
            seen.add(line.id)


def _check_text(name: str, text: str) -> None:
    if not text.strip() or not text.isprintable():
        raise ArgumentError(f"{name}: expected a line of printable text, got {shown(text)}")


def _check_ordered(measurement: Measurement, *names: str) -> None:
    """Raise unless both bounds and the middle value are given, in ascending order, or no bound is."""
    low, middle, high = (getattr(measurement, name) for name in names)
    if low is None and high is None:
        return
    if low is None or middle is None or high is None:
        raise ArgumentError(f"{names[0]}: expected {', '.join(names)} together")
    if not low <= middle <= high:
        raise ArgumentError(f"{names[0]}: expected {' <= '.join(names)}, got {low}, {middle}, {high}")
