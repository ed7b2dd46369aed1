"""Result folders: numbered, complete or not there."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import itertools
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from jaxarch import ArgumentError
from jaxarch.io._files import trial_folder
from jaxarch.lab.checks import check_instance, one_line, shown
from jaxarch.lab.results import unfinished
from jaxarch.lab.results.manifest import MANIFEST


@dataclasses.dataclass
class ResultFolder:
    """Where results are: under a temporary name while they are written, under the final one after.

    Attributes:
      path: where they are now.
      taken: the name that was asked for, if something else had it in the end and `path` is another.
    """

    path: Path
    taken: Path | None = None

    @property
    def finished(self) -> bool:
        """Whether the results are complete, under their final name."""
        return not self.path.name.startswith(unfinished.PREFIX) and self.path.exists()


@contextlib.contextmanager
def new_folder(
    name: str,
    root: str | os.PathLike[str] = "results",
    out: str | os.PathLike[str] | None = None,
    force: bool = False,
) -> Iterator[ResultFolder]:
    r"""A folder that appears under its name only when all that is written to it is complete.

    Args:
      name: of the experiment; the folder is `root/0001-name`, numbered on from those that are there.
      root: where the numbered folders are.
      out: an explicit folder in place of a numbered one.
      force: whether an explicit folder that exists is replaced.

    Yields:
      A `ResultFolder`: write to its `path`. When the block has ended, `path` is the final folder: the one
      asked for, or, where that name was taken meanwhile, the next free one (`out-2`). If an exception passes,
      nothing is left; but if it is of the disk (`OSError`, which may be full), what there is stays.

    Raises:
      ArgumentError: before the block, an explicit folder that exists, without `force`, that is a link or no
        result folder; a place that cannot be written to, a name that is too long. After it, a disk that is
        full; the message says where what was computed is.

    Example:
      >>> import tempfile
      >>> from jaxarch.lab import results
      >>> with tempfile.TemporaryDirectory() as root:
      ...     for number in range(2):
      ...         with results.new_folder("demo", root=root) as folder:
      ...             _ = (folder.path / "results.csv").write_text("seed,auc\n0,0.9\n")
      ...         print(folder.path.name, folder.finished)
      0001-demo True
      0002-demo True
    """
    parent, final = _place(root, out, force)
    what = "root" if out is None else "out"
    failure = None
    with contextlib.ExitStack() as stack:
        try:
            parent.mkdir(parents=True, exist_ok=True)
            if final is not None:
                _check_name(final)
            folder = ResultFolder(stack.enter_context(unfinished.folder(parent)))
        except (OSError, ValueError) as error:
            raise _unwritable(what, parent if final is None else final, error) from None
        try:
            yield folder
        except OSError as error:
            failed = f"{what}: the results could not be written ({_reason(error)})"
            if not unfinished.content(folder.path):
                raise ArgumentError(f"{failed}; there was nothing to keep") from error
            failure = error
        unfinished.release(folder.path)
        if failure is not None:
            name = f"{name}-incomplete"
            final = None if final is None else final.with_name(f"{final.name}-incomplete")
        if final is None:
            _move(folder, _numbers(parent, name))
        elif force and failure is None:
            _replace(folder, final)
        else:
            _move(folder, _siblings(final))
        folder.taken = None if final in (None, folder.path) else final
    if failure is not None:
        raise ArgumentError(
            f"{failed}; what was written before that is kept in {shown(folder.path, 200)}"
        ) from failure


@contextlib.contextmanager
def no_folder() -> Iterator[ResultFolder]:
    """One that is gone after the block: of a process that leaves the writing to another."""
    with tempfile.TemporaryDirectory(prefix="jaxarch-") as folder:
        yield ResultFolder(Path(tempfile.mkdtemp(prefix=unfinished.PREFIX, dir=folder)))


def check_place(
    root: str | os.PathLike[str] = "results", out: str | os.PathLike[str] | None = None, force: bool = False
) -> None:
    """Refuse what `new_folder` would refuse before its block, and leave all as it was.

    Raises:
      ArgumentError: as `new_folder`.

    Example:
      >>> import tempfile
      >>> from jaxarch.lab import results
      >>> with tempfile.TemporaryDirectory() as root:
      ...     results.check_place(out=f"{root}/new")
      ...     results.check_place(out=root)  # doctest: +ELLIPSIS
      Traceback (most recent call last):
      jaxarch.ArgumentError: out: ... exists; choose another folder or add --force to replace it
    """
    parent, final = _place(root, out, force)
    try:
        with trial_folder(parent), tempfile.TemporaryFile(dir=parent):
            if final is not None:
                _check_name(final)
    except (OSError, ValueError) as error:
        what = "root" if out is None else "out"
        raise _unwritable(what, parent if final is None else final, error) from None


def _place(
    root: str | os.PathLike[str], out: str | os.PathLike[str] | None, force: bool
) -> tuple[Path, Path | None]:
    """The folder that results go into, and the name there that was asked for, if one was."""
    for name, place in (("root", root), ("out", "" if out is None else out)):
        check_instance(name, place, str | os.PathLike, "a path")
    if out is None:
        return Path(root), None
    final = _checked(Path(out), force)
    return final.parent, final


def _unwritable(what: str, place: Path, error: Exception) -> ArgumentError:
    return ArgumentError(f"{what}: cannot write to {shown(place.absolute(), 200)} ({_reason(error)})")


def _checked(final: Path, force: bool) -> Path:
    """The folder that `out` names, if it is free or one that `force` may replace."""
    final = final if final.name not in ("", "..") else final.resolve()
    try:
        there = final.is_symlink() or final.exists()
    except (OSError, ValueError) as error:
        raise ArgumentError(f"out: cannot write to {shown(final, 200)} ({_reason(error)})") from None
    if final.is_symlink():
        raise ArgumentError(f"out: {shown(final, 200)} is a link; name the folder itself")
    if there and not force:
        raise ArgumentError(
            f"out: {shown(final, 200)} exists; choose another folder or add --force to replace it"
        )
    if there and not _replaceable(final):
        raise ArgumentError(
            f"out: {shown(final, 200)} is no result folder (it has no {MANIFEST}); it is left alone"
        )
    return final


def _replaceable(folder: Path) -> bool:
    """Whether what is there is a result folder, or an empty one."""
    if folder.is_symlink() or not folder.is_dir():
        return False
    return (folder / MANIFEST).is_file() or not any(folder.iterdir())


def _check_name(final: Path) -> None:
    """Make the folder and remove it again: whatever forbids it is met before there are results."""
    with contextlib.suppress(FileExistsError):
        final.mkdir()
        final.rmdir()


def _replace(folder: ResultFolder, final: Path) -> None:
    """Move results to a name, in the place of those that are there; of anything else, beside it."""
    aside = folder.path.with_name(f"{folder.path.name}-replaced")
    try:
        if _replaceable(final):
            with contextlib.suppress(OSError):
                os.rename(final, aside)
        if aside.exists() and not _replaceable(aside):
            os.rename(aside, final)
        _move(folder, _siblings(final))
    except BaseException:
        if aside.exists() and not final.exists():
            os.rename(aside, final)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _move(folder: ResultFolder, places: Iterator[Path]) -> None:
    """Move results to the first place that is free: what is there, or comes meanwhile, is never replaced.

    If no place can be made, they stay under the temporary name.
    """
    temporary = folder.path
    for place in places:
        try:
            place.mkdir()
        except FileExistsError:
            continue
        except OSError:
            return
        folder.path = place
        try:
            # The folder just made is empty, which is the one thing that this replaces.
            os.replace(temporary, place)
            return
        except BaseException as error:
            if temporary.exists():
                folder.path = temporary
                with contextlib.suppress(OSError):
                    place.rmdir()
            if not isinstance(error, OSError):
                raise
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                return


def _siblings(final: Path, suffix: str = "") -> Iterator[Path]:
    """`out`, `out-2`, `out-3`, ..."""
    for number in itertools.count(1):
        yield final.with_name(final.name + suffix + (f"-{number}" if number > 1 else ""))


def _numbers(parent: Path, name: str) -> Iterator[Path]:
    """The next number after those that are there, as they are each time."""
    while True:
        numbers = [int(m[1]) for entry in parent.iterdir() if (m := re.match(r"(\d+)-", entry.name))]
        yield parent / f"{max(numbers, default=0) + 1:04d}-{name}"


def _reason(error: Exception) -> str:
    if isinstance(error, (FileExistsError, NotADirectoryError)):
        return "something that is no folder is in the way"
    return getattr(error, "strerror", None) or one_line(error)
