"""Result folders: numbered, complete or not there, with a manifest that says how to make them again."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from jaxarch.errors import ArgumentError
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
    """Where results are: under a temporary name while they are written, under the final one after."""

    path: Path


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
      A `ResultFolder`: write to its `path`. When the block has ended, `path` is the final folder; if an
      exception passes, nothing is left.

    Raises:
      ArgumentError: an explicit folder that exists, without `force`, or is no folder; a place that cannot be
        written to.
    """
    if out is not None:
        final = Path(out)
        if final.exists() and not force:
            raise ArgumentError(f"out: {final} exists; choose another folder or add --force to replace it")
        if final.exists() and not (final / MANIFEST).exists() and (final.is_file() or any(final.iterdir())):
            raise ArgumentError(f"out: {final} is no result folder (it has no {MANIFEST}); it is left alone")
        parent = final.parent
    else:
        final, parent = None, Path(root)
    try:
        parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=parent))
    except OSError as error:
        what = "root" if out is None else "out"
        raise ArgumentError(f"{what}: cannot write to {parent.resolve()} ({error.strerror})") from None
    try:
        temporary.chmod(0o755)
        folder = ResultFolder(temporary)
        yield folder
        if final is None:
            final = _rename_numbered(temporary, parent, name)
        else:
            if final.exists():
                shutil.rmtree(final)
            os.replace(temporary, final)
        folder.path = final
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _numbered(parent: Path, name: str) -> Path:
    numbers = [int(m[1]) for entry in parent.iterdir() if (m := re.match(r"(\d+)-", entry.name))]
    return parent / f"{max(numbers, default=0) + 1:04d}-{name}"


def _rename_numbered(temporary: Path, parent: Path, name: str) -> Path:
    """Take the next free number, even if another process takes one at the same time."""
    while True:
        final = _numbered(parent, name)
        try:
            final.mkdir()
        except FileExistsError:
            continue
        os.replace(temporary, final)
        return final


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
    if not path.is_file():
        raise ArgumentError(f"folder: {folder} is no result folder (it has no {MANIFEST})")
    try:
        content = json.loads(path.read_text())
        content["experiment"], content["settings"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArgumentError(f"folder: {path} cannot be read ({error!r})") from None
    return content


def read_table(folder: str | os.PathLike[str], name: str = RESULTS) -> pd.DataFrame:
    """A table of a result folder.

    Raises:
      ArgumentError: a file that is not there or is no table.
    """
    path = Path(folder) / name
    try:
        return pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise ArgumentError(f"folder: {path} cannot be read ({error})") from None


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
