"""Neurons or channels that searches keep, of all shares and seeds; and what they are searched on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from scipy import stats

from jaxarch import Checkpoints, FunctionStage, Network, Problem, Progress, Strategy, chain, over_seeds
from jaxarch.data import Images, balanced_rows, load_images
from jaxarch.experiments.harness import Parts
from jaxarch.experiments.pruning.searches import Architectures, pruning_of
from jaxarch.experiments.pruning.tasks import pooled, problem_of_images
from jaxarch.experiments.pruning.unit_settings import LAYERWISE, ChannelSettings
from jaxarch.finish.densities import density_name
from jaxarch.finish.weights import fresh
from jaxarch.masks import keep
from jaxarch.masks.units import GroupUnits
from jaxarch.saliency import magnitude
from jaxarch.search import magnitude_pruning, random_mask, two_temperature
from jaxarch.search.units import units_of
from jaxarch.trees import PyTree, select


class Task(NamedTuple):
    """What is learned, ready.

    Attributes:
      settings: complete.
      images: the pictures.
      problem: each seed has its own rows, or all have those that are published for training.
      test: rows to test on, shape (seeds, n).
      params: of the parent, shapes alone.
      units: of the parent.
    """

    settings: ChannelSettings
    images: Images
    problem: Problem
    test: np.ndarray
    params: PyTree
    units: GroupUnits

    @property
    def name(self) -> str:
        """Data and parent, in words."""
        return f"{self.images.name}, {self.settings.model}"

    def learning(self, seeds: np.ndarray) -> Problem:
        """The problem of runs of these seeds."""
        train = np.asarray(self.problem.train)
        return self.problem if train.ndim == 1 else dataclasses.replace(self.problem, train=train[seeds])


def prepare(settings: ChannelSettings) -> Task:
    """Load the pictures, draw the rows of all seeds, and build the problem; settings that are complete.

    Where no split is published, each seed trains on half of the pictures, equally many of each class, and is
    tested on the others.

    Raises:
      ArgumentError: pictures that the parent does not take, or that are too few; a share of the units that
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
    problem = problem_of_images(settings, settings.model, images, train, settings.steps, images.moments())
    one = problem if problem.runs is None else problem.of_run(0)
    params, state = jax.eval_shape(one.init, jax.random.key(0))
    selected = select(params)
    units = units_of((settings.units,), one, params, state, selected)
    assert isinstance(units, GroupUnits)
    for share in settings.shares:
        units.counts(jax.eval_shape(units.score, selected), share)
    return Task(settings, images, problem, test.astype(np.int32), params, units)


def _initial(settings: None, key: Array, problem: Problem, network: None) -> Network:
    """The weights that a cold start of the same key has."""
    params, state = fresh(key, problem, None, False, 0.0)
    return Network(params, state=state)


INITIAL = FunctionStage("initial weights", _initial, removes=())
"""The first stage of a search. The first stage of every chain has the same key, so that the weights of a seed
are the same here, in `magnitude_pruning` and in `retrain("cold")`."""


def two_temperature_of(settings: ChannelSettings, mean: Any) -> Strategy:
    """Two-temperature over the initial weights.

    Args:
      settings: complete.
      mean: of the initial scores, whose standard deviation is 1, in units of 1/hard.
    """
    learned = two_temperature(
        settings.hard,
        settings.soft,
        weights="initial",
        mean=mean,
        std=1.0,
        units=settings.units,
        optimizer=optax.adam(settings.mask_rate),
    )
    return chain(INITIAL, learned)


def _architecture_pruning(settings: ChannelSettings) -> Strategy:
    return chain(INITIAL, pruning_of(settings, settings.shares, settings.units))


OTHERS: dict[str, Callable[[ChannelSettings], Any]] = {
    "AP": _architecture_pruning,
    "magnitude": lambda settings: magnitude_pruning(settings.shares, fraction=None, units=settings.units),
    "random": lambda settings: random_mask(settings.shares, units=settings.units),
}
"""Searches for the units of all shares at once."""


def units_kept(
    task: Task, parts: Parts, progress: Callable[[Progress], None] | None
) -> dict[str, Architectures]:
    """The units that each method keeps, for all shares and seeds; each search is run once."""
    methods = task.settings.methods
    found: dict[str, Architectures] = {}
    for search in dict.fromkeys(method.removesuffix(LAYERWISE) for method in methods):
        like = {name: _like(task) for name in methods if name.removesuffix(LAYERWISE) == search}

        def make(
            checkpoint: Checkpoints | None, search: str = search, like: Mapping[str, Any] = like
        ) -> dict[str, Architectures]:
            options = {"name": search, "progress": progress, "checkpoint": checkpoint, "dead_start": "ignore"}
            if search == "two-temperature":
                return {search: _two_temperature(task, options)}
            made = _search(search, task, options)
            return {name: made[name] for name in like}

        found |= parts.tree(f"units {search}", like, make)
    return {method: found[method] for method in methods}


def _two_temperature(task: Task, options: dict[str, Any]) -> Architectures:
    """A search for every share: about so many units are there as it begins, and so many it is to end with.

    It keeps the units of the largest scores, since how many are positive in the end is up to the search.
    """
    settings = task.settings
    shares = np.repeat(settings.shares, settings.seeds)
    seeds = np.tile(np.arange(settings.seeds), len(settings.shares))
    network, report = over_seeds(
        lambda mean: two_temperature_of(settings, mean),
        settings.seed_keys()[seeds],
        task.learning(seeds).descending(steps=settings.search_steps),
        jnp.asarray(stats.norm.ppf(shares), jnp.float32),
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
    failed_at = np.asarray(network.failed_at).reshape(-1, settings.seeds).max(axis=0)
    return _architectures(masks, failed_at, report.seconds, None)


def _search(search: str, task: Task, options: dict[str, Any]) -> dict[str, Architectures]:
    """One search for all shares, and the largest units of each layer of the weights that it ended with."""
    settings, seeds = task.settings, np.arange(task.settings.seeds)
    network, report = over_seeds(
        OTHERS[search](settings),
        settings.seed_keys(),
        task.learning(seeds).descending(steps=settings.search_steps),
        labels=[f"seed {seed}" for seed in seeds],
        **options,
    )
    failed_at = np.full(len(seeds), -1) if network.failed_at is None else np.asarray(network.failed_at)
    kept, lowest = network.by_density, network.info.get("lowest_density")
    assert kept is not None
    of_each_layer = {
        density_name(share): jax.vmap(
            lambda weights, share=share: keep(magnitude(weights), share, per="leaf", units=task.units)
        )(kept.weights)
        for share in settings.shares
    }
    return {
        search: _architectures(kept.masks, failed_at, report.seconds, lowest),
        search + LAYERWISE: _architectures(of_each_layer, failed_at, report.seconds, None),
    }


def _architectures(
    masks: dict[str, PyTree], failed_at: np.ndarray, seconds: float, lowest: Any
) -> Architectures:
    reached = np.zeros(len(failed_at)) if lowest is None else np.asarray(lowest)
    return Architectures(masks, reached.astype(np.float32), failed_at.astype(np.int32), np.float64(seconds))


def _largest(scores: PyTree, share: float, task: Task) -> PyTree:
    """The mask of the units of the largest scores, of all layers together."""
    units = task.units
    return units.spread(units.largest(scores, units.counts(scores, share)), task.params)


def mask_shapes(task: Task) -> PyTree:
    """The mask of one run, shapes alone."""
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
