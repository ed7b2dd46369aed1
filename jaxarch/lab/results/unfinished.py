"""Folders for work in progress: whose they are is known, so that those of dead processes are swept up."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Not on Windows; there, nothing is swept up.
    fcntl = None  # type: ignore[assignment]

PREFIX = ".unfinished-"
OWNER = ".owner.json"


@contextlib.contextmanager
def folder(parent: Path) -> Iterator[Path]:
    """A fresh folder in `parent`, which is removed if an exception passes, and otherwise is the caller's.

    It holds a file that names process, host and start, and that is locked as long as the process lives.
    Before it is made, the folders that dead processes of this host have left in `parent` are swept up.
    """
    sweep(parent)
    made = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    try:
        made.chmod(0o755)
        lock = _own(made)
        try:
            yield made
        finally:
            if lock is not None:
                os.close(lock)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def content(made: Path) -> list[Path]:
    """What has been written to a folder."""
    return [path for path in made.iterdir() if path.name != OWNER]


def release(made: Path) -> None:
    """The folder is finished: it is nobody's, and is never swept up."""
    (made / OWNER).unlink(missing_ok=True)


def sweep(parent: Path) -> None:
    """Remove what processes of this host that live no more have left unfinished in a folder.

    A folder without the name of its owner, or of another host, where nobody can tell, is left alone.
    """
    for left in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError), _locked(left / OWNER) as text:
            if json.loads(text)["host"] == socket.gethostname():
                shutil.rmtree(left, ignore_errors=True)


def _own(made: Path) -> int | None:
    """Write who owns a folder, and lock it; without locks nothing is written, as nobody could tell."""
    if fcntl is None:
        return None
    owner = {"pid": os.getpid(), "host": socket.gethostname(), "started": time.time()}
    # The name is given when the lock is held: nobody finds the one without the other.
    partial = made / f"{OWNER}.partial"
    lock = os.open(partial, os.O_CREAT | os.O_WRONLY, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        partial.unlink()
        return None
    os.write(lock, json.dumps(owner).encode())
    partial.rename(made / OWNER)
    return lock


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[bytes]:
    """The content of a file, while no living process has it locked; raises `OSError` otherwise."""
    if fcntl is None:
        raise OSError
    opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield os.read(opened, 10_000)
    finally:
        os.close(opened)
