"""What an experiment on transfer leaves in its folder, what it shows of it, and how it is run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import RenderableType

from jaxarch import plots, results
from jaxarch.experiments.harness import records, tables
from jaxarch.experiments.harness.experiment import Experiment
from jaxarch.experiments.pruning import estimate, tasks
from jaxarch.experiments.pruning.searches import check_fit
from jaxarch.experiments.pruning.tasks import Transfer
from jaxarch.experiments.pruning.trial import CELL, PARENT, Measured, measure
from jaxarch.running.fit import Progress
from jaxarch.storage import save_tree

COMPARISONS, LAYERS, MASKS = "comparisons.csv", "layers.csv", "masks.npz"


def write(
    folder: Path,
    name: str,
    transfer: Transfer,
    measured: Measured,
    started: float,
    findings: Iterable[Mapping[str, Any]],
) -> None:
    """Write results, comparisons, layer densities, masks, findings and manifest."""
    measured.comparisons.to_csv(folder / COMPARISONS, index=False)
    measured.layers.to_csv(folder / LAYERS, index=False)
    save_tree(folder / MASKS, measured.masks)
    images = {"old": transfer.old, "new": transfer.new}
    data = {
        which: {"name": images[which].name, "sha256": digest} for which, digest in measured.digests.items()
    }
    settings = transfer.settings
    records.write(
        folder, name, settings, started, measured.table, findings, pictures=data, notes=measured.notes
    )


def draw_layers(folder: Path, title: str) -> None:
    """Draw the densities of layers from a folder's files."""
    table = results.read_table(folder, LAYERS)
    panels = {
        f"sparsity {sparsity:g}": {
            method: {
                layer: of_layer["density"].to_numpy() for layer, of_layer in of.groupby("layer", sort=False)
            }
            for method, of in rows.groupby("strategy", sort=False)
        }
        for sparsity, rows in table.groupby("sparsity", sort=False)
    }
    plots.save(plots.layer_densities(panels, title), folder, "layers")


def remarks(manifest: Mapping[str, Any], table: pd.DataFrame) -> list[str]:
    """What a reader of the tables has to know: of the searches, and of the runs on the new task."""
    noted = list(manifest["notes"])
    groups = [(str(name), of) for name, of in table.groupby("strategy", sort=False)]
    noted += records.failures(groups)
    for name, of in groups:
        dead = int(of["dead_start"].sum())
        if dead:
            noted.append(
                f"! {name}: in {dead} of {len(of)} runs some layer never had a gradient (too few connections)"
            )
    return noted


def experiment(
    name: str,
    summary: str,
    settings: type,
    findings: Callable[[Measured], Iterable[Mapping[str, Any]]],
    report: Callable[[Path], list[RenderableType]],
) -> Experiment:
    """An experiment that measures a transfer: `settings` are those of a transfer, with `methods`."""

    def ready(settings: Any) -> Transfer:
        transfer = tasks.prepare(settings)
        check_fit(settings.methods, transfer)
        return transfer

    def plan(settings: Any) -> list[str]:
        return estimate.plan(settings.methods, ready(settings))

    def duration(settings: Any) -> list[str]:
        return estimate.duration(settings.methods, ready(settings))

    def run(settings: Any, folder: Path, progress: Callable[[Progress], None] | None = None) -> None:
        started = time.time()
        transfer = ready(settings)
        measured = measure(settings.methods, transfer, progress)
        write(folder, name, transfer, measured, started, findings(measured))

    return Experiment(name, summary, settings, plan, run, report, duration)


def accuracies(measured: Measured) -> list[dict[str, Any]]:
    """The accuracy of every method in every cell, for the ledger."""
    return [
        results.finding(
            f"accuracy of {cell[-1]}, {where(dict(zip(CELL, cell, strict=False)))}", rows["accuracy"]
        )
        for cell, rows in measured.table.groupby([*CELL, "strategy"], sort=False)
    ]


def where(cell: Mapping[str, Any]) -> str:
    """A cell in words."""
    return f"sparsity {cell['sparsity']:g}, {cell['size']} examples, {cell['weights']} start"


def parent(table: pd.DataFrame) -> str:
    """The accuracy of the whole network, in words."""
    spread = tables.spread(table.loc[table["strategy"] == PARENT, "accuracy"], ".3f")
    return f"the parent has {spread}"
