"""Parts of a long experiment: each is kept when it is done, so that the same command can continue."""

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
"""Suffix of the folder that holds the checkpoints of a part while it is made."""


class Parts:
    """Finished parts of an experiment, kept in the folder of its setting `resume`; not kept if that is empty.

    A function makes each part, with checkpoints of its own that are removed when the part is done. A part
    whose file exists is read, not made. So a run that was killed at any moment ends with the numbers of an
    uninterrupted run. This process holds the folder as long as the object exists.
    `NAME.csv` are partial tables to look at meanwhile.

    Args:
      settings: a dataclass with a field `resume`. The settings that `which_parts` names may differ from the
        values that the folder was begun with: then there are other parts, and existing ones are read.
      **facts: what else the parts depend on, such as digests of the data.

    Raises:
      ArgumentError: a folder that cannot be made, or that another process is using. Also a folder begun with
        another release, or with other settings or facts; the message names the first.
    """

    def __init__(self, settings: Any, **facts: str) -> None:
        self._devices = getattr(settings, "devices", 0)
        self._defaults = {field.name: field.default for field in dataclasses.fields(settings)}
        self.folder = as_path(settings.resume, "resume") if settings.resume else None
        if self.folder is None:
            return
        self._team = Team.of(ALL_HOSTS)
        if self._team.index > 0:
            # Only the first process holds the folder; the others get copies in a temporary one.
            self._held: Any = tempfile.TemporaryDirectory(prefix="jaxarch-")
            self.folder = Path(self._held.name)
            return
        # The lock lasts as long as this object refers to it.
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
        """Make parts one after the other, or have an executor make them; yield each with its result.

        Results come in the order of the parts, whoever makes them. A result is dropped when no later part
        needs it. Only this process writes to the folder.

        Args:
          parts: the parts of the experiment, each after the parts that it needs.
          loaded: the data that the parts' functions get in this process.
          load: makes the same data in another process; it is pickled.
          progress: called at the end of every chunk of every training.
          spread: the executor; `None` for this process.

        Raises:
          ArgumentError: two parts of one name, or a part before one that it needs; see also `Spread`.
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
            # A result with a file is read each time, so that one sitting gives the same numbers as several.
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
                    # An earlier run without workers may have left checkpoints of this part.
                    shutil.rmtree(path.with_suffix(WORKING), ignore_errors=True)
                waiting.discard(part.name)
                yield from next_ones()

    def tree(self, name: str, like: PyTree, make: Callable[[Checkpoints | None], PyTree]) -> PyTree:
        """Make or read a part that is a pytree of arrays with the structure of `like`."""
        return self._made(name, like, make)

    def table(self, name: str, make: Callable[[Checkpoints | None], pd.DataFrame]) -> pd.DataFrame:
        """Make or read a part that is a table."""
        return self._made(name, None, make)

    def _made(self, name: str, like: PyTree, make: Callable[[Checkpoints | None], Any]) -> Any:
        """Make or read a part; it is a table if `like` is `None`."""
        if self.folder is None:
            return make(None)
        path = self._path(name, like)
        if not self._is_there(path):
            working = path.with_suffix(WORKING)
            _write(path, make(checkpoints(str(working))))
            shutil.rmtree(working, ignore_errors=True)
            self._is_there(path)
        # Read it even if it was just made, so that one sitting gives the same numbers as several.
        return _read(path, like)

    def _path(self, name: str, like: PyTree) -> Path:
        assert self.folder is not None
        return self.folder / f"{file_name(name)}.{'csv' if like is None else 'npz'}"

    def _is_there(self, path: Path) -> bool:
        """Return whether the first process has a file; copy it to the others if so."""
        if self._team.size == 1:
            return path.exists()
        # The exchange is collective: all processes must get here for the same parts in the same order.
        is_told = self._team.index == 0 and path.exists()
        (content, *_) = self._team.exchange(f"part {path.name}", path.read_bytes() if is_told else b"")
        if content and self._team.index > 0:
            path.write_bytes(content)
        return bool(content)


def check_parts(settings: Any, experiment: str) -> None:
    """Raise if `Parts` would refuse the folder or the settings, and change nothing.

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
    """Return the settings on which parts depend."""
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
    """Raise unless a folder was begun with these settings, according to its settings file.

    Args:
      path: the settings file.
      ours: the settings, and what else the parts depend on.
      defaults: the settings' defaults. A setting that the file lacks is newer than it, and had its default.
      if_there: entries that are compared only if the file has them.
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


def file_name(name: str) -> str:
    """Turn a name of a part or a task into the name of its file, without a suffix."""
    return re.sub(r"\W+", "-", name)


def _write(path: Path, made: pd.DataFrame | PyTree) -> None:
    if isinstance(made, pd.DataFrame):
        _write_text(path, made.to_csv(index=False))
    else:
        save_tree(path, made)


def _read(path: Path, like: PyTree) -> pd.DataFrame | PyTree:
    """Read a part from its file; it is a table if `like` is `None`."""
    # Only this engine of pandas reads each number as it was written, to the last bit.
    return pd.read_csv(path, engine="python") if like is None else load_tree(path, like)


def _write_text(path: Path, text: str) -> None:
    with complete_file(path) as file:
        file.write(text.encode())


def _value(value: object) -> str:
    """Return a setting as it is typed; shorten it if it is longer than a line."""
    return value if isinstance(value, str) and len(value) < 80 and value.isprintable() else shown(value)
