"""How few neurons, at what error: spectral networks beside their rivals, on the task of [S] experiment 2."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from rich.console import RenderableType

from jaxarch import plots, results
from jaxarch.errors import check_count, check_known, check_strength, check_widths
from jaxarch.experiments.harness import records, tables
from jaxarch.experiments.harness.experiment import Experiment, checkpoints
from jaxarch.experiments.spectral import teacher, training
from jaxarch.finish import retrain
from jaxarch.finish.recruit import recruit
from jaxarch.models.direct_network import direct_network
from jaxarch.models.model import Model
from jaxarch.models.spectral_network import spectral_network
from jaxarch.running.fit import Progress
from jaxarch.running.strategy import Strategy, chain, evaluate, over_seeds
from jaxarch.search.group_lasso import group_lasso
from jaxarch.search.spectral import spectral

NAME = "spectral.rivals"


class Rival(NamedTuple):
    """A network of given widths, and how it is made small at a strength of its penalty."""

    network: Callable[[Sequence[int]], Model]
    strategy: Callable[[Any, float], Strategy]


def _spectral(strength: Any, tolerance: float) -> Strategy:
    return chain(spectral(strength), recruit(tolerance), spectral(0.0))


def _direct(strength: Any, tolerance: float) -> Strategy:
    return chain(group_lasso(strength), recruit(tolerance), retrain("warm", nonnegative=False))


RIVALS = {
    "spectral": Rival(spectral_network, _spectral),
    "spectral, no skips": Rival(
        lambda widths: spectral_network(widths, skips=False, eigenvalues="random"), _spectral
    ),
    "weights, all skips": Rival(direct_network, _direct),
    "weights, no skips": Rival(lambda widths: direct_network(widths, skips=False), _direct),
}
"""L1 on eigenvalues, or a group lasso on each neuron's weights."""


@dataclasses.dataclass(frozen=True)
class Settings(teacher.Setup):
    """What can be set with `jaxarch run spectral.rivals --set NAME=VALUE`.

    Each rival is trained, loses the neurons that its validation loss can spare, and is trained once more
    without them and without penalty.

    Attributes:
      rivals: the networks that are made small, each by its own penalty.
      strengths: of the penalty; every rival is trained at each.
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
        check_count("strengths", len(self.strengths))
        for strength in self.strengths:
            check_strength("strengths", strength)

    def widths(self) -> tuple[int, ...]:
        """Of every student."""
        return (self.features, *self.hidden, self.features)


def plan(settings: Settings) -> list[str]:
    """What would be compiled and trained."""
    settings.check()
    runs = settings.seeds * len(settings.strengths)
    return [
        f"data: {settings.examples} points of [-1, 1]^{settings.features} to train on, "
        f"{settings.held_out} to judge on, {settings.held_out} to test on",
        f"teachers: {settings.seeds}, {settings.features} hidden neurons; students: "
        + "-".join(map(str, settings.widths())),
        f"trainings: {2 * len(settings.rivals)}, two of each of {'; '.join(settings.rivals)}: "
        f"{settings.steps(settings.epochs)} steps of batch {settings.batch_size} x {runs} runs, "
        f"strengths {', '.join(f'{strength:g}' for strength in settings.strengths)}",
    ]


def run(settings: Settings, folder: Path, progress: Callable[[Progress], None] | None = None) -> None:
    """Train every rival at every strength on every teacher, and write what became of them."""
    started = time.time()
    settings.check()
    cells = pd.MultiIndex.from_product(
        [settings.strengths, range(settings.seeds)], names=["strength", "seed"]
    ).to_frame(index=False)
    measured, costs = [], {}
    for name in settings.rivals:
        rival, times = RIVALS[name], len(settings.strengths)
        problem = teacher.problem(settings, rival.network(settings.widths()), settings.epochs)
        per_run = jax.tree.map(
            lambda leaf: jnp.concatenate([leaf] * len(settings.strengths)), problem.per_run
        )
        problem = dataclasses.replace(problem, per_run=per_run)
        network, report = over_seeds(
            lambda strength, rival=rival: rival.strategy(strength, settings.tolerance),
            jnp.tile(settings.run_keys(), times),
            problem,
            jnp.asarray(cells["strength"], jnp.float32),
            name=name,
            progress=progress,
            labels=[f"strength {row.strength:g}, seed {row.seed}" for row in cells.itertuples()],
            chunk=training.CHUNK,
            checkpoint=checkpoints(settings.resume),
            dead_start="ignore",
        )
        rows = settings.rows()["test"]
        outputs = evaluate(rival.strategy(0.0, settings.tolerance), network, problem, rows)
        losses = np.asarray(network.info["losses"], np.float64)
        removed = np.asarray(network.info["removed"])
        measured.append(
            cells.assign(
                rival=name,
                neurons=losses.shape[1] - 1 - removed,
                r2=teacher.r_squared(outputs, teacher.truth(problem, rows)),
                loss=losses[:, 0],
                pruned_loss=np.take_along_axis(losses, removed[:, None], axis=1)[:, 0],
                seconds=report.seconds,
                failed_at=np.asarray(network.info["failed_at"]),
            )
        )
        costs[name] = records.costs({name: (network, report)})
    table = pd.concat(measured, ignore_index=True)
    quantities = ["neurons", "r2", "loss", "pruned_loss"]
    table[quantities] = table[quantities].astype(float).where(table["failed_at"] < 0)
    records.write(folder, NAME, settings, started, table, _findings(table), costs=costs)


def report(folder: Path) -> list[RenderableType]:
    """Draw the figure of a folder from its file, and make its table."""
    manifest, table = results.read_manifest(folder), results.read_table(folder)
    settings = manifest["settings"]
    points = {
        name: (_by_strength(runs, "neurons"), 1 - _by_strength(runs, "r2"))
        for name, runs in table.groupby("rival", sort=False)
    }
    figure = plots.trade_off(
        points,
        f"hidden neurons left of {sum(settings['hidden'])}",
        "1 - $R^2$ on the test rows",
        logarithmic=(False, True),
        marked={"the teacher's": settings["features"]},
    )
    plots.save(figure, folder, "rivals")
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
    columns = ("rival", "strength", "neurons left", "1 - R^2", "loss before", "seconds")
    title = "hidden neurons left and their test error, refitted; validation loss before"
    notes = records.notes(manifest["costs"].values())
    return [tables.table(title, columns, rows), *notes, *records.failures(table.groupby("rival"))]


def _by_strength(runs: pd.DataFrame, column: str) -> np.ndarray:
    return runs.pivot(index="seed", columns="strength", values=column).to_numpy()


def _findings(table: pd.DataFrame) -> list[dict[str, Any]]:
    quantities = {"neurons": "hidden neurons left", "r2": "R^2 of the student that is left, refitted"}
    return [
        results.finding(f"{words}: {name}, strength {strength:g}", runs[column])
        for (name, strength), runs in table.groupby(["rival", "strength"], sort=False)
        for column, words in quantities.items()
    ]


EXPERIMENT = Experiment(
    NAME,
    "spectral networks and their rivals made small: neurons left against error, a teacher of 20 neurons",
    Settings,
    plan,
    run,
    report,
)
