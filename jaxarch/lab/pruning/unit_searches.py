"""Neurons or channels kept by searches, for all shares and seeds, and the task that they are searched on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy import stats

from jaxarch import (
    ByDensity,
    Checkpoints,
    Network,
    Problem,
    Progress,
    PyTree,
    Report,
    Training,
    over_seeds,
    retrain,
    select,
)
from jaxarch.lab.data import Images, balanced_rows, load_images
from jaxarch.lab.harness import Parts
from jaxarch.lab.harness.settings import devices
from jaxarch.lab.pruning.searches import Architectures, pruning_of
from jaxarch.lab.pruning.tasks import classification, pooled
from jaxarch.lab.pruning.unit_settings import CANDIDATES, LAYERWISE, TOLERANCE, ChannelSettings
from jaxarch.masks import GroupUnits, apply_mask, keep
from jaxarch.saliency import magnitude
from jaxarch.search import random_mask, transformable, two_temperature, units_of
from jaxarch.transforms import density_name

TRAINING = retrain("warm", nonnegative=False)
"""Training from the initial weights, for the dense network and for its cut versions."""


class Task(NamedTuple):
    """The learning task, ready to train on.

    Attributes:
      settings: settings with all defaults filled in.
      images: the pictures.
      problem: each seed has its own rows, or all share the published training rows.
      test: rows to test on, shape (seeds, n).
      params: parameters of the parent, as shapes only.
      units: units of the parent.
    """

    settings: ChannelSettings
    images: Images
    problem: Problem
    test: np.ndarray
    params: PyTree
    units: GroupUnits

    def learning(self, seeds: np.ndarray) -> Problem:
        """Return the problem of runs with these seeds."""
        train = np.asarray(self.problem.train)
        return self.problem if train.ndim == 1 else dataclasses.replace(self.problem, train=train[seeds])


def prepare(settings: ChannelSettings) -> Task:
    """Load the pictures, draw the rows of all seeds, and build the problem, from settings with defaults.

    Without a published split, each seed trains on half of the pictures, equally many of each class, and is
    tested on the others.

    Raises:
      ArgumentError: pictures that the parent does not take, or too few pictures; a share of the units that
        leaves less than one in each layer.
    """
    images = pooled(load_images(settings.dataset), settings.pool)
    everything = np.arange(len(images.y))
    if images.train < len(images.y):
        train, test = everything[: images.train], np.tile(everything[images.train :], (settings.seeds, 1))
    else:
        half = int(np.bincount(images.y).min()) // 2
        keys = settings.seed_keys(2)
        train = np.stack([balanced_rows(key, images.y, everything, per_class=half) for key in keys])
        test = np.stack([np.setdiff1d(everything, rows) for rows in train])
    problem = classification(settings, settings.model, images, train, settings.steps, images.moments())
    one = problem if problem.runs is None else problem.of_run(0)
    params, state = jax.eval_shape(one.init, jax.random.key(0))
    selected = select(params)
    units = units_of((settings.units,), one, params, state, selected)
    assert isinstance(units, GroupUnits)
    for share in settings.shares:
        units.counts(jax.eval_shape(units.score, selected), share)
    return Task(settings, images, problem, test.astype(np.int32), params, units)


def started(task: Task, masks: PyTree, seeds: np.ndarray) -> Network:
    """Build networks with the initial weights of their seeds, the start of every search and training.

    Args:
      task: with the parent.
      masks: the mask of each network; `None` for no masks.
      seeds: the seed of each network.
    """
    params, state = jax.vmap(task.problem.init)(task.settings.seed_keys(3)[seeds])
    return Network(params if masks is None else jax.vmap(apply_mask)(masks, params), masks, state)


def full(task: Task) -> PyTree:
    """Return the masks of the dense networks of all seeds."""
    return jax.tree.map(lambda leaf: jnp.ones((task.settings.seeds, *leaf.shape), bool), mask_shapes(task))


def two_temperature_of(settings: ChannelSettings, mean: Any) -> Training:
    """Return the two-temperature search over the weights that a network already has.

    Args:
      settings: settings with all defaults filled in.
      mean: mean of the initial scores, whose standard deviation is 1, in units of 1/hard.
    """
    return two_temperature(
        settings.hard,
        settings.soft,
        weights="initial",
        mean=mean,
        std=1.0,
        units=settings.units,
        optimizer=optax.adam(settings.mask_rate),
    )


def units_kept(
    task: Task, parts: Parts, progress: Callable[[Progress], None] | None
) -> dict[str, Architectures]:
    """Return the units that each method keeps, for all shares and seeds; each search runs once."""
    methods = task.settings.methods
    found: dict[str, Architectures] = {}
    for search in dict.fromkeys(method.removesuffix(LAYERWISE) for method in methods):
        like = {name: _like(task) for name in methods if name.removesuffix(LAYERWISE) == search}

        def make(
            checkpoint: Checkpoints | None, search: str = search, like: Mapping[str, Any] = like
        ) -> dict[str, Architectures]:
            options = {"name": search, "progress": progress, "checkpoint": checkpoint, "devices": devices()}
            options["dead_start"] = "ignore"
            made = SEARCHES[search](task, options)
            return {name: made[name] for name in like}

        found |= parts.tree(f"units {search}", like, make)
    return {method: found[method] for method in methods}


def _two_temperature(task: Task, options: dict[str, Any]) -> dict[str, Architectures]:
    """Run one search per share, starting with about that share of the units.

    The units with the largest scores are kept, because the search decides how many scores end positive.
    """
    settings = task.settings
    shares = np.repeat(settings.shares, settings.seeds)
    seeds = np.tile(np.arange(settings.seeds), len(settings.shares))
    network, report = over_seeds(
        lambda mean: two_temperature_of(settings, mean),
        settings.seed_keys()[seeds],
        task.learning(seeds).descending(steps=settings.search_steps),
        jnp.asarray(stats.norm.ppf(shares), jnp.float32),
        network=started(task, None, seeds),
        labels=[f"share {share:g}, seed {seed}" for share, seed in zip(shares, seeds, strict=True)],
        **options,
    )
    scores = jax.tree.map(
        lambda leaf: leaf.reshape(-1, settings.seeds, *leaf.shape[1:]), network.info["scores"]
    )
    masks = {
        density_name(share): jax.vmap(lambda of_run, share=share: _largest(of_run, share, task))(
            jax.tree.map(lambda leaf, index=index: leaf[index], scores)
        )
        for index, share in enumerate(settings.shares)
    }
    failed_at = np.asarray(network.info.failed_at).reshape(-1, settings.seeds).max(axis=0)
    return {"two-temperature": _architectures(masks, failed_at, report)}


def _architecture_pruning(task: Task, options: dict[str, Any]) -> dict[str, Architectures]:
    """Run one search for all shares."""
    settings = task.settings
    strategy = pruning_of(settings, settings.shares, settings.units)
    network, report = _of_seeds(strategy, task, options, None)
    lowest = np.asarray(network.info["lowest_density"])
    return {"AP": _architectures(network[ByDensity].masks, network.info.failed_at, report, lowest)}


def _transformable(task: Task, options: dict[str, Any]) -> dict[str, Architectures]:
    """Run one search per share: the weights on half of the training rows, the logits on the other half.

    The target is the number of units that all other methods keep; its widths meet it to `TOLERANCE`.
    """
    settings = task.settings
    shares = np.repeat(settings.shares, settings.seeds)
    units = sum(task.units.groups().values())
    seeds = np.tile(np.arange(settings.seeds), len(settings.shares))
    problem = task.learning(seeds).descending(steps=settings.search_steps)
    rows = np.asarray(problem.train)
    network, report = over_seeds(
        lambda target: transformable(
            target,
            cost="units",
            units=settings.units,
            widths=CANDIDATES,
            tolerance=TOLERANCE,
            scores_optimizer=optax.adam(settings.logits_rate),
        ),
        settings.seed_keys()[seeds],
        dataclasses.replace(problem, train=rows[..., ::2], validation=rows[..., 1::2]),
        jnp.asarray(np.round(shares * units) / units, jnp.float32),
        network=started(task, None, seeds),
        labels=[f"share {share:g}, seed {seed}" for share, seed in zip(shares, seeds, strict=True)],
        **options,
    )
    by_share = jax.tree.map(lambda leaf: leaf.reshape(-1, settings.seeds, *leaf.shape[1:]), network.mask)
    masks = {
        density_name(share): jax.tree.map(lambda leaf, index=index: leaf[index], by_share)
        for index, share in enumerate(settings.shares)
    }
    failed_at = np.asarray(network.info.failed_at).reshape(-1, settings.seeds).max(axis=0)
    return {"TAS": _architectures(masks, failed_at, report)}


def _magnitude(task: Task, options: dict[str, Any]) -> dict[str, Architectures]:
    """Keep the units with the largest mean weight of a trained network, globally and layer by layer."""
    network, report = _of_seeds(TRAINING, task, options, full(task))

    def masks(scope: Literal["global", "layer"]) -> dict[str, PyTree]:
        return {
            density_name(share): jax.vmap(
                lambda weights, share=share: keep(magnitude(weights), share, scope, units=task.units)
            )(network.params)
            for share in task.settings.shares
        }

    return {
        "magnitude": _architectures(masks("global"), network.info.failed_at, report),
        "magnitude" + LAYERWISE: _architectures(masks("layer"), network.info.failed_at, report),
    }


def _random(task: Task, options: dict[str, Any]) -> dict[str, Architectures]:
    settings = task.settings
    drawn = random_mask(settings.shares, units=settings.units)
    network, report = over_seeds(drawn, settings.seed_keys(), task.problem, **options)
    none = np.full(settings.seeds, -1)
    return {"random": _architectures(network[ByDensity].masks, none, report)}


SEARCHES = {
    "two-temperature": _two_temperature,
    "AP": _architecture_pruning,
    "TAS": _transformable,
    "magnitude": _magnitude,
    "random": _random,
}
"""Searches by name; each returns the masks of the methods that are based on it."""


def _of_seeds(
    strategy: Training, task: Task, options: dict[str, Any], masks: PyTree
) -> tuple[Network, Report]:
    """Run one search a seed."""
    settings, seeds = task.settings, np.arange(task.settings.seeds)
    return over_seeds(
        strategy,
        settings.seed_keys(),
        task.learning(seeds).descending(steps=settings.search_steps),
        network=started(task, masks, seeds),
        labels=[f"seed {seed}" for seed in seeds],
        **options,
    )


def _architectures(
    masks: dict[str, PyTree], failed_at: Any, report: Report, lowest: np.ndarray | None = None
) -> Architectures:
    failed_at = np.asarray(failed_at, np.int32)
    reached = np.zeros(len(failed_at), np.float32) if lowest is None else lowest
    return Architectures(masks, reached, failed_at, np.float64(report.seconds))


def _largest(scores: PyTree, share: float, task: Task) -> PyTree:
    """Return the mask of the units with the largest scores over all layers together."""
    units = task.units
    return units.spread(units.largest(scores, units.counts(scores, share)), task.params)


def mask_shapes(task: Task) -> PyTree:
    """Return the mask of one run, as shapes only."""
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), select(task.params))
    return jax.eval_shape(lambda scores: _largest(task.units.score(scores), 1.0, task), shapes)


def _like(task: Task) -> Architectures:
    seeds = task.settings.seeds
    mask = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((seeds, *leaf.shape), bool), mask_shapes(task))
    return Architectures(
        {density_name(share): mask for share in task.settings.shares},
        jax.ShapeDtypeStruct((seeds,), jnp.float32),
        jax.ShapeDtypeStruct((seeds,), jnp.int32),
        np.zeros((), np.float64),
    )
