"""Lines of the record that a result folder bears on, found by the commands that they name."""

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
"""Settings that say where something is kept, and change no number."""


@dataclasses.dataclass(frozen=True)
class Spoken:
    """Line of the record that an experiment bears on.

    Attributes:
      paper: the paper of the line.
      line: the line of the record.
      command: the command of the line that is nearest to the run.
      differing: settings in which command and run differ: by name, the command's value and the run's.
    """

    paper: Paper
    line: Line
    command: str
    differing: Mapping[str, tuple[Any, Any]]

    def measured(self, found: Mapping[str, Measurement]) -> list[tuple[Measurement, Measurement]]:
        """Pair the line's measurements with those of the same name in `found`."""
        return [(of, found[of.what]) for of in self.line.measured if of.what in found]


def spoken_to(
    experiment: Experiment, settings: Mapping[str, Any], papers: Sequence[Paper] | None = None
) -> list[Spoken]:
    """Return the lines with a command of an experiment, those with the fewest differing settings first.

    Args:
      experiment: the experiment that was run.
      settings: the settings of the run, from the manifest.
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
    """Return the papers that an experiment is about: those of its lines and of its description."""
    description = EXPERIMENTS.get(experiment, "")
    keys = {of.paper.key for of in spoken}
    return [paper for paper in read() if paper.key in keys or f"[{paper.key}]" in description]


def _run(command: str) -> tuple[str, dict[str, str]]:
    """Return the experiment that a command runs, empty if none, and the settings that it gives."""
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
    """Return settings in which command and run differ, except those that the run took from its data."""
    _, values = _run(command)
    known = {field.name for field in dataclasses.fields(experiment.settings)}
    asked = read_settings(experiment.settings, {k: v for k, v in values.items() if k in known})
    # If the data is not on this machine, the settings taken from it are unknown.
    with contextlib.suppress(ArgumentError):
        asked = asked.complete()
    theirs = json.loads(json.dumps(dataclasses.asdict(asked), default=str))
    return {
        name: (theirs[name], value)
        for name, value in settings.items()
        if name in theirs and name not in ELSEWHERE and theirs[name] not in ("", [], value)
    }
