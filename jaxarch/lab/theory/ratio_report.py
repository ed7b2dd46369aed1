"""Report on the ratios of temperatures: the runs of each line, figures, tables, findings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from rich.console import RenderableType

from jaxarch import plots
from jaxarch.lab.harness import Results, finding, tables
from jaxarch.lab.theory.averaging import EXACT, ORDINARY, STEPS
from jaxarch.lab.theory.problems import NETWORK, PROBLEMS
from jaxarch.lab.theory.rates import CERTIFIED, LINES, MEASURED, SCALED, TUNED

LOSSES = "losses.npz"
CONVEX_FIGURES = (("bounds", "gap_over_bound", "gap / bound"), ("last-masks", "last_gap", "gap, last mask"))


def lines(table: pd.DataFrame) -> pd.DataFrame:
    """Select the runs to show, with `value`, the quantity shown, and `line`, the rule for the learning rate.

    The tuned rate of a problem, step and ratio is the multiple with the least median over the seeds: it is
    chosen on the runs that are shown. `edge` tells whether it is the smallest or largest of the grid. `run`
    is the index of a run in its training.
    """
    value = table["loss"]
    if "gap" in table:
        value = value.where(table["problem"] == NETWORK, table["gap"])
    run = table.groupby(["problem", "step"]).cumcount()
    table = table.assign(value=value, line=table["rate_rule"], edge=False, run=run)
    shown = [table[table["multiple"] == 1]]
    scaled = table[table["rate_rule"] == SCALED]
    for _, cell in scaled.groupby(["problem", "step", "ratio"], sort=False):
        medians = cell.groupby("multiple")["value"].median().fillna(np.inf)
        best = medians.idxmin()
        edge = best in (medians.index.min(), medians.index.max())
        shown.append(cell[cell["multiple"] == best].assign(line=TUNED, edge=edge))
    return pd.concat(shown, ignore_index=True)


def report(results: Results) -> list[RenderableType]:
    """Draw the figures and build the tables."""
    manifest, settings = results.manifest, results.settings
    table, losses = results.table, results.arrays(LOSSES)
    shown = lines(table)
    parts = {name: shown[shown["problem"] == name] for name in settings["problems"]}
    convex_parts = {name: part for name, part in parts.items() if name != NETWORK}
    title = f"{manifest['data']['name']}, " if "data" in manifest else ""
    title += f"hard {settings['hard']:g}, {settings['steps']} steps"
    figure = plots.sweep(
        {PROBLEMS[name]: _panels(part, "value") for name, part in parts.items()},
        "soft/hard",
        title,
        logarithmic=[PROBLEMS[name] for name in convex_parts],
        logarithmic_setting=True,
    )
    results.draw(figure, "ratios")
    for file, column, words in CONVEX_FIGURES if convex_parts else ():
        # Tuned rates are left out: they are chosen for the average mask, and their bounds say nothing.
        rows = {
            f"{name}: {words}": _panels(part[part["line"] != TUNED], column)
            for name, part in convex_parts.items()
        }
        figure = plots.sweep(rows, "soft/hard", title, logarithmic=list(rows), logarithmic_setting=True)
        results.draw(figure, file)
    for name, part in parts.items():
        figure = plots.convergence_grid(_histories(part, losses), "F of the batch", f"{name}; {title}")
        results.draw(figure, f"convergence-{name}")
    cells = ["problem", "step"]
    rendered: list[RenderableType] = [_gradients(manifest["gradients"])]
    rendered += [_table(part, name, step) for (name, step), part in shown.groupby(cells, sort=False)]
    if convex_parts:
        rendered.append(_shares(shown[shown["problem"] != NETWORK]))
    rendered += [
        f"! {name}, {step}: the tuned learning rate is at the edge of its grid at soft/hard "
        + ", ".join(f"{ratio:g}" for ratio in ratios)
        for (name, step), ratios in shown[shown["edge"]].groupby(cells, sort=False)["ratio"].unique().items()
    ]
    runs = table.groupby(cells, sort=False)
    return rendered + results.remarks((f"{name}, {step}", of) for (name, step), of in runs)


def _panels(table: pd.DataFrame, column: str) -> dict[str, dict[str, tuple[np.ndarray, np.ndarray]]]:
    """Map step and line to the ratios where no seed is missing, and the values, shape (seeds, ratios)."""
    panels: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = {}
    for (step, line), runs in table.groupby(["step", "line"], sort=False):
        values = runs.pivot(index="seed", columns="ratio", values=column).dropna(axis=1)
        panel = panels.setdefault(step, {})
        if values.size:
            panel[line] = (values.columns.to_numpy(), values.to_numpy())
    return panels


def _histories(table: pd.DataFrame, losses: dict[str, np.ndarray]) -> dict[str, Any]:
    """Map step, ratio and line to the losses of all seeds, shape (seeds, steps)."""
    panels: dict[str, Any] = {}
    for (name, step, ratio, line), runs in table.groupby(["problem", "step", "ratio", "line"], sort=False):
        row = panels.setdefault(step, {}).setdefault(f"soft/hard {ratio:g}", {})
        row[line] = losses[f"{name}/{step}"][runs["run"]]
    return panels


def _table(table: pd.DataFrame, name: str, step: str) -> Any:
    form = ".1f" if name == NETWORK else ".2g"
    rows = [
        (
            f"{ratio:g}",
            *(tables.spread(runs.loc[runs["line"] == line, "value"], form) for line in LINES),
            tables.median(runs.loc[runs["line"] == TUNED, "multiple"], "g"),
        )
        for ratio, runs in table.groupby("ratio")
    ]
    columns = ("soft/hard", *LINES, "tuned / scaled")
    return tables.table(f"{PROBLEMS[name]}, {step}: median [quartiles]", columns, rows)


def _gradients(gradients: dict[str, dict[str, list[float]]]) -> Any:
    rows = [
        (name, *(tables.spread(np.asarray(norms[of]), ".3g") for of in (MEASURED, CERTIFIED)))
        for name, norms in gradients.items()
    ]
    return tables.table("G: the norm of the gradient in the mask", ("problem", MEASURED, CERTIFIED), rows)


def _shares(table: pd.DataFrame) -> Any:
    rows = [
        (f"{name}, {step}", *(_largest(runs[runs["line"] == line]) for line in LINES))
        for (name, step), runs in table.groupby(["problem", "step"], sort=False)
    ]
    title = "largest gap / bound of an average mask, where the bound is at most G sqrt(d)"
    return tables.table(title, ("problem", *LINES), rows)


def _largest(runs: pd.DataFrame) -> str:
    return tables.number(runs["gap_over_bound"].max(), ".2g")


def findings(
    table: pd.DataFrame, gradients: dict[str, dict[str, np.ndarray]], words: dict[str, str]
) -> list[dict[str, Any]]:
    """Report G, and the values at every ratio, of each step and of their difference.

    Args:
      table: the table of all runs.
      gradients: G of every seed, by problem and by measured or certified.
      words: descriptions of each problem's values.
    """
    found = [
        finding(f"{rule}: {name}", norm) for name, norms in gradients.items() for rule, norm in norms.items()
    ]
    shown = lines(table)
    cells = shown.groupby(["problem", "line", "ratio"], sort=False)
    for (name, line, ratio), runs in cells:
        at = f"{words[name]}; {line} rate, soft/hard {ratio:g}"
        by_step = runs.pivot(index="seed", columns="step", values="value")
        found += [finding(f"{at}, {step}", by_step[step]) for step in STEPS]
        difference = by_step[EXACT] - by_step[ORDINARY]
        found.append(finding(f"{at}, {EXACT} minus {ORDINARY}", difference))
        if name != NETWORK and line != TUNED:
            last = runs.pivot(index="seed", columns="step", values="last_gap")
            found += [finding(f"{at}, {step}, last mask", last[step]) for step in STEPS]
    return found
