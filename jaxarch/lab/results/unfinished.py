"""Folders of work in progress: each records its owner, so that folders of dead processes are removed."""

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
except ImportError:  # Windows has no fcntl; there, nothing is swept up.
    fcntl = None  # type: ignore[assignment]

PREFIX = ".unfinished-"
OWNER = ".owner.json"


@contextlib.contextmanager
def folder(parent: Path) -> Iterator[Path]:
    """Make a fresh folder in `parent`; remove it if an exception passes, else leave it to the caller.

    It holds a file that names process, host and start. The file is locked as long as the process lives.
    First, the folders that dead processes of this host have left in `parent` are removed.
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
    """Return the entries written to a folder, without the owner's file."""
    return [path for path in made.iterdir() if path.name != OWNER]


def release(made: Path) -> None:
    """Mark the folder as finished: it has no owner, and is never swept up."""
    (made / OWNER).unlink(missing_ok=True)


def sweep(parent: Path) -> None:
    """Remove unfinished folders in `parent` that dead processes of this host have left.

    A folder without its owner's name, or of another host, is left alone: its owner may still live.
    """
    for left in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError), _locked(left / OWNER) as text:
            if json.loads(text)["host"] == socket.gethostname():
                shutil.rmtree(left, ignore_errors=True)


def _own(made: Path) -> int | None:
    """Write the owner of a folder, and lock that file; if files cannot be locked, leave no file."""
    if fcntl is None:
        return None
    owner = {"pid": os.getpid(), "host": socket.gethostname(), "started": time.time()}
    # Rename only once the lock is held, so that nobody finds the file unlocked.
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
    """Lock a file and yield its content; raise `OSError` if a living process has it locked."""
    if fcntl is None:
        raise OSError
    # The name may belong to a link or a FIFO: do not follow the one, do not wait at the other.
    opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield os.read(opened, 10_000)
    finally:
        os.close(opened)
