"""[A] section 3.1 and figure 1: a sparse logistic regression, at three soft temperatures."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from jax import Array
from rich.console import RenderableType

from jaxarch import ArgumentError, Descent, Problem, PyTree, Training, density, over_seeds, plots
from jaxarch.lab.checks import check_count, check_positive, check_strength
from jaxarch.lab.data import Dataset, load, unit_norm
from jaxarch.lab.harness import (
    Context,
    Experiment,
    Outcome,
    Results,
    TrainingSettings,
    check_room,
    costs,
    finding,
    tables,
)
from jaxarch.masks import check_temperatures
from jaxarch.search import architecture_pruning

LOSSES = "losses.npz"
CHUNK = 500
WINDOW = 20
"""Number of steps over which the objective of the batches is averaged around a given step."""


@dataclasses.dataclass(frozen=True)
class Settings(TrainingSettings):
    """Settings of `jaxarch run pruning.fig1`, changed with `--set NAME=VALUE`.

    The objective is (12): cross entropy, gamma times the number of connections (for the soft mask: its
    squared norm), and gamma times the squared norm of the weights. [A] gives neither the learning rates nor
    the standard deviations of the initial values.

    Attributes:
      dataset: a name of `jaxarch data`, or an npz file with x and y; every example is scaled to unit norm.
      classes: the two classes to tell apart; the second is y = 1.
      hard: the inverse temperature t_l of the mask in the loss.
      soft: the inverse temperatures t_s of the mask that the gradient passes through, at most t_l.
      seeds: independent runs at each soft temperature.
      steps: gradient steps of each run.
      early: the step at which the objective is reported, in addition to the last step.
      strength: gamma of the objective.
      scores_std: standard deviation of the initial scores.
      scores_rate: learning rate of the scores.
      weights_std: standard deviation of the initial weights.
      weights_rate: learning rate of the weights.
    """

    dataset: str = "digits"
    classes: tuple[int, ...] = (0, 1)
    hard: float = 1000.0
    soft: tuple[float, ...] = (1000.0, 10.0, 1.0)
    seeds: int = 10
    steps: int = 2000
    early: int = 200
    strength: float = 1e-2
    scores_std: float = 0.1
    scores_rate: float = 0.03
    weights_std: float = 0.1
    weights_rate: float = 0.3

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        self.check_each(check_count, "steps", "early")
        check_room(self.seeds, len(self.soft) * self.steps)
        self.check_numbers(check_positive, "soft")
        check_temperatures(self.hard, np.asarray(self.soft))
        self.check_each(check_strength, "scores_std", "weights_std", "strength")
        self.check_each(check_positive, "scores_rate", "weights_rate")
        if len(set(self.classes)) != 2 or len(self.classes) != 2:
            raise ArgumentError(f"classes: expected two, got {self.classes}")

    def data(self) -> Dataset:
        """Load the examples of the two classes, scaled to unit norm."""
        whole = unit_norm(load(self.dataset))
        rows = np.flatnonzero(np.isin(whole.y, self.classes))
        for label in self.classes:
            if not (whole.y == label).any():
                raise ArgumentError(f"classes: {self.dataset} has no examples of class {label}")
        second = (whole.y[rows] == self.classes[1]).astype(np.int32)
        return whole._replace(x=whole.x[rows], y=second)


def prepare(settings: Settings, data: Dataset) -> Problem:
    """Build the masked logistic regression, `F = sigma((m o theta) . x)`, with the objective (12)."""
    features = data.x.shape[1]

    def init(key: Array) -> tuple[PyTree, PyTree]:
        theta = settings.weights_std * jax.random.normal(key, (features,))
        return {"mask": jnp.ones(features), "weights": theta}, {}

    def loss(params: PyTree, state: PyTree, batch: PyTree, key: Any) -> tuple[Array, PyTree]:
        x, y = batch
        logits = x @ (params["mask"] * params["weights"])
        squares = jnp.sum(jnp.square(params["mask"])) + jnp.sum(jnp.square(params["weights"]))
        entropy = optax.sigmoid_binary_cross_entropy(logits, y.astype(logits.dtype)).mean()
        return entropy + settings.strength * squares, state

    descent = Descent(optax.sgd(settings.weights_rate), settings.steps, settings.batch_size)
    return Problem(init, loss, (data.x, data.y), descent)


def search(settings: Settings, soft: Any) -> Training:
    """Return the search over mask scores and weights together; the mask's own weights are held at 1."""
    weights = optax.partition(
        {"held": optax.set_to_zero(), "trained": optax.sgd(settings.weights_rate)},
        {"mask": "held", "weights": "trained"},
    )
    return architecture_pruning(
        (),
        settings.hard,
        soft,
        strength=0.0,
        factor=True,
        std=settings.scores_std,
        where="mask",
        scores_optimizer=optax.sgd(settings.scores_rate),
        weights_optimizer=weights,
    )


def plan(settings: Settings) -> list[str]:
    """Describe the trainings to be compiled and run."""
    data = settings.data()
    prepare(settings, data).check()
    return [
        f"data: {data.name}, {len(data.y)} examples of {settings.classes[0]} and {settings.classes[1]}",
        f"training: one program, {settings.steps} steps of batch {settings.batch_size} x "
        f"{settings.seeds * len(settings.soft)} runs; t_l {settings.hard:g}, t_s "
        + ", ".join(f"{soft:g}" for soft in settings.soft),
    ]


def run(settings: Settings, context: Context) -> Outcome:
    """Train at every soft temperature."""
    data = settings.data()
    cells = pd.MultiIndex.from_product([settings.soft, range(settings.seeds)], names=["soft", "seed"])
    runs = cells.to_frame(index=False)
    network, report = over_seeds(
        lambda soft: search(settings, soft),
        jnp.tile(settings.seed_keys(), len(settings.soft)),
        prepare(settings, data),
        jnp.asarray(runs["soft"], jnp.float32),
        name="architecture pruning",
        labels=[f"t_s {row.soft:g}, seed {row.seed}" for row in runs.itertuples()],
        chunk=CHUNK,
        dead_start="ignore",
        **context.options,
    )
    losses = np.asarray(network.info["loss"], np.float64)
    table = runs.assign(
        early=_around(losses, settings.early),
        last=_around(losses, settings.steps),
        density=np.asarray(jax.vmap(density)(network.mask)),
        seconds=report.seconds,
        failed_at=np.asarray(network.info.failed_at),
    )
    table[["early", "last"]] = table[["early", "last"]].where(table["failed_at"] < 0)
    spent = {"training": costs({"architecture pruning": (network, report)})}
    histories = {f"{soft:g}": losses[runs["soft"] == soft] for soft in settings.soft}
    return Outcome(table, _findings(table, settings), data, spent, arrays={LOSSES: histories})


def _around(losses: np.ndarray, step: int) -> np.ndarray:
    """Average the objective over the `WINDOW` steps around a step."""
    end = min(step + WINDOW // 2, losses.shape[1])
    return losses[:, max(end - WINDOW, 0) : end].mean(axis=1)


def conclusion(results: Results) -> Iterable[str]:
    """Compare the soft temperature of the least objective with t_s = t_l, or with the sharpest other one."""
    settings, table = results.settings, results.table
    reached = {soft: runs[runs["last"].notna()] for soft, runs in table.groupby("soft", sort=False)}
    reached = {soft: runs for soft, runs in reached.items() if len(runs)}
    what = f"{settings['dataset']}, {' against '.join(map(str, settings['classes']))}"
    if not reached:
        yield f"{what}: all {len(table)} runs met NaN or infinity, so no objective is known."
        return
    best = min(reached, key=lambda soft: reached[soft]["last"].median())
    runs = reached[best]
    yield (
        f"{what}: after {settings['steps']} steps the objective of [A] is lowest at t_s = {best:g}, "
        f"{tables.inline(runs['last'], '.3f')}, with {tables.inline(runs['density'], '.3f')} of the "
        f"connections left (median [quartiles] of {len(runs)} runs; lower is better)."
    )
    others = [soft for soft in reached if soft != best]
    if others:
        other = max(others)
        runs = reached[other]
        one = " = t_l, a single temperature," if other == settings["hard"] else ""
        yield (
            f"At t_s = {other:g}{one} it is {tables.inline(runs['last'], '.3f')}, with "
            f"{tables.inline(runs['density'], '.3f')} of the connections left ({len(runs)} runs)."
        )


def report(results: Results) -> list[RenderableType]:
    """Draw the figure and build its table."""
    settings, table, losses = results.settings, results.table, results.arrays(LOSSES)
    names = {f"{soft:g}": f"$t_s$ = {soft:g}" for soft in settings["soft"]}
    classes = " and ".join(map(str, settings["classes"]))
    title = f"{settings['dataset']}, {classes}, $t_l$ = {settings['hard']:g}"
    figure = plots.convergence({names[name]: losses[name] for name in names}, "objective (12)", title)
    results.draw(figure, "convergence")
    rows = [
        (f"{soft:g}", *(tables.spread(of_soft[column], ".3f") for column in ("early", "last", "density")))
        for soft, of_soft in table.groupby("soft", sort=False)
    ]
    columns = ("t_s", f"step {settings['early']}", f"step {settings['steps']}", "density")
    groups = ((f"t_s {soft:g}", part) for soft, part in table.groupby("soft", sort=False))
    return [
        tables.table("objective (12), median [quartiles]", columns, rows),
        *explain(settings),
        *results.remarks(groups),
    ]


def explain(settings: Mapping[str, Any]) -> list[str]:
    """Explain the columns of the table."""
    return [
        "- t_s: inverse temperature of the mask that the gradient passes through; the mask in the loss has "
        f"t_l = {settings['hard']:g}",
        f"- step {settings['early']}, step {settings['steps']}: mean objective of {WINDOW} steps "
        f"around it: cross entropy, gamma = {settings['strength']:g} times the connections, and gamma "
        "|weights|^2",
        "- density: share of connections left after the last step",
    ]


def _findings(table: pd.DataFrame, settings: Settings) -> list[dict[str, Any]]:
    quantities = {
        "early": f"objective (12) at step {settings.early}",
        "last": f"objective (12) at step {settings.steps}",
        "density": "share of connections left",
    }
    return [
        finding(f"{words}: t_s = {soft:g}", part[column])
        for soft, part in table.groupby("soft", sort=False)
        for column, words in quantities.items()
    ]


EXPERIMENT = Experiment(__name__, Settings, plan, run, report, conclusion)
