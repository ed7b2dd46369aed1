"""Rows of a study whose parts are made here, or at workers that load the same pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import pandas as pd

from jaxarch.io import digest
from jaxarch.lab.data import Images
from jaxarch.lab.harness import Context, Part, Parts
from jaxarch.lab.harness.at_worker import check_same
from jaxarch.lab.tournament.settings import PictureTrainingSettings


class Prepared(Protocol):
    """Pictures and a parent, of which a study is made: a `PictureTask`, for instance."""

    @property
    def images(self) -> Images:
        """The pictures."""

    @property
    def connections(self) -> int:
        """The number of connections of the parent."""


Settings = TypeVar("Settings", bound=PictureTrainingSettings)


def rows_of(
    prepare: Callable[[Settings], Prepared], settings: Settings, parts: Sequence[Part], context: Context
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Prepare a study, make its parts, and join their tables.

    Args:
      prepare: loads what the parts are made from.
      settings: settings with all defaults filled in.
      parts: the parts; each returns a table.
      context: the run's.

    Returns:
      The rows, in the order of the parts; and facts for the record: the pictures, and the number of
      connections.
    """
    task = prepare(settings)
    sha256 = digest(task.images.x, task.images.y)
    made = Parts(settings, experiment=context.experiment, pictures=sha256).run(
        parts,
        task,
        partial(_loaded, prepare, settings, sha256),
        progress=context.progress,
        spread=context.spread,
    )
    table = pd.concat([rows for _, rows in made], ignore_index=True)
    facts = {"pictures": {"name": settings.dataset, "sha256": sha256}, "connections": task.connections}
    return table, facts


def _loaded(prepare: Callable[[Settings], Prepared], settings: Settings, sha256: str) -> Prepared:
    """Prepare a study in another process.

    Raises:
      ArgumentError: the pictures loaded here differ.
    """
    task = prepare(settings)
    check_same(settings.dataset, digest(task.images.x, task.images.y), sha256)
    return task
