"""Result folders: numbered, complete or not there, with a manifest that says how to make them again."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import importlib.metadata
import itertools
import json
import math
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from jaxarch import unfinished
from jaxarch.errors import ArgumentError, one_line, printable, shown
from jaxarch.metrics import quartiles
from jaxarch.storage import digest as digest

MANIFEST = "manifest.json"
RESULTS = "results.csv"
FINDINGS = "findings.csv"
COLUMNS = (
    "experiment",
    "dataset",
    "task",
    "flipped",
    "train_per_class",
    "strategy",
    "seed",
    "auc",
    "loss",
    "density",
    "seconds",
)
"""What every results.csv of classification runs has, at least: one row a run."""

_PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "scipy", "scikit-learn", "pandas")


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
    """A folder that appears under its name only when all that is written to it is complete.

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
    """
    what = "root" if out is None else "out"
    final = None if out is None else _checked(Path(out), force)
    parent = Path(root) if final is None else final.parent
    failure = None
    with contextlib.ExitStack() as stack:
        try:
            parent.mkdir(parents=True, exist_ok=True)
            if final is not None:
                _check_name(final)
            folder = ResultFolder(stack.enter_context(unfinished.folder(parent)))
        except (OSError, ValueError) as error:
            place = (parent if final is None else final).absolute()
            raise ArgumentError(f"{what}: cannot write to {shown(place, 200)} ({_reason(error)})") from None
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


def _printed(value: Any) -> Any:
    """Texts with their control characters escaped, in lists too; anything else as it is."""
    if isinstance(value, list):
        return [_printed(item) for item in value]
    return printable(value) if isinstance(value, str) and not value.isprintable() else value


def _reason(error: Exception) -> str:
    if isinstance(error, (FileExistsError, NotADirectoryError)):
        return "something that is no folder is in the way"
    return getattr(error, "strerror", None) or one_line(error)


def manifest(settings: Mapping[str, Any], **facts: Any) -> dict[str, Any]:
    """How a result came about: versions, devices, source, settings, and further facts."""
    devices = jax.devices()
    return {
        "jaxarch": importlib.metadata.version("jaxarch"),
        "git_commit": _git_commit(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": {package: importlib.metadata.version(package) for package in _PACKAGES},
        "devices": {
            "backend": jax.default_backend(),
            "kind": devices[0].device_kind,
            "count": len(devices),
        },
        "settings": dict(settings),
        **facts,
    }


def key_description(seed: int) -> dict[str, Any]:
    """The random key that all keys of an experiment derive from, for the manifest."""
    return {"seed": seed, "implementation": str(jax.random.key_impl(jax.random.key(0)))}


def write_manifest(folder: Path, content: Mapping[str, Any]) -> None:
    """Write a manifest as JSON."""
    (folder / MANIFEST).write_text(json.dumps(content, indent=2, default=_plain) + "\n")


def read_manifest(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The manifest of a result folder.

    Raises:
      ArgumentError: a folder that is not there or holds no manifest that can be read.
    """
    path = Path(folder) / MANIFEST
    if not _is_file(path):
        raise ArgumentError(f"folder: {shown(Path(folder))} is no result folder (it has no {MANIFEST})")
    try:
        text = path.read_text()
        content = json.loads(text, parse_float=_finite, parse_constant=_finite, object_pairs_hook=_printable)
    except (OSError, ValueError, RecursionError) as error:
        raise ArgumentError(f"folder: {shown(path)} cannot be read ({one_line(error)})") from None
    for name, kind, words in (("experiment", str, "a name"), ("settings", dict, "an object")):
        value = content.get(name) if isinstance(content, dict) else None
        if not isinstance(value, kind):
            raise ArgumentError(
                f"folder: {shown(path)} cannot be read: expected {words} as {name!r}, got {shown(value)}"
            )
    return content


def read_table(folder: str | os.PathLike[str], name: str = RESULTS) -> pd.DataFrame:
    """A table of a result folder.

    Raises:
      ArgumentError: a file that is not there or is no table, or holds an infinite number.
    """
    path = Path(folder) / name
    try:
        if path.exists() and not _is_file(path):
            raise ValueError("it is no file")
        table = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise ArgumentError(f"folder: {shown(path)} cannot be read ({one_line(error)})") from None
    for column, cells in table.items():
        if pd.api.types.is_float_dtype(cells) and np.isinf(cells).any():
            row = int(np.isinf(cells).argmax()) + 1
            raise ArgumentError(f"folder: {shown(path)} has an infinite number: {shown(column)}, row {row}")
        if not pd.api.types.is_numeric_dtype(cells):
            table[column] = cells.map(_printed, na_action="ignore")
    return table


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _finite(text: str) -> float:
    """A number of a manifest, where jaxarch writes none that is not finite."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{shown(text)} is no finite number")
    return number


def _printable(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of a manifest: a foreign one may hold control characters, which terminals obey."""
    return {_printed(name): _printed(value) for name, value in pairs}


def finding(what: str, values: Any) -> dict[str, Any]:
    """One line of findings.csv, which the ledger takes: what was measured, median, quartiles, runs.

    Args:
      what: in words.
      values: one a run, or a single number. A row of `metrics.paired_differences` is taken with its mean,
        the 95% interval of the mean, and the Wilcoxon p.
    """
    if isinstance(values, pd.Series) and "mean_low" in values.index:
        kept = ("median", "q25", "q75", "runs", "mean", "mean_low", "mean_high", "p")
        return {"what": what} | {name: values[name] for name in kept}
    values = np.atleast_1d(np.asarray(values, np.float64))
    median, q25, q75 = quartiles(values)
    line: dict[str, Any] = {"what": what, "median": median}
    if values.size > 1:
        line |= {"q25": q25, "q75": q75, "runs": int(np.isfinite(values).sum())}
    return line


def write_findings(folder: Path, findings: Iterable[Mapping[str, Any]]) -> None:
    """Write findings.csv; what was measured in no run, because all failed, is left out."""
    columns = ["what", "median", "q25", "q75", "runs", "mean", "mean_low", "mean_high", "p"]
    table = pd.DataFrame(list(findings), columns=columns)
    table[table["median"].notna()].to_csv(folder / FINDINGS, index=False)


def _git_commit() -> str | None:
    """The commit of the checkout that the package is run from, marked if there are changes; or `None`."""
    package = Path(__file__).resolve().parent

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(package), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "results.py")
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} in a manifest")


def command_line() -> str:
    """The command that is running, for the manifest."""
    return " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
