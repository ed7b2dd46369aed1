"""Files that are written completely or not at all, and folders that one process at a time writes to."""

from __future__ import annotations

import contextlib
import os
import platform
import secrets
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from filelock import BaseFileLock, FileLock, Timeout

from jaxarch._internal.errors import ArgumentError, one_line, shown

LOCK = ".lock"
HOLDER = ".lock-holder"
PARTIAL = ".partial"


def as_path(path: Any, argument: str = "path") -> Path:
    """Check a path given by the user, and return it.

    Raises:
      ArgumentError: a value that is not a path; the message names the argument.
    """
    if not isinstance(path, (str, os.PathLike)) or not isinstance(name := os.fspath(path), str):
        raise ArgumentError(f"{argument}: expected a path, got {shown(path)}")
    if not name or "\0" in name:
        raise ArgumentError(f"{argument}: expected a path, got {shown(name)}")
    return Path(name)


def as_folder(path: Any, argument: str = "folder") -> Path:
    """Check that a path given by the user is an existing folder, and return it.

    Raises:
      ArgumentError: a value that is not a path, or not the path of a folder; the message names the argument.
    """
    folder = as_path(path, argument)
    if not os.path.isdir(folder):
        raise ArgumentError(f"{argument}: expected an existing folder, got {shown(folder)}")
    return folder


@contextlib.contextmanager
def complete_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file that appears under its name when the block ends, and not at all if the block fails.

    It is written under a name unique to this process, so several processes may write: the last one wins.

    Raises:
      OSError: a file that cannot be written.
    """
    partial = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}{PARTIAL}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with partial.open("xb") as file:
            yield file
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def claim(folder: Path, argument: str = "folder") -> BaseFileLock:
    """Lock a folder for this process while the returned object exists; the folder is created if needed.

    The operating system holds the lock and drops it when the process ends, however that happens. Within a
    process a folder can be claimed any number of times. Incomplete files of a killed process are removed.

    Raises:
      ArgumentError: a folder that another process holds (the message names both); one that cannot be written
        to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = _lock(folder)
        lock.acquire(blocking=False)
        if lock.lock_counter == 1:
            now = time.strftime("%Y-%m-%d %H:%M:%S")
            (folder / HOLDER).write_text(f"process {os.getpid()} on {platform.node()}, since {now}")
            for partial in folder.glob(f"*{PARTIAL}"):
                partial.unlink(missing_ok=True)
    except Timeout:
        raise _in_use(folder, argument) from None
    except (OSError, NotImplementedError) as error:
        raise _unusable(folder, argument, error) from None
    return lock


def check_claim(folder: Path, argument: str = "folder") -> None:
    """Raise if `claim` would raise, and change nothing.

    Raises:
      ArgumentError: see `claim`.
    """
    try:
        with trial_folder(folder), tempfile.TemporaryFile(dir=folder):
            if (folder / LOCK).exists():
                lock = _lock(folder)
                lock.acquire(blocking=False)
                lock.release()
    except Timeout:
        raise _in_use(folder, argument) from None
    except (OSError, NotImplementedError, ValueError) as error:
        raise _unusable(folder, argument, error) from None


@contextlib.contextmanager
def trial_folder(folder: Path) -> Iterator[None]:
    """Create a folder for a block, and afterwards remove the parts of its path that were created.

    Raises:
      OSError: a folder that cannot be created.
    """
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    finally:
        for place in made:
            with contextlib.suppress(OSError):
                place.rmdir()


def _in_use(folder: Path, argument: str) -> ArgumentError:
    return ArgumentError(
        f"{argument}: {shown(str(folder))} is in use by {_holder(folder)}; wait until it ends, or use "
        "another folder"
    )


def _unusable(folder: Path, argument: str, error: Exception) -> ArgumentError:
    why = getattr(error, "strerror", None) or one_line(error)
    return ArgumentError(f"{argument}: cannot use {shown(str(folder))} ({why})")


def _lock(folder: Path) -> FileLock:
    """Return the lock of a folder: one object per process, which may hold it several times."""
    return FileLock(folder.resolve() / LOCK, is_singleton=True, thread_local=False)


def _holder(folder: Path) -> str:
    try:
        return " ".join((folder / HOLDER).read_text()[:200].split()) or "another process"
    except (OSError, ValueError):
        return "another process"
