"""Neurons and error of spectral networks beside their rivals, on the task of [S] experiment 2."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from rich.console import RenderableType

from jaxarch import (
    Model,
    Strategy,
    chain,
    direct_network,
    evaluate,
    over_seeds,
    plots,
    recruit,
    retrain,
    slim,
    spectral_network,
)
from jaxarch.lab.charts import Chart
from jaxarch.lab.checks import check_count, check_known, check_strength, check_widths
from jaxarch.lab.harness import Context, Experiment, Outcome, Results, costs, finding, tables
from jaxarch.lab.spectral import teacher, training, wording
from jaxarch.lab.spectral.neurons_left import by_strength, error_charts, what_is_left
from jaxarch.lab.spectral.normalised import NormalisedMLP
from jaxarch.models import as_model
from jaxarch.search import group_lasso, network_slimming, spectral

Removals = Literal["all", "bisection"]
ENOUGH = 0.999
"""Median test R^2 at which the conclusion compares the neurons left."""
COLUMNS = {
    "strength": f"of the penalty: {wording.PENALTY}",
    "neurons left": f"hidden neurons; {wording.LEFT}",
    "loss before removal": "validation loss before any neuron is removed",
    "seconds": wording.SECONDS,
}

EXAMPLE = jnp.zeros((1, 1))
"""Example input for models that are functions of rngs, which they do not read."""


class Rival(NamedTuple):
    """A network of given widths, and the strategy that prunes it at a strength of its penalty.

    Attributes:
      network: `(widths, bias=False)`, with the widths of all layers, inputs first, outputs last. Networks of
        pictures take the widths alone.
      strategy: function of a strength, of the tolerance with which neurons are removed, and of the validation
        batch size for removals; by default, all validation rows at once.
      of_pictures: whether its layers are pictures, and their widths channels.
    """

    network: Callable[..., Model]
    strategy: Callable[..., Strategy]
    of_pictures: bool = False


def of_eigenvalues(
    strength: Any, tolerance: float, batch_size: int | None = None, removals: Removals = "all"
) -> Strategy:
    """Train with L1 on hidden eigenvalues, and remove the neurons or channels that can be spared."""
    fewer = recruit(tolerance, batch_size=batch_size, removals=removals)
    return chain(spectral(strength), fewer, spectral(0.0))


def _direct(strength: Any, tolerance: float, batch_size: int | None = None) -> Strategy:
    refit = retrain("warm", nonnegative=False)
    return chain(group_lasso(strength), recruit(tolerance, batch_size=batch_size), refit)


def of_scales(
    strength: Any, tolerance: float, batch_size: int | None = None, removals: Removals = "all"
) -> Strategy:
    """Train with L1 on the scales of batch norm, and remove the neurons or channels that can be spared."""
    fewer = slim(tolerance, batch_size=batch_size, removals=removals)
    return chain(network_slimming(strength), fewer, retrain("warm", nonnegative=False))


def _with_batch_norm(widths: Sequence[int], *, bias: bool = False) -> Model:
    """Build a network with batch norm; it always has biases, of batch norm and of the outputs."""
    return as_model(lambda rngs: NormalisedMLP(widths, rngs=rngs), EXAMPLE)


RIVALS = {
    "spectral": Rival(spectral_network, of_eigenvalues),
    "gated spectral": Rival(partial(spectral_network, form="gated"), of_eigenvalues),
    "spectral, no skips": Rival(partial(spectral_network, skips=False, eigenvalues="random"), of_eigenvalues),
    "weights, all skips": Rival(direct_network, _direct),
    "weights, no skips": Rival(partial(direct_network, skips=False), _direct),
    "batch norm": Rival(_with_batch_norm, of_scales),
}
"""Networks with L1 on eigenvalues, a group lasso on each neuron's weights, or L1 on batch-norm scales."""


@dataclasses.dataclass(frozen=True)
class Settings(teacher.TeacherSettings):
    """Settings of `jaxarch run spectral.rivals`, changed with `--set NAME=VALUE`.

    Each rival is trained, loses the neurons that its validation loss can spare, and is trained once more
    without these neurons and without penalty.

    Attributes:
      rivals: the networks to prune, each by its own penalty.
      strengths: strengths of the penalty; every rival is trained at each.
      hidden: neurons of each hidden layer of a student.
      epochs: passes over the training points, in each of the two trainings.
    """

    rivals: tuple[str, ...] = tuple(RIVALS)
    strengths: tuple[float, ...] = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3)
    hidden: tuple[int, ...] = (100,)
    epochs: int = 100
    examples: int = 20_000
    batch_size: int = 200

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        check_count("epochs", self.epochs)
        check_widths(self.widths())
        check_known("rivals", self.rivals, RIVALS)
        self.check_numbers(check_strength, "strengths")

    def widths(self) -> tuple[int, ...]:
        """Return the widths of every student."""
        return (self.features, *self.hidden, self.features)


def plan(settings: Settings) -> list[str]:
    """Describe the trainings to be compiled and run."""
    runs = settings.seeds * len(settings.strengths)
    return [
        f"data: {settings.examples} points of [-1, 1]^{settings.features} to train on, "
        f"{settings.held_out} to validate on, {settings.held_out} to test on",
        f"teachers: {settings.seeds}, {settings.features} hidden neurons; students: "
        + "-".join(map(str, settings.widths())),
        f"trainings: {2 * len(settings.rivals)}, two of each of {'; '.join(settings.rivals)}: "
        f"{settings.steps(settings.epochs)} steps of batch {settings.batch_size} x {runs} runs, "
        f"strengths {', '.join(f'{strength:g}' for strength in settings.strengths)}",
    ]


def run(settings: Settings, context: Context) -> Outcome:
    """Train every rival at every strength on every teacher."""
    cells = pd.MultiIndex.from_product(
        [settings.strengths, range(settings.seeds)], names=["strength", "seed"]
    ).to_frame(index=False)
    measured, spent = [], {}
    for name in settings.rivals:
        rival, times = RIVALS[name], len(settings.strengths)
        problem = teacher.problem(settings, rival.network(settings.widths()), settings.epochs)
        per_run = jax.tree.map(
            lambda leaf: jnp.concatenate([leaf] * len(settings.strengths)), problem.per_run
        )
        problem = dataclasses.replace(problem, per_run=per_run)
        network, report = over_seeds(
            lambda strength, rival=rival: rival.strategy(strength, settings.tolerance),
            jnp.tile(settings.seed_keys(), times),
            problem,
            jnp.asarray(cells["strength"], jnp.float32),
            name=name,
            labels=[f"strength {row.strength:g}, seed {row.seed}" for row in cells.itertuples()],
            chunk=training.CHUNK,
            dead_start="ignore",
            **context.options,
        )
        rows = settings.rows()["test"]
        outputs = evaluate(rival.strategy(0.0, settings.tolerance), network, problem, rows)
        neurons, loss, pruned_loss = what_is_left(
            np.asarray(network.info["losses"]), np.asarray(network.info["removed"])
        )
        measured.append(
            cells.assign(
                rival=name,
                neurons=neurons,
                r2=teacher.r_squared(outputs, teacher.truth(problem, rows)),
                loss=loss,
                pruned_loss=pruned_loss,
                seconds=report.seconds,
                failed_at=np.asarray(network.info.failed_at),
            )
        )
        spent[name] = costs({name: (network, report)})
    table = pd.concat(measured, ignore_index=True)
    quantities = ["neurons", "r2", "loss", "pruned_loss"]
    table[quantities] = table[quantities].astype(float).where(table["failed_at"] < 0)
    return Outcome(table, _findings(table), costs=spent)


def conclusion(results: Results) -> Iterable[str]:
    """Compare the neurons that the rivals need for one R^2."""
    settings, table = results.settings, results.table
    of_rivals = {str(name): runs for name, runs in table.groupby("rival", sort=False)}
    found = {name: runs for name in of_rivals if (runs := _smallest(of_rivals[name])) is not None}
    found = dict(sorted(found.items(), key=lambda item: item[1]["neurons"].median()))
    reached = f"a median test R^2 of at least {ENOUGH:g}"
    if found:
        said = "; ".join(
            f"{tables.inline(runs['neurons'], '.0f')} for {name}" for name, runs in found.items()
        )
        yield (
            f"Teachers of {settings['features']} hidden neurons: of {sum(settings['hidden'])} neurons, the "
            f"fewest left at a strength with {reached} are {said} "
            f"({tables.counted(runs['neurons'] for runs in found.values())})."
        )
    failed = [name for name in of_rivals if name not in found]
    if failed:
        best = table.groupby(["rival", "strength"])["r2"].median()
        best = best[best.index.get_level_values("rival").isin(failed)].dropna()
        highest = f"; the highest median is {best.max():.5f}, of {best.idxmax()[0]}" if len(best) else ""
        yield f"No strength reaches {reached} for {'; '.join(failed)}{highest}."


def _smallest(runs: pd.DataFrame) -> pd.DataFrame | None:
    """Return a rival's runs at the strength with the fewest median neurons, if its R^2 is high enough."""
    medians = runs.groupby("strength", sort=False)[["neurons", "r2"]].median()
    enough = medians.loc[medians["r2"] >= ENOUGH, "neurons"]
    return runs[runs["strength"] == enough.idxmin()] if len(enough) else None


def report(results: Results) -> list[RenderableType]:
    """Draw the figure and build its table."""
    settings, table = results.settings, results.table
    points = {
        name: (by_strength(runs, "neurons"), 1 - by_strength(runs, "r2"))
        for name, runs in table.groupby("rival", sort=False)
    }
    figure = plots.trade_off(
        points,
        f"hidden neurons left of {sum(settings['hidden'])}",
        "1 - $R^2$ on the test rows",
        logarithmic=(False, True),
        marked={"teacher": settings["features"]},
    )
    results.draw(figure, "rivals")
    rows = [
        (
            name,
            f"{strength:g}",
            tables.spread(runs["neurons"], ".0f"),
            tables.median(1 - runs["r2"], ".1e"),
            tables.median(runs["loss"], ".2e"),
            tables.median(runs["seconds"], ".1f"),
        )
        for (name, strength), runs in table.groupby(["rival", "strength"], sort=False)
    ]
    columns = ("rival", "strength", "neurons left", "1 - R^2", "loss before removal", "seconds")
    title = "hidden neurons left, test error after training once more, and validation loss before removal"
    return [
        tables.table(title, columns, rows),
        *wording.explain(table["rival"], COLUMNS),
        *results.remarks(table.groupby("rival")),
    ]


def _findings(table: pd.DataFrame) -> list[dict[str, Any]]:
    quantities = {"neurons": "hidden neurons left", "r2": "R^2 of the student that is left, refitted"}
    return [
        finding(f"{words}: {name}, strength {strength:g}", runs[column])
        for (name, strength), runs in table.groupby(["rival", "strength"], sort=False)
        for column, words in quantities.items()
    ]


def charts(results: Results) -> list[Chart]:
    """Chart the test error of every run against its neurons left."""
    return error_charts(results.table, "rival", "strength")


EXPERIMENT = Experiment(__name__, Settings, plan, run, report, conclusion, charts=charts)
