"""Checkpoints: the states of a fit in a folder, from which it is continued."""

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

    Pass it as the option `checkpoint`. Use one folder for each experiment: a checkpoint of other keys, data,
    settings or sizes, of a strategy, a problem or a descent that says something else is refused. Functions
    are known by name and by what they have captured (`jaxarch.run._fingerprint`): it cannot be seen that
    one of the same name, a loss for instance, now does something else. As long as the object is kept, no
    other process can use the folder.

    Orbax keeps a state as the last step of a `CheckpointManager`, one folder a state, for tools that read
    these; arrays that are split over devices are written and read as they are split. It changes no bit.

    Args:
      folder: where the files are; made if need be.
      every: seconds that must have passed since a name was last saved; 0 saves at every chunk's end. The end
        of a training is always saved.
      format: `npz`, one file a state, or `orbax`.

    Raises:
      ArgumentError: a folder that cannot be made, or that another process is using; a time that is none; an
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
        """The pytree last saved under a name, in the structure of `like`; `None` if there is none."""
        path = self._path(name)
        for other in get_args(Format):
            if other != self.format and path.with_suffix(f".{other}").exists():
                raise ArgumentError(
                    f"format: {self.folder} has {name!r} as {other!r}, not as {self.format!r}; go on with "
                    "that, or use a fresh folder"
                )
        if not path.exists():
            return None
        return (load_folder if self.format == "orbax" else load_tree)(path, like)

    def save(self, name: str, tree: PyTree, last: bool = False) -> None:
        """Keep a pytree under a name, in place of the one before, if it is time or it is the last."""
        if last or self.is_due(name):
            path = self._path(name)
            if self.format == "orbax":
                save_folder(path, tree)
            else:
                save_tree(path, tree, compress=False)
            self._saved[name] = time.monotonic()

    def is_due(self, name: str) -> bool:
        """Whether so much time has passed since a name was saved that it is saved again."""
        return time.monotonic() - self._saved.get(name, -np.inf) >= self.every

    def _path(self, name: str) -> Path:
        safe = "".join(c if c.isalnum() or c in "-_" else "_" for c in name)
        return self.folder / f"{safe}-{zlib.crc32(name.encode()):08x}.{self.format}"
