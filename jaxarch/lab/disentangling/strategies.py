"""[D] section 5 on one task: every strategy, many runs, both orientations."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import numpy as np
import pandas as pd
from rich.console import RenderableType

from jaxarch import Problem, compare, plots
from jaxarch.lab.charts import Chart
from jaxarch.lab.checks import check_count
from jaxarch.lab.data import Dataset, Task
from jaxarch.lab.disentangling import measuring, trial
from jaxarch.lab.disentangling.certifying import certified_table, certify_runs
from jaxarch.lab.disentangling.settings import StrategySettings
from jaxarch.lab.harness import (
    CERTIFICATES,
    Context,
    Experiment,
    Outcome,
    Results,
    costs,
    finding,
    paired,
    tables,
)
from jaxarch.lab.harness.tables import Table
from jaxarch.metrics import quartiles

LOSSES, MASKS, COMPARISONS = "losses.npz", "masks.npz", "comparisons.csv"


@dataclasses.dataclass(frozen=True)
class Settings(StrategySettings):
    """Settings of `jaxarch run disentangling.strategies`, changed with `--set NAME=VALUE`.

    Attributes:
      positive: classes of the first group, which is y = 1 unless the task is flipped.
      negative: classes of the second group; no class is in both.
      train_per_class: examples of each class to train on.
    """

    positive: tuple[int, ...] = (1, 2, 3)
    negative: tuple[int, ...] = (4, 5, 6)
    train_per_class: int = 100

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        check_count("train_per_class", self.train_per_class)


def prepare(settings: Settings) -> tuple[Dataset, Task, Problem, dict[str, Any]]:
    """Build data, task, problem and strategies."""
    data = settings.data()
    task = trial.split(settings, data, (settings.positive, settings.negative), settings.train_per_class)
    return data, task, trial.problem(settings, data, task), settings.chosen()


COLUMNS = (
    "- loss F: eq. (12) of [D], the mean of (1 - 2 y) f(x) over training rows; lower is better",
    "- s per run: seconds of training, wall-clock time x devices / runs, without compilation",
)
"""Lines on the columns of a table of strategies."""


def plan(settings: Settings) -> list[str]:
    """Describe the trainings to be compiled and run."""
    data, task, learning, chosen = prepare(settings)
    runs = len(task.seeds)
    params, _ = jax.eval_shape(learning.init, jax.random.key(0))
    shapes = " and ".join("x".join(map(str, leaf.shape)) for leaf in jax.tree.leaves(params))
    lines = [
        f"data: {data.name}, {data.x.shape[0]} x {data.x.shape[1]}; task {task.name}, both orientations",
        f"runs: {settings.seeds} seeds x 2 orientations = {runs}, one program per training, "
        f"on {min(len(jax.devices()), runs)} of {len(jax.devices())} {jax.default_backend()} devices",
        f"network: weights {shapes}",
        f"examples per run: {task.train.shape[1]} for training, {task.test.shape[1]} for testing",
        f"strategies: {', '.join(chosen)}",
    ]
    each = f"{settings.steps} steps of batch {settings.batch_size} x {runs} runs"
    lines += [
        f"training: {name}: {each}" + (f", {times} times" if times > 1 else "")
        for name, times in Counter(measuring.trainings(chosen)).items()
    ]
    return lines


def run(settings: Settings, context: Context) -> Outcome:
    """Train all strategies."""
    data, task, learning, chosen = prepare(settings)
    done = compare(chosen, settings.run_keys(task), learning, labels=trial.labels(task), **context.options)
    context.doing("measuring and certifying the networks")
    table = measuring.measure(data, task, learning, chosen, done)
    comparisons = measuring.compare_runs(table, ["flipped"])
    losses = {
        name: np.asarray(network.info["loss"])
        for name, (network, _) in done.items()
        if "loss" in network.info and "->" not in name
    }
    masks = {name: network.mask for name, (network, _) in done.items() if network.mask is not None}
    splits = [
        {"seed": int(seed), "train": task.train[i].tolist(), "test": task.test[i].tolist()}
        for i, seed in enumerate(task.seeds[: settings.seeds])
    ]
    return Outcome(
        table,
        _findings(table, comparisons),
        data,
        tables={COMPARISONS: comparisons, CERTIFICATES: certify_runs(done, task, learning)},
        arrays={LOSSES: losses, MASKS: masks},
        facts={**costs(done), "splits": splits},
    )


def _findings(table: pd.DataFrame, comparisons: pd.DataFrame) -> list[dict[str, Any]]:
    """Report AUC and paired differences, the better orientation first."""
    found = []
    [(task, better)] = measuring.better_orientation(table).items()
    for flipped in (better, not better):
        where = f"{table['dataset'].iloc[0]} {trial.versus(task, flipped)}"
        pairs = comparisons[comparisons["flipped"] == flipped]
        found += [
            finding(f"AUC of {pair['first']} minus {pair['second']}, {where}", pair)
            for _, pair in pairs.iterrows()
        ]
        for name, runs in measuring.by_strategy(table[table["flipped"] == flipped]):
            found.append(finding(f"AUC of {name}, {where}", runs["auc"]))
    return found


def conclusion(results: Results) -> Iterable[str]:
    """Compare architectures whose weights are all 1 with trained weights, and name the best strategy.

    The numbers are of the orientation with the higher test AUC, over all trained strategies.
    """
    table, comparisons = results.table, results.read(COMPARISONS)
    better = measuring.better_orientation(table)[table["task"].iloc[0]]
    runs = dict(measuring.by_strategy(table[table["flipped"] == better]))
    medians = {name: rows["auc"].median() for name, rows in runs.items()}
    best = max(medians, key=lambda name: np.nan_to_num(medians[name], nan=-1.0))
    where = f"{results.manifest['data']['name']}, {_sides(table)[better]} (chosen by test AUC)"
    spread = {name: tables.inline(rows["auc"], ".3f") for name, rows in runs.items()}
    how = tables.counted(runs[name]["auc"] for name in dict.fromkeys((*({"bin", "real"} & set(runs)), best)))
    if {"bin", "real"} <= set(runs):
        pairs = paired.against(comparisons[comparisons["flipped"] == better], "bin", "real")
        yield (
            f"{where}: an architecture whose weights are all 1 (bin) has a test AUC of {spread['bin']}, and "
            f"trained weights >= 0 (real) have {spread['real']} ({how})."
        )
        if np.isfinite(pairs["median"].iloc[0]):
            said = paired.in_words(pairs.iloc[0], ".3f", "p_adjusted")
            yield f"Paired by split, bin minus real is {said}."
        if best not in ("bin", "real") and np.isfinite(medians[best]):
            yield f"The highest median is {medians[best]:.3f}, of {best}."
    else:
        yield f"{where}: the highest median test AUC is that of {best}, {spread[best]} ({how})."


def report(results: Results) -> list[RenderableType]:
    """Draw the figures and build the tables."""
    manifest, table, comparisons = results.manifest, results.table, results.read(COMPARISONS)
    sides = _sides(table)
    _draw(results, sides)
    better = measuring.better_orientation(table)[table["task"].iloc[0]]
    first, second = (
        _table(table[table["flipped"] == flipped], manifest, side, flipped == better)
        for flipped, side in sides.items()
    )
    names = [*measuring.explain(table["strategy"].unique()), *COLUMNS]
    rendered: list[RenderableType] = [first, *names, second]
    reference = "bin" if "bin" in set(table["strategy"]) else str(table["strategy"].iloc[0])
    rendered.append(
        _comparison_table(comparisons[comparisons["flipped"] == better], reference, sides[better])
    )
    certified = results.read(CERTIFICATES)
    where = f"{sides[better]}, {results.settings['seeds']} runs"
    rendered += certified_table(certified[certified["flipped"] == better], manifest["data"]["name"], where)
    return rendered + measuring.remarks(results)


def charts(results: Results) -> Iterator[Chart]:
    """Chart every run's AUC by strategy, and against its run time."""
    table = results.table.assign(side=results.table["flipped"].map(_sides(results.table)))
    labels = {"auc": "test AUC", "loss": "loss F", "seconds": "seconds per run", "side": "orientation"}
    tells = ("seed", "density", "loss", "seconds")
    name = results.manifest["data"]["name"]
    yield Chart(f"{name}: test AUC of every run", table, "auc", "strategy", "side", "", labels, tells)
    yield Chart(
        f"{name}: test AUC against run time",
        table,
        "seconds",
        "auc",
        "strategy",
        labels=labels,
        tells=("side", "seed", "density"),
        logarithmic=(True, False),
    )


def _sides(table: pd.DataFrame) -> dict[bool, str]:
    """Describe the orientations in words, keyed by `flipped`."""
    first, second = table["task"].iloc[0].split(" v ")
    return {False: f"y = 1: {{{first}}}", True: f"y = 1: {{{second}}}"}


def _draw(results: Results, sides: dict[bool, str]) -> None:
    settings, table = results.settings, results.table
    title = f"{results.manifest['data']['name']}, {settings['train_per_class']} training examples per class"
    values = {
        side: {
            name: runs["auc"].to_numpy()
            for name, runs in measuring.by_strategy(table[table["flipped"] == flipped])
        }
        for flipped, side in sides.items()
    }
    results.draw(plots.by_strategy(values, "test AUC", title, chance=0.5), "auc")
    first = ~table["flipped"].iloc[: 2 * settings["seeds"]].to_numpy()
    losses = results.arrays(LOSSES)
    histories = {name: losses[name][first] for name in dict.fromkeys(table["strategy"]) if name in losses}
    if histories:
        figure = plots.convergence(histories, "training loss F (eq. 12)", f"{title}; {sides[False]}")
        results.draw(figure, "convergence")


def _table(table: pd.DataFrame, manifest: dict[str, Any], side: str, better: bool) -> Table:
    seeds = manifest["settings"]["seeds"]
    where = f"{side} (the better orientation)" if better else side
    rows = []
    for name, runs in measuring.by_strategy(table):
        median, q25, q75 = quartiles(runs["auc"])
        rows.append(
            (
                name,
                f"{median:.3f}",
                f"{q25:.3f} to {q75:.3f}",
                tables.median(runs["loss"], ".2f"),
                tables.median(runs["density"], ".3f"),
                tables.median(runs["seconds"], ".4f"),
            )
        )
    columns = ("strategy", "AUC", "quartiles", "loss F", "density", "s per run")
    return tables.table(f"{manifest['data']['name']}, {where}, {seeds} runs, medians", columns, rows)


def _comparison_table(comparisons: pd.DataFrame, reference: str, side: str) -> Table:
    rows = [
        (
            pair["against"],
            f"{pair['median']:+.3f}",
            f"{pair['q25']:+.3f} {pair['q75']:+.3f}",
            f"{pair['mean_low']:+.3f} {pair['mean_high']:+.3f}",
            f"{pair['effect']:+.2f}",
            f"{pair['p_adjusted']:.3f}",
        )
        for _, pair in paired.against(comparisons, reference).iterrows()
    ]
    columns = ("against", "median", "quartiles", "95% interval of mean", "effect", "adjusted p")
    return tables.table(f"AUC of {reference} minus AUC of others, paired by split, {side}", columns, rows)


EXPERIMENT = Experiment(__name__, Settings, plan, run, report, conclusion, charts=charts)
