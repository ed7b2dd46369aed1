"""Report on the ratios of temperatures: the runs of each line, figures, tables, findings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from rich.console import RenderableType

from jaxarch import plots
from jaxarch.lab.harness import Results, finding, paired, tables
from jaxarch.lab.theory.averaging import EXACT, ORDINARY, STEPS
from jaxarch.lab.theory.problems import NETWORK, PROBLEMS
from jaxarch.lab.theory.rates import CERTIFIED, FIXED, LINES, MEASURED, SCALED, TUNED

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


def conclusion(results: Results) -> Iterable[str]:
    """Report the best ratio, the exact step against Algorithm 1, and prescribed against tuned rates."""
    name, form = results.settings["problems"][0], _form(results.settings["problems"][0])
    shown = lines(results.table)
    runs = shown[shown["problem"] == name]
    tuned = runs[(runs["line"] == TUNED) & (runs["step"] == ORDINARY)]
    values = {ratio: of["value"].dropna() for ratio, of in tuned.groupby("ratio")}
    values = {ratio: of for ratio, of in values.items() if len(of)}
    what = f"{PROBLEMS[name]} with {ORDINARY} of [D] and tuned learning rates"
    if not values:
        yield f"{what}: all runs met NaN or infinity."
        return
    best, last = min(values, key=lambda ratio: values[ratio].median()), max(values)
    at_last = f"; at {last:g} it is {tables.inline(values[last], form)}" if last != best else ""
    yield (
        f"{what} is lowest at soft/hard = {best:g}, {tables.inline(values[best], form)} (median [quartiles] "
        f"of {len(values[best])} runs, on which the rates were tuned; lower is better){at_last}."
    )
    here = runs[runs["ratio"] == best]
    by_step = here[here["line"] == TUNED].pivot(index="seed", columns="step", values="value")
    pair = paired.difference(by_step[EXACT], by_step[ORDINARY])
    if np.isfinite(pair["median"]):
        yield f"There the {EXACT} minus {ORDINARY} is {paired.in_words(pair, form)}, paired by seed."
    ordinary = here[here["step"] == ORDINARY].groupby("line")["value"]
    said = ", ".join(
        f"{tables.inline(of, form)} ({line})" for line, of in ordinary if line in (MEASURED, CERTIFIED)
    )
    if said:
        yield f"Prescribed learning rates give {said}."


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
    rendered += _explained(STEPS, settings["ratios"])
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
    form = _form(name)
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


def _form(name: str) -> str:
    """Return the number format of a problem's values."""
    return ".1f" if name == NETWORK else ".2g"


MEANING = {
    FIXED: "the same learning rate at every ratio, as in [D]",
    SCALED: "learning rate x soft is the same at every ratio",
    MEASURED: "the rate that the theorem prescribes for the largest gradient of a first run",
    CERTIFIED: "the rate that the theorem prescribes for a certified bound of the gradient",
    TUNED: "the multiple of the scaled rate with the least median, chosen on the runs shown",
}
"""One line on each rule for the learning rate."""


def _explained(steps: Iterable[str], ratios: Iterable[float]) -> list[str]:
    """Explain the quantities of the tables: G, the ratio, the steps, the rules for the learning rate."""
    which = {
        ORDINARY: "the two-temperature step of [D] on the scores",
        EXACT: "the mirror-descent step that Algorithm 1 is to first order",
    }
    rules = [rule for rule in LINES if rule not in (MEASURED, CERTIFIED) or min(ratios) < 1]
    return [
        "- G: largest norm of the gradient, measured in a first run or certified for all masks",
        "- soft, hard: inverse temperatures of the mask that the gradient passes through, and of the mask in "
        "the loss",
        *(f"- {step}: {which[step]}" for step in steps),
        *(f"- {rule}: {MEANING[rule]}" for rule in rules),
        "- gap: F above its least value, at the mean mask over all steps",
    ]


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
