"""Fewest hidden neurons that classify pictures at equal accuracy: spectral networks and their rivals."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
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
from jaxarch.lab.harness import Context, Experiment, Outcome, Results, costs, finding, pace, paired, tables
from jaxarch.lab.harness.tables import Table
from jaxarch.lab.spectral import training, wording
from jaxarch.lab.spectral.channels import ON_PICTURES
from jaxarch.lab.spectral.neurons_left import by_strength, left_by_layer, smallest, what_is_left
from jaxarch.lab.spectral.rivals import Rival
from jaxarch.lab.tournament.settings import PictureTrainingSettings
from jaxarch.lab.tournament.task import PictureTask, prepare

SUITS_ALL: dict[str, Any] = {"steps": 2000, "batch_size": 100, "rate": 1e-3, "seeds": 5}
SUITS: dict[str, dict[str, Any]] = {"mnist": {"examples": 5000}}
"""Defaults per data set, used where the user sets nothing; `SUITS_ALL` covers data sets without an entry."""
ROWS_TOGETHER = 500
"""Batch size where nothing is trained: in evaluations and removals of neurons."""
CHOSEN = "chosen.csv"
COLUMNS = {
    "strength": f"of the penalty: {wording.PENALTY}",
    "neurons left": f"hidden neurons or channels; {wording.LEFT}",
    "seconds": wording.SECONDS,
}


@dataclasses.dataclass(frozen=True)
class Settings(PictureTrainingSettings):
    """Settings of `jaxarch run spectral.pictures`, changed with `--set NAME=VALUE`.

    Each rival is trained at each strength. It then loses the neurons that its loss on held-out rows can
    spare, and is trained once more without them and without penalty. The digits of scikit-learn are linearly
    separable, and need no hidden neuron if there are skip connections: take `--dataset mnist`, or pictures of
    your own.

    Attributes:
      widths: widths of the hidden layers of every student; 100,100 by default. For `gated channels` and
        `batch norm channels` they are channels of 3x3 convolutions, with stride 2 where channels change.
      rivals: the networks to prune, each by its own penalty. The first one sets the accuracy that the others
        must reach.
      strengths: strengths of the penalty; every rival is trained at each.
      tolerance: neurons are removed as long as the loss on the held-out rows grows by at most this share of
        itself.
      within: how far the held-out accuracy may fall below the best of the first rival, when the strength with
        the fewest neurons is chosen.
      examples: number of training examples, equally many of each class; 0 for all that are not held out.
      steps: gradient steps of each of the two trainings.
    """

    # Students have their own widths, so there is no model or width factor to choose.
    model: ClassVar[str] = "mlp"  # type: ignore[misc]
    width_factor: ClassVar[float] = 1.0  # type: ignore[misc]

    rivals: tuple[str, ...] = ("spectral", "gated spectral", "weights, all skips", "weights, no skips")
    strengths: tuple[float, ...] = (1e-5, 1e-4, 5e-4, 2e-3)
    tolerance: float = 0.05
    within: float = 0.003
    examples: int = 0

    def complete(self) -> Self:
        """Fill in the data set's defaults."""
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
    """Return the training rows of each seed, shape (seeds, n).

    Raises:
      ArgumentError: more examples than some class has.
    """
    settings, y = task.settings, task.images.y
    if not settings.examples:
        return task.train
    per_class = settings.examples // len(np.unique(y))
    fewest = min(int(np.unique(y[rows], return_counts=True)[1].min()) for rows in task.train)
    if not 0 < per_class <= fewest:
        raise ArgumentError(
            f"examples: expected 1 to {fewest} of each class, got {per_class} ({settings.examples} in all)"
        )
    drawn = zip(task.keys("training"), task.train, strict=True)
    return np.stack([balanced_rows(key, y, rows, per_class=per_class) for key, rows in drawn])


def problem_of(task: PictureTask[Settings], rival: Rival, seeds: np.ndarray) -> Problem:
    """Build the problem of runs with these seeds, each with its own rows and batches."""
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
    """Adapt a model to pictures by flattening their pixels."""

    def apply(params: PyTree, state: PyTree, x: Array, key: Array | None) -> tuple[Array, PyTree]:
        return model.apply(params, state, x.reshape(len(x), -1), key)

    return Model(model.init, apply)


def plan(settings: Settings) -> list[str]:
    """Describe the planned trainings."""
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
    """Estimate the total duration here from a few steps of each rival."""
    task = prepare(settings)
    seeds = np.tile(np.arange(settings.seeds), len(settings.strengths))
    paces = []
    for name in settings.rivals:
        (first, *_) = ON_PICTURES[name].strategy(0.0, settings.tolerance).stages
        paces.append(
            pace.measured(first, task.keys("search")[seeds], problem_of(task, ON_PICTURES[name], seeds))
        )
    seconds = sum(of.seconds(2 * len(seeds) * settings.steps) for of in paces)
    return [pace.told(seconds, paces[0].devices, "without compilation and removals")]


def run(settings: Settings, context: Context) -> Outcome:
    """Train every rival at every strength from every seed, and compare at equal accuracy."""
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
    """Train one rival at all strengths from all seeds, and measure it: one row a run."""
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
    """Compute the accuracy of every run, on rows that are shared or per run."""
    outputs = evaluate(rival.strategy(0.0, 0.0), network, problem, rows, batch_size=ROWS_TOGETHER)
    right: np.ndarray = (np.asarray(outputs).argmax(-1) == task.images.y[rows]).mean(axis=-1)
    return right


def chosen_of(table: pd.DataFrame, first: str, within: float) -> pd.DataFrame:
    """Choose each rival's and seed's strength with the fewest neurons among the accurate enough.

    Accurate enough means at most `within` below the first rival's best accuracy from that seed, on held-out
    rows. Among equally few neurons, the more accurate run is taken. A rival that never reaches this accuracy
    gets NaN, and no strength.

    Args:
      table: with `rival`, `seed`, `strength`, `neurons`, `held_out_accuracy` and `accuracy`, one row a run.
      first: the rival whose accuracy must be reached.
      within: how far the accuracy may fall below it.
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
    """Report each rival's neurons at that accuracy, and their ratio to the first rival's neurons."""
    found = []
    reference = chosen[chosen["rival"] == first].set_index("seed")
    for rival, runs in chosen.groupby("rival", sort=False):
        of = runs.set_index("seed")
        found.append(finding(f"hidden neurons at equal accuracy: {rival}", of["neurons"]))
        found.append(finding(f"test accuracy with these: {rival}", of["accuracy"]))
        if rival != first:
            share = of["neurons"] / reference["neurons"].where(reference["neurons"] > 0)
            found.append(finding(f"neurons of {rival} over those of {first}", share))
            pair = paired.difference(of["accuracy"], reference["accuracy"])
            if pair["runs"]:
                found.append(finding(f"test accuracy of {rival} minus {first}", pd.Series(pair)))
    return found


def conclusion(results: Results) -> Iterable[str]:
    """Compare the neurons left, and the test accuracy, of rivals at equal held-out accuracy."""
    settings, chosen = results.settings, results.read(CHOSEN)
    runs = {str(name): of.set_index("seed") for name, of in chosen.groupby("rival", sort=False)}
    first, *others = runs
    said = "; ".join(f"{tables.inline(of['neurons'], '.0f')} for {name}" for name, of in runs.items())
    yield (
        f"{settings['dataset']}: within {settings['within']:g} of the best held-out accuracy of {first}, the "
        f"fewest hidden neurons of {sum(settings['widths'])} are {said} "
        f"({tables.counted(of['neurons'] for of in runs.values())})."
    )
    missed = {name: int(of["neurons"].isna().sum()) for name, of in runs.items()}
    if any(missed.values()):
        told = "; ".join(f"{name} in {n} of {len(runs[name])} seeds" for name, n in missed.items() if n)
        yield f"No strength is accurate enough for {told}."
    accuracy = {name: of["accuracy"] for name, of in runs.items()}
    pairs = {name: paired.difference(accuracy[name], accuracy[first]) for name in others}
    if any(pair["runs"] for pair in pairs.values()):
        told = "; ".join(f"{paired.in_words(pair, '.4f')} for {name}" for name, pair in pairs.items())
        yield f"Their test accuracy minus that of {first}, paired by seed, is {told}."


def report(results: Results) -> list[RenderableType]:
    """Draw the error against the neurons left, and build the tables."""
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
    whole = tables.table(f"{title}: trained once more after the removals", columns, rows)
    return [
        whole,
        *wording.explain(table["rival"], COLUMNS),
        _by_layer(results, title),
        _chosen_table(results),
        *results.remarks(table.groupby("rival")),
    ]


def _by_layer(results: Results, title: str) -> Table:
    """Tabulate the neurons left in each hidden layer."""
    table = results.table
    layers = [f"layer_{i}" for i in range(1, 1 + len(results.settings["widths"]))]
    rows = [
        (str(name), f"{strength:g}", *(tables.spread(runs[layer], ".0f") for layer in layers))
        for (name, strength), runs in table.groupby(["rival", "strength"], sort=False)
    ]
    names = [f"of {width}" for width in results.settings["widths"]]
    return tables.table(f"{title}: neurons left in each hidden layer", ("rival", "strength", *names), rows)


def _chosen_table(results: Results) -> Table:
    """Tabulate the rivals at equal accuracy."""
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
        f"fewest neurons within {settings['within']:g} of the best held-out accuracy of {first}",
        ("rival", "seeds that reach that", "neurons left", "test accuracy"),
        rows,
    )


def charts(results: Results) -> list[Chart]:
    """Chart the test error of every run against its neurons left."""
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


EXPERIMENT = Experiment(__name__, Settings, plan, run, report, conclusion, duration, charts=charts)
