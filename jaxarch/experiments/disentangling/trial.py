"""What the experiments of [D] section 5 share: tasks, strategies, many runs, and what is measured."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from jax import Array

from jaxarch.data.sources import Dataset, load
from jaxarch.data.tasks import Task, take_task_rows, two_groups
from jaxarch.data.transforms import unit_norm
from jaxarch.errors import (
    ArgumentError,
    check_count,
    check_distinct,
    check_key,
    check_known,
    check_positive,
    shown,
)
from jaxarch.experiments.harness import records
from jaxarch.experiments.harness.experiment import FLOAT_BYTES, check_room, seed_keys
from jaxarch.masks import check_temperatures, density
from jaxarch.memory import check_memory
from jaxarch.metrics import auc, paired_differences
from jaxarch.models.supervised import supervised
from jaxarch.models.tanh_network import signed_output_loss, tanh_network
from jaxarch.problem import Network, Problem
from jaxarch.running.fit import Progress
from jaxarch.running.strategy import HostSearch, Report, chain, evaluate
from jaxarch.running.training import Training
from jaxarch.search.disentangling import disentangling_strategies

Groups = tuple[Sequence[int], Sequence[int]]


@dataclasses.dataclass(frozen=True)
class Setup:
    """What can be set in every experiment that trains: data, network, training.

    Attributes:
      dataset: a name of `jaxarch data`, or an npz file with x and y; every example is scaled to unit norm.
      test_per_class: examples of each class to test on, none of them among those for training.
      seeds: independent runs, each with its own split and start.
      steps: gradient steps of each training.
      batch_size: examples a step.
      learning_rate: of gradient descent.
      depth: layers of the network, each as wide as the examples have features.
      key: what all randomness derives from: an integer from 0 to 2^32 - 1.
    """

    dataset: str = "digits"
    test_per_class: int = 50
    seeds: int = 10
    steps: int = 600
    batch_size: int = 100
    learning_rate: float = 0.3
    depth: int = 2
    key: int = 0

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        for name in ("test_per_class", "seeds", "steps", "batch_size", "depth"):
            check_count(name, getattr(self, name))
        check_positive("learning_rate", self.learning_rate)
        check_key("key", self.key)
        check_room(self.seeds, self.steps + self.test_per_class)

    def data(self) -> Dataset:
        """The data set, every example of unit norm."""
        return unit_norm(load(self.dataset))

    def or_known(self, name: str, known: Mapping[str, tuple[Any, ...]], example: str) -> tuple[Any, ...]:
        """A setting; if it is empty, what is known for the data set."""
        values = getattr(self, name) or known.get(self.dataset, ())
        if not values:
            raise ArgumentError(
                f"{name}: none are known for {self.dataset}; name them, as in --set {name}={example}"
            )
        return values

    def run_keys(self, task: Task) -> Array:
        """One key a run: the same for both orientations of a split."""
        return seed_keys(self.key, self.seeds)[task.seeds]


@dataclasses.dataclass(frozen=True)
class Settings(Setup):
    """What can be set where strategies are compared.

    Attributes:
      hard: the inverse temperature M_hard, of the mask that the loss sees.
      soft: the inverse temperature M_soft, at most M_hard, of the mask that the gradient passes through.
      std: standard deviation of u at the start, where weights are w = u^2.
      strategies: those to run, as `jaxarch list` names them; all of them if it is empty.
      lottery_rounds: how often the lottery trains and prunes.
      lottery_form: `rewind`: weights go back to their start each round; `printed`: the recursion of [D].
      agnostic_draws: random architectures that the weight-agnostic search draws.
      agnostic_weights: shared weights that each of them is judged at.
    """

    hard: float = 50.0
    soft: float = 5.0
    std: float = 0.2
    strategies: tuple[str, ...] = ()
    lottery_rounds: int = 10
    lottery_form: Literal["rewind", "printed"] = "rewind"
    agnostic_draws: int = 20
    agnostic_weights: int = 10

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        check_positive("std", self.std)
        check_temperatures(self.hard, self.soft)
        known = self._known()
        if self.strategies:
            check_known("strategies", self.strategies, known)
        check_distinct("strategies", self.strategies)

    def chosen(self) -> dict[str, Any]:
        """The strategies to run, by name; all of them where none is named."""
        known = self._known()
        return {name: known[name] for name in self.strategies or known}

    def _known(self) -> dict[str, Any]:
        return disentangling_strategies(
            self.hard,
            self.soft,
            self.std,
            lottery_rounds=self.lottery_rounds,
            lottery_form=self.lottery_form,
            agnostic_draws=self.agnostic_draws,
            agnostic_weights=self.agnostic_weights,
        )


def split(
    settings: Setup,
    data: Dataset,
    groups: Groups,
    train_per_class: int,
    orientations: Sequence[bool] = (False, True),
) -> Task:
    """The splits of two groups of classes, for every seed and orientation."""
    return two_groups(
        jax.random.key(settings.key),
        data,
        *groups,
        train_per_class=train_per_class,
        test_per_class=settings.test_per_class,
        seeds=settings.seeds,
        orientations=orientations,
    )


def read_groups(text: str) -> Groups:
    """The two groups of classes of a task, from a text such as `1+2+3v4+5+6`."""
    if not re.fullmatch(r"\d+(\+\d+)*v\d+(\+\d+)*", text):
        raise ArgumentError(f"tasks: expected groups of classes such as 1+2+3v4+5+6, got {shown(text)}")
    first, second = (tuple(int(label) for label in group.split("+")) for group in text.split("v"))
    return first, second


def problem(settings: Setup, data: Dataset, task: Task) -> Problem:
    """Network (11) and loss (12) of [D] on a task, every run with its own split."""
    features = data.x.shape[1]
    check_memory(
        "depth", FLOAT_BYTES * settings.depth * features**2, f"one network of {settings.depth} layers"
    )
    return supervised(
        tanh_network((features,) * (settings.depth + 1)),
        (data.x, data.y),
        loss=signed_output_loss,
        optimizer=optax.sgd(settings.learning_rate),
        steps=settings.steps,
        batch_size=settings.batch_size,
        train=task.train,
        per_run={"targets": task.targets},
        gather=take_task_rows,
    )


def move(learning: Problem, task: Task, rows: int) -> Problem:
    """The same problem on another task, its training rows padded to a number: nothing compiles anew."""
    count = task.train.shape[1]
    repeated = np.arange(rows) % count
    return dataclasses.replace(
        learning,
        train=jnp.asarray(task.train[:, repeated]),
        train_size=jnp.asarray(count, jnp.int32),
        per_run={"targets": jnp.asarray(task.targets)},
    )


def trainings(chosen: dict[str, Any]) -> list[str]:
    """The trainings that the strategies need, those that they share once."""
    network: dict[tuple[Any, ...], str] = {}
    for strategy in chosen.values():
        stages = chain(strategy).stages
        for index, stage in enumerate(stages):
            if isinstance(stage, Training):
                network.setdefault(stages[: index + 1], stage.name)
    return list(network.values())


def orientation(flipped: bool) -> str:
    """Which group is y = 1, in words."""
    return "y = 1: second group" if flipped else "y = 1: first group"


def labels(task: Task) -> list[str]:
    """How the runs are called in reports."""
    return [
        f"{task.name}, seed {seed}, {orientation(flip)}"
        for seed, flip in zip(task.seeds, task.flipped, strict=True)
    ]


def titled(title: str, progress: Callable[[Progress], None] | None) -> Callable[[Progress], None] | None:
    """A progress callback that is told the task, too."""
    if progress is None:
        return None
    return lambda told: progress(dataclasses.replace(told, name=f"{title}: {told.name}"))


def measure(
    data: Dataset, task: Task, learning: Problem, strategies: dict[str, Any], done: dict[str, Any]
) -> pd.DataFrame:
    """One row for each run of each strategy: AUC and losses, density, costs and mishaps.

    `seconds` is measured once for all runs together: wall time x devices / runs, compilation apart. What runs
    first in a process takes up to twice as long.
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
    failed_at = info.get("failed_at", np.full(runs, -1))
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
    # NaN scores make an empty mask, whose figures would pass for those of a network.
    measured.loc[failed_at >= 0, ["auc", "loss", "test_loss", "density"]] = np.nan
    return measured


@jax.jit
def objectives(learning: Problem, params: Any, state: Any) -> Array:
    """F on the training rows of what every run found, shape (runs,)."""

    def objective(params: Any, state: Any, one: Problem) -> Array:
        return one.objective(params, state)

    return jax.vmap(objective, in_axes=(0, 0, learning.in_axes()))(params, state, learning)


def compare_runs(table: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Paired differences of AUC between all strategies, apart for each value of some columns."""
    compared = []
    for values, part in table.groupby(list(by), sort=False):
        runs = {name: rows.sort_values("seed")["auc"].to_numpy() for name, rows in by_strategy(part)}
        compared.append(paired_differences(runs).assign(**dict(zip(by, values, strict=True))))
    return pd.concat(compared, ignore_index=True)


def against(comparisons: pd.DataFrame, reference: str) -> pd.DataFrame:
    """The comparisons of one strategy with all others, as `reference - against`, whichever came first."""
    first, second = (comparisons[comparisons[side] == reference] for side in ("first", "second"))
    turned = second.copy()
    for low, high in (("q25", "q75"), ("mean_low", "mean_high")):
        turned[low], turned[high] = -second[high], -second[low]
    turned[["median", "mean", "effect"]] *= -1
    turned["wins"] = second["runs"] - second["wins"]
    both = pd.concat([first.assign(against=first["second"]), turned.assign(against=second["first"])])
    return both.drop(columns=["first", "second"]).sort_index()


def better_orientation(table: pd.DataFrame) -> dict[str, bool]:
    """For each task, whether it is better learned with the second group as y = 1.

    By the mean over strategies (and training sizes) of the median test AUC, those left out that are not
    trained. It decides what is shown first, and is no result: it is chosen on the test sets.
    """
    untrained = table["strategy"].str.startswith(("random", "agnostic"))
    chosen = table if untrained.all() else table[~untrained]
    by = [name for name in ("task", "flipped", "strategy", "train_per_class") if name in chosen]
    medians = chosen.groupby(by)["auc"].median()
    means = medians.groupby(["task", "flipped"]).mean().unstack("flipped")
    return {str(task): bool(row.fillna(0).idxmax()) for task, row in means.iterrows()}


def versus(task: str, flipped: bool) -> str:
    """A task in words, the group that is y = 1 first, as in `{4,5,6} v {1,2,3}`."""
    first, second = task.split(" v ")
    return f"{{{second}}} v {{{first}}}" if flipped else f"{{{first}}} v {{{second}}}"


def by_strategy(table: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The rows of each strategy, in the order in which they were run."""
    return [(str(name), runs) for name, runs in table.groupby("strategy", sort=False)]


def remarks(table: pd.DataFrame) -> list[str]:
    """What a reader of the table has to know: runs that failed, networks that are constant, ties."""
    noted = records.failures(by_strategy(table))
    for name, runs in by_strategy(table):
        constant = int((runs["constant"] & (runs["failed_at"] < 0)).sum())
        if constant:
            noted.append(
                f"! {name}: {constant} of {len(runs)} runs give the same output on all test examples "
                "(a saturated or empty network: AUC 0.5)"
            )
        tied = int((runs["ties"] > 0).sum())
        if tied:
            noted.append(f"! {name}: in {tied} of {len(runs)} runs several thresholds tie at the least F")
    return noted
