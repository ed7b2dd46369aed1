"""Linear mode connectivity of pruned networks: do two trainings that part at a step end in one valley?"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from jax import Array
from rich.console import RenderableType

from jaxarch import (
    ArgumentError,
    ByDensity,
    Network,
    PyTree,
    Start,
    map_selected,
    over_seeds,
    plots,
    retrain,
)
from jaxarch.analysis import barrier
from jaxarch.lab.analysis.rows import rows_of
from jaxarch.lab.analysis.settings import ParentSettings
from jaxarch.lab.charts import Chart
from jaxarch.lab.checks import check_count, check_distinct, check_positive
from jaxarch.lab.harness import (
    Context,
    Experiment,
    Outcome,
    Part,
    Results,
    Work,
    finding,
    paired,
    tables,
)
from jaxarch.lab.harness.results import failures
from jaxarch.lab.harness.tables import Table
from jaxarch.lab.pruning.parents import in_words
from jaxarch.lab.pruning.settings import check_share
from jaxarch.lab.tournament.task import PictureTask, prepare
from jaxarch.masks import apply_mask, reshuffle
from jaxarch.search import magnitude_pruning
from jaxarch.transforms import density_name

DENSE, TICKETS, RANDOM = KINDS = ("dense", "lottery tickets", "random")
MEANING = {
    DENSE: "all connections",
    TICKETS: "magnitude pruning in rounds, each rewound to the step at which the two trainings part",
    RANDOM: "the connections of the tickets, permuted within each layer",
}
COMPARISONS = "comparisons.csv"
BARRIERS = {"error_barrier": "test error", "loss_barrier": "training loss"}
"""Columns with a barrier, and the quantity that rises between the two networks."""


@dataclasses.dataclass(frozen=True)
class InstabilitySettings(ParentSettings):
    """Settings of `jaxarch run analysis.instability`, changed with `--set NAME=VALUE`.

    Values that are empty, 0 or `auto` become the data set's defaults.

    Attributes:
      steps: gradient steps of a whole training.
      part_at: steps at which two trainings part, each below `steps`. Tickets are rewound to them.
      fraction: the largest share of the connections left that a round of magnitude pruning removes.
      points: places between the two networks at which loss and error are computed, both ends included.
      stable: the largest barrier of the test error that counts as connected.
    """

    part_at: tuple[int, ...] = ()
    fraction: float = 0.2
    points: int = 25
    stable: float = 0.02

    hidden = (100, 100)
    suits_all = MappingProxyType(
        {
            "model": "mlp",
            "steps": 1000,
            "batch_size": 60,
            "rate": 3e-3,
            "seeds": 10,
            "part_at": (0, 25, 50, 100, 200, 400),
        }
    )
    suits = MappingProxyType(
        {
            "mnist": {
                "model": "lenet",
                "steps": 2000,
                "rate": 1.2e-3,
                "seeds": 5,
                "part_at": (0, 50, 100, 200, 400, 800),
            }
        }
    )

    def complete(self) -> Self:
        """Fill in the data set's defaults."""
        settings = super().complete()
        return dataclasses.replace(settings, part_at=tuple(sorted(settings.part_at)))

    def which_parts(self) -> tuple[str, ...]:
        """Name the setting that selects parts: each step is one."""
        return ("part_at",)

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        check_distinct("part_at", self.part_at)
        for step in self.part_at:
            check_count("part_at", step, 0)
            if step >= self.steps:
                raise ArgumentError(f"part_at: expected steps below {self.steps}, got {step}")
        self.check_each(check_share, "fraction")
        check_count("points", self.points, 3)
        self.check_each(check_positive, "stable")
        if self.seeds < 2:
            raise ArgumentError(f"seeds: expected at least 2, for a spread, got {self.seeds}")


Task = PictureTask[InstabilitySettings]


def plan(settings: InstabilitySettings) -> list[str]:
    """Describe the searches and trainings."""
    task = prepare(settings)
    return [
        f"parent: {in_words(settings)}, {task.connections} connections; {task.form()}",
        f"masks: {', '.join(KINDS)}; densities "
        f"{', '.join(f'{density:g}' for density in settings.densities)}; {settings.seeds} seeds",
        f"two trainings of each mask part at steps {', '.join(map(str, settings.part_at))} of "
        f"{settings.steps}, and see other batches from there on; barriers at {settings.points} places",
    ]


def run(settings: InstabilitySettings, context: Context) -> Outcome:
    """Find tickets for every step, train each mask twice from there, and measure the barriers."""
    steps = [Part(f"step {step}", _measured, step) for step in settings.part_at]
    table, facts = rows_of(prepare, settings, steps, context)
    compared = _comparisons(table)
    return Outcome(table, _findings(table, compared), tables={COMPARISONS: compared}, facts=facts)


class Parting(NamedTuple):
    """Masked networks of all seeds at the step where two trainings part.

    Attributes:
      kind: one of `KINDS`.
      density: the share of connections that is kept.
      network: the networks, with a leading axis of seeds.
      failed_at: the step at which a seed's search failed; -1 for none.
    """

    kind: str
    density: float
    network: Network
    failed_at: np.ndarray


def _measured(task: Task, step: int, found: Mapping[str, Any], work: Work) -> pd.DataFrame:
    """Train every mask twice from one step on: a row for each mask and seed."""
    settings = task.settings
    options = {"progress": work.progress, "checkpoint": work.checkpoint, **settings.width()}
    partings = _partings(task, step, {**options, "name": f"tickets of step {step}"})
    count, seeds = len(partings), np.arange(settings.seeds)
    # Each network twice. Both sides have keys of their own, so that they draw other batches.
    both = jax.tree.map(lambda *of: jnp.concatenate([*of, *of]), *(each.network for each in partings))
    sides = jax.vmap(partial(jax.random.split, num=2))(task.keys("training"))
    keys = jnp.concatenate([jnp.concatenate([sides[:, side]] * count) for side in (0, 1)])
    learning = dataclasses.replace(task.learning(np.tile(seeds, 2 * count)), paired=None)
    training = retrain("warm", nonnegative=False, steps=settings.steps - step)
    trained, _ = over_seeds(
        training, keys, learning, network=both, name=f"two trainings from step {step}", **options
    )
    failed = np.asarray(trained.info.failed_at).reshape(2, count, -1).max(axis=0)
    found_between = _between(task, trained, np.tile(seeds, count))
    rows = []
    for number, each in enumerate(partings):
        runs = slice(number * len(seeds), (number + 1) * len(seeds))
        failed_at = np.maximum(failed[number], each.failed_at)
        measured = {
            name: np.where(failed_at < 0, values[runs], np.nan) for name, values in found_between.items()
        }
        about = {"strategy": each.kind, "density": each.density, "part_at": step, "seed": seeds}
        rows.append(pd.DataFrame({**about, **measured, "failed_at": failed_at}))
    return pd.concat(rows, ignore_index=True)


def _partings(task: Task, step: int, options: Mapping[str, Any]) -> list[Parting]:
    """Find tickets of all densities, and return their networks at a step beside dense and random ones."""
    settings = task.settings
    seeds = np.arange(settings.seeds)
    search = magnitude_pruning(settings.densities, fraction=settings.fraction, rewind_to=step)
    network, _ = over_seeds(search, task.keys("search"), task.learning(seeds), **options)
    start, tickets = network[Start], network[ByDensity]
    everything = map_selected(jnp.ones_like, network.mask)
    # The search begins with a dense training, whose weights at this step all networks share.
    masks = [(DENSE, 1.0, everything, np.full(len(seeds), -1))]
    for density in settings.densities:
        name = density_name(density)
        failed = np.asarray((tickets.failed_at or {}).get(name, np.full(len(seeds), -1)))
        ticket = tickets.masks[name]
        masks.append((TICKETS, density, ticket, failed))
        masks.append((RANDOM, density, jax.vmap(reshuffle)(task.keys("controls"), ticket), failed))
    return [
        Parting(kind, density, Network(jax.vmap(apply_mask)(mask, start.params), mask, network.state), failed)
        for kind, density, mask, failed in masks
    ]


def _between(task: Task, trained: Network, seeds: np.ndarray) -> dict[str, np.ndarray]:
    """Return accuracies and barriers of pairs: the first half of some runs beside the second half."""
    first, second = (
        jax.tree.map(lambda leaf, side=side: leaf.reshape(2, -1, *leaf.shape[1:])[side], trained.params)
        for side in (0, 1)
    )
    problem, state = task.problem, task.problem.init(jax.random.key(0))[1]
    loss, error = _quantities(problem.predict)
    batch = partial(problem.gather, problem.data, None)

    def of(one: PyTree, other: PyTree, rows: Array) -> dict[str, Array]:
        losses = barrier(partial(loss, state), one, other, [batch(rows)], task.settings.points)
        errors = barrier(
            partial(error, state), one, other, [batch(jnp.asarray(task.test))], task.settings.points
        )
        accuracy = 1 - (errors.losses[0] + errors.losses[-1]) / 2
        return {"accuracy": accuracy, "error_barrier": errors.height, "loss_barrier": losses.height}

    rows = jnp.asarray(task.train[seeds])
    return {name: np.asarray(values) for name, values in jax.vmap(of)(first, second, rows).items()}


@cache
def _quantities(predict: Callable[..., Array]) -> tuple[Callable[..., Array], Callable[..., Array]]:
    """Return the loss and the error rate of a batch; cached, since new functions would be compiled again."""

    def loss(state: PyTree, params: PyTree, batch: Any) -> Array:
        outputs = predict(params, state, batch)
        return optax.softmax_cross_entropy_with_integer_labels(outputs, batch[1]).mean()

    def error(state: PyTree, params: PyTree, batch: Any) -> Array:
        return (predict(params, state, batch).argmax(-1) != batch[1]).mean(dtype=jnp.float32)

    return loss, error


def _comparisons(runs: pd.DataFrame) -> pd.DataFrame:
    """Compare barriers of tickets with those of other networks that part at the same step, seed by seed."""
    rows = []
    for (step, density), of in runs[runs["strategy"] == TICKETS].groupby(["part_at", "density"]):
        there = runs[runs["part_at"] == step]
        others = {
            DENSE: there[there["strategy"] == DENSE],
            RANDOM: there[(there["strategy"] == RANDOM) & (there["density"] == density)],
        }
        for against, other in others.items():
            for barrier_of in BARRIERS:
                row = paired.difference(*(each.set_index("seed")[barrier_of] for each in (of, other)))
                about = {"part_at": step, "density": density, "against": against, "barrier": barrier_of}
                rows.append({**about, **row})
    # One question has all steps and densities; each barrier and reference is a question of its own.
    return paired.adjusted(pd.DataFrame(rows), ["against", "barrier"])


def _findings(runs: pd.DataFrame, compared: pd.DataFrame) -> list[dict[str, Any]]:
    """Report accuracies and barriers, and the differences of tickets from others."""
    found = []
    for (kind, density, step), of in runs.groupby(["strategy", "density", "part_at"], sort=False):
        told = f"{kind}, density {density:g}, parted at step {step}"
        found.append(finding(f"test accuracy of {told}", of["accuracy"]))
        found += [
            finding(f"barrier of the {quantity} of {told}", of[name]) for name, quantity in BARRIERS.items()
        ]
    return found + [
        finding(
            f"barrier of the {BARRIERS[row['barrier']]}, {TICKETS} minus {row['against']}, density "
            f"{row['density']:g}, parted at step {row['part_at']}",
            row,
        )
        for _, row in compared.iterrows()
    ]


def connected_from(runs: pd.DataFrame, stable: float) -> dict[tuple[str, float], float]:
    """Return the first step from which on the median barrier of the error is at most `stable`, by mask.

    Infinite if it is larger at the last step.
    """
    found = {}
    for (kind, density), of in runs.groupby(["strategy", "density"], sort=False):
        medians = of.groupby("part_at")["error_barrier"].median()
        # NaN, if most runs failed, is not connected.
        apart = medians.index[~(medians <= stable)]
        later = medians.index[medians.index > (apart.max() if len(apart) else -1)]
        found[str(kind), float(density)] = float(later.min()) if len(later) else np.inf
    return found


def conclusion(results: Results) -> Iterable[str]:
    """Tell from which step on networks are connected, and whether tickets differ from others."""
    settings, table, compared = results.settings, results.table, results.read(COMPARISONS)
    steps = connected_from(table, settings["stable"])

    def said(kind: str, density: float) -> str:
        step = steps[kind, density]
        when = "at no step tried" if np.isinf(step) else f"from step {step:.0f} on"
        return f"{kind} {when}" if kind == DENSE else f"{kind} of density {density:g} {when}"

    yield (
        f"{settings['dataset']}, {in_words(settings)}: two trainings of {settings['steps']} steps that part "
        f"have a median barrier of the test error of at most {settings['stable']:g}: "
        f"{'; '.join(said(*mask) for mask in steps)} ({settings['seeds']} seeds)."
    )
    least = compared["density"].min()
    for against in (RANDOM, DENSE):
        # The loss tells apart networks whose errors are the same on a few hundred rows.
        of = compared[(compared["against"] == against) & (compared["barrier"] == "loss_barrier")]
        first = of[(of["density"] == least) & (of["part_at"] == of["part_at"].min())].iloc[0]
        yield (
            f"The barrier of the training loss of {TICKETS} minus that of {against} networks is "
            f"{paired.in_words(first, '.4f', 'p_adjusted')} at density {least:g} if they part at step "
            f"{first['part_at']}. Over all steps and densities, p < {paired.LEVEL:g} (Wilcoxon, adjusted): "
            f"{paired.significant(of, 'p_adjusted', len(of))}."
        )


def report(results: Results) -> list[RenderableType]:
    """Draw barriers against the step at which trainings part, and tabulate them."""
    settings, table = results.settings, results.table
    title = f"{settings['dataset']}, {in_words(settings)}"
    dense, sparse = table[table["strategy"] == DENSE], table[table["strategy"] != DENSE]
    for column, quantity in BARRIERS.items():
        panels = {
            f"density {density:g}": {
                str(kind): _points(rows, column) for kind, rows in of.groupby("strategy", sort=False)
            }
            for density, of in sparse.groupby("density", sort=False)
        }
        figure = plots.trade_offs(
            panels,
            "step at which two trainings part",
            f"barrier of the {quantity}",
            title,
            beside={DENSE: _points(dense, column)},
        )
        results.draw(figure, column)
    return [
        *(_table(table, column, title) for column in ("error_barrier", "accuracy")),
        *(f"- {kind}: {meaning}" for kind, meaning in MEANING.items()),
        "- barrier of the test error: how far it rises above the line between the errors of two networks "
        "that part at a step, on the straight way from one to the other",
        *failures(table.groupby("strategy", sort=False)),
    ]


def _points(rows: pd.DataFrame, column: str) -> tuple[np.ndarray, np.ndarray]:
    """Return steps and a column, of shape (seeds, steps)."""
    wide = rows.pivot(index="seed", columns="part_at", values=column)
    return np.broadcast_to(wide.columns.to_numpy(float), wide.shape), wide.to_numpy(float)


def _table(table: pd.DataFrame, column: str, title: str) -> Table:
    """Tabulate a column by mask and by the step at which trainings part."""
    steps = sorted(table["part_at"].unique())
    rows = []
    for (kind, density), of in table.groupby(["strategy", "density"], sort=False):
        at = of.groupby("part_at")[column]
        rows.append((f"{kind}, {density:g}", *(tables.spread(at.get_group(step), ".3f") for step in steps)))
    what = "test accuracy" if column == "accuracy" else "barrier of the test error"
    return tables.table(
        f"{title}: {what} of two trainings that part at a step, median [quartiles] over seeds",
        ("mask, density", *(f"step {step}" for step in steps)),
        rows,
    )


def charts(results: Results) -> list[Chart]:
    """Chart the barrier of every pair against the step at which the two part."""
    title = f"{results.settings['dataset']}, {in_words(results.settings)}"
    of = results.table.assign(mask=results.table["strategy"] + results.table["density"].map(" {:g}".format))
    return [
        Chart(
            f"{title}: barrier of the {quantity}",
            of,
            "part_at",
            column,
            "mask",
            at="part_at",
            labels={"part_at": "step at which two trainings part", column: f"barrier of the {quantity}"},
            tells=("seed", "accuracy"),
        )
        for column, quantity in BARRIERS.items()
    ]


EXPERIMENT = Experiment(
    __name__,
    InstabilitySettings,
    plan,
    run,
    report,
    conclusion,
    charts=charts,
    spreads=True,
)
