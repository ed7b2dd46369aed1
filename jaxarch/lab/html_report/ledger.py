"""The lines of the record that a result folder speaks to, found by the commands that they name."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jaxarch import ArgumentError
from jaxarch.lab.harness import Experiment, read_settings
from jaxarch.lab.harness.catalogue import DEFAULT, EXPERIMENTS
from jaxarch.lab.reproduction import Line, Measurement, Paper, read

ELSEWHERE = ("resume",)
"""Settings which say where something is kept, and change no number."""


@dataclasses.dataclass(frozen=True)
class Spoken:
    """A line of the record that an experiment speaks to.

    Attributes:
      paper: that it is of.
      line: of the record.
      command: that of the line which is nearest to what was run.
      differing: settings in which it is another: by name, what the command has and what was run.
    """

    paper: Paper
    line: Line
    command: str
    differing: Mapping[str, tuple[Any, Any]]

    def measured(self, found: Mapping[str, Measurement]) -> list[tuple[Measurement, Measurement]]:
        """What the line records, beside what is called the same here."""
        return [(of, found[of.what]) for of in self.line.measured if of.what in found]


def spoken_to(
    experiment: Experiment, settings: Mapping[str, Any], papers: Sequence[Paper] | None = None
) -> list[Spoken]:
    """The lines that name a command of an experiment, those that were run just so first.

    Args:
      experiment: that was run.
      settings: that it was run with, as the manifest has them.
      papers: the record; by default all of it.

    Example:
      >>> from jaxarch.lab.harness.catalogue import experiment
      >>> from jaxarch.lab.html_report.ledger import spoken_to
      >>> [spoken.line.id for spoken in spoken_to(experiment("disentangling.fig2"), {})]
      ['D.figure-2']
    """
    found = []
    for paper in read() if papers is None else papers:
        for line in paper.lines:
            runs = [command for command in line.commands if _run(command)[0] == experiment.name]
            compared = [(command, _differing(command, experiment, settings)) for command in runs]
            if compared:
                found.append(Spoken(paper, line, *min(compared, key=lambda pair: len(pair[1]))))
    return sorted(found, key=lambda spoken: len(spoken.differing))


def papers_of(experiment: str, spoken: Sequence[Spoken]) -> list[Paper]:
    """The papers that an experiment is about: those of its lines, and those that its description names."""
    description = EXPERIMENTS.get(experiment, "")
    keys = {of.paper.key for of in spoken}
    return [paper for paper in read() if paper.key in keys or f"[{paper.key}]" in description]


def _run(command: str) -> tuple[str, dict[str, str]]:
    """The experiment that a command runs, if it does, and the settings that it gives."""
    words = shlex.split(command)
    if words[:2] != ["jaxarch", "run"]:
        return "", {}
    rest = words[2:]
    named = bool(rest) and not rest[0].startswith("-")
    return (rest[0] if named else DEFAULT), dict(_assignments(rest[named:]))


def _assignments(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for option, value in zip(words[::2], words[1::2], strict=False):
        if option == "--set":
            name, _, value = value.partition("=")
            yield name.replace("-", "_"), value
        else:
            yield option.removeprefix("--").replace("-", "_"), value


def _differing(
    command: str, experiment: Experiment, settings: Mapping[str, Any]
) -> dict[str, tuple[Any, Any]]:
    """Settings that a command has and a run had not; what a run took from its data is none of them."""
    _, values = _run(command)
    known = {field.name for field in dataclasses.fields(experiment.settings)}
    asked = read_settings(experiment.settings, {k: v for k, v in values.items() if k in known})
    # Where its data is not here, what it takes from that is unknown.
    with contextlib.suppress(ArgumentError):
        asked = asked.complete()
    theirs = json.loads(json.dumps(dataclasses.asdict(asked), default=str))
    return {
        name: (theirs[name], value)
        for name, value in settings.items()
        if name in theirs and name not in ELSEWHERE and theirs[name] not in ("", [], value)
    }
