"""[D] figure 3: convergence of Algorithm 1 over both temperatures, initial scores and learning rates."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from rich.console import RenderableType

from jaxarch import ArgumentError, Problem, Training, over_seeds, plots
from jaxarch.lab.checks import check_count, check_positive
from jaxarch.lab.data import Dataset, Task
from jaxarch.lab.disentangling import measuring, trial
from jaxarch.lab.disentangling.settings import TaskSettings
from jaxarch.lab.harness import Context, Experiment, Outcome, Results, costs, finding, tables
from jaxarch.search import two_temperature

LOSSES = "losses.npz"
CELL = ["variant", "hard", "soft", "flipped"]


@dataclasses.dataclass(frozen=True)
class Settings(TaskSettings):
    """Settings of `jaxarch run disentangling.fig3`, changed with `--set NAME=VALUE`.

    Attributes:
      positive: classes of the first group, which is y = 1 unless the task is flipped.
      negative: classes of the second group; no class is in both.
      train_per_class: examples of each class to train on.
      hards: the inverse temperatures M_hard.
      ratios: M_hard / M_soft, at least 1; each ratio is run at every M_hard.
      mean: mean of the initial scores, equal at every temperature unless a variant scales it with 1/M_hard.
      score_std: standard deviation of the initial scores, scaled like their mean.
      reference: the M_hard at which the scaled scores and the scaled learning rate equal the values set here.
      rate_without_factor: the learning rate where the gradient lacks its factor M_soft. By default it is 10
        times the other learning rate, which makes the steps equal at M_soft = 10.
    """

    positive: tuple[int, ...] = (1, 2, 3)
    negative: tuple[int, ...] = (4, 5, 6)
    train_per_class: int = 100
    hards: tuple[float, ...] = (10.0, 50.0, 500.0)
    ratios: tuple[float, ...] = (1.0, 2.0, 10.0, 100.0)
    mean: float = -0.2
    score_std: float = 0.1
    reference: float = 50.0
    rate_without_factor: float = 3.0

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        check_count("train_per_class", self.train_per_class)
        self.check_numbers(check_positive, "hards", "ratios")
        if min(self.ratios) < 1:
            raise ArgumentError(f"ratios: expected M_hard / M_soft of at least 1, got {min(self.ratios)}")
        self.check_each(check_positive, "score_std", "reference", "rate_without_factor")

    def temperatures(self) -> list[tuple[float, float]]:
        """Return the grid of M_hard and M_soft."""
        return [(hard, hard / ratio) for hard in self.hards for ratio in self.ratios]


class Variant(NamedTuple):
    """Factors that are varied beside the temperatures.

    With scores in units of 1/M_hard and the learning rate in units of 1/M_hard^2, training depends on the
    ratio of the temperatures alone, exactly.
    """

    scaled_start: bool = False
    scaled_rate: bool = False
    factor: bool = True


def variants(settings: Settings) -> dict[str, Variant]:
    """Return the variants, keyed by their names in tables and figures."""
    start, unit = f"N({settings.mean:g}, {settings.score_std:g})", f"{settings.reference:g}/M_hard"
    rate = settings.rate_without_factor
    return {
        f"start {start}": Variant(),
        f"start {start} x {unit}": Variant(scaled_start=True),
        f"start {start} x {unit}, rate x ({unit})^2": Variant(scaled_start=True, scaled_rate=True),
        f"start {start}, no factor M_soft, rate {rate:g}": Variant(factor=False),
    }


def prepare(settings: Settings) -> tuple[Dataset, Task, Problem]:
    """Build data, task and problem."""
    data = settings.data()
    task = trial.split(settings, data, (settings.positive, settings.negative), settings.train_per_class)
    return data, task, trial.problem(settings, data, task)


def plan(settings: Settings) -> list[str]:
    """Describe the trainings to be compiled and run."""
    data, task, _ = prepare(settings)
    cells = len(settings.temperatures())
    runs = len(task.seeds)
    return [
        f"data: {data.name}, {data.x.shape[0]} x {data.x.shape[1]}; task {task.name}, both orientations",
        f"temperatures: {cells} pairs (M_hard, M_soft): "
        + ", ".join(f"({hard:g}, {soft:g})" for hard, soft in settings.temperatures()),
        *(f"variant: {name}" for name in variants(settings)),
        f"trainings: {len(variants(settings))}, one program each: "
        f"{settings.steps} steps x {cells} pairs x {runs} runs",
    ]


def run(settings: Settings, context: Context) -> Outcome:
    """Train at all temperatures, each variant in one program."""
    data, task, learning = prepare(settings)
    grid, runs = settings.temperatures(), len(task.seeds)
    wide = dataclasses.replace(
        learning,
        train=jnp.tile(learning.train, (len(grid), 1)),
        per_run=jax.tree.map(lambda leaf: jnp.tile(leaf, (len(grid), 1)), learning.per_run),
    )
    keys = jnp.tile(settings.run_keys(task), len(grid))
    measured, histories, spent = [], {}, {}
    for index, (name, variant) in enumerate(variants(settings).items()):
        sweep = sweep_of(settings, grid, runs, variant)
        labels = [
            f"M_hard {hard:g}, M_soft {soft:g}, {label}"
            for hard, soft in grid
            for label in trial.labels(task)
        ]
        network, report_ = over_seeds(
            _Search(variant.factor),
            keys,
            wide,
            sweep,
            name=name,
            labels=labels,
            dead_start="ignore",
            **context.options,
        )
        spent[name] = costs({"bin": (network, report_)})
        histories[str(index)] = np.asarray(network.info["loss"]).reshape(len(grid), runs, -1)
        for cell, (hard, soft) in enumerate(grid):
            part = jax.tree.map(lambda leaf, cell=cell: leaf[cell * runs : (cell + 1) * runs], network)
            rows = measuring.measure(
                data, task, learning, {"bin": two_temperature()}, {"bin": (part, report_)}
            )
            rows["dead_start"] = np.asarray(part.info.dead_start)
            measured.append(rows.assign(variant=name, hard=hard, soft=soft))
    table = pd.concat(measured, ignore_index=True)
    return Outcome(
        table,
        _findings(table),
        data,
        spent,
        arrays={LOSSES: histories},
        facts={"flipped": task.flipped.tolist()},
    )


def sweep_of(
    settings: Settings, grid: list[tuple[float, float]], runs: int, variant: Variant
) -> dict[str, Any]:
    """Build every run's temperatures, distribution of initial scores, and learning rate."""
    hard, soft = (np.repeat(values, runs).astype(np.float32) for values in zip(*grid, strict=True))
    unit = settings.reference / hard
    start = unit if variant.scaled_start else np.ones_like(hard)
    rate = settings.learning_rate if variant.factor else settings.rate_without_factor
    sweep = {
        "hard": hard,
        "soft": soft,
        "mean": settings.mean * start,
        "std": settings.score_std * start,
        "rate": rate * (unit**2 if variant.scaled_rate else np.ones_like(hard)),
    }
    return {name: jnp.asarray(values, jnp.float32) for name, values in sweep.items()}


@dataclasses.dataclass(frozen=True)
class _Search:
    """Builds the search of one run from its temperatures, score distribution and learning rate."""

    factor: bool

    def __call__(self, sweep: dict[str, Any]) -> Training:
        rest = {name: value for name, value in sweep.items() if name != "rate"}
        optimizer = optax.sgd(sweep["rate"])
        return two_temperature(**rest, scale="absolute", factor=self.factor, optimizer=optimizer)


def conclusion(results: Results) -> Iterable[str]:
    """Compare the best soft temperature with M_soft = M_hard, at the sharpest mask of the first variant."""
    table = results.table[~results.table["flipped"]]
    table = table[table["variant"] == table["variant"].iloc[0]]
    sharpest = table[table["hard"] == table["hard"].max()]
    losses = {soft: runs["loss"] for soft, runs in sharpest.groupby("soft", sort=False)}
    best = min(losses, key=lambda soft: np.nan_to_num(losses[soft].median(), nan=np.inf))
    hard = sharpest["hard"].iloc[0]
    side = trial.versus(table["task"].iloc[0], False)
    said = f"{results.manifest['data']['name']} {side}, {table['variant'].iloc[0]}, M_hard = {hard:g}"
    if not losses[best].notna().any():
        yield f"{said}: all runs met NaN or infinity."
        return
    yield (
        f"{said}: the training loss F is lowest at M_soft = {best:g}, {tables.inline(losses[best], '.1f')} "
        f"({tables.counted([losses[best]])}; lower is better)."
    )
    if hard in losses and best != hard:
        yield f"With one temperature, M_soft = M_hard, F is {tables.inline(losses[hard], '.1f')}."


def report(results: Results) -> list[RenderableType]:
    """Draw the figures and build the tables."""
    manifest, table, histories = results.manifest, results.table, results.arrays(LOSSES)
    flipped = np.asarray(manifest["flipped"])
    grid = list(table[["hard", "soft"]].drop_duplicates().itertuples(index=False))
    names = list(dict.fromkeys(table["variant"]))
    rendered: list[RenderableType] = []
    for flip in (False, True):
        side = trial.orientation(flip)
        panels = {
            name: {
                f"M_hard = {hard:g}": {
                    f"M_hard / {hard / soft:g}": histories[str(index)][cell][flipped == flip]
                    for cell, (other, soft) in enumerate(grid)
                    if other == hard
                }
                for hard in dict.fromkeys(hard for hard, _ in grid)
            }
            for index, name in enumerate(names)
        }
        title = f"{manifest['data']['name']}, {table['task'].iloc[0]}, {side}; lines: M_soft"
        figure = plots.convergence_grid(panels, "training loss F (eq. 12)", title)
        results.draw(figure, f"convergence-{'second' if flip else 'first'}")
        rendered += [_table(table[table["flipped"] == flip], name, side) for name in names]
    dead = table[table["dead_start"]].groupby(CELL[:3]).size()
    rendered += [
        f"! {variant}: M_hard {hard:g}, M_soft {soft:g}: {count} runs start with a gradient of exactly 0"
        for (variant, hard, soft), count in dead.items()
    ]
    return rendered + measuring.remarks(results)


def _table(table: pd.DataFrame, variant: str, side: str) -> Any:
    part = table[table["variant"] == variant]
    rows = [
        (
            f"{hard:g}",
            f"{soft:g}",
            tables.spread(runs["loss"], ".1f"),
            tables.spread(runs["auc"], ".3f"),
            tables.median(runs["density"], ".3f"),
        )
        for (hard, soft), runs in part.groupby(["hard", "soft"], sort=False)
    ]
    columns = ("M_hard", "M_soft", "F", "test AUC", "density")
    return tables.table(f"{side}; {variant}: networks found, median [quartiles]", columns, rows)


def _findings(table: pd.DataFrame) -> list[dict[str, Any]]:
    dataset, task = table[["dataset", "task"]].iloc[0]
    return [
        finding(
            f"F at M_hard {hard:g}, M_soft {soft:g}; {variant}; {dataset} {trial.versus(task, flipped)}",
            runs["loss"],
        )
        for (variant, hard, soft, flipped), runs in table.groupby(CELL, sort=False)
    ]


EXPERIMENT = Experiment(__name__, Settings, plan, run, report, conclusion)
