"""Checkpoints: states of a fit in a folder, from which it can continue."""

from __future__ import annotations

import os
import time
import zlib
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from jaxarch._internal.errors import ArgumentError, check_one_strength, shown
from jaxarch._internal.trees import PyTree
from jaxarch.io._files import as_path, claim
from jaxarch.io._orbax_folders import load_folder, save_folder
from jaxarch.io._trees import load_tree, save_tree

Format = Literal["npz", "orbax"]


class Checkpoints:
    """A folder of checkpoints, from which an interrupted `over_seeds` continues to the same bits.

    Pass it as the option `checkpoint`. Use one folder per experiment. A checkpoint of other keys, data,
    settings or sizes is refused, and so is one of a different strategy, problem or descent. Functions are
    identified by name and by captured values (`jaxarch.run._fingerprint`): a function of the same name that
    now does something else, such as a loss, goes unnoticed. While the object exists, no other process can use
    the folder.

    With Orbax, each state is the last step of a `CheckpointManager` in its own folder, for tools that read
    these. Arrays that are split over devices are written and read as they are split. The format changes no
    bit.

    Args:
      folder: where the files are; created if needed.
      every: minimum seconds between two saves under a name; 0 saves at the end of every chunk. The end of a
        training run is always saved.
      format: `npz`, one file per state, or `orbax`.

    Raises:
      ArgumentError: a folder that cannot be created, or that another process is using; an invalid time; an
        unknown format. In `load`: a state that the folder has in the other format.

    Example:
      >>> import jax.numpy as jnp, jaxarch, tempfile
      >>> checkpoint = jaxarch.Checkpoints(tempfile.mkdtemp(), format="orbax")
      >>> checkpoint.save("state", {"scores": jnp.array([1.5, -2.0])})
      >>> print(checkpoint.load("state", like={"scores": jnp.zeros(2)})["scores"])
      [ 1.5 -2. ]
    """

    def __init__(self, folder: str | os.PathLike[str], every: float = 0.0, format: Format = "npz") -> None:
        check_one_strength("every", every)
        if format not in get_args(Format):
            raise ArgumentError(f"format: expected 'npz' or 'orbax', got {shown(format)}")
        self.folder = as_path(folder, "folder")
        self.every = every
        self.format: Format = format
        self._saved: dict[str, float] = {}
        self._held = claim(self.folder)

    def load(self, name: str, like: PyTree) -> PyTree | None:
        """Return the pytree last saved under a name, in the structure of `like`; `None` if there is none."""
        path = self._path(name)
        for other in get_args(Format):
            if other != self.format and path.with_suffix(f".{other}").exists():
                raise ArgumentError(
                    f"format: {name!r} in {self.folder} was saved as {other!r}, got {self.format!r}; pass "
                    f"format={other!r}, or use a fresh folder"
                )
        if not path.exists():
            return None
        return (load_folder if self.format == "orbax" else load_tree)(path, like)

    def save(self, name: str, tree: PyTree, last: bool = False) -> None:
        """Save a pytree under a name, replacing the previous one, if a save is due or this is the last."""
        if last or self.is_due(name):
            path = self._path(name)
            if self.format == "orbax":
                save_folder(path, tree)
            else:
                save_tree(path, tree, compress=False)
            self._saved[name] = time.monotonic()

    def is_due(self, name: str) -> bool:
        """Return whether enough time has passed since a name was last saved."""
        return time.monotonic() - self._saved.get(name, -np.inf) >= self.every

    def _path(self, name: str) -> Path:
        safe = "".join(c if c.isalnum() or c in "-_" else "_" for c in name)
        return self.folder / f"{safe}-{zlib.crc32(name.encode()):08x}.{self.format}"
