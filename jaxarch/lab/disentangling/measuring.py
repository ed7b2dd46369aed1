"""Measurements of the strategies of [D]: AUC, losses, densities, and their paired differences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np
import pandas as pd
from jax import Array

from jaxarch import HostSearch, Network, Problem, Report, Training, chain, density, evaluate
from jaxarch.lab.data import Dataset, Task
from jaxarch.lab.harness import Results
from jaxarch.metrics import auc, paired_differences


def trainings(chosen: dict[str, Any]) -> list[str]:
    """List the trainings that the strategies need; a shared training is listed once."""
    network: dict[tuple[Any, ...], str] = {}
    for strategy in chosen.values():
        stages = chain(strategy).stages
        for index, stage in enumerate(stages):
            if isinstance(stage, Training):
                network.setdefault(stages[: index + 1], stage.name)
    return list(network.values())


def measure(
    data: Dataset, task: Task, learning: Problem, strategies: dict[str, Any], done: dict[str, Any]
) -> pd.DataFrame:
    """Measure AUC, losses, density, costs and mishaps: one row for each run of each strategy.

    `seconds` is measured once for all runs together: wall time x devices / runs, without compilation. The
    first training in a process takes up to twice as long.
    """
    tables = [
        _measure_one(data, task, learning, name, strategies[name], network, report)
        for name, (network, report) in done.items()
    ]
    return pd.concat(tables, ignore_index=True)


def _measure_one(
    data: Dataset, task: Task, learning: Problem, name: str, strategy: Any, network: Network, report: Report
) -> pd.DataFrame:
    runs = len(task.seeds)
    outputs = evaluate(strategy, network, learning, task.test)
    truth = task.labels(data, task.test)
    if isinstance(strategy, HostSearch):
        loss = test_loss = np.full(runs, np.nan)
    else:
        loss = np.asarray(objectives(learning, network.params, network.state))
        test_loss = (outputs * (1 - 2 * truth)).mean(axis=1)
    info = {key: np.asarray(value) for key, value in network.info.items() if np.ndim(value) == 1}
    failed_at = np.full(runs, -1) if network.info.failed_at is None else np.asarray(network.info.failed_at)
    measured = pd.DataFrame(
        {
            "dataset": data.name,
            "task": task.name,
            "flipped": task.flipped,
            "train_per_class": np.bincount(data.y[task.train[0]]).max(),
            "strategy": name,
            "seed": task.seeds,
            "auc": auc(truth, outputs),
            "loss": loss,
            "test_loss": test_loss,
            "density": np.nan if network.mask is None else np.asarray(jax.vmap(density)(network.mask)),
            "seconds": report.seconds,
            "constant": np.ptp(outputs, axis=1) == 0,
            "failed_at": failed_at,
            "percentile": info.get("percentile", np.full(runs, np.nan)),
            "ties": info.get("ties", np.full(runs, np.nan)),
        }
    )
    # NaN scores make an empty mask, whose numbers would pass for a network's.
    measured.loc[failed_at >= 0, ["auc", "loss", "test_loss", "density"]] = np.nan
    return measured


@jax.jit
def objectives(learning: Problem, params: Any, state: Any) -> Array:
    """Compute F on the training rows for every run's network, shape (runs,)."""

    def objective(params: Any, state: Any, one: Problem) -> Array:
        return one.objective(params, state)

    return jax.vmap(objective, in_axes=(0, 0, learning.in_axes()))(params, state, learning)


def compare_runs(table: pd.DataFrame, by: Sequence[str], quantity: str = "auc") -> pd.DataFrame:
    """Compute paired differences of a quantity between all strategies, separately for each value of `by`."""
    compared = []
    for values, part in table.groupby(list(by), sort=False):
        runs = {name: rows.sort_values("seed")[quantity].to_numpy() for name, rows in by_strategy(part)}
        compared.append(paired_differences(runs).assign(**dict(zip(by, values, strict=True))))
    return pd.concat(compared, ignore_index=True)


def better_orientation(table: pd.DataFrame) -> dict[str, bool]:
    """Tell for each task whether it is better learned with the second group as y = 1.

    Better means the higher mean over strategies (and training sizes) of the median test AUC; untrained
    strategies are left out. It only decides the order of display and is no result: it is chosen on the test
    sets.
    """
    untrained = table["strategy"].str.startswith(("random", "agnostic"))
    chosen = table if untrained.all() else table[~untrained]
    by = [name for name in ("task", "flipped", "strategy", "train_per_class") if name in chosen]
    medians = chosen.groupby(by)["auc"].median()
    means = medians.groupby(["task", "flipped"]).mean().unstack("flipped")
    return {str(task): bool(row.fillna(0).idxmax()) for task, row in means.iterrows()}


def by_strategy(table: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Split the rows by strategy, in the order in which the strategies were run."""
    return [(str(name), runs) for name, runs in table.groupby("strategy", sort=False)]


MEANING = {
    "real": "weights w = u^2 >= 0 are trained; every connection is kept",
    "real->bin": "real, then the largest weights are kept and set to 1, at the threshold with the least F",
    "bin": "Algorithm 1 of [D] learns which connections to keep; all kept weights are 1",
    "bin->real warm": "bin, then its kept weights are trained, from 1",
    "bin->real cold": "bin, then its kept weights are trained, from a random start",
    "lottery": "iterative magnitude pruning: train, remove the smallest weights, rewind, repeat",
    "lottery->bin": "lottery, then the largest weights are kept and set to 1",
    "agnostic": "weight-agnostic search: random architectures, judged at several shared weights",
    "agnostic->real best": "agnostic, with the best of the shared weights",
    "agnostic->real random": "agnostic, with a random shared weight",
    "random": "untrained weights",
    "random->bin": "untrained weights, then the largest are kept and set to 1",
    "unconstrained real": "weights of both signs are trained (not in [D])",
    "logistic regression": "scikit-learn, on the same features (not in [D])",
}
"""One line on each strategy of `disentangling_strategies`."""


def explain(names: Iterable[str]) -> list[str]:
    """Return a line on each strategy shown."""
    return [f"- {name}: {MEANING[name]}" for name in names if name in MEANING]


def remarks(results: Results) -> list[str]:
    """List warnings for readers of the tables: training mishaps, constant networks, ties."""
    groups = by_strategy(results.table)
    noted = results.remarks(groups)
    for name, runs in groups:
        constant = int((runs["constant"] & (runs["failed_at"] < 0)).sum())
        if constant:
            noted.append(
                f"! {name}: {constant} of {len(runs)} runs give the same output on all test examples "
                "(a saturated or empty network: AUC 0.5)"
            )
        tied = int((runs["ties"] > 0).sum())
        if tied:
            noted.append(f"! {name}: in {tied} of {len(runs)} runs several thresholds reach the lowest F")
    return noted
