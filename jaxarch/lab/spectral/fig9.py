"""[S] figures 9, 10 and table 4: hidden layers and neurons that the student of a small teacher uses."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array
from rich.console import RenderableType

from jaxarch import Problem, PyTree, evaluate, plots, spectral_network
from jaxarch.lab.checks import check_count, check_known
from jaxarch.lab.harness import Context, Experiment, Outcome, Results, costs, finding, tables
from jaxarch.lab.spectral import teacher, training, wording
from jaxarch.search import spectral
from jaxarch.spectral import neuron_order
from jaxarch.transforms import largest_removal

READOUT = "readout.npz"
LAYERS = {"L2": "first hidden layer, L_2", "L3": "second hidden layer, L_3"}
COLUMNS = {
    "R^2, pruned": "test R^2 with only the neurons that are left",
    "eigenvalues": "left if the smallest eigenvalues are set to 0, as in [S]; their neurons may still act",
    "neurons": "left if the activations of neurons are set to 0, in the same order and by the same rule",
    "max |L_2|, max |L_3|": "largest eigenvalue of the first and second hidden layer",
}


class Preset(NamedTuple):
    """Penalty and length of a training."""

    penalty: str
    strength: float
    epochs: int


PRESETS = {
    "table 4": Preset("squared l2", 3e-3, 180),
    "authors code": Preset("l2", 3e-3, 180),
    "l1 3e-4": Preset("l1", 3e-4, 100),
}
"""Penalties and lengths of training.

Table 4 says L2, which as written is weight decay; the code of [S] does not square the norm.
"""


@dataclasses.dataclass(frozen=True)
class Settings(teacher.TeacherSettings):
    """Settings of `jaxarch run spectral.fig9`, changed with `--set NAME=VALUE`.

    Attributes:
      presets: penalties and lengths of training, from table 4 and the authors' code, and an L1 of ours.
      hidden: neurons of each of the student's two hidden layers.
      epochs: passes over the training points; 0 for the number of each preset.
    """

    presets: tuple[str, ...] = tuple(PRESETS)
    seeds: int = 2
    hidden: int = 200
    epochs: int = 0
    examples: int = 90_000
    batch_size: int = 1024

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        check_count("hidden", self.hidden)
        check_count("epochs", self.epochs, least=0)
        check_known("presets", self.presets, PRESETS)

    def chosen(self) -> dict[str, Preset]:
        """Return the presets to run, with the requested epochs."""
        chosen = {name: PRESETS[name] for name in self.presets}
        if self.epochs:
            chosen = {name: preset._replace(epochs=self.epochs) for name, preset in chosen.items()}
        return chosen


def prepare(settings: Settings, epochs: int) -> Problem:
    """Build the problem of all seeds: shared inputs, and one teacher per seed."""
    widths = (settings.features, settings.hidden, settings.hidden, settings.features)
    return teacher.problem(settings, spectral_network(widths), epochs)


def plan(settings: Settings) -> list[str]:
    """Describe the trainings to be compiled and run."""
    prepare(settings, 1)
    return [
        f"data: {settings.examples} points of [-1, 1]^{settings.features} to train on, "
        f"{settings.held_out} to validate on, {settings.held_out} to test on",
        f"teachers: {settings.seeds}, {settings.features} hidden neurons; students: two hidden layers of "
        f"{settings.hidden}",
        *(
            f"training: {name}: penalty {preset.penalty}, strength {preset.strength:g}, "
            f"{settings.steps(preset.epochs)} steps of batch {settings.batch_size} x {settings.seeds} runs"
            for name, preset in settings.chosen().items()
        ),
    ]


def run(settings: Settings, context: Context) -> Outcome:
    """Train the students under each penalty, and prune them."""
    measured = []
    readout: dict[str, Any] = {}
    spent: dict[str, Any] = {}
    keys = settings.seed_keys()
    labels = [f"seed {seed}" for seed in range(settings.seeds)]
    linear = teacher.linear(settings, prepare(settings, 1))
    for name, preset in settings.chosen().items():
        problem = prepare(settings, preset.epochs)
        search = spectral(preset.strength, penalty=preset.penalty)  # type: ignore[arg-type]
        trained = training.train(context, name, search, keys, problem, labels, settings.tolerance)
        measured.append(pd.concat([_measure(settings, problem, trained), linear], axis=1).assign(preset=name))
        values = {layer: trained.network.params["eigenvalues"][layer] for layer in LAYERS}
        losses = zeroed_losses(problem, trained.network.params)
        measured[-1]["eigenvalues"] = eigenvalues_needed(losses, settings.tolerance)
        readout[name] = {**values, "losses": trained.pruned.info["losses"], "zeroed_losses": losses}
        spent[name] = costs({"spectral": (trained.network, trained.report)})
    table = pd.concat(measured, ignore_index=True)
    presets = {name: preset._asdict() for name, preset in settings.chosen().items()}
    return Outcome(
        table, _findings(table), costs=spent, arrays={READOUT: readout}, facts={"presets": presets}
    )


def _measure(settings: Settings, problem: Problem, trained: training.Trained) -> pd.DataFrame:
    """Measure every seed, one row each."""
    rows = settings.rows()["test"]
    truth, network, pruned = teacher.truth(problem, rows), trained.network, trained.pruned
    recruited = {name: trained.neurons_left(name) for name in LAYERS}
    measured = pd.DataFrame(
        {
            "seed": np.arange(settings.seeds),
            "r2": teacher.r_squared(evaluate(spectral(), network, problem, rows), truth),
            "recruited_r2": teacher.r_squared(evaluate(spectral(), pruned, problem, rows), truth),
            "recruited": np.sum(list(recruited.values()), axis=0).astype(float),
            **{f"recruited_{name}": count.astype(float) for name, count in recruited.items()},
            **{
                f"largest_{name}": np.abs(network.params["eigenvalues"][name]).max(axis=-1) for name in LAYERS
            },
            "seconds": trained.report.seconds,
            "failed_at": np.asarray(network.info.failed_at),
        }
    )
    failed = measured["failed_at"] >= 0
    measured.loc[failed, measured.columns.str.contains("r2|recruited|largest")] = np.nan
    return measured


def zeroed_losses(problem: Problem, params: PyTree) -> np.ndarray:
    """Compute the validation loss with the smallest 0, 1, ..., H hidden eigenvalues set to 0.

    The result has shape (seeds, H + 1).

    This is how [S] removes neurons. If the layer before has its own eigenvalues, the neuron is not removed:
    `W_{k,k-1} = phi_{k-1} L_{k-1}` still feeds a neuron of eigenvalue 0.
    """
    total = len(LAYERS) * params["eigenvalues"]["L2"].shape[-1]
    return np.asarray(_zeroed_losses(problem, params, total))


@partial(jax.jit, static_argnums=2)
def _zeroed_losses(problem: Problem, params: PyTree, total: int) -> Array:
    def of_one(one: Problem, params: PyTree) -> Array:
        places = neuron_order(params)["eigenvalues"]

        def loss(removed: Array) -> Array:
            values = dict(params["eigenvalues"])
            values |= {name: jnp.where(places[name] < removed, 0, values[name]) for name in LAYERS}
            return one.objective({**params, "eigenvalues": values}, {}, one.validation)

        return jax.lax.map(loss, jnp.arange(total + 1))

    return jax.vmap(of_one, (problem.in_axes(), 0))(problem, params)


def eigenvalues_needed(losses: np.ndarray, tolerance: float) -> np.ndarray:
    """Count the eigenvalues left by the rule of `recruit`, one number a seed."""
    removed = jax.vmap(largest_removal, (0, None))(jnp.asarray(losses), tolerance)
    return np.asarray(losses.shape[1] - 1 - removed, float)


def conclusion(results: Results) -> Iterable[str]:
    """Compare the students with a linear model, and the neurons left with those of their teachers."""
    table, settings = results.table, results.settings
    runs = {str(name): of for name, of in table.groupby("preset", sort=False)}

    def told(column: str, form: str) -> str:
        return "; ".join(f"{tables.inline(of[column], form)} with {name}" for name, of in runs.items())

    how = tables.counted(of["r2"] for of in runs.values())
    linear = tables.inline(table.groupby("seed")["linear_r2"].first(), ".4f")
    yield f"Test R^2 of the students is {told('r2', '.4f')} ({how}); that of least squares is {linear}."
    yield (
        f"If neurons are removed while the validation loss grows by at most {settings['tolerance']:.0%}, "
        f"{told('recruited', '.0f')} are left of {2 * settings['hidden']} in two hidden layers; teachers "
        f"have {settings['features']} in one."
    )
    yield f"If eigenvalues are set to 0 instead, as in [S], {told('eigenvalues', '.0f')} are left."


def report(results: Results) -> list[RenderableType]:
    """Draw the figures and build the table."""
    table, readout, presets = results.table, results.arrays(READOUT), results.manifest["presets"]
    names = list(presets)
    titles = {
        name: f"{name}\n{preset['penalty']}, {preset['strength']:g}" for name, preset in presets.items()
    }
    sizes = {
        titles[name]: {label: np.abs(readout[f"{name}/{layer}"][0]) for layer, label in LAYERS.items()}
        for name in names
    }
    figure = plots.magnitudes(sizes, "|eigenvalue|", "hidden eigenvalues, first seed")
    results.draw(figure, "eigenvalues")
    width, tolerance = results.settings["hidden"], results.settings["tolerance"]
    rules = {"eigenvalue set to 0, as in [S]": "zeroed_losses", "neuron removed": "losses"}
    removal = {
        titles[name]: {rule: _removal(readout[f"{name}/{of}"], 2 * width) for rule, of in rules.items()}
        for name in names
    }
    quantity = "validation loss,\nrelative to all neurons"
    figure = plots.sweep(
        {quantity: removal},
        "neurons or eigenvalues left",
        logarithmic=[quantity],
        marked={quantity: 1 + tolerance},
    )
    results.draw(figure, "removal")
    return [
        _table(table, names),
        *wording.explain(names, COLUMNS),
        *results.remarks(table.groupby("preset", sort=False)),
    ]


def _removal(losses: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of neurons left, up to `most`, and losses relative to the loss of all neurons."""
    left = np.arange(losses.shape[1])[::-1]
    shown = left <= most
    shares = losses[np.isfinite(losses[:, 0])]
    return left[shown], shares[:, shown] / shares[:, :1]


def _table(table: pd.DataFrame, names: list[str]) -> RenderableType:
    rows = []
    for name in names:
        runs = table[table["preset"] == name]
        squares = [tables.median(runs[column], ".4f") for column in ("r2", "recruited_r2")]
        largest = [tables.median(runs[f"largest_{layer}"], ".2g") for layer in LAYERS]
        counts = [tables.median(runs[column], ".0f") for column in ("eigenvalues", "recruited")]
        rows.append((name, *squares, *counts, *largest))
    linear, without = (
        tables.median(table[column], ".3f") for column in ("linear_r2", "linear_r2_no_intercept")
    )
    title = f"test R^2 (linear: {linear}, {without} without intercept); neurons and largest eigenvalues left"
    columns = ("preset", "R^2", "R^2, pruned", "eigenvalues", "neurons", "max |L_2|", "max |L_3|")
    return tables.table(title, columns, rows)


def _findings(table: pd.DataFrame) -> list[dict[str, Any]]:
    first = table.groupby("seed", sort=False).first()
    found = [
        finding("R^2 of linear regression, with intercept", first["linear_r2"]),
        finding("R^2 of linear regression, without intercept", first["linear_r2_no_intercept"]),
    ]
    quantities = {
        "r2": "R^2 of the student",
        "recruited_r2": "R^2 of the student with the neurons that are left",
        "eigenvalues": "hidden eigenvalues left, the others put to 0 as in [S]",
        "recruited": "hidden neurons left",
        "recruited_L2": "neurons of the first hidden layer left",
        "recruited_L3": "neurons of the second hidden layer left",
        "largest_L2": "largest |eigenvalue| of the first hidden layer",
        "largest_L3": "largest |eigenvalue| of the second hidden layer",
    }
    found += [
        finding(f"{words}: {name}", runs[column])
        for name, runs in table.groupby("preset", sort=False)
        for column, words in quantities.items()
    ]
    return found


EXPERIMENT = Experiment(__name__, Settings, plan, run, report, conclusion)
