"""A line of the record: what a paper says, what was measured, and whether the two agree."""

from __future__ import annotations

import dataclasses
import datetime
import math

from jaxarch import ArgumentError
from jaxarch.lab.checks import check_count, did_you_mean, shown

VERDICTS = ("reproduced", "partly", "not reproduced", "not run")
"""What may be said of a result of a paper."""
LONGEST_CLAIM = 80


@dataclasses.dataclass(frozen=True)
class Measurement:
    """One quantity over the runs that it was measured in.

    Attributes:
      what: the quantity in words, with its data; of a paired difference, which minus which.
      median: over the runs; where nothing is random, the number itself.
      q25: first quartile over the runs, with `q75`.
      q75: third quartile over the runs.
      runs: how many; for a paired difference, how many pairs.
      mean: of a paired difference, over the runs.
      mean_low: lower bound of the 95% t interval of the mean, with `mean_high`.
      mean_high: its upper bound.
      p: of the two-sided Wilcoxon signed-rank test of a paired difference, not adjusted for other tests
        unless `what` says so.

    Raises:
      ArgumentError: values that are not finite, out of order, or lack the ones that they belong to.
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
            raise ArgumentError(f"p: expected a probability, got {self.p}")
        for name in ("q25", "mean", "p"):
            if getattr(self, name) is not None and self.runs is None:
                raise ArgumentError(f"runs: missing, but there is {name}")


@dataclasses.dataclass(frozen=True)
class Line:
    """A figure, a table or a sentence of a paper, and what became of it here.

    Attributes:
      id: the paper's key and the place, such as `D.figure-4`.
      source: the place in words, such as "figure 4 and section 5".
      claim: what the paper says, in at most 80 characters.
      says: what the paper says, in its own words or in one or two sentences.
      verdict: one of `VERDICTS`.
      conclusion: how measurement and claim compare, and why the verdict; of `not run`, why it was not run.
      settings: what was run: data, task, sizes, steps; what differs from the paper.
      commands: what to type to see it.
      measured: the measurements, the most telling one first; none for `not run`.
      version: of jaxarch, that measured.
      date: of the measurement.

    Raises:
      ArgumentError: a verdict that is unknown or does not go with the rest, or an empty text.
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
                raise ArgumentError(f"{name}: expected none with the verdict 'not run'")
            if self.verdict != "not run" and not getattr(self, name):
                raise ArgumentError(f"{name}: missing, but the verdict is {shown(self.verdict)}")


@dataclasses.dataclass(frozen=True)
class Paper:
    """A paper and its lines.

    Attributes:
      key: as in [D].
      authors: as they are cited.
      title: of the paper.
      year: of the version that is meant.
      lines: in the order in which they are shown.

    Raises:
      ArgumentError: an id that occurs twice or is of another paper.
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
    """Raise unless bounds come in pairs, with what they are the bounds of, in ascending order."""
    low, middle, high = (getattr(measurement, name) for name in names)
    if low is None and high is None:
        return
    if low is None or middle is None or high is None:
        raise ArgumentError(f"{names[0]}: expected {', '.join(names)} together")
    if not low <= middle <= high:
        raise ArgumentError(f"{names[0]}: expected {' <= '.join(names)}, got {low}, {middle}, {high}")
