"""Results of each method at all densities and for all seeds, in one program per stage."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from jax import Array

from jaxarch import (
    ByDensity,
    Network,
    Problem,
    PyTree,
    Report,
    TrainingInfo,
    evaluate,
    layer_density,
    named_leaves,
    over_seeds,
    retrain,
    select,
)
from jaxarch.lab.data import Text
from jaxarch.lab.tournament.entrants import DENSE, ENTRANTS, WHOLE, At, Entrant, Phase
from jaxarch.lab.tournament.own import Own
from jaxarch.lab.tournament.task import PictureTask, Task
from jaxarch.masks import density
from jaxarch.transforms import of_density

TEST_BATCH = 500
"""Examples that networks are tested on at a time; fewer windows of a text, if they are long."""
LONG = 32
"""Characters of a window beyond which it is long: attention takes memory by the square of its length."""
LAST_LOSSES = 20
"""Number of last steps whose mean is a run's training loss: the loss of a step is of one batch."""
PASSES = 3
"""Multiply-adds of a gradient, in those of an output: forward, backward to activations and to weights."""
READS = retrain("warm", nonnegative=False)
"""An arbitrary stage for evaluation: all networks here compute with the problem's own `predict`."""


class Played(NamedTuple):
    """Results of a method; every array has a leading axis of runs: all seeds at the largest density first.

    Attributes:
      mask: connections.
      accuracy: accuracy on the test rows, NaN for a run that failed.
      validation: accuracy on the held-out rows.
      loss: mean loss of the last steps of training.
      density: measured density.
      layers: density of each masked leaf.
      cross_entropy: mean over the characters of the test text, in nats, NaN for a run that failed; `None` for
        other tasks.
      failed_at: the first step with a loss that is not finite, or -1.
      seconds: seconds of a run on one device.
      compile_seconds: seconds spent on compiling all programs together.
    """

    mask: PyTree
    accuracy: Any
    validation: Any
    loss: Any
    density: Any
    layers: Any
    failed_at: Any
    seconds: Any
    compile_seconds: Any
    cross_entropy: Any = None


def entered(name: str, task: PictureTask[Any]) -> tuple[Entrant, PictureTask[Any]]:
    """Return a method and its task, by the method's name; the dense network has a single density."""
    if name != DENSE:
        return ENTRANTS[name], task
    return ENTRANTS[WHOLE], task._replace(settings=dataclasses.replace(task.settings, densities=(1.0,)))


def grid(task: PictureTask[Any], seeds: np.ndarray) -> pd.DataFrame:
    """List the density and seed of each run: all seeds at the largest density first."""
    densities = task.settings.densities
    return pd.DataFrame({"density": np.repeat(densities, len(seeds)), "seed": np.tile(seeds, len(densities))})


def play(
    entrant: Entrant,
    task: Task,
    seeds: np.ndarray,
    values: Mapping[str, np.ndarray],
    options: Mapping[str, Any],
    *,
    test: bool = True,
) -> Played:
    """Search, train and measure at all densities.

    Args:
      entrant: the method.
      task: the task to learn.
      seeds: seeds of the runs at each density.
      values: `rate` and `own`, one for each of these seeds.
      options: options of `over_seeds`.
      test: whether the networks are tested.
    """
    network, reports = trained(entrant, task, seeds, values, options)
    return measured(network, task, grid(task, seeds)["seed"].to_numpy(), reports, test=test)


def trained(
    entrant: Entrant,
    task: PictureTask[Any],
    seeds: np.ndarray,
    values: Mapping[str, np.ndarray],
    options: Mapping[str, Any],
    *,
    learning: Callable[[np.ndarray], Problem] | None = None,
    keys: Callable[[str, np.ndarray], Array] | None = None,
) -> tuple[Network, list[Report]]:
    """Search and train at all densities, with the arguments of `play`; return one run per row of `grid`.

    Args:
      entrant: the method.
      task: the task to learn.
      seeds: seeds of the runs at each density.
      values: `rate` and `own`, one for each of these seeds.
      options: options of `over_seeds`.
      learning: the problem of runs with some seeds; by default the task's.
      keys: keys of a stage, `search` or `training`, for some seeds; by default the task's.
    """
    learning = task.learning if learning is None else learning
    settings, runs = task.settings, grid(task, seeds)
    count = len(settings.densities)
    tiled = {name: jnp.tile(jnp.asarray(of, jnp.float32), count) for name, of in values.items()}
    tiled["density"] = jnp.asarray(runs["density"], jnp.float32)
    reports = []

    def run(
        make: Callable[[At], Any], of: np.ndarray, numbers: Mapping[str, Any], network: Network | None = None
    ) -> Network:
        def strategy(one: Mapping[str, Any]) -> Any:
            return make(At.of(settings, **one))

        problem = learning(of)
        stage = "search" if network is None else "training"
        drawn = task.keys(stage)[of] if keys is None else keys(stage, of)
        told = {**options, "name": f"{options['name']}, {stage}"}
        found, report = over_seeds(strategy, drawn, problem, numbers, network=network, **told)
        reports.append(report)
        return found

    if entrant.nested:
        numbers = {name: jnp.asarray(of, jnp.float32) for name, of in values.items()}
        network = stacked(run(entrant.find, seeds, numbers), settings.densities)
    else:
        network = run(entrant.find, runs["seed"].to_numpy(), tiled)
    if entrant.finish is not None:
        network = run(entrant.finish, runs["seed"].to_numpy(), tiled, network)
    return network, reports


def stacked(network: Network, densities: tuple[float, ...]) -> Network:
    """Concatenate the networks of all densities that searches found, the largest density first."""

    def one(density: float) -> Network:
        found = jax.vmap(partial(of_density, density=density))(network)
        # Arrays in the info belong to the search, and would be copied for each density.
        return found.without(ByDensity).replace(info=found.info.replace(arrays={}))

    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *map(one, densities))


def measured(
    network: Network, task: PictureTask[Any], seeds: np.ndarray, reports: list[Report], *, test: bool = True
) -> Played:
    """Measure the accuracy, loss, density and time of networks.

    Args:
      network: trained networks.
      task: the task that was learned.
      seeds: seed of each run.
      reports: reports of the search and of the training.
      test: whether the networks are tested; if not, their accuracy is NaN.
    """
    graded = dataclasses.replace(task.learning(seeds), predict=_grades(task.problem.predict))
    failed_at = np.asarray(network.info.failed_at, np.int32)
    length = task.examples.x.shape[1] if isinstance(task.examples, Text) else LONG
    batch_size = max(1, int(TEST_BATCH * min(1, LONG / length) ** 2))

    def scores(rows: np.ndarray) -> dict[str, np.ndarray]:
        found = evaluate(READS, network, graded, rows, batch_size=batch_size)
        means = {name: np.asarray(of, np.float64).mean(axis=-1) for name, of in found.items()}
        return {name: np.where(failed_at < 0, of, np.nan) for name, of in means.items()}

    nothing = dict.fromkeys(("accuracy", "cross_entropy"), np.full(len(seeds), np.nan))
    tested = scores(task.test) if test else nothing
    # The seconds of a search for all densities count in full for each density.
    seconds = sum(report.seconds for report in reports)
    losses = np.asarray(network.info["loss"], np.float64)[:, -LAST_LOSSES:].mean(axis=1)
    return Played(
        mask=network.mask,
        accuracy=tested["accuracy"],
        validation=scores(task.held_out[seeds])["accuracy"],
        loss=np.where(failed_at < 0, losses, np.nan),
        density=np.asarray(jax.vmap(density)(network.mask), np.float64),
        layers={path: np.asarray(of) for path, of in jax.vmap(layer_density)(network.mask).items()},
        failed_at=failed_at,
        seconds=np.full(len(seeds), seconds),
        compile_seconds=np.float64(sum(report.compile_seconds for report in reports)),
        cross_entropy=tested["cross_entropy"] if isinstance(task.examples, Text) else None,
    )


@cache
def _grades(predict: Callable[[PyTree, PyTree, Any], Array]) -> Callable[[PyTree, PyTree, Any], Any]:
    """Turn outputs into each example's share of right answers and mean cross-entropy.

    A text has an answer at each character, and outputs too many to be returned. The function is cached, since
    a new one would be compiled again.
    """

    def grades(params: PyTree, state: PyTree, batch: Any) -> dict[str, Array]:
        outputs, y = predict(params, state, batch), batch[1]
        losses = optax.softmax_cross_entropy_with_integer_labels(outputs, y)
        graded = {"accuracy": outputs.argmax(-1) == y, "cross_entropy": losses}
        return {name: of.astype(jnp.float32).reshape(len(of), -1).mean(1) for name, of in graded.items()}

    return grades


def play_own(own: Own, task: Task, seeds: np.ndarray, options: Mapping[str, Any]) -> Played:
    """Run one of the user's own methods, with separate programs for each density, given as a number."""
    networks, reports = [], []
    for share in task.settings.densities:
        strategy = own.strategy(share, task)
        told = {**options, "name": f"{options['name']}, density {share:g}"}
        problem = task.learning(seeds).descending(steps=own.steps(strategy, task.settings))
        found, report = over_seeds(strategy, task.keys("search")[seeds], problem, **told)
        own.check_found(found, share, task)
        losses = found.info["loss"][:, -LAST_LOSSES:].mean(axis=1, keepdims=True)
        info = TrainingInfo({"loss": losses}, failed_at=found.info.failed_at)
        networks.append(Network(found.params, found.mask, found.state, info=info))
        reports.append(report)
    network = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *networks)
    played = measured(network, task, np.tile(seeds, len(networks)), reports)
    # Each report is of one density, so the seconds are repeated density by density.
    return played._replace(seconds=np.repeat([report.seconds for report in reports], len(seeds)))


def table_of(name: str, entrant: Entrant, played: Played, task: Task) -> pd.DataFrame:
    """Build one row a run: the results, and all costs."""
    settings = task.settings
    runs = grid(task, np.arange(settings.seeds))
    inference = task.other_work + sum(played.layers[path] * work for path, work in task.work.items())
    whole = task.other_work + sum(task.work.values())
    at = At.of(settings)
    evaluations, training = [], []
    for share, masked in zip(runs["density"], np.broadcast_to(inference, len(runs)), strict=True):
        phases = entrant.phases(at, share)
        evaluations.append(sum(phase.evaluations for phase in phases))
        training.append(sum(_work(phase, whole, masked, settings.batch_size) for phase in phases))
    return runs.assign(
        strategy=name,
        family=entrant.family,
        accuracy=played.accuracy,
        validation_accuracy=played.validation,
        loss=played.loss,
        measured_density=played.density,
        failed_at=played.failed_at,
        gradient_evaluations=evaluations,
        training_multiply_adds=training,
        multiply_adds=inference,
        dense_multiply_adds=whole,
        seconds=played.seconds,
        compile_seconds=float(played.compile_seconds),
        **({} if played.cross_entropy is None else {"cross_entropy": played.cross_entropy}),
    )


def layers_of(name: str, family: str, played: Played, task: Task) -> pd.DataFrame:
    """Build one row a run and layer: the connections that are left."""
    runs = grid(task, np.arange(task.settings.seeds)).assign(strategy=name, family=family)
    sizes = {path: leaf.size for path, leaf in named_leaves(select(task.params)).items()}
    rows = [
        runs.assign(layer=path, connections=np.rint(np.asarray(of, np.float64) * sizes[path]).astype(int))
        for path, of in played.layers.items()
    ]
    return pd.concat(rows, ignore_index=True)


def _work(phase: Phase, whole: float, masked: float, batch: int) -> float:
    """Compute a phase's multiply-adds from those of an output, of the whole and of the masked network."""
    examples = 1 if phase.one_example else batch
    return PASSES * examples * phase.evaluations * (phase.whole * whole + (1 - phase.whole) * masked)
