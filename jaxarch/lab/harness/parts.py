"""The parts of a long experiment, each kept when it is done, so that the same command goes on from there."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from jaxarch import ArgumentError, Progress, PyTree
from jaxarch.io import Checkpoints, load_tree, save_tree
from jaxarch.io._files import check_claim, claim, complete_file
from jaxarch.lab.checks import as_path, shown
from jaxarch.lab.harness.at_worker import packed
from jaxarch.lab.harness.part import Part, Work, check_order
from jaxarch.lab.harness.settings import ExperimentSettings, checkpoints
from jaxarch.lab.harness.spread import Spread
from jaxarch.run._processes import ALL_HOSTS, Team

SETTINGS = "settings.json"
WORKING = ".working"
"""How the folders end in which parts that are being made keep their checkpoints."""


class Parts:
    """What is done of an experiment, in the folder that its setting `resume` names; nowhere without a name.

    A part is made by a function of checkpoints of its own, which are removed when it is done. A part that is
    there is read, not made; so a run that was killed at any moment ends with the numbers of one that was not.
    The folder is this process's as long as the object is kept.
    `NAME.csv` are partial tables to look at meanwhile.

    Args:
      settings: a dataclass with a field `resume`. Its `which_parts` may have other values in a folder than
        those that it was begun with: then there are other parts, and those that are there are read.
      **facts: what else the parts depend on, such as digests of the data.

    Raises:
      ArgumentError: a folder that cannot be made, that another process is using, or that was begun with other
        settings or facts, naming the first, or with another release.
    """

    def __init__(self, settings: Any, **facts: str) -> None:
        self._devices = getattr(settings, "devices", 0)
        self._defaults = {field.name: field.default for field in dataclasses.fields(settings)}
        self.folder = as_path(settings.resume, "resume") if settings.resume else None
        if self.folder is None:
            return
        self._team = Team.of(ALL_HOSTS)
        if self._team.index > 0:
            # The first process has the folder; what is in it is told.
            self._held: Any = tempfile.TemporaryDirectory(prefix="jaxarch-")
            self.folder = Path(self._held.name)
            return
        self._held = claim(self.folder, "resume")
        ours = _compared(settings) | facts
        path, release = self.folder / SETTINGS, _release()
        if not path.exists():
            _write_text(path, json.dumps(ours | release, indent=2) + "\n")
        _check_begun(path, ours, self._defaults, release)

    def run(
        self,
        parts: Sequence[Part],
        loaded: Any,
        load: Callable[[], Any] | None = None,
        *,
        progress: Callable[[Progress], None] | None = None,
        spread: Spread | None = None,
    ) -> Iterator[tuple[Part, Any]]:
        """Make parts one after the other, or have an executor make them: each with what was found.

        What is found is in the order of the parts, whoever makes them, and is let go of when no part needs it
        any more. Only this process writes to the folder.

        Args:
          parts: of the experiment, each after those that it needs.
          loaded: what their functions are given here.
          load: makes the same in another process; it is pickled.
          progress: called at every chunk's end of every training.
          spread: the executor; `None` for this process.

        Raises:
          ArgumentError: parts of one name, or after others that are not before them; see `Spread`.
        """
        check_order(parts)
        if spread is None:
            yield from self._here(parts, loaded, progress)
        else:
            assert load is not None
            yield from self._elsewhere(parts, load, progress, spread)

    def _here(
        self, parts: Sequence[Part], loaded: Any, progress: Callable[[Progress], None] | None
    ) -> Iterator[tuple[Part, Any]]:
        found: dict[str, Any] = {}
        for place, part in enumerate(parts):
            before = {name: found[name] for name in part.after}

            def make(
                checkpoint: Checkpoints | None, part: Part = part, before: dict[str, Any] = before
            ) -> Any:
                return part.function(loaded, part.settings, before, Work(progress, checkpoint))

            found[part.name] = self._made(part.name, part.like, make)
            yield part, found[part.name]
            needed = {name for later in parts[place + 1 :] for name in later.after}
            found = {name: of for name, of in found.items() if name in needed}

    def _elsewhere(
        self,
        parts: Sequence[Part],
        load: Callable[[], Any],
        progress: Callable[[Progress], None] | None,
        spread: Spread,
    ) -> Iterator[tuple[Part, Any]]:
        like = {part.name: part.like for part in parts}
        missing = [
            part for part in parts if self.folder is None or not self._path(part.name, part.like).exists()
        ]
        waiting = {part.name for part in missing}
        kept: dict[str, Any] = {}
        left = list(parts)

        def found(name: str) -> Any:
            # What has a file is read when it is needed, as in one sitting or several.
            return kept[name] if self.folder is None else _read(self._path(name, like[name]), like[name])

        def package(part: Part) -> bytes:
            return packed(part, load, {name: found(name) for name in part.after})

        def next_ones() -> Iterator[tuple[Part, Any]]:
            while left and left[0].name not in waiting:
                part = left.pop(0)
                yield part, found(part.name)
            needed = {part.name for part in left} | {name for part in left for name in part.after}
            for name in kept.keys() - needed:
                del kept[name]

        yield from next_ones()
        if not missing:
            return
        done = len(parts) - len(missing)
        results = spread.results(missing, package, devices=self._devices, done=done, progress=progress)
        with contextlib.closing(results):
            for part, result in results:
                if self.folder is None:
                    kept[part.name] = result
                else:
                    path = self._path(part.name, part.like)
                    _write(path, result)
                    # Of a run without workers, which this one went on from.
                    shutil.rmtree(path.with_suffix(WORKING), ignore_errors=True)
                waiting.discard(part.name)
                yield from next_ones()

    def tree(self, name: str, like: PyTree, make: Callable[[Checkpoints | None], PyTree]) -> PyTree:
        """A part that is a pytree of arrays, in the structure of `like`."""
        return self._made(name, like, make)

    def table(self, name: str, make: Callable[[Checkpoints | None], pd.DataFrame]) -> pd.DataFrame:
        """A part that is a table."""
        return self._made(name, None, make)

    def _made(self, name: str, like: PyTree, make: Callable[[Checkpoints | None], Any]) -> Any:
        """A part: a table where nothing is `like` it."""
        if self.folder is None:
            return make(None)
        path = self._path(name, like)
        if not self._is_there(path):
            working = path.with_suffix(WORKING)
            _write(path, make(checkpoints(str(working))))
            shutil.rmtree(working, ignore_errors=True)
            self._is_there(path)
        # Read in any case, so that a run in one sitting has the same numbers as one in several.
        return _read(path, like)

    def _path(self, name: str, like: PyTree) -> Path:
        assert self.folder is not None
        return self.folder / f"{_safe(name)}.{'csv' if like is None else 'npz'}"

    def _is_there(self, path: Path) -> bool:
        """Whether the first process has a file, of which the others get a copy."""
        if self._team.size == 1:
            return path.exists()
        is_told = self._team.index == 0 and path.exists()
        (content, *_) = self._team.exchange(f"part {path.name}", path.read_bytes() if is_told else b"")
        if content and self._team.index > 0:
            path.write_bytes(content)
        return bool(content)


def check_parts(settings: Any, experiment: str) -> None:
    """Refuse what `Parts` would refuse of the folder and the settings, and leave all as it was.

    Raises:
      ArgumentError: as `Parts`.
    """
    if not getattr(settings, "resume", ""):
        return
    folder = as_path(settings.resume, "resume")
    check_claim(folder, "resume")
    if (folder / SETTINGS).exists():
        ours = _compared(settings)
        defaults = {field.name: field.default for field in dataclasses.fields(settings)}
        _check_begun(folder / SETTINGS, ours, defaults, {"experiment": experiment, **_release()})


def _compared(settings: Any) -> dict[str, Any]:
    """The settings on which parts depend."""
    which = settings.which_parts() if isinstance(settings, ExperimentSettings) else ()
    apart = ("resume", *which)
    return {name: value for name, value in dataclasses.asdict(settings).items() if name not in apart}


def _release() -> dict[str, str]:
    return {"jaxarch": version("jaxarch")}


def _check_begun(
    path: Path,
    ours: dict[str, Any],
    defaults: Mapping[str, Any],
    if_there: Mapping[str, str] | None = None,
) -> None:
    """Raise unless a folder was begun with these settings, by the file of them that is in it.

    Args:
      path: the file.
      ours: the settings, and what else the parts depend on.
      defaults: of settings: one that a folder does not name is newer than it, and had its default.
      if_there: what is compared if the file has it.
    """
    try:
        theirs = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        theirs = None
    if not isinstance(theirs, dict):
        raise ArgumentError(f"resume: {path} is damaged; name a fresh folder") from None
    ours |= {name: value for name, value in (if_there or {}).items() if name in theirs}
    for name, value in json.loads(json.dumps(ours)).items():
        begun = theirs.get(name, defaults.get(name))
        if begun != value:
            raise ArgumentError(
                f"resume: {path.parent} was begun with {name}={_value(begun)}, not "
                f"{_value(value)}; name a fresh folder"
            )


def _safe(name: str) -> str:
    """A name as that of a file."""
    return re.sub(r"\W+", "-", name)


def _write(path: Path, made: pd.DataFrame | PyTree) -> None:
    if isinstance(made, pd.DataFrame):
        _write_text(path, made.to_csv(index=False))
    else:
        save_tree(path, made)


def _read(path: Path, like: PyTree) -> pd.DataFrame | PyTree:
    """A part from its file: a table where nothing is `like` it."""
    # Of all engines, this one reads each number as it was written, to the last bit.
    return pd.read_csv(path, engine="python") if like is None else load_tree(path, like)


def _write_text(path: Path, text: str) -> None:
    with complete_file(path) as file:
        file.write(text.encode())


def _value(value: object) -> str:
    """A setting as it is typed, but no more than a line of it."""
    return value if isinstance(value, str) and len(value) < 80 and value.isprintable() else shown(value)
