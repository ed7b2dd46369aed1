"""Whether the theory of the two-temperature step helps: exact mirror step, prescribed rates, soft/hard."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from jax import Array
from jax.flatten_util import ravel_pytree
from rich.console import RenderableType

from jaxarch import plots, results
from jaxarch.data.dataset import Dataset
from jaxarch.data.tasks import Task
from jaxarch.errors import ArgumentError, check_count, check_distinct, check_known, check_positive
from jaxarch.experiments.disentangling import trial
from jaxarch.experiments.harness import records, tables
from jaxarch.experiments.harness.experiment import Experiment, checkpoints, seed_keys
from jaxarch.experiments.theory import convex
from jaxarch.masks import density, soft_mask
from jaxarch.metrics import auc
from jaxarch.problem import Network, Problem
from jaxarch.running.fit import Progress
from jaxarch.running.strategy import evaluate, over_seeds
from jaxarch.running.training import Training, TrainState, advance, begin
from jaxarch.search.two_temperature import two_temperature
from jaxarch.storage import read_npz, save_tree
from jaxarch.theory import bounds, mirror
from jaxarch.trees import PyTree, everything, map_selected

NAME = "theory.temperature_ratio"
LOSSES = "losses.npz"

ORDINARY, EXACT = "Algorithm 1", "exact mirror step"
STEPS: dict[str, Callable[[Any, Any], optax.GradientTransformation]] = {
    ORDINARY: lambda rate, soft: optax.sgd(rate),
    EXACT: mirror.mirror_descent,
}
FIXED, SCALED, MEASURED, CERTIFIED, TUNED = "fixed", "scaled", "measured G", "certified G", "tuned"
LINES = (FIXED, SCALED, MEASURED, CERTIFIED, TUNED)
"""How the rate is chosen: the same at every ratio, as in [D]; scaled, so that rate x soft is the same;
prescribed, with the largest gradient of a first run or a certified bound; the best multiple of the scaled."""

NETWORK = "network"
PROBLEMS = {
    NETWORK: "F of the network found",
    "logistic": "gap of logistic regression",
    "linear": "gap of a linear f",
    "quadratic": "gap of a quadratic f",
}
"""What is looked at: of convex problems, how far F is above its least value, at the average of the masks."""
ON_DATA = (NETWORK, "logistic")
STARTS = {NETWORK: (-10.0, 5.0)}
"""Mean and deviation of the scores at the start, in units of 1/hard; elsewhere 0, a mask of 1/2."""
CONVEX_FIGURES = (("bounds", "gap_over_bound", "gap / bound"), ("last-masks", "last_gap", "gap, last mask"))
QUANTITIES = (
    *("loss", "last", "average", "density", "auc"),
    *("bound", "gap", "last_gap", "gap_over_bound"),
)


@dataclasses.dataclass(frozen=True)
class Settings(trial.Setup):
    """What can be set with `jaxarch run theory.temperature_ratio --set NAME=VALUE`.

    The network starts as in [D], from scores of N(-10, 5)/hard, the convex problems from a mask of 1/2.

    Attributes:
      problems: network, of [D], and three that are convex in the mask: logistic, linear, quadratic.
      positive: classes of the first group, which is y = 1 unless the task is flipped.
      negative: classes of the second group; no class is in both.
      train_per_class: examples of each class to train on.
      hard: the inverse temperature of the mask that the loss sees.
      ratios: soft/hard, at most 1.
      learning_rate: at the ratio `reference`; it is scaled from there.
      reference: the ratio soft/hard at which the learning rate holds, and G is measured.
      multiples: of the scaled rate, over which it is tuned; 1 is always among them.
      dimension: connections of the linear and the quadratic problem.
      examples: of the linear and the quadratic problem.
      weight_std: standard deviation of the fixed weights of logistic regression.
      resume: a folder where what is done is kept, so that the same command goes on from there, to the same
        numbers; none if it is empty.
    """

    seeds: int = 5
    problems: tuple[str, ...] = tuple(PROBLEMS)
    positive: tuple[int, ...] = (1, 2, 3)
    negative: tuple[int, ...] = (4, 5, 6)
    train_per_class: int = 100
    hard: float = 50.0
    ratios: tuple[float, ...] = (0.001, 0.01, 0.1, 0.3, 0.5, 0.9, 1.0)
    reference: float = 0.1
    multiples: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
    dimension: int = 100
    examples: int = 600
    weight_std: float = 5.0
    resume: str = ""

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        check_known("problems", self.problems, PROBLEMS)
        check_distinct("problems", self.problems)
        for name in ("train_per_class", "dimension", "examples"):
            check_count(name, getattr(self, name))
        for name in ("hard", "reference", "weight_std"):
            check_positive(name, getattr(self, name))
        for name in ("ratios", "multiples"):
            if not getattr(self, name):
                raise ArgumentError(f"{name}: expected at least one number")
            for value in getattr(self, name):
                check_positive(name, value)
            check_distinct(name, getattr(self, name))
        for name, largest in (("ratios", max(self.ratios)), ("reference", self.reference)):
            if largest > 1:
                raise ArgumentError(f"{name}: expected soft/hard of at most 1, got {largest}")

    def softs(self) -> np.ndarray:
        """The soft temperatures of all ratios."""
        return np.asarray(self.ratios) * self.hard

    def grid(self) -> list[float]:
        """The multiples of the scaled rate, 1 among them."""
        return sorted({*self.multiples, 1.0})


class Case(NamedTuple):
    """A problem for all seeds, and the scores it starts from: mean and deviation in units of 1/hard."""

    problem: Problem
    mean: float
    std: float


@dataclasses.dataclass(frozen=True)
class Search:
    """From one run's settings, `hard`, `soft` and `rate`, to its search."""

    step: str
    mean: float
    std: float

    def __call__(self, sweep: dict[str, Any]) -> Training:
        """The search of one run."""
        hard, soft = sweep["hard"], sweep["soft"]
        optimizer = STEPS[self.step](sweep["rate"], soft)
        search = two_temperature(
            hard, soft, where=everything, mean=self.mean, std=self.std, optimizer=optimizer
        )
        return averaging(search, hard)


def averaging(search: Training, hard: Any) -> Training:
    """The search, with `average`, the mean of the masks `v_1, ..., v_T`, in the info of what it finds."""

    def mask(point: TrainState) -> PyTree:
        return soft_mask(point.trainable, hard, hard)

    def init(key: Array, problem: Problem, network: Network | None) -> TrainState:
        point = search.init(key, problem, network)
        return point._replace(memory=mask(point))

    def observe(point: TrainState) -> PyTree:
        return jax.tree.map(jnp.add, point.memory, mask(point))

    def network(point: TrainState) -> Network:
        made, last = search.network(point), mask(point)
        average = jax.tree.map(lambda total, v: (total - v) / point.step, point.memory, last)
        return made._replace(info={**made.info, "last": last, "average": average})

    return dataclasses.replace(search, init=init, observe=observe, network=network)


def prepare(settings: Settings) -> tuple[Dataset | None, Task | None, dict[str, Case]]:
    """Data and task, where any problem needs them, and the problems, all checked."""
    settings.check()
    keys = seed_keys(settings.key, settings.seeds)
    training = {
        "optimizer": optax.sgd(settings.learning_rate),
        "steps": settings.steps,
        "batch_size": settings.batch_size,
    }
    size = (settings.dimension, settings.examples)
    makers: dict[str, Callable[[], Problem]] = {
        "linear": partial(convex.linear, keys, *size, **training),
        "quadratic": partial(convex.quadratic, keys, *size, **training),
    }
    data = task = None
    if set(ON_DATA) & set(settings.problems):
        data = settings.data()
        groups = (settings.positive, settings.negative)
        task = trial.split(settings, data, groups, settings.train_per_class, orientations=(False,))
        makers[NETWORK] = partial(trial.problem, settings, data, task)
        makers["logistic"] = partial(convex.logistic, data, task, keys, settings.weight_std, **training)
    cases = {name: Case(makers[name](), *STARTS.get(name, (0.0, 0.0))) for name in settings.problems}
    return data, task, cases


def plan(settings: Settings) -> list[str]:
    """What would be compiled and trained."""
    data, task, _ = prepare(settings)
    rates = len(settings.grid()) + 3
    lines = [
        f"problems: {', '.join(settings.problems)}; {settings.seeds} seeds",
        f"soft/hard: {', '.join(f'{ratio:g}' for ratio in settings.ratios)}; hard {settings.hard:g}",
        f"rates: {settings.learning_rate:g} at every ratio; scaled, times "
        f"{', '.join(f'{multiple:g}' for multiple in settings.grid())}; below soft/hard 1 prescribed, with "
        "the measured and with the certified G",
        f"trainings: {len(STEPS)} for each problem, one program each ({'; '.join(STEPS)}): {settings.steps} "
        f"steps x up to {len(settings.ratios) * rates * settings.seeds} runs; one more to measure G",
    ]
    if data is not None and task is not None:
        examples, features = data.x.shape
        lines.insert(0, f"data: {data.name}, {examples} x {features}; task {task.name}")
    return lines


def run(settings: Settings, folder: Path, progress: Callable[[Progress], None] | None = None) -> None:
    """Train every problem with both steps at all ratios and rates, and write what became of F."""
    started = time.time()
    data, task, cases = prepare(settings)
    checkpoint = checkpoints(settings.resume)
    keys = seed_keys(settings.key, settings.seeds)
    measured, histories, costs, gradients, excess = [], {}, {}, {}, {}
    for name, case in cases.items():
        start, largest = first_run(settings, case, keys)
        gradients[name] = {MEASURED: largest, CERTIFIED: certified_bounds(case.problem)}
        cells = _cells(settings, start, gradients[name])
        wide = _repeated(case.problem, len(cells) // settings.seeds)
        best = None if name == NETWORK else convex.least(case.problem)
        if best is not None:
            excess[name] = best.excess
        for step in STEPS:
            network, cost = over_seeds(
                Search(step, case.mean, case.std),
                keys[cells["seed"].to_numpy()],
                wide,
                {of: jnp.asarray(cells[of], jnp.float32) for of in ("hard", "soft", "rate")},
                name=f"{name}, {step}",
                progress=progress,
                labels=[
                    f"{row.rate_rule} x {row.multiple:g}, soft/hard {row.ratio:g}, seed {row.seed}"
                    for row in cells.itertuples()
                ],
                checkpoint=checkpoint,
                dead_start="ignore",
            )
            rows = cells.assign(problem=name, step=step, **_objectives(wide, network))
            if best is not None:
                rows["bound"] = _bounds(settings, cells, start, best.masks, gradients[name][CERTIFIED], step)
                rows = rows.assign(**_gaps(rows, wide, network, best.values, gradients[name][CERTIFIED]))
            elif data is not None and task is not None:
                rows["auc"] = _test_auc(cells, wide, network, data, task)
            measured.append(
                rows.assign(seconds=cost.seconds, failed_at=np.asarray(network.info["failed_at"]))
            )
            histories[f"{name}/{step}"] = np.asarray(network.info["loss"])
            costs[f"{name}, {step}"] = records.costs({step: (network, cost)})
    table = pd.concat(measured, ignore_index=True)
    quantities = [name for name in QUANTITIES if name in table]
    table[quantities] = table[quantities].where(table["failed_at"] < 0)
    save_tree(folder / LOSSES, histories)
    findings = _findings(table, gradients, _words(settings, data))
    facts = {"costs": costs, "gradients": gradients, "least_within": excess}
    records.write(folder, NAME, settings, started, table, findings, data, **facts)


def first_run(settings: Settings, case: Case, keys: Array) -> tuple[PyTree, np.ndarray]:
    """The scores at the start, and the largest gradient in the mask that Algorithm 1 meets, for every seed.

    At the ratio `reference` and the rate that is fixed there; the gradients are those of batches.
    """
    soft = settings.reference * settings.hard
    optimizer = optax.chain(_largest_gradient(soft), optax.sgd(settings.learning_rate))
    training = two_temperature(
        settings.hard, soft, where=everything, mean=case.mean, std=case.std, optimizer=optimizer
    )

    def largest(key: Array, problem: Problem) -> Network:
        first = begin(training, key, problem, None)
        last, _ = advance(training, key, problem, first, 0, problem.steps, problem.steps)
        return Network(None, None, {}, {"start": first.point.trainable, "largest": last.opt_state[0]})

    network, _ = over_seeds(largest, keys, case.problem)
    return network.info["start"], np.asarray(network.info["largest"])


def _largest_gradient(soft: float) -> optax.GradientTransformation:
    """Changes nothing, and keeps the largest norm of `g = c / ds_soft(w)`, c being what it is given."""

    def update(gradient: PyTree, largest: Array, scores: PyTree) -> tuple[PyTree, Array]:
        of_mask = map_selected(lambda c, w: c * (2 / soft) * (1 + jnp.cosh(soft * w)), gradient, scores)
        return gradient, jnp.maximum(largest, jnp.linalg.norm(ravel_pytree(of_mask)[0]))

    return optax.GradientTransformation(lambda scores: jnp.zeros(()), update)


def certified_bounds(problem: Problem) -> np.ndarray:
    """G for every seed: no example's gradient, at no mask in [0, 1]^d, has a larger norm."""
    params, state = problem.init(jax.random.key(0))

    def largest(one: Problem) -> Array:
        return bounds.gradient_bounds(one, params, state, where=everything).max()

    return np.asarray(jax.jit(jax.vmap(largest, in_axes=(problem.in_axes(),)))(problem))


def _cells(settings: Settings, start: PyTree, norms: dict[str, np.ndarray]) -> pd.DataFrame:
    """Every run: how its rate is chosen, ratio, seed, temperatures and rate; the seeds of a cell in a row."""
    cells = []
    farthest = _farthest(start, settings.hard, settings.softs())
    for ratio, soft, distance in zip(settings.ratios, settings.softs(), farthest, strict=True):
        scaled = settings.learning_rate * settings.reference / ratio
        rates: list[tuple[str, float, Any]] = [(FIXED, 1.0, settings.learning_rate)]
        rates += [(SCALED, multiple, multiple * scaled) for multiple in settings.grid()]
        if ratio < 1:
            for rule, norm in norms.items():
                rate = mirror.prescribed_rate(
                    distance, settings.hard, soft, gradient_bound=norm, steps=settings.steps
                )
                rates.append((rule, 1.0, np.asarray(rate)))
        for rule, multiple, rate in rates:
            cell = {"rate_rule": rule, "multiple": multiple, "ratio": ratio, "seed": range(settings.seeds)}
            cells.append(pd.DataFrame({**cell, "hard": settings.hard, "soft": soft, "rate": rate}))
    return pd.concat(cells, ignore_index=True)


@jax.jit
def _farthest(start: PyTree, hard: Array, softs: Array) -> Array:
    """D(u, v_1) to the farthest architecture u, so that one bound holds for all; shape (softs, seeds)."""

    def farthest(scores: PyTree, soft: Array) -> Array:
        return mirror.vertex_distance(-jnp.abs(ravel_pytree(scores)[0]), hard, soft).sum()

    return jax.vmap(jax.vmap(farthest, (0, None)), (None, 0))(start, softs)


@jax.jit
def _distances(masks: Array, start: PyTree, hard: Array, softs: Array) -> Array:
    """D(u, v_1) to the mask u of each seed, shape (softs, seeds)."""
    total = jax.vmap(mirror.total_divergence, (0, 0, None, None))
    return jax.vmap(total, (None, None, None, 0))({"v": masks}, start, hard, softs)


def _repeated(problem: Problem, times: int) -> Problem:
    """The problem of all seeds, so many times."""
    per_run = jax.tree.map(lambda leaf: jnp.concatenate([leaf] * times), problem.per_run)
    return dataclasses.replace(problem, train=jnp.tile(problem.train, (times, 1)), per_run=per_run)


def _objectives(problem: Problem, network: Network) -> dict[str, Any]:
    """F of the architecture found, of the last mask and of the average mask, and the share that is kept."""
    networks = {"loss": network.params, "last": network.info["last"], "average": network.info["average"]}
    measured: dict[str, Any] = {
        name: np.asarray(trial.objectives(problem, params, network.state), np.float64)
        for name, params in networks.items()
    }
    return measured | {"density": np.asarray(jax.vmap(density)(network.mask), np.float64)}


def _test_auc(
    cells: pd.DataFrame, problem: Problem, network: Network, data: Dataset, task: Task
) -> np.ndarray:
    outputs = evaluate(two_temperature(), network, problem, task.test[cells["seed"]])
    return auc(task.labels(data, task.test)[cells["seed"]], outputs)


def _gaps(
    rows: pd.DataFrame, problem: Problem, network: Network, least: np.ndarray, norm: np.ndarray
) -> dict[str, Any]:
    """How far F of the average and of the last mask is above its least value; the first over its bound.

    A bound of more than the G sqrt(d) that holds for every mask says nothing, and gives no share: so it is
    where soft = hard, if the best mask has entries of 0 or 1, and at rates that are too large.
    """
    gap, last = (
        convex.exact_objectives(problem, np.asarray(network.info[mask]["v"])) - least[rows["seed"]]
        for mask in ("average", "last")
    )
    trivial = norm[rows["seed"]] * np.sqrt(network.info["last"]["v"].shape[1])
    share = (gap / rows["bound"]).where(rows["bound"] <= trivial)
    return {"gap": gap, "last_gap": last, "gap_over_bound": share}


def _bounds(
    settings: Settings, cells: pd.DataFrame, start: PyTree, best: np.ndarray, norm: np.ndarray, step: str
) -> np.ndarray:
    """The theorem's bound on the gap of the average mask: D(u, v_1) with u the best mask, G certified."""
    distances = _distances(jnp.asarray(best, jnp.float32), start, settings.hard, settings.softs())
    of = cells["ratio"].map(settings.ratios.index)
    bound = jax.jit(partial(mirror.average_iterate_bound, exact=step == EXACT))(
        distances[of.to_numpy(), cells["seed"].to_numpy()],
        *(cells[column].to_numpy() for column in ("rate", "hard", "soft")),
        gradient_bound=norm[cells["seed"]],
        steps=settings.steps,
    )
    return np.asarray(bound, np.float64)


def lines(table: pd.DataFrame) -> pd.DataFrame:
    """The runs that are shown: with `value`, what is looked at, and `line`, how their rate was chosen.

    The tuned rate of a problem, step and ratio is the multiple of least median over the seeds: it is chosen
    on the runs that are shown. `edge` tells whether it is the least or the largest of the grid, `run` which
    of its training's runs it is.
    """
    value = table["loss"]
    if "gap" in table:
        value = value.where(table["problem"] == NETWORK, table["gap"])
    run = table.groupby(["problem", "step"]).cumcount()
    table = table.assign(value=value, line=table["rate_rule"], edge=False, run=run)
    shown = [table[table["multiple"] == 1]]
    scaled = table[table["rate_rule"] == SCALED]
    for _, cell in scaled.groupby(["problem", "step", "ratio"], sort=False):
        medians = cell.groupby("multiple")["value"].median().fillna(np.inf)
        best = medians.idxmin()
        edge = best in (medians.index.min(), medians.index.max())
        shown.append(cell[cell["multiple"] == best].assign(line=TUNED, edge=edge))
    return pd.concat(shown, ignore_index=True)


def report(folder: Path) -> list[RenderableType]:
    """Draw the figures of a folder from its files, and make its tables."""
    manifest, table = results.read_manifest(folder), results.read_table(folder)
    settings, losses = manifest["settings"], read_npz(folder / LOSSES, "folder")
    shown = lines(table)
    parts = {name: shown[shown["problem"] == name] for name in settings["problems"]}
    convex_parts = {name: part for name, part in parts.items() if name != NETWORK}
    title = f"{manifest['data']['name']}, " if "data" in manifest else ""
    title += f"hard {settings['hard']:g}, {settings['steps']} steps"
    figure = plots.sweep(
        {PROBLEMS[name]: _panels(part, "value") for name, part in parts.items()},
        "soft/hard",
        title,
        logarithmic=[PROBLEMS[name] for name in convex_parts],
        logarithmic_setting=True,
    )
    plots.save(figure, folder, "ratios")
    for file, column, words in CONVEX_FIGURES if convex_parts else ():
        # The tuned rates are those of the average mask, and their bounds say nothing.
        rows = {
            f"{name}: {words}": _panels(part[part["line"] != TUNED], column)
            for name, part in convex_parts.items()
        }
        figure = plots.sweep(rows, "soft/hard", title, logarithmic=list(rows), logarithmic_setting=True)
        plots.save(figure, folder, file)
    for name, part in parts.items():
        figure = plots.convergence_grid(_histories(part, losses), "F of the batch", f"{name}; {title}")
        plots.save(figure, folder, f"convergence-{name}")
    cells = ["problem", "step"]
    rendered: list[RenderableType] = [_gradients(manifest["gradients"])]
    rendered += [_table(part, name, step) for (name, step), part in shown.groupby(cells, sort=False)]
    if convex_parts:
        rendered.append(_shares(shown[shown["problem"] != NETWORK]))
    rendered += [
        f"! {name}, {step}: the tuned rate is at the edge of its grid at soft/hard "
        + ", ".join(f"{ratio:g}" for ratio in ratios)
        for (name, step), ratios in shown[shown["edge"]].groupby(cells, sort=False)["ratio"].unique().items()
    ]
    rendered += records.notes(manifest["costs"].values())
    failed = table.groupby(cells, sort=False)
    return rendered + records.failures((f"{name}, {step}", runs) for (name, step), runs in failed)


def _panels(table: pd.DataFrame, column: str) -> dict[str, dict[str, tuple[np.ndarray, np.ndarray]]]:
    """By step, by line: the ratios where no seed is missing, and what was measured, shape (seeds, ratios)."""
    panels: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = {}
    for (step, line), runs in table.groupby(["step", "line"], sort=False):
        values = runs.pivot(index="seed", columns="ratio", values=column).dropna(axis=1)
        panels.setdefault(step, {})[line] = (values.columns.to_numpy(), values.to_numpy())
    return panels


def _histories(table: pd.DataFrame, losses: dict[str, np.ndarray]) -> dict[str, Any]:
    """By step, by ratio, by line: the losses of all seeds, shape (seeds, steps)."""
    panels: dict[str, Any] = {}
    for (name, step, ratio, line), runs in table.groupby(["problem", "step", "ratio", "line"], sort=False):
        row = panels.setdefault(step, {}).setdefault(f"soft/hard {ratio:g}", {})
        row[line] = losses[f"{name}/{step}"][runs["run"]]
    return panels


def _table(table: pd.DataFrame, name: str, step: str) -> Any:
    form = ".1f" if name == NETWORK else ".2g"
    rows = [
        (
            f"{ratio:g}",
            *(tables.spread(runs.loc[runs["line"] == line, "value"], form) for line in LINES),
            tables.median(runs.loc[runs["line"] == TUNED, "multiple"], "g"),
        )
        for ratio, runs in table.groupby("ratio")
    ]
    columns = ("soft/hard", *LINES, "times scaled")
    return tables.table(f"{PROBLEMS[name]}, {step}: median [quartiles]", columns, rows)


def _gradients(gradients: dict[str, dict[str, list[float]]]) -> Any:
    rows = [
        (name, *(tables.spread(np.asarray(norms[of]), ".3g") for of in (MEASURED, CERTIFIED)))
        for name, norms in gradients.items()
    ]
    return tables.table("G: the norm of the gradient in the mask", ("problem", MEASURED, CERTIFIED), rows)


def _shares(table: pd.DataFrame) -> Any:
    rows = [
        (f"{name}, {step}", *(_largest(runs[runs["line"] == line]) for line in LINES))
        for (name, step), runs in table.groupby(["problem", "step"], sort=False)
    ]
    title = "largest gap of an average mask over its bound, where that is at most G sqrt(d)"
    return tables.table(title, ("problem", *LINES), rows)


def _largest(runs: pd.DataFrame) -> str:
    return tables.number(runs["gap_over_bound"].max(), ".2g")


def _words(settings: Settings, data: Dataset | None) -> dict[str, str]:
    """What the values of each problem are, in words, for findings."""
    groups = (",".join(map(str, group)) for group in (settings.positive, settings.negative))
    on = "" if data is None else ", {} {{{}}} v {{{}}}".format(data.name, *groups)
    return {name: words + (on if name in ON_DATA else "") for name, words in PROBLEMS.items()}


def _findings(
    table: pd.DataFrame, gradients: dict[str, dict[str, np.ndarray]], words: dict[str, str]
) -> list[dict[str, Any]]:
    network = [
        results.finding(f"{rule}: {name}", norm)
        for name, norms in gradients.items()
        for rule, norm in norms.items()
    ]
    shown = lines(table)
    cells = shown.groupby(["problem", "line", "ratio"], sort=False)
    for (name, line, ratio), runs in cells:
        at = f"{words[name]}; {line} rate, soft/hard {ratio:g}"
        by_step = runs.pivot(index="seed", columns="step", values="value")
        network += [results.finding(f"{at}, {step}", by_step[step]) for step in STEPS]
        difference = by_step[EXACT] - by_step[ORDINARY]
        network.append(results.finding(f"{at}, {EXACT} minus {ORDINARY}", difference))
        if name != NETWORK and line != TUNED:
            last = runs.pivot(index="seed", columns="step", values="last_gap")
            network += [results.finding(f"{at}, {step}, last mask", last[step]) for step in STEPS]
    return network


EXPERIMENT = Experiment(
    NAME,
    "what the theory of the two-temperature step gives: exact step and prescribed rates, over soft/hard",
    Settings,
    plan,
    run,
    report,
)
