"""Measurement of a transfer: every architecture trained on the new task, from every start."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from jaxarch import (
    Network,
    Problem,
    Progress,
    PyTree,
    Strategy,
    architecture,
    chain,
    density,
    evaluate,
    layer_density,
    natural_order,
    new_head,
    over_seeds,
    retrain,
)
from jaxarch.io import digest
from jaxarch.lab.harness import Part, Parts, Spread, Work
from jaxarch.lab.harness.at_worker import check_same
from jaxarch.lab.pruning.searches import Architectures, architectures, base, search_parts, trainings
from jaxarch.lab.pruning.settings import TransferSettings
from jaxarch.lab.pruning.tasks import Transfer, prepare
from jaxarch.metrics import paired_differences
from jaxarch.transforms import density_name

PARENT = "parent"
"""The whole network, of sparsity 0, of which every architecture is a part."""
CELL = ["weights", "size", "sparsity"]
TEST_BATCH = 500


class Measured(NamedTuple):
    """Measurements of a transfer.

    Attributes:
      table: one row a run.
      comparisons: every pair of methods in every cell, tested on the same seeds.
      layers: the density of every masked leaf of every architecture.
      masks: by method, by density, with a leading axis of seeds.
      digests: the SHA-256 of the pictures of the old task and of the new one.
      notes: warnings about the searches for readers of the tables.
    """

    table: pd.DataFrame
    comparisons: pd.DataFrame
    layers: pd.DataFrame
    masks: dict[str, dict[str, PyTree]]
    digests: dict[str, str]
    notes: list[str]


def measure(
    methods: Sequence[str],
    transfer: Transfer,
    progress: Callable[[Progress], None] | None,
    spread: Spread | None = None,
) -> Measured:
    """Search for all architectures, and train them on the new task."""
    settings = transfer.settings
    digests = _digests(transfer)
    pictures = {f"{which} pictures": digest for which, digest in digests.items()}
    parts = Parts(settings, methods=",".join(methods), **pictures)
    searches = search_parts(methods, transfer)
    after = tuple(part.name for part in searches)
    trained = [
        Part(f"{size} examples, {weights}", _trained, Cell(tuple(methods), weights, size), after)
        for weights in settings.weights
        for size in sorted(settings.sizes)
    ]
    load = partial(_load, settings, digests)
    options: dict[str, Any] = {"progress": progress, "spread": spread}
    found_by_part, cells = {}, []
    for part, made in parts.run([*searches, *trained], transfer, load, **options):
        if part.function is _trained:
            cells.append(made)
        else:
            found_by_part[part.name] = made
    found = architectures(methods, transfer, found_by_part)
    runs, masks = _stacked(found, transfer)
    table = pd.concat(cells, ignore_index=True)
    table.insert(0, "dataset", settings.dataset)
    table.insert(1, "new_dataset", settings.new_dataset)
    table.insert(2, "task", transfer.task)
    notes = [*_budgets(methods, transfer), *_notes(found, settings)]
    kept = {method: of_method.masks for method, of_method in found.items()}
    return Measured(
        table, compared(table[table["strategy"] != PARENT], CELL), _layers(runs, masks), kept, digests, notes
    )


class Cell(NamedTuple):
    """Methods, initial weights and size of one part on the new task.

    Attributes:
      methods: methods whose architectures are trained; equal in all parts.
      weights: how fresh weights are drawn.
      size: number of training examples.
    """

    methods: tuple[str, ...]
    weights: str
    size: int


def _digests(transfer: Transfer) -> dict[str, str]:
    """Compute the digests of both tasks' pictures."""
    pictures = {"old": transfer.old, "new": transfer.new}
    return {which: digest(images.x, images.y) for which, images in pictures.items()}


def _load(settings: TransferSettings, digests: dict[str, str]) -> Transfer:
    """Load the transfer that the parts need, in another process.

    Raises:
      ArgumentError: the pictures loaded here differ.
    """
    transfer = prepare(settings)
    here = _digests(transfer)
    check_same(settings.dataset, here["old"], digests["old"])
    check_same(settings.new_dataset, here["new"], digests["new"])
    return transfer


def training(weights: str, transfer: Transfer) -> Strategy:
    """Return the training of a bare architecture's fresh weights ([A] appendix A.2).

    A new head comes first if the numbers of classes differ.
    """
    again = retrain("cold", nonnegative=False, weights=weights)  # type: ignore[arg-type]
    same = len(transfer.settings.classes) == len(transfer.settings.new_classes)
    return chain(again) if same else chain(new_head(), again)


def learning(runs: pd.DataFrame, transfer: Transfer, size: int) -> Problem:
    """Return the new problem in which each run trains on the first `size` rows of its seed."""
    train = np.asarray(transfer.learning.train)[runs["seed"]]
    return dataclasses.replace(transfer.learning, train=train, train_size=np.asarray(size, np.int32))


def _stacked(found: dict[str, Architectures], transfer: Transfer) -> tuple[pd.DataFrame, PyTree]:
    """Return all runs as a table, the parent first, and their stacked architectures."""
    settings = transfer.settings
    seeds = np.arange(settings.seeds)
    some = next(iter(next(iter(found.values())).masks.values()))
    rows = [pd.DataFrame({"strategy": PARENT, "sparsity": 0.0, "seed": seeds, "search_seconds": 0.0})]
    masks = [jax.tree.map(jnp.ones_like, some)]
    for method, of_method in found.items():
        for sparsity, target in zip(settings.sparsities, settings.densities, strict=True):
            masks.append(of_method.masks[density_name(target)])
            rows.append(rows[0].assign(strategy=method, sparsity=sparsity, search_seconds=of_method.seconds))
            rows[-1]["search_failed_at"] = np.asarray(of_method.failed_at)
    runs = pd.concat(rows, ignore_index=True).fillna({"search_failed_at": -1})
    runs = runs.astype({"search_failed_at": int, "search_seconds": float})
    return runs, jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *masks)


def _trained(transfer: Transfer, cell: Cell, found: Mapping[str, Any], work: Work) -> pd.DataFrame:
    settings, (methods, weights, size) = transfer.settings, cell
    runs, masks = _stacked(architectures(methods, transfer, found), transfer)
    problem, strategy = learning(runs, transfer, size), training(weights, transfer)
    network, report = over_seeds(
        strategy,
        settings.keys("new task")[runs["seed"].to_numpy()],
        problem,
        network=architecture(masks),
        name=f"{size} examples, {weights}",
        progress=work.progress,
        checkpoint=work.checkpoint,
        labels=[f"{run.strategy}, sparsity {run.sparsity:g}, seed {run.seed}" for run in runs.itertuples()],
        dead_start="ignore",
        **settings.width(),
    )
    return runs.assign(
        weights=weights,
        size=size,
        accuracy=_accuracy(strategy, network, problem, transfer, runs),
        loss=np.asarray(network.info["loss"], np.float64)[:, -20:].mean(axis=1),
        density=np.asarray(jax.vmap(density)(network.mask), np.float64),
        dead_start=np.asarray(network.info.dead_start),
        failed_at=np.maximum(np.asarray(network.info.failed_at), runs["search_failed_at"]),
        seconds=report.seconds,
    ).pipe(without_failures, "accuracy", "loss")


def _accuracy(
    strategy: Strategy, network: Network, problem: Problem, transfer: Transfer, runs: pd.DataFrame
) -> np.ndarray:
    """Compute the share of test examples that each run classifies correctly."""
    rows = transfer.test[runs["seed"]]
    outputs = evaluate(strategy, network, problem, rows, batch_size=TEST_BATCH)
    return (outputs.argmax(-1) == transfer.new.y[rows]).mean(axis=1)


def without_failures(table: pd.DataFrame, *names: str) -> pd.DataFrame:
    """Replace the named measurements by NaN in runs that met NaN."""
    failed = table["failed_at"] >= 0
    return table.assign(**{name: table[name].mask(failed) for name in names})


def compared(table: pd.DataFrame, cell: list[str]) -> pd.DataFrame:
    """Compare the accuracies of every pair of methods in every cell, paired by seed.

    Args:
      table: one row a run, without the parent.
      cell: the columns that identify a cell.
    """
    cells = []
    for where, rows in table.groupby(cell, sort=False):
        by_seed = rows.pivot(index="seed", columns="strategy", values="accuracy")
        values = {method: by_seed[method].to_numpy() for method in rows["strategy"].unique()}
        cells.append(paired_differences(values).assign(**dict(zip(cell, where, strict=True))))
    return pd.concat(cells, ignore_index=True)


def _layers(runs: pd.DataFrame, masks: PyTree) -> pd.DataFrame:
    densities = {path: np.asarray(values) for path, values in jax.vmap(layer_density)(masks).items()}
    kept = runs[["strategy", "sparsity", "seed"]]
    table = pd.concat(
        [kept.assign(layer=path, density=densities[path]) for path in sorted(densities, key=natural_order)]
    )
    return table[table["strategy"] != PARENT].reset_index(drop=True)


def _budgets(methods: Sequence[str], transfer: Transfer) -> list[str]:
    """List the budget of each search; the budgets are not equal."""
    given = [f"{name} {n} x {steps}" for name, (n, steps) in trainings(methods, transfer).items()]
    return (
        [f"trainings x steps of each search, per seed: {', '.join(given)}; none for the others"]
        if given
        else []
    )


def _notes(found: dict[str, Architectures], settings: TransferSettings) -> list[str]:
    """List searches that failed, and densities that were not reached."""
    targets = sorted(settings.densities, reverse=True)
    by_search = {base(method): found[method] for method in found}
    return [note for search, of in by_search.items() for note in of.notes(search, targets, "density")]
