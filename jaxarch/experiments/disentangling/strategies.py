"""[D] section 5 on one task: every strategy, many runs, both orientations."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pandas as pd
from rich import box
from rich.console import RenderableType
from rich.table import Table

from jaxarch import plots, results
from jaxarch.data.sources import Dataset, load
from jaxarch.data.tasks import Task, take_task_rows, two_groups
from jaxarch.data.transforms import unit_norm
from jaxarch.errors import ArgumentError, check_count, check_positive, did_you_mean
from jaxarch.experiments.experiment import Experiment
from jaxarch.fit import Progress
from jaxarch.masks import check_temperatures, density
from jaxarch.metrics import auc, paired_differences, quartiles
from jaxarch.models.supervised import supervised
from jaxarch.models.tanh_network import signed_output_loss, tanh_network
from jaxarch.problem import Found, Problem
from jaxarch.storage import read_npz, save_tree
from jaxarch.strategies import disentangling_strategies
from jaxarch.strategy import HostSearch, chain, compare, evaluate
from jaxarch.training import Training

NAME = "disentangling.strategies"
LOSSES, MASKS, COMPARISONS = "losses.npz", "masks.npz", "comparisons.csv"


@dataclasses.dataclass(frozen=True)
class Settings:
    """What can be set with `jaxarch run disentangling.strategies --set NAME=VALUE`."""

    dataset: str = "digits"
    positive: tuple[int, ...] = (1, 2, 3)
    negative: tuple[int, ...] = (4, 5, 6)
    train_per_class: int = 100
    test_per_class: int = 50
    seeds: int = 10
    steps: int = 600
    batch_size: int = 100
    learning_rate: float = 0.3
    hard: float = 50.0
    soft: float = 5.0
    std: float = 0.2
    depth: int = 2
    key: int = 0
    strategies: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        for name in ("seeds", "steps", "batch_size", "depth", "train_per_class", "test_per_class"):
            check_count(name, getattr(self, name))
        for name in ("learning_rate", "std"):
            check_positive(name, getattr(self, name))
        if not 0 <= self.key < 2**32:
            raise ArgumentError(f"key: expected an integer from 0 to 2^32 - 1, got {self.key}")
        check_temperatures(self.hard, self.soft)
        known = disentangling_strategies()
        for name in self.strategies:
            if name not in known:
                raise ArgumentError(f"strategies: unknown {name!r}; {did_you_mean(name, known)}")


def prepare(settings: Settings) -> tuple[Dataset, Task, Problem, dict[str, Any]]:
    """Data, task, problem and strategies, all checked."""
    settings.check()
    data = unit_norm(load(settings.dataset))
    task = two_groups(
        jax.random.key(settings.key),
        data,
        settings.positive,
        settings.negative,
        train_per_class=settings.train_per_class,
        test_per_class=settings.test_per_class,
        seeds=settings.seeds,
    )
    features = data.x.shape[1]
    learning = supervised(
        tanh_network((features,) * (settings.depth + 1)),
        (data.x, data.y),
        loss=signed_output_loss,
        optimizer=optax.sgd(settings.learning_rate),
        steps=settings.steps,
        batch_size=settings.batch_size,
        train=task.train,
        own={"targets": task.targets},
        gather=take_task_rows,
    )
    named = disentangling_strategies(settings.hard, settings.soft, settings.std)
    chosen = {name: named[name] for name in settings.strategies or named}
    return data, task, learning, chosen


def plan(settings: Settings) -> list[str]:
    """What would be compiled and trained."""
    data, task, learning, chosen = prepare(settings)
    runs = len(task.seeds)
    params, _ = jax.eval_shape(learning.init, jax.random.key(0))
    shapes = " and ".join("x".join(map(str, leaf.shape)) for leaf in jax.tree.leaves(params))
    trainings: dict[tuple[Any, ...], str] = {}
    for strategy in chosen.values():
        stages = chain(strategy).stages
        for index, stage in enumerate(stages):
            if isinstance(stage, Training):
                trainings.setdefault(stages[: index + 1], stage.name)
    lines = [
        f"data: {data.name}, {data.x.shape[0]} x {data.x.shape[1]}; task {task.name}, both orientations",
        f"runs: {settings.seeds} seeds x 2 orientations = {runs}, in one program each training, "
        f"on {min(len(jax.devices()), runs)} of {len(jax.devices())} {jax.default_backend()} devices",
        f"network: weights {shapes}",
        f"examples a run: {task.train.shape[1]} for training, {task.test.shape[1]} for testing",
        f"strategies: {', '.join(chosen)}",
    ]
    lines += [
        f"training: {name}: {settings.steps} steps of batch {settings.batch_size} x {runs} runs"
        for name in trainings.values()
    ]
    return lines


def run(settings: Settings, folder: Path, progress: Callable[[Progress], None] | None = None) -> None:
    """Train all strategies and write results, manifest, losses and masks."""
    started = time.time()
    data, task, learning, chosen = prepare(settings)
    seed_keys = jax.random.split(jax.random.fold_in(jax.random.key(settings.key), 1), settings.seeds)
    orientations = ["y = 1: second group" if flip else "y = 1: first group" for flip in task.flipped]
    labels = [f"seed {seed}, {side}" for seed, side in zip(task.seeds, orientations, strict=True)]
    done = compare(chosen, seed_keys[task.seeds], learning, progress=progress, labels=labels)

    tables, losses, masks = [], {}, {}
    for name, (found, report) in done.items():
        tables.append(_rows(settings, data, task, learning, name, chosen[name], found, report.seconds))
        if "loss" in found.info and "->" not in name:
            losses[name] = np.asarray(found.info["loss"])
        if found.mask is not None:
            masks[name] = found.mask
    table = pd.concat(tables, ignore_index=True)
    table.to_csv(folder / results.RESULTS, index=False)
    _compare(table).to_csv(folder / COMPARISONS, index=False)
    save_tree(folder / LOSSES, losses)
    save_tree(folder / MASKS, masks)
    results.write_manifest(
        folder,
        results.manifest(
            dataclasses.asdict(settings),
            experiment=NAME,
            command=results.command_line(),
            key={"seed": settings.key, "implementation": str(jax.random.key_impl(jax.random.key(0)))},
            data={"name": data.name, "sha256": results.digest(data.x, data.y)},
            vmap_width={name: report.width for name, (_, report) in done.items()},
            compile_seconds={name: report.compile_seconds for name, (_, report) in done.items()},
            wall_seconds=time.time() - started,
            notes={name: report.notes for name, (_, report) in done.items() if report.notes},
            splits=[
                {"seed": int(seed), "train": task.train[i].tolist(), "test": task.test[i].tolist()}
                for i, seed in enumerate(task.seeds[: settings.seeds])
            ],
        ),
    )


def _rows(
    settings: Settings,
    data: Dataset,
    task: Task,
    learning: Problem,
    name: str,
    strategy: Any,
    found: Found,
    seconds: float,
) -> pd.DataFrame:
    """One row a run of one strategy."""
    runs = len(task.seeds)
    outputs = evaluate(strategy, found, learning, task.test)
    if isinstance(strategy, HostSearch):
        loss = test_loss = np.full(runs, np.nan)
    else:
        signs = 1 - 2 * task.labels(data, task.test)
        loss = np.asarray(_objectives(learning, found))
        test_loss = (outputs * signs).mean(axis=1)
    info = {key: np.asarray(value) for key, value in found.info.items() if np.ndim(value) == 1}
    failed_at = info.get("failed_at", np.full(runs, -1))
    measured = pd.DataFrame(
        {
            "experiment": NAME,
            "dataset": data.name,
            "task": task.name,
            "flipped": task.flipped,
            "train_per_class": settings.train_per_class,
            "strategy": name,
            "seed": task.seeds,
            "auc": auc(task.labels(data, task.test), outputs),
            "loss": loss,
            "test_loss": test_loss,
            "density": np.nan if found.mask is None else np.asarray(jax.vmap(density)(found.mask)),
            "seconds": seconds,
            "constant": np.ptp(outputs, axis=1) == 0,
            "failed_at": failed_at,
            "percentile": info.get("percentile", np.full(runs, np.nan)),
            "ties": info.get("ties", np.full(runs, np.nan)),
        }
    )
    # NaN scores make an empty mask, whose figures would pass for those of a network.
    measured.loc[failed_at >= 0, ["auc", "loss", "test_loss", "density"]] = np.nan
    return measured


def _objectives(learning: Problem, found: Found) -> jax.Array:
    def objective(params: Any, state: Any, one: Problem) -> jax.Array:
        return one.objective(params, state)

    mapped = jax.vmap(objective, in_axes=(0, 0, learning.in_axes()))
    return jax.jit(mapped)(found.params, found.state, learning)


def _compare(table: pd.DataFrame) -> pd.DataFrame:
    """Paired differences of AUC between all strategies, in each orientation."""
    compared = []
    for flipped, half in table.groupby("flipped"):
        values = {name: runs.sort_values("seed")["auc"].to_numpy() for name, runs in _by_strategy(half)}
        compared.append(paired_differences(values).assign(flipped=flipped))
    return pd.concat(compared, ignore_index=True)


def _by_strategy(table: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    return [(str(name), runs) for name, runs in table.groupby("strategy", sort=False)]


def report(folder: Path) -> list[RenderableType]:
    """Draw the figures of a folder from its files, and make its tables."""
    manifest = results.read_manifest(folder)
    table = results.read_table(folder)
    comparisons = results.read_table(folder, COMPARISONS)
    first, second = table["task"].iloc[0].split(" v ")
    sides = {False: f"y = 1: {{{first}}}", True: f"y = 1: {{{second}}}"}
    _draw(folder, manifest, table, sides)
    better = bool(table.groupby("flipped")["auc"].median().fillna(0).idxmax())
    rendered: list[RenderableType] = [
        _table(table[table["flipped"] == flipped], manifest, side, flipped == better)
        for flipped, side in sides.items()
    ]
    reference = "bin" if "bin" in set(table["strategy"]) else str(table["strategy"].iloc[0])
    rendered.append(
        _comparison_table(comparisons[comparisons["flipped"] == better], reference, sides[better])
    )
    rendered += [f"! {note}" for notes in manifest["notes"].values() for note in notes]
    rendered += _remarks(table)
    return rendered


def _draw(folder: Path, manifest: dict[str, Any], table: pd.DataFrame, sides: dict[bool, str]) -> None:
    settings = manifest["settings"]
    title = f"{manifest['data']['name']}, {settings['train_per_class']} training examples a class"
    values = {
        side: {
            name: runs["auc"].to_numpy() for name, runs in _by_strategy(table[table["flipped"] == flipped])
        }
        for flipped, side in sides.items()
    }
    plots.save(plots.by_strategy(values, "test AUC", title, chance=0.5), folder, "auc")
    first = ~table["flipped"].iloc[: 2 * settings["seeds"]].to_numpy()
    losses = read_npz(folder / LOSSES, "folder")
    histories = {name: losses[name][first] for name in dict.fromkeys(table["strategy"]) if name in losses}
    if histories:
        figure = plots.convergence(histories, "training loss F (eq. 12)", f"{title}; {sides[False]}")
        plots.save(figure, folder, "convergence")


def _table(table: pd.DataFrame, manifest: dict[str, Any], side: str, better: bool) -> Table:
    seeds = manifest["settings"]["seeds"]
    where = f"{side} (the better orientation)" if better else side
    rendered = _plain_table(f"{manifest['data']['name']}, {where}, {seeds} runs, medians")
    rendered.add_column("strategy", no_wrap=True)
    for column in ("AUC", "quartiles", "loss F", "density", "s a run"):
        rendered.add_column(column, justify="right")
    for name, runs in _by_strategy(table):
        median, q25, q75 = quartiles(runs["auc"])
        rendered.add_row(
            name,
            f"{median:.3f}",
            f"{q25:.3f} to {q75:.3f}",
            _number(quartiles(runs["loss"])[0], ".2f"),
            _number(quartiles(runs["density"])[0], ".3f"),
            _number(quartiles(runs["seconds"])[0], ".4f"),
        )
    return rendered


def _comparison_table(comparisons: pd.DataFrame, reference: str, side: str) -> Table:
    rendered = _plain_table(f"AUC of {reference} minus that of others, paired by split, {side}")
    rendered.add_column("against", no_wrap=True)
    for column in ("median", "quartiles", "95% of mean", "effect", "p adj."):
        rendered.add_column(column, justify="right")
    for _, pair in comparisons.iterrows():
        if reference not in (pair["first"], pair["second"]):
            continue
        sign = 1 if pair["first"] == reference else -1
        low, high = sorted((sign * pair["q25"], sign * pair["q75"]))
        mean_low, mean_high = sorted((sign * pair["mean_low"], sign * pair["mean_high"]))
        rendered.add_row(
            pair["second"] if sign == 1 else pair["first"],
            f"{sign * pair['median']:+.3f}",
            f"{low:+.3f} {high:+.3f}",
            f"{mean_low:+.3f} {mean_high:+.3f}",
            f"{sign * pair['effect']:+.2f}",
            f"{pair['p_adjusted']:.3f}",
        )
    return rendered


def _plain_table(title: str) -> Table:
    return Table(
        title=f"\n{title}",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_edge=False,
        min_width=min(len(title), 80),
    )


def _remarks(table: pd.DataFrame) -> list[RenderableType]:
    remarks: list[RenderableType] = []
    for name, runs in _by_strategy(table):
        failed = int((runs["failed_at"] >= 0).sum())
        if failed:
            remarks.append(f"! {name}: {failed} of {len(runs)} runs met NaN or infinity; they are left out")
        constant = int((runs["constant"] & (runs["failed_at"] < 0)).sum())
        if constant:
            remarks.append(
                f"! {name}: {constant} of {len(runs)} runs give the same output on all test examples "
                "(a saturated or empty network: AUC 0.5)"
            )
        tied = int((runs["ties"] > 0).sum())
        if tied:
            remarks.append(f"! {name}: in {tied} of {len(runs)} runs several thresholds tie at the least F")
    return remarks


def _number(value: float, form: str) -> str:
    return "-" if np.isnan(value) else format(value, form)


EXPERIMENT = Experiment(
    NAME,
    "section 5 of [D] on one task: AUC of every strategy, both orientations, paired tests",
    Settings,
    plan,
    run,
    report,
)
