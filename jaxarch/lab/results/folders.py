"""Result folders: numbered, and complete or absent."""

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
    """Folder of results, with a temporary name while they are written and the final one afterwards.

    Attributes:
      path: the present path.
      taken: the requested path, if something else took it meanwhile, so that `path` differs.
    """

    path: Path
    taken: Path | None = None

    @property
    def finished(self) -> bool:
        """True if the results are complete, under their final name."""
        return not self.path.name.startswith(unfinished.PREFIX) and self.path.exists()


@contextlib.contextmanager
def new_folder(
    name: str,
    root: str | os.PathLike[str] = "results",
    out: str | os.PathLike[str] | None = None,
    force: bool = False,
) -> Iterator[ResultFolder]:
    r"""Make a folder that appears under its name only when everything in it is complete.

    Args:
      name: the name of the experiment; the folder is `root/0001-name`, with the next free number.
      root: the parent of numbered folders.
      out: an explicit folder in place of a numbered one.
      force: whether to replace an explicit folder that exists.

    Yields:
      A `ResultFolder`: write to its `path`. When the block has ended, `path` is the final folder: the one
      asked for, or the next free name (`out-2`) if that was taken meanwhile. If an exception passes, nothing
      is left. But after an `OSError` (the disk may be full), the files written so far are kept.

    Raises:
      ArgumentError: before the block, an explicit folder that exists without `force`, is a link or is not a
        result folder; a place that cannot be written to; a name that is too long. After the block, a full
        disk; the message says where the computed results are.

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
                raise ArgumentError(f"{failed}; nothing was written") from error
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
            f"{failed}; the files written before are kept in {shown(folder.path, 200)}"
        ) from failure


@contextlib.contextmanager
def no_folder() -> Iterator[ResultFolder]:
    """Make a folder that is removed after the block, for a process whose results another one writes."""
    with tempfile.TemporaryDirectory(prefix="jaxarch-") as folder:
        yield ResultFolder(Path(tempfile.mkdtemp(prefix=unfinished.PREFIX, dir=folder)))


def check_place(
    root: str | os.PathLike[str] = "results", out: str | os.PathLike[str] | None = None, force: bool = False
) -> None:
    """Raise if `new_folder` would raise before its block, and change nothing.

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
    """Return the parent of the result folder, and the explicit path if `out` is given."""
    for name, place in (("root", root), ("out", "" if out is None else out)):
        check_instance(name, place, str | os.PathLike, "a path")
    if out is None:
        return Path(root), None
    final = _checked(Path(out), force)
    return final.parent, final


def _unwritable(what: str, place: Path, error: Exception) -> ArgumentError:
    return ArgumentError(f"{what}: cannot write to {shown(place.absolute(), 200)} ({_reason(error)})")


def _checked(final: Path, force: bool) -> Path:
    """Return the folder that `out` names; raise unless it is free or `force` may replace it."""
    final = final if final.name not in ("", "..") else final.resolve()
    try:
        there = final.is_symlink() or final.exists()
    except (OSError, ValueError) as error:
        raise ArgumentError(f"out: cannot write to {shown(final, 200)} ({_reason(error)})") from None
    if final.is_symlink():
        raise ArgumentError(f"out: {shown(final, 200)} is a link; give the folder that it points to")
    if there and not force:
        raise ArgumentError(
            f"out: {shown(final, 200)} exists; choose another folder or add --force to replace it"
        )
    if there and not _replaceable(final):
        raise ArgumentError(
            f"out: {shown(final, 200)} is not a result folder (it has no {MANIFEST}), so it is left alone; "
            "choose another"
        )
    return final


def _replaceable(folder: Path) -> bool:
    """Return whether a path is a result folder or an empty folder."""
    if folder.is_symlink() or not folder.is_dir():
        return False
    return (folder / MANIFEST).is_file() or not any(folder.iterdir())


def _check_name(final: Path) -> None:
    """Make the folder and remove it again, to meet any error before there are results."""
    with contextlib.suppress(FileExistsError):
        final.mkdir()
        final.rmdir()


def _replace(folder: ResultFolder, final: Path) -> None:
    """Move results to a name, replacing a result folder there; beside it if anything else is there."""
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
    """Move results to the first free place; never replace what is there, or what appears meanwhile.

    If no place can be made, the results stay under the temporary name.
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
            # The folder just made is empty; os.replace replaces no other kind of folder.
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
    """Yield `out`, `out-2`, `out-3`, ..."""
    for number in itertools.count(1):
        yield final.with_name(final.name + suffix + (f"-{number}" if number > 1 else ""))


def _numbers(parent: Path, name: str) -> Iterator[Path]:
    """Yield the next free number again and again, each time after a fresh look at the folder."""
    while True:
        numbers = [int(m[1]) for entry in parent.iterdir() if (m := re.match(r"(\d+)-", entry.name))]
        yield parent / f"{max(numbers, default=0) + 1:04d}-{name}"


def _reason(error: Exception) -> str:
    if isinstance(error, (FileExistsError, NotADirectoryError)):
        return "a file of that name, or of one of its parents, is in the way"
    return getattr(error, "strerror", None) or one_line(error)
