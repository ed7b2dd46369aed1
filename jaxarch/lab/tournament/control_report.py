"""Tables and a figure of the controls: how much of a method's gain its layers' densities explain."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from rich.console import RenderableType

from jaxarch import plots
from jaxarch.lab.harness import Results, tables
from jaxarch.lab.harness.tables import Table
from jaxarch.lab.tournament.controls import AS_FOUND, RESHUFFLED

BASELINE = "random"
"""Method without any information: neither densities of layers nor connections are chosen."""
LEAST_GAIN = 0.01
"""Smallest gain in accuracy that is divided: a share of less is mostly noise."""


def control_report(
    results: Results, controls: pd.DataFrame, order: list[str], title: str
) -> Iterator[RenderableType]:
    """Draw the controls at the smallest density, and tabulate them at all densities.

    Args:
      results: the folder to draw to.
      controls: accuracies, one row a method, density, seed and control.
      order: methods in the order of rows.
      title: data and parent, for the titles.
    """
    order = [name for name in order if name in set(controls["strategy"])]
    density = controls["density"].min()
    smallest = controls[controls["density"] == density]
    series = {
        str(control): {name: of.loc[of["strategy"] == name, "accuracy"].to_numpy() for name in order}
        for control, of in smallest.groupby("control", sort=False)
    }
    results.draw(plots.by_strategy(series, "test accuracy", f"{title}, density {density:g}"), "controls")
    yield _differences(controls, order, title)
    if BASELINE in order and RESHUFFLED in series:
        yield _shares(controls, order, title)
        yield (
            f"- from densities: ({RESHUFFLED} - {BASELINE}) / ({AS_FOUND} - {BASELINE}), from medians; the "
            f"rest comes from the choice within layers; a dash for gains below {LEAST_GAIN:g}"
        )


def _differences(controls: pd.DataFrame, order: list[str], title: str) -> Table:
    """Tabulate masks as found, trained from their seeds' initial weights, and the controls' differences."""
    densities = sorted(controls["density"].unique(), reverse=True)
    others = [name for name in controls["control"].unique() if name != AS_FOUND]
    rows = []
    for name in order:
        cells = []
        for density in densities:
            by_seed = _by_seed(controls, name, density)
            cells.append(tables.median(by_seed[AS_FOUND], ".3f"))
            cells += [_signed_median(by_seed[other] - by_seed[AS_FOUND]) for other in others]
        rows.append((name, *cells))
    columns = ["mask"]
    for density in densities:
        columns += [f"{AS_FOUND}, {density:g}", *others]
    return tables.table(
        f"{title}: accuracy of masks trained from the initial weights, and of controls minus it; medians",
        columns,
        rows,
    )


def _shares(controls: pd.DataFrame, order: list[str], title: str) -> Table:
    """Tabulate each method's gain over random masks, and the share that its layers' densities bring."""
    densities = sorted(controls["density"].unique(), reverse=True)
    rows = []
    for name in order:
        cells = []
        for density in densities:
            gain, share = decomposed(controls, name, density)
            cells += [tables.signed(gain, ".3f"), tables.number(share, ".0%")]
        rows.append((name, *cells))
    columns = ["mask"]
    for density in densities:
        columns += [f"minus {BASELINE}, {density:g}", "from densities"]
    return tables.table(f"{title}: gain over random masks, and its share from densities", columns, rows)


def decomposed(controls: pd.DataFrame, name: str, density: float) -> tuple[float, float]:
    """Return a method's median gain over random masks, and the share of it that densities of layers bring.

    With medians A of the masks as found, S of the reshuffled ones and R of random masks, these are A - R and
    (S - R) / (A - R). The share is NaN for a gain below `LEAST_GAIN`. It is above 1 if shuffling helps.
    """
    of, random = (_by_seed(controls, one, density) for one in (name, BASELINE))
    found, reshuffled, lowest = (
        float(np.nanmedian(runs)) for runs in (of[AS_FOUND], of[RESHUFFLED], random[AS_FOUND])
    )
    gain = found - lowest
    return gain, (reshuffled - lowest) / gain if gain >= LEAST_GAIN else np.nan


def _by_seed(controls: pd.DataFrame, name: str, density: float) -> pd.DataFrame:
    """Return the accuracies of a method at a density: a row a seed, a column a control."""
    here = controls[(controls["strategy"] == name) & (controls["density"] == density)]
    return here.pivot(index="seed", columns="control", values="accuracy")


def _signed_median(values: pd.Series) -> str:
    finite = values[np.isfinite(values)]
    return tables.signed(float(np.median(finite)), ".3f") if len(finite) else "-"
