"""Width of teachers with one output, Gaussian inputs and biases, found without a strength to choose."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from jax import Array
from rich.console import RenderableType

from jaxarch import (
    NeuronMask,
    Problem,
    PyTree,
    Strategy,
    chain,
    evaluate,
    over_seeds,
    plots,
    recruit,
    spectral_network,
    supervised,
)
from jaxarch.lab.charts import Chart
from jaxarch.lab.checks import check_count, check_strength
from jaxarch.lab.harness import Context, Experiment, Outcome, Results, costs, finding, tables
from jaxarch.lab.spectral import training, wording
from jaxarch.lab.spectral.neurons_left import error_charts
from jaxarch.lab.spectral.teacher import r_squared
from jaxarch.search import spectral, spectral_width

ROUNDS = "rounds"
COLUMNS = {
    "search": "rounds of rising penalty (`search.spectral_width`), or one training at one strength, refitted",
    "smallest": "of the test R^2, over all runs",
    "most": "neurons left in any run",
}


@dataclasses.dataclass(frozen=True)
class Settings(training.RegressionSettings):
    """Settings of `jaxarch run spectral.width`, changed with `--set NAME=VALUE`.

    A teacher has Gaussian inputs, one hidden layer of ReLU neurons with biases, and one output of variance 1.
    Students are gated spectral networks. Every seed is a student of each teacher.

    `search.spectral_width` trains students in rounds, under a penalty that rises, and chooses one round by
    validation rows. Beside it, students are trained once at each strength, lose the neurons that they can
    spare, and are trained once more.

    Attributes:
      features: number of inputs.
      neurons: hidden neurons of a teacher.
      teachers: number of teachers.
      hidden: neurons of each hidden layer of a student.
      rounds: rounds of the search.
      epochs: passes over the training points in each training of the rounds.
      strengths: strengths of the single trainings.
      once_epochs: passes over the training points in each of the two trainings at one strength.
      tested: number of test points.
    """

    features: int = 10
    neurons: int = 20
    teachers: int = 3
    hidden: tuple[int, ...] = (100, 100)
    rounds: int = 10
    epochs: int = 80
    strengths: tuple[float, ...] = (1e-4,)
    once_epochs: int = 320
    examples: int = 5000
    held_out: int = 500
    tested: int = 2000
    batch_size: int = 200
    seeds: int = 10

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        self.check_each(
            check_count, "features", "neurons", "teachers", "rounds", "epochs", "once_epochs", "tested"
        )
        self.check_each(check_count, "hidden")
        self.check_numbers(check_strength, "strengths")

    def rows(self) -> dict[str, np.ndarray]:
        """Return the rows for training, validation and testing."""
        total = self.examples + self.held_out + self.tested
        train, validation, test = np.split(np.arange(total), (self.examples, self.examples + self.held_out))
        return {"train": train, "validation": validation, "test": test}

    def inputs(self, features: int) -> Array:
        """Draw x from N(0, 1), for training, validation and testing."""
        rows = self.examples + self.held_out + self.tested
        return jax.random.normal(jax.random.key(self.key), (rows, features))


def teachers(settings: Settings) -> dict[str, Array]:
    """Draw the teachers; arrays have a leading axis of teachers."""
    x = settings.inputs(settings.features)
    key = jax.random.fold_in(jax.random.key(settings.key), 2)

    def teacher(key: Array) -> dict[str, Array]:
        into, bias, out = jax.random.split(key, 3)
        drawn = {
            "into": jax.random.normal(into, (settings.features, settings.neurons)) / settings.features**0.5,
            "bias": 0.5 * jax.random.normal(bias, (settings.neurons,)),
            "out": jax.random.normal(out, (settings.neurons, 1)),
            "centre": jnp.zeros(1),
            "scale": jnp.ones(1),
        }
        y = teach(drawn, x)
        return drawn | {"centre": y.mean(axis=0), "scale": y.std(axis=0)}

    return jax.jit(jax.vmap(teacher))(jax.random.split(key, settings.teachers))


def teach(teacher: dict[str, Array], x: Array) -> Array:
    """Compute a teacher's outputs, `(relu(x W + b) v - c) / d`, of mean 0 and variance 1."""
    hidden = jax.nn.relu(x @ teacher["into"] + teacher["bias"][None])
    return (hidden @ teacher["out"] - teacher["centre"][None]) / teacher["scale"][None]


def take_taught_rows(data: PyTree, own: PyTree, rows: Array) -> PyTree:
    """Take rows of the inputs, with the outputs of one run's teacher as targets."""
    x = data[0][rows]
    return x, teach(own, x)


def problem(settings: Settings, epochs: int, times: int = 1) -> Problem:
    """Build the problem of all runs: every seed of every teacher, `times` times."""
    x, rows = settings.inputs(settings.features), settings.rows()
    per_run = jax.tree.map(
        lambda leaf: jnp.tile(jnp.repeat(leaf, settings.seeds, axis=0), (times,) + (1,) * (leaf.ndim - 1)),
        teachers(settings),
    )
    return supervised(
        spectral_network((settings.features, *settings.hidden, 1), form="gated", bias=True),
        (x, x),  # The targets are the teachers', made in the gather.
        loss=optax.squared_error,
        optimizer=optax.adam(settings.learning_rate),
        steps=settings.steps(epochs),
        batch_size=settings.batch_size,
        train=rows["train"],
        validation=rows["validation"],
        per_run=per_run,
        gather=take_taught_rows,
    )


def truth(task: Problem, rows: np.ndarray) -> np.ndarray:
    """Compute the teachers' outputs, shape (runs, rows, 1)."""
    return np.asarray(jax.vmap(teach, (0, None))(task.per_run, task.data[0][rows]), np.float64)


def plan(settings: Settings) -> list[str]:
    """Describe the trainings to be compiled and run."""
    runs = settings.teachers * settings.seeds
    once = settings.steps(settings.once_epochs)
    return [
        f"data: {settings.examples} Gaussian points to train on, {settings.held_out} to validate on, "
        f"{settings.tested} to test on",
        f"teachers: {settings.teachers}, of {settings.features} inputs, {settings.neurons} hidden neurons "
        f"and one output; students of {'-'.join(map(str, settings.hidden))} hidden neurons, gated",
        f"trainings: {2 * settings.rounds + 1} in rounds: {settings.steps(settings.epochs)} steps of batch "
        f"{settings.batch_size} x {runs} runs",
        f"trainings: 2 at one strength: {once} steps x {runs * len(settings.strengths)} runs, strengths "
        f"{', '.join(f'{strength:g}' for strength in settings.strengths)}",
    ]


def run(settings: Settings, context: Context) -> Outcome:
    """Find the width of every teacher in rounds, and by one training at each strength."""
    runs = pd.MultiIndex.from_product(
        [range(settings.teachers), range(settings.seeds)], names=["teacher", "seed"]
    ).to_frame(index=False)
    rounds = spectral_width(settings.rounds, recruit_tolerance=settings.tolerance)
    found = [_measured(settings, context, ROUNDS, runs, rounds)]
    for strength in settings.strengths:
        once = chain(spectral(strength), recruit(settings.tolerance), spectral(0.0))
        found.append(_measured(settings, context, f"once, {strength:g}", runs, once))
    tables_of, spent = zip(*found, strict=True)
    table = pd.concat(tables_of, ignore_index=True)
    return Outcome(table, _findings(table), costs={name: cost for of in spent for name, cost in of.items()})


def _measured(
    settings: Settings, context: Context, name: str, runs: pd.DataFrame, strategy: Strategy
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Train all students by one strategy, and measure them: one row a run."""
    task = problem(settings, settings.epochs if name == ROUNDS else settings.once_epochs)
    network, report = over_seeds(
        strategy,
        jnp.tile(settings.seed_keys(), settings.teachers),
        task,
        name=name,
        labels=[f"teacher {row.teacher}, seed {row.seed}" for row in runs.itertuples()],
        chunk=training.CHUNK,
        dead_start="ignore",
        **context.options,
    )
    rows = settings.rows()["test"]
    whole = np.asarray(network.info.failed_at) < 0
    measured = {
        "neurons": np.asarray(network[NeuronMask].count(), float),
        "r2": r_squared(evaluate(strategy, network, task, rows), truth(task, rows)),
    }
    table = runs.assign(
        search=name,
        **{quantity: np.where(whole, values, np.nan) for quantity, values in measured.items()},
        seconds=report.seconds,
        failed_at=np.asarray(network.info.failed_at),
    )
    return table, {name: costs({name: (network, report)})}


def conclusion(results: Results) -> Iterable[str]:
    """Compare the neurons that the searches leave."""
    settings, table = results.settings, results.table
    said = "; ".join(
        f"{tables.inline(runs['neurons'], '.0f')} by {name}, with a test R^2 of "
        f"{tables.inline(runs['r2'], '.5f')}"
        for name, runs in table.groupby("search", sort=False)
    )
    counted = tables.counted(runs["neurons"] for _, runs in table.groupby("search", sort=False))
    yield (
        f"Of {sum(settings['hidden'])} neurons, students of {settings['teachers']} teachers of "
        f"{settings['neurons']} keep {said} ({counted})."
    )


def report(results: Results) -> list[RenderableType]:
    """Draw the error against the neurons left, and build the table."""
    settings, table = results.settings, results.table
    # All teachers together: a line joins strengths.
    once = [name for name in table["search"].unique() if name != ROUNDS]
    wide = table.pivot(index=["teacher", "seed"], columns="search", values=["neurons", "r2"])
    points = {
        line: (wide["neurons"][names].to_numpy(float), 1 - wide["r2"][names].to_numpy(float))
        for line, names in ((ROUNDS, [ROUNDS]), ("once, a point a strength", once))
        if names
    }
    figure = plots.trade_off(
        points,
        f"hidden neurons left of {sum(settings['hidden'])}",
        "1 - $R^2$ on the test rows",
        logarithmic=(False, True),
        marked={"teacher": settings["neurons"]},
    )
    results.draw(figure, "width")
    rows = [
        (
            str(name),
            str(teacher),
            tables.spread(runs["neurons"], ".0f"),
            f"{runs['neurons'].max():.0f}",
            tables.spread(runs["r2"], ".5f"),
            f"{runs['r2'].min():.5f}",
            tables.median(runs["seconds"], ".1f"),
        )
        for (name, teacher), runs in table.groupby(["search", "teacher"], sort=False)
    ]
    columns = ("search", "teacher", "neurons left", "most", "test R^2", "smallest", "seconds")
    title = f"hidden neurons left by {settings['seeds']} seeds, for teachers of {settings['neurons']}"
    return [
        tables.table(title, columns, rows),
        *wording.explain((), COLUMNS | {"seconds": wording.SECONDS}),
        *results.remarks(table.groupby("search")),
    ]


def _findings(table: pd.DataFrame) -> list[dict[str, Any]]:
    found = []
    for name, runs in table.groupby("search", sort=False):
        found.append(finding(f"hidden neurons left: {name}", runs["neurons"]))
        found.append(finding(f"test R^2: {name}", runs["r2"]))
        found.append(finding(f"test R^2, least over runs: {name}", runs["r2"].min()))
    return found


def charts(results: Results) -> list[Chart]:
    """Chart the test error of every run against its neurons left."""
    return error_charts(results.table, "search", "teacher")


EXPERIMENT = Experiment(__name__, Settings, plan, run, report, conclusion, charts=charts)
