"""Architectures of all densities and seeds, by the search that they come from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxarch.errors import check_distinct, check_known
from jaxarch.experiments.parts import Parts
from jaxarch.experiments.pruning.tasks import Settings, Transfer
from jaxarch.fit import Progress
from jaxarch.masks import reshuffle
from jaxarch.problem import Found, Problem
from jaxarch.search.architecture_pruning import architecture_pruning
from jaxarch.search.densities import density_name
from jaxarch.search.magnitude_pruning import magnitude_pruning
from jaxarch.search.random_architecture import random_architecture
from jaxarch.search.random_search import random_search
from jaxarch.search.snip import snip
from jaxarch.storage import Checkpoints
from jaxarch.strategy import over_seeds
from jaxarch.trees import PyTree, map_selected, select

RESHUFFLED = "->reshuffled"
SNIP_BATCHES = 10
Make = Callable[[Settings, Sequence[float]], Any]


def _architecture_pruning(settings: Settings, densities: Sequence[float]) -> Any:
    return architecture_pruning(
        densities,
        settings.hard,
        settings.soft,
        strength=settings.strength,
        std=settings.scores_std,
        scores_optimizer=optax.sgd(settings.scores_rate),
        weights_optimizer=optax.sgd(settings.weights_rate),
    )


SEARCHES: dict[str, Make] = {
    "AP": _architecture_pruning,
    "IMP": lambda settings, densities: magnitude_pruning(densities, fraction=settings.fraction),
    "magnitude": lambda settings, densities: magnitude_pruning(densities, fraction=None),
    "SNIP": lambda settings, densities: snip(densities, batches=SNIP_BATCHES),
    "random": lambda settings, densities: random_architecture(densities),
    "uniform": lambda settings, densities: random_architecture(densities, layers="uniform"),
    "ERK": lambda settings, densities: random_architecture(densities, layers="erk"),
    "random search": lambda settings, densities: random_search(densities[0], samples=settings.samples),
}
"""By the name that it has in results. Of random search each density is a search of its own."""

ONE_AT_A_TIME = ("random search",)
"""Searches that find an architecture of one density, and judge it by rows that they do not train on."""


class Architectures(NamedTuple):
    """What a search found, every leaf with a leading axis of seeds.

    Attributes:
      masks: by density, as text.
      reached: whether each density was reached, the largest first, shape (seeds, densities); masks have the
        exact size in any case.
      failed_at: the first step whose loss was not finite, or -1, shape (seeds,).
      seconds: that a seed took one device.
    """

    masks: dict[str, PyTree]
    reached: Any
    failed_at: Any
    seconds: Any


def check_methods(name: str, methods: Sequence[str]) -> None:
    """Raise unless they are searches, or such with what they find reshuffled."""
    check_known(name, methods, [*SEARCHES, *(search + RESHUFFLED for search in SEARCHES)])
    check_distinct(name, methods)


def architectures(
    method: str, transfer: Transfer, parts: Parts, progress: Callable[[Progress], None] | None
) -> Architectures:
    """The architectures that one method has for all densities and seeds."""
    base = method.removesuffix(RESHUFFLED)
    settings = transfer.settings

    def make(checkpoint: Checkpoints | None) -> Architectures:
        return _search(base, transfer, progress, checkpoint)

    found: Architectures = parts.tree(f"architectures {base}", _like(transfer), make)
    if method == base:
        return found
    keys = jax.vmap(lambda key: jax.random.fold_in(key, 1))(settings.keys())
    masks = {name: jax.vmap(reshuffle)(keys, mask) for name, mask in found.masks.items()}
    return found._replace(masks=masks)


def _search(
    name: str, transfer: Transfer, progress: Callable[[Progress], None] | None, checkpoint: Checkpoints | None
) -> Architectures:
    settings = transfer.settings
    problem = problem_of(name, transfer)

    def run(densities: Sequence[float], title: str) -> tuple[Found, float]:
        found, report = over_seeds(
            SEARCHES[name](settings, densities),
            settings.keys(),
            problem,
            name=title,
            progress=progress,
            checkpoint=checkpoint,
            labels=[f"seed {seed}" for seed in range(settings.seeds)],
            dead_start="ignore",
        )
        return found, report.seconds

    if name in ONE_AT_A_TIME:
        each = [run((density,), f"{name}, density {density_name(density)}") for density in settings.densities]
        masks = {
            density_name(density): found.mask
            for density, (found, _) in zip(settings.densities, each, strict=True)
        }
    else:
        each = [run(settings.densities, name)]
        masks = each[0][0].info["masks"]
    reached = np.ones((settings.seeds, len(masks)), bool)
    if "reached_at" in each[0][0].info:
        reached = np.asarray(each[0][0].info["reached_at"]) >= 0
    failed = [found.info.get("failed_at", jnp.full(settings.seeds, -1, jnp.int32)) for found, _ in each]
    seconds = sum(taken for _, taken in each)
    return Architectures(masks, reached, np.max(jax.device_get(failed), axis=0), np.float64(seconds))


def problem_of(name: str, transfer: Transfer) -> Problem:
    """The problem that a search is run on."""
    problem = transfer.searching
    if name == "AP":
        return dataclasses.replace(problem, steps=transfer.settings.search_steps)
    if name in ONE_AT_A_TIME:
        train = np.setdiff1d(np.asarray(problem.train), transfer.validation)
        return dataclasses.replace(problem, train=train, validation=transfer.validation)
    return problem


def _like(transfer: Transfer) -> Architectures:
    settings = transfer.settings
    seeds, densities = settings.seeds, [density_name(density) for density in settings.densities]
    params, _ = jax.eval_shape(transfer.searching.init, jax.random.key(0))
    mask = map_selected(lambda leaf: jax.ShapeDtypeStruct((seeds, *leaf.shape), bool), select(params))
    return Architectures(
        dict.fromkeys(densities, mask),
        jax.ShapeDtypeStruct((seeds, len(densities)), bool),
        jax.ShapeDtypeStruct((seeds,), jnp.int32),
        np.zeros((), np.float64),
    )
