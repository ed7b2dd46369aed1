"""Shared parts of the transfer experiments: runs, findings, figures and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pandas as pd
from rich.console import RenderableType

from jaxarch import plots
from jaxarch.lab.charts import Chart
from jaxarch.lab.harness import Context, Experiment, Outcome, Results, finding, tables
from jaxarch.lab.harness.results import failures
from jaxarch.lab.pruning import estimate, tasks
from jaxarch.lab.pruning.searches import RESHUFFLED
from jaxarch.lab.pruning.tasks import Transfer
from jaxarch.lab.pruning.trial import CELL, PARENT, Measured, measure

COMPARISONS, LAYERS, MASKS = "comparisons.csv", "layers.csv", "masks.npz"
MEANING = {
    "AP": "architecture pruning of [A]: a mask and weights are trained together, under a penalty on both",
    "IMP": (
        "iterative magnitude pruning (J. Frankle and M. Carbin, 2019): train, remove the smallest weights, "
        "rewind, repeat"
    ),
    "magnitude": "the whole network is trained once, and its smallest weights are removed",
    "SNIP": (
        "N. Lee, T. Ajanthan and P. Torr, 2019: before training, keep the connections whose removal would "
        "change the loss the most"
    ),
    "random search": "R. Farahani, 2024: train random sub-networks, and keep the best",
    "random": "a random mask; every set of connections is equally likely",
    "uniform": "a random mask with the same density in each layer",
    "ERK": "a random mask, denser in smaller layers (Erdos-Renyi-Kernel densities, U. Evci et al., 2020)",
}
"""One line on each search of `searches.SEARCHES`."""
STARTS = {
    "he": "fresh weights have He's standard deviations",
    "density-aware": "fresh weights are wider where connections are fewer",
}
"""One line on each kind of fresh weights."""


def experiment(
    module: str,
    settings: type,
    findings: Callable[[Measured], Iterable[Mapping[str, Any]]],
    report: Callable[[Results], list[RenderableType]],
    conclusion: Callable[[Results], Iterable[str]],
    charts: Callable[[Results], list[Chart]] | None = None,
) -> Experiment:
    """Build the experiment of a module that measures a transfer; its settings need `methods`."""

    def plan(settings: Any) -> list[str]:
        return estimate.plan(settings.methods, tasks.prepare(settings))

    def duration(settings: Any) -> list[str]:
        return estimate.duration(settings.methods, tasks.prepare(settings))

    def run(settings: Any, context: Context) -> Outcome:
        transfer = tasks.prepare(settings)
        measured = measure(settings.methods, transfer, context.progress, context.spread)
        return outcome(transfer, measured, findings(measured))

    return Experiment(module, settings, plan, run, report, conclusion, duration, charts, spreads=True)


def outcome(transfer: Transfer, measured: Measured, findings: Iterable[Mapping[str, Any]]) -> Outcome:
    """Collect a transfer's results, comparisons, layer densities, masks, and settings with classes."""
    names = {"old": transfer.old.name, "new": transfer.new.name}
    pictures = {which: {"name": names[which], "sha256": digest} for which, digest in measured.digests.items()}
    return Outcome(
        measured.table,
        findings,
        tables={COMPARISONS: measured.comparisons, LAYERS: measured.layers},
        arrays={MASKS: measured.masks},
        facts={"pictures": pictures, "notes": measured.notes},
        settings=transfer.settings,
    )


def draw_layers(results: Results, title: str) -> None:
    """Draw the densities of the layers."""
    table = results.read(LAYERS)
    panels = {
        f"sparsity {sparsity:g}": {
            method: {
                layer: of_layer["density"].to_numpy() for layer, of_layer in of.groupby("layer", sort=False)
            }
            for method, of in rows.groupby("strategy", sort=False)
        }
        for sparsity, rows in table.groupby("sparsity", sort=False)
    }
    results.draw(plots.layer_densities(panels, title), "layers")


def remarks(results: Results) -> list[str]:
    """List warnings for readers of the tables, about the searches and the runs on the new task."""
    groups = [(str(name), of) for name, of in results.table.groupby("strategy", sort=False)]
    noted = [*results.manifest["notes"], *failures(groups)]
    return noted + dead_starts(groups)


def dead_starts(groups: Iterable[tuple[str, pd.DataFrame]]) -> list[str]:
    """Count the runs of each method in which some layer never had a gradient."""
    noted = []
    for name, of in groups:
        dead = int(of["dead_start"].sum())
        if dead:
            noted.append(
                f"! {name}: in {dead} of {len(of)} runs some layer never had a gradient (too few connections)"
            )
    return noted


def accuracies(measured: Measured) -> list[dict[str, Any]]:
    """Report the accuracy of every method in every cell."""
    return [
        finding(f"accuracy of {cell[-1]}, {where(dict(zip(CELL, cell, strict=False)))}", rows["accuracy"])
        for cell, rows in measured.table.groupby([*CELL, "strategy"], sort=False)
    ]


def explain(table: pd.DataFrame) -> list[str]:
    """Return a line on each method, each start and the sparsity of a table of runs."""
    methods = [str(name) for name in table["strategy"].unique()]
    lines = [f"- {name}: {MEANING[name]}" for name in methods if name in MEANING]
    if any(name.endswith(RESHUFFLED) for name in methods):
        lines.append(
            f"- METHOD{RESHUFFLED}: the architecture of METHOD, its connections permuted within each layer"
        )
    lines += [f"- {name} start: {STARTS[name]}" for name in table["weights"].unique()]
    return [*lines, "- sparsity: share of connections removed"]


def where(cell: Mapping[str, Any]) -> str:
    """Describe a cell in words."""
    return f"sparsity {cell['sparsity']:g}, {cell['size']} examples, {cell['weights']} start"


def parent(table: pd.DataFrame) -> str:
    """Describe the accuracy of the whole network in words."""
    spread = tables.spread(table.loc[table["strategy"] == PARENT, "accuracy"], ".3f")
    return f"whole network: {spread}"
