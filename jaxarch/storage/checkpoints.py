"""Checkpoints: the states of a fit in a folder, from which it is continued."""

from __future__ import annotations

import os
import time
import zlib
from pathlib import Path

import numpy as np

from jaxarch.errors import check_one_strength
from jaxarch.storage.files import as_path, claim
from jaxarch.storage.npz import read_npz as read_npz
from jaxarch.storage.trees import load_tree, save_tree
from jaxarch.trees import PyTree


class Checkpoints:
    """A folder of checkpoints, from which an interrupted `over_seeds` continues to the same bits.

    Pass it as the option `checkpoint`. Use one folder for each experiment: a checkpoint of other keys, data,
    settings or sizes, of a strategy, a problem or a descent that says something else is refused. Functions
    are known by name and by what they have captured (`jaxarch.running.fingerprint`): it cannot be seen that
    one of the same name, a loss for instance, now does something else. As long as the object is kept, no
    other process can use the folder.

    Args:
      folder: where the files are; made if need be.
      every: seconds that must have passed since a name was last saved; 0 saves at every chunk border. The end
        of a training is always saved.

    Raises:
      ArgumentError: a folder that cannot be made, or that another process is using; a time that is none.
    """

    def __init__(self, folder: str | os.PathLike[str], every: float = 0.0) -> None:
        check_one_strength("every", every)
        self.folder = as_path(folder, "folder")
        self.every = every
        self._saved: dict[str, float] = {}
        self._held = claim(self.folder)

    def load(self, name: str, like: PyTree) -> PyTree | None:
        """The pytree last saved under a name, in the structure of `like`; `None` if there is none."""
        path = self._path(name)
        return load_tree(path, like) if path.exists() else None

    def save(self, name: str, tree: PyTree, last: bool = False) -> None:
        """Keep a pytree under a name, in place of the one before, if it is time or it is the last."""
        now = time.monotonic()
        if last or now - self._saved.get(name, -np.inf) >= self.every:
            save_tree(self._path(name), tree, compress=False)
            self._saved[name] = now

    def _path(self, name: str) -> Path:
        safe = "".join(c if c.isalnum() or c in "-_" else "_" for c in name)
        return self.folder / f"{safe}-{zlib.crc32(name.encode()):08x}.npz"
