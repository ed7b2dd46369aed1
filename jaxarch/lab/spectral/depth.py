"""Recovery of a teacher's depth by students with more layers, which lose the layers that they do not need."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from rich.console import RenderableType

from jaxarch import (
    ArgumentError,
    Model,
    Problem,
    PyTree,
    chain,
    evaluate,
    over_seeds,
    plots,
    recruit,
    spectral_network,
)
from jaxarch.lab.charts import Chart
from jaxarch.lab.checks import check_count, check_positive, check_strength
from jaxarch.lab.harness import Context, Experiment, Outcome, Results, costs, finding, tables
from jaxarch.lab.spectral import training, wording
from jaxarch.lab.spectral.deep_teacher import DeepTeacherSettings, problem, teachers, truth
from jaxarch.lab.spectral.neurons_left import left_by_layer
from jaxarch.lab.spectral.teacher import r_squared
from jaxarch.search import spectral, spectral_depth
from jaxarch.spectral.algebra import Form

COLUMNS = {
    "teacher layers": "hidden layers of the teacher",
    "depth recognized": "runs that find this depth, with a high enough test R^2",
    "found": "hidden layers left, each with its number of runs in brackets",
    "smallest, largest": "of the R^2 before it, over runs",
    "R^2, a layer fewer": "wide students with a hidden layer fewer than the teacher, without penalty",
    "found as in [S]": "layers left by the penalty alone, in the form of [S] (Peri et al. 2025)",
}


@dataclasses.dataclass(frozen=True)
class Settings(DeepTeacherSettings):
    """Settings of `jaxarch run spectral.depth`, changed with `--set NAME=VALUE`.

    A student has more hidden layers than its teacher. Layers are removed one by one, with a training after
    each removal. As few layers are kept as the validation loss allows. Then the neurons that the student can
    spare are removed, and the rest is trained once more, without penalty.

    To see whether a teacher needs its layers, wide students of one layer fewer are trained without penalty. A
    linear map by least squares replaces a student without hidden layers.

    Students in the form of [S] are trained as in [S], under the penalty alone, and lose the neurons that they
    can spare. This shows how many layers are left then.

    Attributes:
      features: number of inputs.
      neurons: neurons of each hidden layer of a teacher, and number of outputs.
      strength: strength of the penalty on eigenvalues.
      depth_tolerance: how much worse a network with fewer layers may be, as a share of a linear network's
        validation loss.
      enough: a depth is recognized if it is found and the pruned student's test R^2 is at least this number.
      wide: neurons of each hidden layer of a student of one layer fewer than its teacher.
      wide_epochs: passes over the training points for these wide students.
    """

    features: int = 8
    neurons: int = 20
    strength: float = 1e-5
    depth_tolerance: float = 0.01
    enough: float = 0.995
    wide: int = 300
    wide_epochs: int = 16

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        self.check_each(check_count, "features", "neurons", "wide", "wide_epochs")
        check_strength("strength", self.strength)
        self.check_each(check_positive, "depth_tolerance", "enough")
        if self.features > self.neurons:
            raise ArgumentError(f"features: expected at most neurons={self.neurons}, got {self.features}")

    def students(self, hidden: tuple[int, ...], form: Form = "gated") -> Model:
        """Build networks with these hidden layers."""
        return spectral_network((self.features, *hidden, self.neurons), bias=True, form=form)


def plan(settings: Settings) -> list[str]:
    """Describe the trainings to be compiled and run."""
    rounds, runs = len(settings.hidden) + 1, len(settings.depths) * settings.seeds
    steps, wide_steps = settings.steps(settings.epochs), settings.steps(settings.wide_epochs)
    return [
        f"data: {settings.examples} points of [-1, 1]^{settings.features} to train on, "
        f"{settings.held_out} to validate on, {settings.held_out} to test on",
        f"teachers: {settings.seeds} of each of {', '.join(map(str, settings.depths))} hidden layers of "
        f"{settings.neurons}",
        f"trainings: {rounds + 1}, one of students of {'-'.join(map(str, settings.hidden))} hidden neurons, "
        f"{rounds - 1} with a layer fewer each, and one without penalty: {steps} steps of batch "
        f"{settings.batch_size} x {runs} runs",
        *(
            f"training: students of {depth - 1} hidden layers of {settings.wide}, for teachers of {depth}: "
            f"{wide_steps} steps x {settings.seeds} runs"
            for depth in settings.depths
            if depth > 1
        ),
        f"training: students in the form of [S] under the penalty alone: {steps} steps x {runs} runs",
    ]


def run(settings: Settings, context: Context) -> Outcome:
    """Find the depth of every teacher, and train students that are too shallow for it."""
    of_depths = [teachers(settings, depth, settings.features, settings.neurons) for depth in settings.depths]
    every = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *of_depths)
    table = pd.MultiIndex.from_product(
        [settings.depths, range(settings.seeds)], names=["depth", "seed"]
    ).to_frame(index=False)
    students = problem(
        settings, settings.students(settings.hidden), every, settings.features, settings.epochs
    )
    strategy = chain(
        spectral_depth(len(settings.hidden), settings.strength, tolerance=settings.depth_tolerance),
        recruit(settings.tolerance),
        spectral(0.0),
    )
    keys = jnp.tile(settings.seed_keys(), len(settings.depths))
    labels = [f"{row.depth} layers, seed {row.seed}" for row in table.itertuples()]
    options = {"labels": labels, "chunk": training.CHUNK, "dead_start": "ignore", **context.options}
    network, report = over_seeds(strategy, keys, students, name="students", **options)
    rows = settings.rows()["test"]
    spent = {"students": costs({"students": (network, report)})}
    losses = np.asarray(network.info["depth_losses"], np.float64)[:, ::-1]
    left = left_by_layer(network)
    found = {
        "found": (left > 0).sum(axis=1),
        "neurons": left.sum(axis=1),
        "r2": r_squared(evaluate(strategy, network, students, rows), truth(students, rows)),
        **{f"loss_{layers}": losses[:, layers] for layers in range(losses.shape[1])},
    }
    table = table.assign(**found, seconds=report.seconds, failed_at=np.asarray(network.info.failed_at))
    quantities = list(found)
    table[quantities] = table[quantities].astype(float).where(table["failed_at"] < 0)
    recognised = (table["found"] == table["depth"]) & (table["r2"] >= settings.enough)
    table["recognised"] = recognised.astype(float)
    shallow = []
    for depth, per_run in zip(settings.depths, of_depths, strict=True):
        r2, cost = _too_shallow(settings, context, depth, per_run)
        shallow.append(r2)
        spent |= cost
    table["shallow_r2"] = np.concatenate(shallow)
    alone = problem(
        settings,
        settings.students(settings.hidden, "eigendecomposition"),
        every,
        settings.features,
        settings.epochs,
    )
    penalised = chain(spectral(settings.strength), recruit(settings.tolerance))
    network, report = over_seeds(penalised, keys, alone, name="as in [S]", **options)
    layers = (left_by_layer(network) > 0).sum(axis=1)
    table["spectral_layers"] = np.where(np.asarray(network.info.failed_at) < 0, layers, np.nan)
    spent["as in [S]"] = costs({"as in [S]": (network, report)})
    return Outcome(table, _findings(table), costs=spent)


def _too_shallow(
    settings: Settings, context: Context, depth: int, per_run: PyTree
) -> tuple[np.ndarray, dict[str, Any]]:
    """Train students with one hidden layer fewer than their teacher; return their R^2 and costs."""
    rows = settings.rows()
    student = settings.students((settings.wide,) * (depth - 1))
    task = problem(settings, student, per_run, settings.features, settings.wide_epochs)
    if depth == 1:
        return _linear(task, rows), {}
    name = f"students of {depth - 1} layers"
    network, report = over_seeds(
        spectral(0.0),
        settings.seed_keys(),
        task,
        name=name,
        labels=[f"seed {seed}" for seed in range(settings.seeds)],
        chunk=training.CHUNK,
        **context.options,
    )
    r2 = r_squared(evaluate(spectral(0.0), network, task, rows["test"]), truth(task, rows["test"]))
    r2 = np.where(np.asarray(network.info.failed_at) < 0, r2, np.nan)
    return r2, {name: costs({name: (network, report)})}


def _linear(problem: Problem, rows: dict[str, np.ndarray]) -> np.ndarray:
    """Compute R^2 of least squares with an intercept."""
    x = np.asarray(problem.data[0], np.float64)
    inputs = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    train, test = rows["train"], rows["test"]
    maps = [np.linalg.lstsq(inputs[train], taught, rcond=None)[0] for taught in truth(problem, train)]
    return r_squared(np.stack([inputs[test] @ fitted for fitted in maps]), truth(problem, test))


def conclusion(results: Results) -> Iterable[str]:
    """Report how often the depth is recognized, and compare with shallower students and the penalty alone."""
    table, settings = results.table, results.settings
    said = ", ".join(
        f"{int(runs['recognised'].sum())} of {len(runs)} {_named(depth)}"
        for depth, runs in table.groupby("depth", sort=False)
    )
    yield (
        f"Removing layers one by one finds the teacher's depth, with a test R^2 of at least "
        f"{settings['enough']:g}, for {said}."
    )
    shallow = "; ".join(
        f"{tables.inline(runs['shallow_r2'], '.4f')} for {_named(depth)}{' (a linear model)' * (depth == 1)}"
        for depth, runs in table.groupby("depth", sort=False)
    )
    yield (
        f"Test R^2 is {tables.inline(table['r2'], '.5f')} ({tables.counted([table['r2']])}); students of a "
        f"layer fewer, with {settings['wide']} neurons in each layer, have {shallow}."
    )
    yield (
        f"In the form of [S] (Peri et al. 2025), the penalty alone leaves the teacher's number of layers in "
        f"{(table['spectral_layers'] == table['depth']).sum()} of {len(table)} runs."
    )


def report(results: Results) -> list[RenderableType]:
    """Draw the figure and build its table."""
    table, settings = results.table, results.settings
    layers = np.arange(len(settings["hidden"]) + 1)
    losses = {
        _named(depth): (layers, runs[[f"loss_{count}" for count in layers]].to_numpy())
        for depth, runs in table.groupby("depth", sort=False)
    }
    quantity = "validation loss"
    figure = plots.sweep({quantity: {"students": losses}}, "hidden layers", logarithmic=[quantity])
    results.draw(figure, "depth")
    rows = [
        (
            str(depth),
            f"{int(runs['recognised'].sum())} of {len(runs)}",
            _counted(runs["found"]),
            tables.spread(runs["neurons"], ".0f"),
            tables.median(runs["r2"], ".5f"),
            f"{runs['r2'].min():.5f}",
            tables.median(runs["shallow_r2"], ".4f"),
            f"{runs['shallow_r2'].max():.4f}",
            _counted(runs["spectral_layers"]),
        )
        for depth, runs in table.groupby("depth", sort=False)
    ]
    columns = (
        "teacher layers",
        "depth recognized",
        "found",
        "neurons left",
        "R^2",
        "smallest",
        "R^2, a layer fewer",
        "largest",
        "found as in [S]",
    )
    enough = settings["enough"]
    title = f"hidden layers found, test R^2; depth recognized: found, with an R^2 of at least {enough:g}"
    return [
        tables.table(title, columns, rows),
        *wording.explain((), COLUMNS),
        *results.remarks(table.groupby("depth")),
    ]


def _counted(found: pd.Series) -> str:
    """Count how often each number of layers was found, as in `1 (9), 2 (1)`."""
    counts = found.dropna().astype(int).value_counts().sort_index()
    return ", ".join(f"{layers} ({times})" for layers, times in counts.items())


def _named(depth: int) -> str:
    return f"teachers of {depth} hidden layer{'s' * (depth > 1)}"


def _findings(table: pd.DataFrame) -> list[dict[str, Any]]:
    found = []
    for depth, runs in table.groupby("depth", sort=False):
        name = _named(depth)
        found += [
            finding(f"share of seeds whose depth was recognised: {name}", runs["recognised"].mean()),
            finding(f"hidden layers found: {name}", runs["found"]),
            finding(f"hidden neurons left: {name}", runs["neurons"]),
            finding(f"R^2 of the student that is left: {name}", runs["r2"]),
            finding(f"R^2, least over the seeds: {name}", runs["r2"].min()),
            finding(f"R^2 of wide students of a layer fewer: {name}", runs["shallow_r2"]),
            finding(f"R^2 of wide students of a layer fewer, largest: {name}", runs["shallow_r2"].max()),
            finding(f"hidden layers left by the penalty alone, as in [S]: {name}", runs["spectral_layers"]),
        ]
    return found


def charts(results: Results) -> list[Chart]:
    """Chart the validation loss of every student against its hidden layers."""
    names = [column for column in results.table if column.startswith("loss_")]
    long = results.table.melt(["depth", "seed", "found"], names, "layers", "loss")
    long = long.assign(layers=long["layers"].str.removeprefix("loss_").astype(int))
    long["teacher"] = long["depth"].map(_named)
    labels = {"layers": "hidden layers", "loss": "validation loss"}
    return [
        Chart(
            "validation loss against hidden layers",
            long,
            "layers",
            "loss",
            "teacher",
            at="layers",
            labels=labels,
            tells=("seed", "found"),
            logarithmic=(False, True),
        )
    ]


EXPERIMENT = Experiment(__name__, Settings, plan, run, report, conclusion, charts=charts)
