"""How few hidden neurons classify pictures at an equal accuracy: spectral networks beside their rivals."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from jax import Array
from rich.console import RenderableType

from jaxarch import ArgumentError, Model, Network, Problem, PyTree, evaluate, over_seeds, plots, supervised
from jaxarch.io import crop_and_flip, digest
from jaxarch.lab.charts import Chart
from jaxarch.lab.checks import check_count, check_distinct, check_known, check_positive, check_strength
from jaxarch.lab.data import balanced_rows
from jaxarch.lab.harness import Context, Experiment, Outcome, Results, costs, finding, pace, tables
from jaxarch.lab.harness.tables import Table
from jaxarch.lab.spectral import training
from jaxarch.lab.spectral.channels import ON_PICTURES
from jaxarch.lab.spectral.neurons_left import by_strength, left_by_layer, smallest, what_is_left
from jaxarch.lab.spectral.rivals import Rival
from jaxarch.lab.tournament.settings import PictureTrainingSettings
from jaxarch.lab.tournament.task import PictureTask, prepare
from jaxarch.metrics import paired_differences

SUITS_ALL: dict[str, Any] = {"steps": 2000, "batch_size": 100, "rate": 1e-3, "seeds": 5}
SUITS: dict[str, dict[str, Any]] = {"mnist": {"examples": 5000}}
"""What suits a data set where the user says nothing; and what suits those that have no entry."""
ROWS_TOGETHER = 500
"""Where nothing is trained."""
CHOSEN = "chosen.csv"


@dataclasses.dataclass(frozen=True)
class Settings(PictureTrainingSettings):
    """What can be set with `jaxarch run spectral.pictures --set NAME=VALUE`.

    Each rival is trained at each strength, loses the neurons that its loss on rows held out can spare, and is
    trained once more without them and without penalty. The digits of scikit-learn are linearly separable, and
    need no hidden neuron where there are skip connections: take `--dataset mnist`, or pictures of your own.

    Attributes:
      widths: of the hidden layers of every student; 100,100 by default. Of `gated channels` and `batch norm
        channels` they are channels of convolutions of 3x3, which have stride 2 where channels change.
      rivals: the networks that are made small, each by its own penalty. The first is the one whose accuracy
        the others are to have.
      strengths: of the penalty; every rival is trained at each.
      tolerance: neurons are removed as long as the loss on the rows held out grows by at most this share of
        itself.
      within: by how much the accuracy on the rows held out may be below the best of the first rival, when the
        strength with the fewest neurons is chosen.
      examples: that are trained on, as many of each class; 0 for all that are not held out.
      steps: gradient steps of each of the two trainings.
    """

    # Students have widths of their own: there is nothing to choose.
    model: ClassVar[str] = "mlp"  # type: ignore[misc]
    width_factor: ClassVar[float] = 1.0  # type: ignore[misc]

    rivals: tuple[str, ...] = ("spectral", "gated spectral", "weights, all skips", "weights, no skips")
    strengths: tuple[float, ...] = (1e-5, 1e-4, 5e-4, 2e-3)
    tolerance: float = 0.05
    within: float = 0.003
    examples: int = 0

    def complete(self) -> Self:
        """The same with what suits the data set where nothing is said."""
        settings = self.suited(SUITS_ALL | SUITS.get(self.dataset, {}))
        return settings if self.widths else dataclasses.replace(settings, widths=(100, 100))

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        check_known("rivals", self.rivals, ON_PICTURES)
        check_distinct("rivals", self.rivals)
        check_distinct("strengths", self.strengths)
        self.check_numbers(check_strength, "strengths")
        check_positive("tolerance", self.tolerance)
        check_strength("within", self.within)
        if self.examples:
            self.check_each(check_count, "examples")


def rows_of(task: PictureTask[Settings]) -> np.ndarray:
    """What each seed is trained on, shape (seeds, n).

    Raises:
      ArgumentError: more than there are of some class.
    """
    settings, y = task.settings, task.images.y
    if not settings.examples:
        return task.train
    per_class = settings.examples // len(np.unique(y))
    fewest = min(int(np.unique(y[rows], return_counts=True)[1].min()) for rows in task.train)
    if not 0 < per_class <= fewest:
        raise ArgumentError(
            f"examples: {settings.examples} are {per_class} of each class, of which {fewest} are there"
        )
    drawn = zip(task.keys("training"), task.train, strict=True)
    return np.stack([balanced_rows(key, y, rows, per_class=per_class) for key, rows in drawn])


def problem_of(task: PictureTask[Settings], rival: Rival, seeds: np.ndarray) -> Problem:
    """The problem of runs of these seeds: their rows, and their batches."""
    settings, images = task.settings, task.images
    shape = images.x.shape[1:]
    inputs = shape[-1] if rival.of_pictures else int(np.prod(shape))
    model = rival.network((inputs, *settings.widths, len(np.unique(images.y))))
    learned = supervised(
        model if rival.of_pictures else of_pixels(model),
        (images.x, images.y),
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optax.adam(settings.rate),
        steps=settings.steps,
        batch_size=settings.batch_size,
        train=rows_of(task)[seeds],
        validation=task.held_out[seeds],
        gather=task.problem.gather,
        augment=crop_and_flip() if settings.augment else None,
    )
    return dataclasses.replace(learned, paired=task.keys("pairs")[seeds])


def of_pixels(model: Model) -> Model:
    """The same of pictures, pixel after pixel."""

    def apply(params: PyTree, state: PyTree, x: Array, key: Array | None) -> tuple[Array, PyTree]:
        return model.apply(params, state, x.reshape(len(x), -1), key)

    return Model(model.init, apply)


def plan(settings: Settings) -> list[str]:
    """What would be trained."""
    task = prepare(settings)
    runs = settings.seeds * len(settings.strengths)
    return [
        f"pictures of {task.images.x.shape[1:]}; trained on {rows_of(task).shape[1]} examples, "
        f"{task.held_out.shape[1]} held out, tested on {len(task.test)}",
        f"students: hidden layers of {', '.join(map(str, settings.widths))}",
        f"trainings: {2 * len(settings.rivals)}, two of each of {'; '.join(settings.rivals)}: "
        f"{settings.steps} steps of batch {settings.batch_size} x {runs} runs, "
        f"strengths {', '.join(f'{strength:g}' for strength in settings.strengths)}",
    ]


def duration(settings: Settings) -> list[str]:
    """How long all of it would take here, from a few steps of each rival."""
    task = prepare(settings)
    seeds = np.tile(np.arange(settings.seeds), len(settings.strengths))
    paces = []
    for name in settings.rivals:
        (first, *_) = ON_PICTURES[name].strategy(0.0, settings.tolerance).stages
        paces.append(
            pace.measured(first, task.keys("search")[seeds], problem_of(task, ON_PICTURES[name], seeds))
        )
    seconds = sum(of.seconds(2 * len(seeds) * settings.steps) for of in paces)
    return [pace.told(seconds, paces[0].devices, "compilation and removals apart")]


def run(settings: Settings, context: Context) -> Outcome:
    """Train every rival at every strength from every seed, and compare at an equal accuracy."""
    task = prepare(settings)
    cells = pd.MultiIndex.from_product(
        [settings.strengths, range(settings.seeds)], names=["strength", "seed"]
    ).to_frame(index=False)
    measured, spent = [], {}
    for name in settings.rivals:
        rows, costs_of = _measured(name, task, cells, context)
        measured.append(rows)
        spent[name] = costs_of
    table = pd.concat(measured, ignore_index=True)
    chosen = chosen_of(table, settings.rivals[0], settings.within)
    return Outcome(
        table,
        _findings(chosen, settings.rivals[0]),
        costs=spent,
        tables={CHOSEN: chosen},
        facts={"pictures": {"name": task.images.name, "sha256": digest(task.images.x, task.images.y)}},
    )


def _measured(
    name: str, task: PictureTask[Settings], cells: pd.DataFrame, context: Context
) -> tuple[pd.DataFrame, Mapping[str, Any]]:
    """One rival at all strengths, from all seeds: a row a run."""
    settings, rival = task.settings, ON_PICTURES[name]
    seeds = cells["seed"].to_numpy()
    problem = problem_of(task, rival, seeds)
    network, report = over_seeds(
        lambda strength: rival.strategy(strength, settings.tolerance, ROWS_TOGETHER),
        task.keys("search")[seeds],
        problem,
        jnp.asarray(cells["strength"], jnp.float32),
        name=name,
        labels=[f"strength {row.strength:g}, seed {row.seed}" for row in cells.itertuples()],
        chunk=training.CHUNK,
        dead_start="ignore",
        **context.options,
    )
    neurons, _, _ = what_is_left(np.asarray(network.info["losses"]), np.asarray(network.info["removed"]))
    whole = np.asarray(network.info.failed_at) < 0

    def accuracy(rows: np.ndarray) -> np.ndarray:
        return np.where(whole, _accuracy(rival, network, problem, rows, task), np.nan)

    rows = cells.assign(
        rival=name,
        neurons=np.where(whole, neurons, np.nan),
        held_out_accuracy=accuracy(task.held_out[seeds]),
        accuracy=accuracy(task.test),
        **{f"layer_{i}": np.where(whole, left, np.nan) for i, left in enumerate(left_by_layer(network).T, 1)},
        seconds=report.seconds,
        failed_at=np.asarray(network.info.failed_at),
    )
    return rows, costs({name: (network, report)})


def _accuracy(
    rival: Rival, network: Network, problem: Problem, rows: np.ndarray, task: PictureTask[Settings]
) -> np.ndarray:
    """Of every run, on rows of all or of each."""
    outputs = evaluate(rival.strategy(0.0, 0.0), network, problem, rows, batch_size=ROWS_TOGETHER)
    right: np.ndarray = (np.asarray(outputs).argmax(-1) == task.images.y[rows]).mean(axis=-1)
    return right


def chosen_of(table: pd.DataFrame, first: str, within: float) -> pd.DataFrame:
    """The strength of each rival and seed with the fewest neurons, of those that are accurate enough.

    Accurate enough is what is at most `within` below the best accuracy of the first rival from that seed, all
    on rows held out; of equally few neurons the more accurate is taken. A rival that is nowhere so accurate
    has no strength, and NaN.

    Args:
      table: with `rival`, `seed`, `strength`, `neurons`, `held_out_accuracy` and `accuracy`, a row a run.
      first: the rival whose accuracy is to be had.
      within: by how much it may be missed.
    """
    best = table[table["rival"] == first].groupby("seed")["held_out_accuracy"].max()
    rows = []
    for (rival, seed), runs in table.groupby(["rival", "seed"], sort=False):
        chosen = smallest(runs, runs["held_out_accuracy"] >= best[seed] - within, "held_out_accuracy")
        row: dict[str, Any] = {"rival": rival, "seed": seed}
        columns = ("strength", "neurons", "held_out_accuracy", "accuracy")
        rows.append(row | {name: np.nan if chosen is None else chosen[name] for name in columns})
    return pd.DataFrame(rows)


def _findings(chosen: pd.DataFrame, first: str) -> list[dict[str, Any]]:
    """What each rival needs at that accuracy, and its share of what the first needs."""
    found = []
    reference = chosen[chosen["rival"] == first].set_index("seed")
    for rival, runs in chosen.groupby("rival", sort=False):
        of = runs.set_index("seed")
        found.append(finding(f"hidden neurons at equal accuracy: {rival}", of["neurons"]))
        found.append(finding(f"test accuracy with these: {rival}", of["accuracy"]))
        if rival != first:
            share = of["neurons"] / reference["neurons"].where(reference["neurons"] > 0)
            found.append(finding(f"neurons of {rival} over those of {first}", share))
            whole = of["accuracy"].notna() & reference["accuracy"].notna()
            values = {
                str(rival): of["accuracy"][whole].to_numpy(),
                first: reference["accuracy"][whole].to_numpy(),
            }
            if whole.any():
                (pair,) = paired_differences(values).to_dict("records")
                found.append(finding(f"test accuracy of {rival} minus {first}", pd.Series(pair)))
    return found


def report(results: Results) -> list[RenderableType]:
    """Draw the error against the neurons that are left, and make the tables."""
    settings, table = results.settings, results.table
    title = f"{settings['dataset']}, hidden layers of {', '.join(map(str, settings['widths']))}"
    points = {
        str(name): (by_strength(runs, "neurons"), 1 - by_strength(runs, "accuracy"))
        for name, runs in table.groupby("rival", sort=False)
    }
    figure = plots.trade_off(
        points,
        f"hidden neurons left of {sum(settings['widths'])}",
        "test error",
        title,
        logarithmic=(False, True),
    )
    results.draw(figure, "pictures")
    rows = [
        (
            str(name),
            f"{strength:g}",
            tables.spread(runs["neurons"], ".0f"),
            tables.spread(runs["accuracy"], ".4f"),
            tables.median(runs["seconds"], ".1f"),
        )
        for (name, strength), runs in table.groupby(["rival", "strength"], sort=False)
    ]
    columns = ("rival", "strength", "neurons left", "test accuracy", "seconds")
    whole = tables.table(f"{title}: refitted without what was removed", columns, rows)
    return [
        whole,
        _by_layer(results, title),
        _chosen_table(results),
        *results.remarks(table.groupby("rival")),
    ]


def _by_layer(results: Results, title: str) -> Table:
    """Where the neurons are that are left."""
    table = results.table
    layers = [f"layer_{i}" for i in range(1, 1 + len(results.settings["widths"]))]
    rows = [
        (str(name), f"{strength:g}", *(tables.spread(runs[layer], ".0f") for layer in layers))
        for (name, strength), runs in table.groupby(["rival", "strength"], sort=False)
    ]
    names = [f"of {width}" for width in results.settings["widths"]]
    return tables.table(f"{title}: what is left of each hidden layer", ("rival", "strength", *names), rows)


def _chosen_table(results: Results) -> Table:
    """The rivals at an equal accuracy."""
    settings, chosen = results.settings, results.read(CHOSEN)
    first = settings["rivals"][0]
    rows = [
        (
            str(name),
            f"{runs['neurons'].notna().sum()} of {len(runs)}",
            tables.spread(runs["neurons"].dropna(), ".0f") if runs["neurons"].notna().any() else "-",
            tables.spread(runs["accuracy"].dropna(), ".4f") if runs["neurons"].notna().any() else "-",
        )
        for name, runs in chosen.groupby("rival", sort=False)
    ]
    return tables.table(
        f"fewest neurons within {settings['within']:g} of the best accuracy of {first} on rows held out",
        ("rival", "seeds that reach it", "neurons left", "test accuracy"),
        rows,
    )


def charts(results: Results) -> list[Chart]:
    """The test error of every run against the neurons that it has left."""
    settings = results.settings
    table = results.table.assign(error=1 - results.table["accuracy"])
    labels = {"neurons": "hidden neurons left", "error": "test error"}
    return [
        Chart(
            f"{settings['dataset']}: test error against neurons left",
            table,
            "neurons",
            "error",
            "rival",
            at="strength",
            labels=labels,
            tells=("strength", "seed"),
            logarithmic=(False, True),
        )
    ]


EXPERIMENT = Experiment(__name__, Settings, plan, run, report, duration, charts=charts)
