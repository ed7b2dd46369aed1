"""The parts of a long experiment, each kept when it is done, so that the same command goes on from there."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from jaxarch.errors import ArgumentError, shown
from jaxarch.experiments.harness.settings import checkpoints
from jaxarch.storage import Checkpoints, load_tree, save_tree
from jaxarch.storage.files import as_path, check_claim, claim, complete_file
from jaxarch.trees import PyTree

SETTINGS = "settings.json"


class Parts:
    """What is done of an experiment, in the folder that its setting `resume` names; nowhere without a name.

    A part is made by a function of checkpoints of its own, which are removed when it is done. A part that is
    there is read, not made; so a run that was killed at any moment ends with the numbers of one that was not.
    The folder is this process's as long as the object is kept.
    `NAME.csv` are partial tables to look at meanwhile.

    Args:
      settings: a dataclass with a field `resume`.
      **facts: what else the parts depend on, such as digests of the data.

    Raises:
      ArgumentError: a folder that cannot be made, that another process is using, or that was begun with other
        settings or facts, naming the first.
    """

    def __init__(self, settings: Any, **facts: str) -> None:
        self.folder = as_path(settings.resume, "resume") if settings.resume else None
        if self.folder is None:
            return
        self._held = claim(self.folder, "resume")
        ours = dataclasses.asdict(settings) | facts
        del ours["resume"]
        path = self.folder / SETTINGS
        if not path.exists():
            _write_text(path, json.dumps(ours, indent=2) + "\n")
        _check_begun(path, ours)

    def tree(self, name: str, like: PyTree, make: Callable[[Checkpoints | None], PyTree]) -> PyTree:
        """A part that is a pytree of arrays, in the structure of `like`."""
        return self._part(name, "npz", make, save_tree, lambda path: load_tree(path, like))

    def table(self, name: str, make: Callable[[Checkpoints | None], pd.DataFrame]) -> pd.DataFrame:
        """A part that is a table."""
        return self._part(name, "csv", make, _write_table, _read_table)

    def _part(
        self,
        name: str,
        suffix: str,
        make: Callable[[Checkpoints | None], Any],
        write: Callable[[Path, Any], None],
        read: Callable[[Path], Any],
    ) -> Any:
        if self.folder is None:
            return make(None)
        safe = re.sub(r"\W+", "-", name)
        path, working = self.folder / f"{safe}.{suffix}", self.folder / f"{safe}.working"
        if not path.exists():
            write(path, make(checkpoints(str(working))))
            shutil.rmtree(working, ignore_errors=True)
        # Read in any case, so that a run in one sitting has the same numbers as one in several.
        return read(path)


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
        ours = dataclasses.asdict(settings)
        del ours["resume"]
        _check_begun(folder / SETTINGS, ours, {"experiment": experiment})


def _check_begun(path: Path, ours: dict[str, Any], if_there: Mapping[str, str] | None = None) -> None:
    """Raise unless a folder was begun with these settings, by the file of them that is in it.

    Args:
      path: the file.
      ours: the settings, and what else the parts depend on.
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
        if theirs.get(name) != value:
            raise ArgumentError(
                f"resume: {path.parent} was begun with {name}={_value(theirs.get(name))}, not "
                f"{_value(value)}; name a fresh folder"
            )


def _write_table(path: Path, table: pd.DataFrame) -> None:
    _write_text(path, table.to_csv(index=False))


def _write_text(path: Path, text: str) -> None:
    with complete_file(path) as file:
        file.write(text.encode())


def _value(value: object) -> str:
    """A setting as it is typed, but no more than a line of it."""
    return value if isinstance(value, str) and len(value) < 80 and value.isprintable() else shown(value)


def _read_table(path: Path) -> pd.DataFrame:
    # Of all engines, this one reads each number as it was written, to the last bit.
    return pd.read_csv(path, engine="python")
