"""Tables of a result folder: results, and findings for the record of reproduction."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from jaxarch import ArgumentError
from jaxarch.lab.checks import as_folder, as_path, items, one_line, real_numbers, shown
from jaxarch.lab.results.manifest import is_file, printed
from jaxarch.metrics import quartiles

RESULTS = "results.csv"
"""Table of a result folder with one row per run."""

FINDINGS = "findings.csv"
"""Table of a result folder with one row per measurement."""

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
"""Columns that every results.csv of classification runs has at least; one row per run."""


def read_table(folder: str | os.PathLike[str], name: str = RESULTS) -> pd.DataFrame:
    r"""Read a table of a result folder.

    Raises:
      ArgumentError: the file does not exist, is not a table, or holds a number beyond float64.

    Example:
      >>> import pathlib, tempfile
      >>> from jaxarch.lab import results
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     _ = (pathlib.Path(folder) / "results.csv").write_text("seed,auc\n0,0.75\n1,0.5\n")
      ...     results.read_table(folder)["auc"].tolist()
      [0.75, 0.5]
    """
    path = as_path(folder, "folder") / as_path(name, "name")
    try:
        if path.exists() and not is_file(path):
            raise ValueError("it is not a file")
        table = pd.read_csv(path)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or one_line(error)
        raise ArgumentError(f"folder: {shown(path)} cannot be read ({why})") from None
    for column, cells in table.items():
        if cells.map(_is_infinite).any() and (row := _overflow(path, column)) is not None:
            raise ArgumentError(f"folder: {shown(path)} has an infinite number: {shown(column)}, row {row}")
        if not pd.api.types.is_numeric_dtype(cells):
            table[column] = cells.map(printed, na_action="ignore")
    return table


def _overflow(path: Path, column: Any) -> int | None:
    """Return the first row with a number too large for float64; `inf` is allowed, for a missing bound."""
    texts = pd.read_csv(path, usecols=[column], dtype=str)[column]
    too_large = texts.map(_is_infinite) & (texts != "inf")
    return int(too_large.to_numpy().argmax()) + 1 if too_large.any() else None


def _is_infinite(cell: Any) -> bool:
    """Return whether a cell is infinite; some releases of pandas leave a too large number as text."""
    try:
        return bool(np.isinf(float(cell)))
    except (TypeError, ValueError):
        return False


def finding(what: str, values: Any) -> dict[str, Any]:
    """Return a line of findings.csv for the record: measured quantity, median, quartiles, runs.

    Args:
      what: the measured quantity in words.
      values: one value per run, or a single number. A row of `metrics.paired_differences` keeps its mean, the
        95% interval of the mean, and the Wilcoxon p.

    Example:
      >>> from jaxarch.lab import results
      >>> results.finding("accuracy on digits", [1.0, 2.0, 3.0])
      {'what': 'accuracy on digits', 'median': 2.0, 'q25': 1.5, 'q75': 2.5, 'runs': 3}
      >>> results.finding("connections", 784)
      {'what': 'connections', 'median': 784.0}
    """
    if isinstance(values, pd.Series) and "mean_low" in values.index:
        kept = ("median", "q25", "q75", "runs", "mean", "mean_low", "mean_high", "p")
        return {"what": what} | {name: values[name] for name in kept}
    values = np.atleast_1d(real_numbers("values", values))
    median, q25, q75 = quartiles(values)
    line: dict[str, Any] = {"what": what, "median": median}
    if values.size > 1:
        line |= {"q25": q25, "q75": q75, "runs": int(np.isfinite(values).sum())}
    return line


def write_findings(folder: str | os.PathLike[str], findings: Iterable[Mapping[str, Any]]) -> None:
    """Write findings.csv; a quantity that no run measured, because all failed, is left out.

    Raises:
      ArgumentError: the folder does not exist; findings that `finding` did not make.

    Example:
      >>> import pathlib, tempfile
      >>> from jaxarch.lab import results
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     results.write_findings(pathlib.Path(folder), [results.finding("accuracy", [1.0, 2.0, 3.0])])
      ...     print((pathlib.Path(folder) / results.FINDINGS).read_text().strip())
      what,median,q25,q75,runs,mean,mean_low,mean_high,p
      accuracy,2.0,1.5,2.5,3,,,,
    """
    columns = ["what", "median", "q25", "q75", "runs", "mean", "mean_low", "mean_high", "p"]
    table = pd.DataFrame(
        items("findings", findings, Mapping, "dicts of jaxarch.lab.results.finding"), columns=columns
    )
    table[table["median"].notna()].to_csv(as_folder(folder) / FINDINGS, index=False)
