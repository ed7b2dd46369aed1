"""Findings of an experiment as text for the record: findings.csv to TOML."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable
from typing import Any

import pandas as pd

from jaxarch import ArgumentError
from jaxarch.lab.checks import items
from jaxarch.lab.reproduction.line import Measurement
from jaxarch.lab.reproduction.reading import build
from jaxarch.lab.reproduction.rendering import number
from jaxarch.lab.results import FINDINGS, read_table


def read_findings(folder: str | os.PathLike[str]) -> tuple[Measurement, ...]:
    """Read the measurements that an experiment wrote to its result folder.

    findings.csv has one row per measurement; its columns are fields of `Measurement`, `what` and `median` at
    least. An empty cell is an absent field.

    Raises:
      ArgumentError: no such file, or one that does not hold measurements. The message names row and column.

    Example:
      >>> import pathlib, tempfile
      >>> from jaxarch.lab import reproduction, results
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     results.write_findings(pathlib.Path(folder), [results.finding("accuracy", [1.0, 2.0, 3.0])])
      ...     (measurement,) = reproduction.read_findings(folder)
      >>> measurement.what, measurement.median, measurement.q25, measurement.runs, measurement.p
      ('accuracy', 2.0, 1.5, 3, None)
    """
    rows = read_table(folder, FINDINGS).to_dict("records")
    if not rows:
        raise ArgumentError(f"folder: {FINDINGS} has no rows")
    return tuple(
        build(Measurement, _present(row), f"folder: {FINDINGS} row {i}") for i, row in enumerate(rows, 1)
    )


def _present(row: dict[str, Any]) -> dict[str, Any]:
    """Return the non-empty cells; numbers become numbers, whatever else their columns hold."""
    cells = {name: value for name, value in row.items() if not pd.isna(value)}
    return {name: value if name == "what" else _as_number(value) for name, value in cells.items()}


def _as_number(cell: Any) -> Any:
    try:
        value = float(cell)
    except ValueError:
        return cell
    return int(value) if value.is_integer() else value


def as_toml(measured: Iterable[Measurement]) -> str:
    """Format measurements as a line's `measured`, to paste: three significant digits, integers from 1000 on.

    Example:
      >>> from jaxarch.lab import reproduction
      >>> accuracy = reproduction.Measurement("accuracy", 0.91234, q25=0.9, q75=0.92, runs=10)
      >>> print(reproduction.as_toml([accuracy]).strip())
      measured = [
          { what = "accuracy", median = 0.912, q25 = 0.9, q75 = 0.92, runs = 10 },
      ]
    """
    lines = ["measured = ["]
    for measurement in items("measured", measured, Measurement, "jaxarch.lab.reproduction.Measurement"):
        present = {
            field.name: value
            for field in dataclasses.fields(measurement)
            if (value := getattr(measurement, field.name)) is not None
        }
        pairs = (f"{name} = {_toml(value)}" for name, value in present.items())
        lines.append(f"    {{ {', '.join(pairs)} }},")
    return "\n".join([*lines, "]", ""])


def _toml(value: str | float) -> str:
    if isinstance(value, str):
        # A JSON string is a TOML string if characters outside the basic plane are not escaped.
        return json.dumps(value, ensure_ascii=False)
    return number(float(f"{value:.3g}") if abs(value) < 1000 else round(value))
