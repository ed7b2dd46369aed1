"""Where data is looked for, and where our own is kept."""

from __future__ import annotations

import os
from pathlib import Path


def own_folder() -> Path:
    """Where downloads and decoded arrays are kept: `$XDG_CACHE_HOME/jaxarch/data`, else under `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jaxarch" / "data"


def data_folders() -> list[Path]:
    """The folders to look in, in order.

    `TFDS_DATA_DIR`; `JAXARCH_DATA` and its subfolders `tfds` and `tfds_tfrecord`; our own; and
    `~/tensorflow_datasets`, where tensorflow-datasets puts what it prepares.
    """
    folders = []
    if named := os.environ.get("TFDS_DATA_DIR"):
        folders.append(Path(named).expanduser())
    if named := os.environ.get("JAXARCH_DATA"):
        ours = Path(named).expanduser()
        folders += [ours, ours / "tfds", ours / "tfds_tfrecord"]
    return [*folders, own_folder(), Path.home() / "tensorflow_datasets"]
