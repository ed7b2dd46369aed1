"""Lottery tickets: networks pruned in rounds and trained from their initial weights, against fresh ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array
from rich.console import RenderableType

from jaxarch import (
    ArgumentError,
    Network,
    Problem,
    PyTree,
    Report,
    Start,
    TrainingInfo,
    chain,
    evaluate,
    named_leaves,
    over_seeds,
    plots,
    prune,
    retrain,
    select,
)
from jaxarch.io import digest
from jaxarch.lab.charts import Chart
from jaxarch.lab.checks import check_count
from jaxarch.lab.harness import (
    Context,
    Experiment,
    Outcome,
    Part,
    Parts,
    PartSettings,
    Results,
    Work,
    finding,
    pace,
    paired,
    tables,
)
from jaxarch.lab.harness.at_worker import check_same
from jaxarch.lab.harness.results import failures
from jaxarch.lab.harness.tables import Table
from jaxarch.lab.pruning.parents import in_words
from jaxarch.lab.pruning.settings import check_share
from jaxarch.lab.tournament.settings import PictureTrainingSettings
from jaxarch.lab.tournament.task import PictureTask, prepare
from jaxarch.masks import density
from jaxarch.metrics import paired_differences
from jaxarch.search import dense

TICKETS, FRESH = "tickets", "reinitialised"
WHOLE = "the whole network"
TEST_BATCH = 500
COMPARISONS = "comparisons.csv"
SUITS_ALL: dict[str, Any] = {
    "model": "mlp",
    "steps": 2000,
    "batch_size": 60,
    "rate": 1.2e-3,
    "seeds": 5,
    "every": 50,
}
SUITS: dict[str, dict[str, Any]] = {"mnist": {"model": "lenet", "steps": 50_000, "every": 500}}
"""Defaults per data set, used where the user sets nothing; `SUITS_ALL` covers data sets without an entry."""


@dataclasses.dataclass(frozen=True)
class TicketSettings(PartSettings, PictureTrainingSettings):
    """Settings of `jaxarch run related_work.tickets`, changed with `--set NAME=VALUE`.

    Values that are empty, 0 or `auto` become the data set's defaults.

    Attributes:
      rounds: rounds of pruning; each is followed by a training.
      fraction: the share of a layer's remaining connections that a round removes.
      last_fraction: the same share for the last layer.
      reinitialised: number of fresh initializations tried on the connections of each ticket.
      steps: gradient steps of each training.
      every: steps between two evaluations on the held-out rows.
      held_out: the share of the training examples that is held out to judge when training should have ended.
    """

    rounds: int = 16
    fraction: float = 0.2
    last_fraction: float = 0.1
    reinitialised: int = 3
    every: int = 0

    def complete(self) -> Self:
        """Fill in the data set's defaults."""
        return self.suited(SUITS_ALL | SUITS.get(self.dataset, {}))

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        self.check_each(check_count, "rounds", "every", "reinitialised")
        self.check_each(check_share, "fraction", "last_fraction")
        if self.every > self.steps:
            raise ArgumentError(
                f"every: expected at most {self.steps}, the steps of a training, got {self.every}"
            )


class Round(NamedTuple):
    """Results of a round of pruning and training; every array has a leading axis of seeds.

    Attributes:
      params: trained parameters.
      mask: connections.
      start: the weights from which training began.
      state: state of the model.
      measured: quantities by name.
    """

    params: PyTree
    mask: PyTree
    start: PyTree
    state: PyTree
    measured: dict[str, Any]


def plan(settings: TicketSettings) -> list[str]:
    """Describe the planned trainings."""
    task = prepare(settings)
    tickets, fresh = _trainings(settings)
    return [
        f"parent: {in_words(settings)}, {task.connections} connections; pictures of "
        f"{task.images.x.shape[1:]}",
        f"trained on {task.train.shape[1]} examples, {task.held_out.shape[1]} held out, tested on "
        f"{len(task.test)}",
        f"{settings.rounds} rounds, the last with {_last_density(task):.1%} of all "
        f"connections; {settings.seeds} seeds",
        f"{tickets} trainings of tickets and {fresh} with {FRESH}, each of {settings.steps} steps of batch "
        f"{settings.batch_size}",
    ]


def _trainings(settings: TicketSettings) -> tuple[int, int]:
    """Count the trainings of tickets, including the whole network, and of fresh weights."""
    return settings.seeds * (settings.rounds + 1), settings.seeds * settings.rounds * settings.reinitialised


def duration(settings: TicketSettings) -> list[str]:
    """Estimate the total duration here from a few steps of the whole network."""
    task = prepare(settings)
    problem = task.learning(np.arange(settings.seeds))
    whole = pace.measured(dense(nonnegative=False), task.keys("search"), problem)
    seconds = whole.seconds(sum(_trainings(settings)) * settings.steps)
    return [pace.told(seconds, whole.devices, "without compilation and tests")]


def _fractions(task: PictureTask[TicketSettings]) -> dict[str, float]:
    """Return the share that a round removes of each leaf, by path."""
    settings, paths = task.settings, list(named_leaves(select(task.params)))
    return dict.fromkeys(paths, settings.fraction) | {paths[-1]: settings.last_fraction}


def _last_density(task: PictureTask[TicketSettings]) -> float:
    """Compute the share of all connections left after the last round.

    Raises:
      ArgumentError: rounds that leave nothing of a layer.
    """
    masked = select(task.params)
    fractions, left = _fractions(task), {path: leaf.size for path, leaf in named_leaves(masked).items()}
    for number in range(1, task.settings.rounds + 1):
        left = {path: count - round(fractions[path] * count) for path, count in left.items()}
        for path, count in left.items():
            if not count:
                raise ArgumentError(
                    f"rounds: expected fewer than {number}, after which {path} has no connection left"
                )
    return sum(left.values()) / task.connections


def run(settings: TicketSettings, context: Context) -> Outcome:
    """Train the whole network, prune it in rounds, and train each ticket from first and fresh weights."""
    task = prepare(settings)
    _last_density(task)  # Refuses before anything is trained.
    pictures = digest(task.images.x, task.images.y)
    parts = Parts(settings, experiment=context.experiment, pictures=pictures)
    loaded, load = Loaded(task, _problem(task)), partial(_load, settings, pictures)
    made = parts.run(_parts(task), loaded, load, progress=context.progress, spread=context.spread)
    rows = [
        _rows(TICKETS, part.settings, found.measured) if isinstance(found, Round) else found
        for part, found in made
    ]
    found = statistics(settings, pd.concat(rows, ignore_index=True), {})
    facts = {"pictures": {"name": task.images.name, "sha256": pictures}}
    return dataclasses.replace(found, facts=facts)


def statistics(settings: TicketSettings, runs: pd.DataFrame, tables: Mapping[str, pd.DataFrame]) -> Outcome:
    """Compare tickets with the whole network and with fresh weights, from one row a run."""
    compared = _compared(runs)
    return Outcome(runs, _findings(runs, compared), tables={COMPARISONS: compared})


def _problem(task: PictureTask[TicketSettings]) -> Problem:
    """Build the problem: each training draws new batches, and evaluates the held-out rows on the way."""
    learning = task.learning(np.arange(task.settings.seeds))
    predict = learning.predict
    assert predict is not None

    def metrics(params: PyTree, state: PyTree, batch: PyTree) -> dict[str, Array]:
        return {"accuracy": jnp.mean(predict(params, state, batch).argmax(-1) == batch[1])}

    return dataclasses.replace(learning, paired=None, validation=jnp.asarray(task.held_out), metrics=metrics)


class Loaded(NamedTuple):
    """Data that the parts load.

    Attributes:
      task: the task with the pictures.
      problem: the problem of all seeds.
    """

    task: PictureTask[TicketSettings]
    problem: Problem


def _load(settings: TicketSettings, pictures: str) -> Loaded:
    """Load the same data in another process.

    Raises:
      ArgumentError: the pictures loaded here differ.
    """
    task = prepare(settings)
    check_same(settings.dataset, digest(task.images.x, task.images.y), pictures)
    return Loaded(task, _problem(task))


def _parts(task: PictureTask[TicketSettings]) -> list[Part]:
    """List the whole network, and for each round the tickets and fresh weights on them."""
    like, before = _like(task), "whole"
    parts = [Part(before, _whole, 0, like=like)]
    for number in range(1, task.settings.rounds + 1):
        name = f"round {number}"
        parts.append(Part(name, _ticket, number, (before,), like))
        parts.append(Part(f"{name}, {FRESH}", _fresh, number, (name,)))
        before = name
    return parts


def _options(name: str, task: PictureTask[TicketSettings], work: Work) -> dict[str, Any]:
    return {
        "name": name,
        "progress": work.progress,
        "checkpoint": work.checkpoint,
        "dead_start": "ignore",
        "chunk": task.settings.every,
        **task.settings.width(),
    }


def _keys(task: PictureTask[TicketSettings], purpose: str, number: int) -> Array:
    """Return one key a seed, different in every round."""
    return jax.vmap(lambda key: jax.random.fold_in(key, number))(task.keys(purpose))


def _whole(loaded: Loaded, number: int, found: Mapping[str, Any], work: Work) -> Round:
    task, problem = loaded
    options = _options("whole network", task, work)
    network, report = over_seeds(dense(nonnegative=False), _keys(task, "search", 0), problem, **options)
    return _round(network, report, task, problem)


def _ticket(loaded: Loaded, number: int, found: Mapping[str, Any], work: Work) -> Round:
    """Prune the trained network, and train the rest from its initial weights."""
    task, problem = loaded
    (before,) = found.values()
    info = TrainingInfo(failed_at=jnp.asarray(before.measured["failed_at"]))
    network = Network(before.params, before.mask, before.state, records=(Start(before.start),), info=info)
    strategy = chain(prune(_fractions(task)), retrain("rewind", nonnegative=False))
    options = _options(f"round {number}", task, work)
    keys = _keys(task, "search", number)
    network, report = over_seeds(strategy, keys, problem, network=network, **options)
    return _round(network, report, task, problem)


def _fresh(loaded: Loaded, number: int, found: Mapping[str, Any], work: Work) -> pd.DataFrame:
    """Train the connections of tickets from fresh weights, each several times."""
    task, problem = loaded
    (ticket,) = found.values()
    times, seeds = task.settings.reinitialised, np.arange(task.settings.seeds)
    repeated = np.tile(seeds, times)

    def tiled(tree: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[repeated], tree)

    info = TrainingInfo(failed_at=tiled(ticket.measured["failed_at"]))
    network = Network(tiled(ticket.params), tiled(ticket.mask), tiled(ticket.state), info=info)
    many = dataclasses.replace(
        problem,
        train=jnp.asarray(problem.train)[repeated],
        validation=jnp.asarray(problem.validation)[repeated],
    )
    keys = jnp.concatenate(
        [
            jax.vmap(lambda key, i=i: jax.random.fold_in(key, i))(_keys(task, "controls", number))
            for i in range(times)
        ]
    )
    options = _options(f"round {number}, {FRESH}", task, work)
    strategy = retrain("cold", nonnegative=False)
    trained, report = over_seeds(strategy, keys, many, network=network, **options)
    return _rows(FRESH, number, _measured(trained, report, task, many, repeated), repeated, times)


def _round(network: Network, report: Report, task: PictureTask[TicketSettings], problem: Problem) -> Round:
    measured = _measured(network, report, task, problem, np.arange(task.settings.seeds))
    return Round(network.params, network.mask, network[Start].params, network.state, measured)


def _measured(
    network: Network, report: Report, task: PictureTask[TicketSettings], problem: Problem, seeds: np.ndarray
) -> dict[str, Any]:
    """Measure each run's final test accuracy, step of least held-out loss, and held-out accuracy there."""
    settings = task.settings
    outputs = evaluate(retrain("warm", nonnegative=False), network, problem, task.test, batch_size=TEST_BATCH)
    failed_at = np.asarray(network.info.failed_at, np.int32)
    looks = report.stages[-1].validation
    losses = np.where(np.isfinite(looks["loss"]), looks["loss"], np.inf)
    best = losses.argmin(axis=0)
    runs = np.arange(len(seeds))
    whole = failed_at < 0

    def of(values: Any) -> np.ndarray:
        return np.where(whole, np.asarray(values, np.float64), np.nan)

    return {
        "accuracy": of((outputs.argmax(-1) == task.images.y[task.test]).mean(axis=-1)),
        "held_out_accuracy": of(looks["accuracy"][best, runs]),
        "stop_step": of(np.minimum((best + 1) * settings.every, settings.steps)),
        "density": np.asarray(jax.vmap(density)(network.mask), np.float64),
        "failed_at": failed_at,
        "seconds": np.full(len(seeds), report.seconds),
    }


def _like(task: PictureTask[TicketSettings]) -> Round:
    """Return the shapes of a round's results."""
    seeds = task.settings.seeds

    def wide(leaf: Any, dtype: Any = None) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((seeds, *leaf.shape), dtype or leaf.dtype)

    numbers = ("accuracy", "held_out_accuracy", "stop_step", "density", "seconds")
    params, state = jax.eval_shape(task.problem.init, jax.random.key(0))
    params, state = (jax.tree.map(wide, tree) for tree in (params, state))
    mask = jax.tree.map(lambda leaf: wide(leaf, bool), select(task.params))
    measured = {name: np.zeros(seeds) for name in numbers} | {"failed_at": np.zeros(seeds, np.int32)}
    return Round(params, mask, params, state, measured)


def _rows(
    strategy: str, number: int, measured: Mapping[str, Any], seeds: np.ndarray | None = None, times: int = 1
) -> pd.DataFrame:
    """Build one row a run."""
    count = len(measured["accuracy"])
    seeds = np.arange(count) if seeds is None else seeds
    repetition = np.repeat(np.arange(times), count // times)
    return pd.DataFrame(
        {"strategy": strategy, "round": number, "seed": seeds, "repetition": repetition, **measured}
    )


def _compared(table: pd.DataFrame) -> pd.DataFrame:
    """Compare tickets with the whole network and fresh weights, paired by seed: one row a pair and round."""
    by_seed = table.groupby(["strategy", "round", "seed"])[["accuracy", "stop_step"]].mean()
    whole = by_seed.loc[(TICKETS, 0)]
    rows = []
    for number in sorted(set(table["round"]) - {0}):
        found = by_seed.loc[(TICKETS, number)]
        for other, of in {WHOLE: whole, FRESH: by_seed.loc[(FRESH, number)]}.items():
            for quantity in ("accuracy", "stop_step"):
                values = {TICKETS: found[quantity].to_numpy(), other: of[quantity].to_numpy()}
                (pair,) = paired_differences(values).to_dict("records")
                kept = float(table.loc[table["round"] == number, "density"].iloc[0])
                rows.append({"round": number, "density": kept, "quantity": quantity, **pair})
    return pd.DataFrame(rows)


WORDS_OF = {WHOLE: WHOLE, FRESH: "the same connections with fresh weights"}
"""Names of the networks that tickets are compared with, in words."""
MEANING = {
    TICKETS: (
        "connections left by rounds of magnitude pruning, trained from their initial weights (J. Frankle and "
        "M. Carbin, 2019)"
    ),
    FRESH: "the same connections, trained from fresh weights",
}
_WORDS = {"accuracy": "accuracy", "stop_step": "step of the least held-out loss"}


def _findings(table: pd.DataFrame, compared: pd.DataFrame) -> list[dict[str, Any]]:
    """Report tickets minus the others at every density, and the values of all."""
    against = [
        finding(
            f"{_WORDS[pair['quantity']]} of {TICKETS} minus {pair['second']}, density {pair['density']:.3g}",
            pd.Series(pair),
        )
        for pair in compared.to_dict("records")
    ]
    reached = [
        finding(f"{words} of {strategy}, density {rows['density'].iloc[0]:.3g}", rows[quantity])
        for quantity, words in _WORDS.items()
        for (strategy, _), rows in table.groupby(["strategy", "round"], sort=False)
    ]
    return against + reached


def conclusion(results: Results) -> Iterable[str]:
    """Compare the sparsest tickets as accurate as the whole network with it, and with fresh weights."""
    settings, table, compared = results.settings, results.table, results.read(COMPARISONS)
    tickets = table[table["strategy"] == TICKETS]
    whole, pruned = tickets[tickets["round"] == 0], tickets[tickets["round"] > 0]
    medians = pruned.groupby("round")["accuracy"].median()
    as_good = medians[medians >= whole["accuracy"].median()]
    where = f"{settings['dataset']}, {in_words(settings)}: the whole network has a test accuracy of "
    where += f"{tables.inline(whole['accuracy'], '.4f')} ({tables.counted([whole['accuracy']])})"
    if medians.isna().all():
        yield f"{where}; all runs of tickets met NaN or infinity."
        return
    number = as_good.index.max() if len(as_good) else medians.idxmax()
    runs = pruned[pruned["round"] == number]
    which = (
        "the sparsest tickets whose median is as high have"
        if len(as_good)
        else "no ticket has a median as high; the highest is at"
    )
    yield (
        f"{where}; {which} density {runs['density'].iloc[0]:.3g}, {tables.inline(runs['accuracy'], '.4f')}."
    )
    here = compared[compared["round"] == number]
    said = "; ".join(
        f"minus {WORDS_OF[pair['second']]} {paired.in_words(pair, '.4f')}"
        for pair in here[here["quantity"] == "accuracy"].to_dict("records")
        if np.isfinite(pair["median"])
    )
    if said:
        yield f"Paired by seed, p not adjusted, their accuracy {said}."
    fresh = table[(table["strategy"] == FRESH) & (table["round"] == number)]
    steps = {"tickets": runs, "the whole network": whole, "fresh weights": fresh}
    said = ", ".join(f"{tables.median(of['stop_step'], ',.0f')} for {name}" for name, of in steps.items())
    yield f"The held-out loss is least at step {said} (medians)."


def report(results: Results) -> list[RenderableType]:
    """Draw accuracy and the step of the least held-out loss against density, and build the table."""
    settings, table = results.settings, results.table
    title = f"{settings['dataset']}, {in_words(settings)}"
    groups = [(str(name), rows) for name, rows in table.groupby("strategy", sort=False)]
    panels = {
        words: {name: (_by_round(rows, "density"), _by_round(rows, quantity)) for name, rows in groups}
        for quantity, words in (("accuracy", "test accuracy"), ("stop_step", _WORDS["stop_step"]))
    }
    for (words, points), name in zip(panels.items(), ("accuracy", "steps"), strict=True):
        figure = plots.trade_off(points, "density", words, title, logarithmic=(True, False))
        results.draw(figure, name)
    return [
        _table(table, results.read(COMPARISONS), title),
        *(f"- {name}: {meaning}" for name, meaning in MEANING.items()),
        "- density: share of connections left; 1 is the whole network",
        *failures(groups),
    ]


def _by_round(rows: pd.DataFrame, column: str) -> np.ndarray:
    """Return a column with runs down and rounds across."""
    return rows.pivot(index=["seed", "repetition"], columns="round", values=column).to_numpy(float)


def _table(table: pd.DataFrame, compared: pd.DataFrame, title: str) -> Table:
    """Build the table, with rounds down."""
    rows, pairs = [], compared[(compared["quantity"] == "accuracy") & (compared["second"] == FRESH)]
    for _, of in table.groupby("round"):
        pair = pairs[pairs["round"] == of["round"].iloc[0]]
        better = "-" if pair.empty else f"{pair['wins'].iloc[0]:g} of {pair['runs'].iloc[0]:g}"
        accuracies, stops = (
            [
                tables.spread(of.loc[of["strategy"] == strategy, quantity], form)
                for strategy in (TICKETS, FRESH)
            ]
            for quantity, form in (("accuracy", ".4f"), ("stop_step", ",.0f"))
        )
        rows.append((f"{of['density'].iloc[0]:.3g}", *accuracies, better, *stops))
    columns = (
        *("density", TICKETS, FRESH, "seeds with better tickets"),
        *(f"stop, {TICKETS}", f"stop, {FRESH}"),
    )
    title = f"{title}: test accuracy at the end of training; stop: step of the lowest held-out loss"
    return tables.table(f"{title}; medians [quartiles]", columns, rows)


def charts(results: Results) -> list[Chart]:
    """Chart every run's accuracy and step of the least held-out loss against density."""
    settings = results.settings
    labels = {"accuracy": "test accuracy", "stop_step": _WORDS["stop_step"], "strategy": "weights"}
    return [
        Chart(
            f"{settings['dataset']}, {in_words(settings)}: {labels[column]} against density",
            results.table,
            "density",
            column,
            "strategy",
            at="round",
            labels=labels,
            tells=("round", "seed", "repetition"),
            logarithmic=(True, False),
        )
        for column in ("accuracy", "stop_step")
    ]


EXPERIMENT = Experiment(
    __name__, TicketSettings, plan, run, report, conclusion, duration, charts, statistics, spreads=True
)
