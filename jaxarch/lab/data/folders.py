"""Folders of data: where to look for it, and where jaxarch keeps its own."""

from __future__ import annotations

import os
from pathlib import Path


def own_folder() -> Path:
    """Return the folder of downloads and decoded arrays: `$XDG_CACHE_HOME/jaxarch/data`, or in `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jaxarch" / "data"


def data_folders() -> list[Path]:
    """Return the folders to search for data, in order.

    They are `TFDS_DATA_DIR`; `JAXARCH_DATA` and its subfolders `tfds` and `tfds_tfrecord`; jaxarch's own; and
    `~/tensorflow_datasets`, the default folder of tensorflow-datasets.
    """
    folders = []
    if named := os.environ.get("TFDS_DATA_DIR"):
        folders.append(Path(named).expanduser())
    if named := os.environ.get("JAXARCH_DATA"):
        ours = Path(named).expanduser()
        folders += [ours, ours / "tfds", ours / "tfds_tfrecord"]
    return [*folders, own_folder(), Path.home() / "tensorflow_datasets"]
