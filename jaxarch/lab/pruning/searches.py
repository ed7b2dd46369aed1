"""Architectures of all densities and seeds, by search."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxarch import ByDensity, Network, Problem, PyTree, Training, map_selected, over_seeds, select
from jaxarch.lab.checks import check_distinct, check_known
from jaxarch.lab.data import balanced_rows
from jaxarch.lab.harness import Part, Work
from jaxarch.lab.pruning.settings import ArchitectureSettings, TransferSettings
from jaxarch.lab.pruning.tasks import Transfer
from jaxarch.masks import UnitsLike, reshuffle
from jaxarch.search import (
    architecture_pruning,
    magnitude_pruning,
    random_mask,
    random_search,
    round_densities,
    snip,
)
from jaxarch.transforms import density_name

RESHUFFLED = "->reshuffled"
SNIP_BATCHES = 10
Make = Callable[[TransferSettings, Sequence[float]], Any]


def pruning_of(
    settings: ArchitectureSettings, densities: Sequence[float], units: UnitsLike = None
) -> Training:
    """Return architecture pruning with the given settings."""
    return architecture_pruning(
        densities,
        settings.hard,
        settings.soft,
        strength=settings.strength,
        std=settings.scores_std,
        units=units,
        scores_optimizer=optax.sgd(settings.scores_rate),
        weights_optimizer=optax.sgd(settings.weights_rate),
    )


SEARCHES: dict[str, Make] = {
    "AP": pruning_of,
    "IMP": lambda settings, densities: magnitude_pruning(densities, fraction=settings.fraction),
    "magnitude": lambda settings, densities: magnitude_pruning(densities, fraction=None),
    "SNIP": lambda settings, densities: snip(densities, batches=SNIP_BATCHES),
    "random": lambda settings, densities: random_mask(densities),
    "uniform": lambda settings, densities: random_mask(densities, scope="layer"),
    "ERK": lambda settings, densities: random_mask(densities, scope="erk"),
    "random search": lambda settings, densities: random_search(densities[0], samples=settings.samples),
}
"""Searches by their names in results."""

ONE_AT_A_TIME = {"random search"}
"""Searches for one density at a time, the first one given, judged on rows not used for training."""


class Architectures(NamedTuple):
    """Architectures found by a search; every leaf has a leading axis of seeds.

    Attributes:
      masks: by density, as text; of exact size, even where the density was not reached.
      lowest: the smallest density that was reached, shape (seeds,).
      failed_at: the first step with a loss that is not finite, or -1, shape (seeds,).
      seconds: time of one seed on one device.
    """

    masks: dict[str, PyTree]
    lowest: Any
    failed_at: Any
    seconds: Any

    def missed(self, density: float) -> np.ndarray:
        """Tell which seeds did not reach a density."""
        return np.asarray(self.lowest) > density

    def notes(self, search: str, targets: Iterable[float], word: str) -> list[str]:
        """Count the seeds that met NaN, and those that missed each target; `word` names the targets."""
        seeds = len(np.asarray(self.failed_at))
        noted = []
        failed = int((np.asarray(self.failed_at) >= 0).sum())
        if failed:
            noted.append(f"! {search}: {failed} of {seeds} searches met NaN or infinity")
        for target in targets:
            missed = self.missed(target)
            if missed.any():
                lowest = np.asarray(self.lowest)[missed]
                noted.append(
                    f"! {search}: {missed.sum()} of {seeds} searches missed {word} {target:g}, and reached "
                    f"{lowest.min():.3g} to {lowest.max():.3g}; their masks keep the largest scores of the "
                    "last step"
                )
        return noted


def check_methods(name: str, methods: Sequence[str]) -> None:
    """Raise unless every method is a search or a search followed by reshuffling, and all are distinct."""
    check_known(name, methods, [*SEARCHES, *(search + RESHUFFLED for search in SEARCHES)])
    check_distinct(name, methods)


def base(method: str) -> str:
    """Return the search that a method begins with."""
    return method.removesuffix(RESHUFFLED)


def search_parts(methods: Sequence[str], transfer: Transfer) -> list[Part]:
    """Return the searches that the methods need, each once, for all densities and seeds."""
    like = _like(transfer)
    searches = dict.fromkeys(base(method) for method in methods)
    return [Part(f"architectures {search}", _search, search, like=like) for search in searches]


def architectures(
    methods: Sequence[str], transfer: Transfer, found: Mapping[str, Architectures]
) -> dict[str, Architectures]:
    """Return the architectures of each method for all densities and seeds.

    Args:
      methods: names of the methods.
      transfer: the tasks and settings.
      found: the result of each part of `search_parts`, by the part's name.
    """
    keys = transfer.settings.keys("reshuffle")

    def reshuffled(of_search: Architectures) -> Architectures:
        masks = {name: jax.vmap(reshuffle)(keys, mask) for name, mask in of_search.masks.items()}
        return of_search._replace(masks=masks)

    by_method = {method: found[f"architectures {base(method)}"] for method in methods}
    return {method: reshuffled(of) if method.endswith(RESHUFFLED) else of for method, of in by_method.items()}


def _search(transfer: Transfer, name: str, found: Mapping[str, Any], work: Work) -> Architectures:
    settings = transfer.settings
    problem = problem_of(name, transfer)

    def run(densities: Sequence[float], title: str) -> tuple[Network, float]:
        network, report = over_seeds(
            SEARCHES[name](settings, densities),
            settings.keys("search"),
            problem,
            name=title,
            progress=work.progress,
            checkpoint=work.checkpoint,
            labels=[f"seed {seed}" for seed in range(settings.seeds)],
            dead_start="ignore",
            **settings.width(),
        )
        return network, report.seconds

    if name in ONE_AT_A_TIME:
        each = [run((density,), f"{name}, density {density_name(density)}") for density in settings.densities]
        masks = {
            density_name(density): network.mask
            for density, (network, _) in zip(settings.densities, each, strict=True)
        }
    else:
        each = [run(settings.densities, name)]
        masks = each[0][0][ByDensity].masks
    none = np.full(settings.seeds, -1, np.int32)
    found_at = [network.info.failed_at for network, _ in each]
    failed_at = [none if steps is None else np.asarray(steps) for steps in found_at]
    return Architectures(
        masks,
        np.asarray(each[0][0].info.get("lowest_density", np.zeros(settings.seeds, np.float32))),
        np.max(failed_at, axis=0),
        np.float64(sum(taken for _, taken in each)),
    )


def problem_of(name: str, transfer: Transfer) -> Problem:
    """Return the problem of a search; `ONE_AT_A_TIME` searches hold out a tenth of the examples."""
    problem = transfer.searching
    if name == "AP":
        return problem.descending(steps=transfer.settings.search_steps)
    if name in ONE_AT_A_TIME:
        rows = np.asarray(problem.train)
        fewest = int(np.bincount(transfer.old.y[rows]).min())
        key = jax.random.fold_in(transfer.settings.keys("rows")[0], 1)
        validation = balanced_rows(key, transfer.old.y, rows, per_class=max(fewest // 10, 1))
        return dataclasses.replace(problem, train=np.setdiff1d(rows, validation), validation=validation)
    return problem


def trainings(methods: Sequence[str], transfer: Transfer) -> dict[str, tuple[int, int]]:
    """Return, for searches that train, the number of trainings per seed and the steps of each."""
    settings = transfer.settings
    counts = {
        "AP": (1, settings.search_steps),
        "IMP": (len(round_densities(settings.densities, settings.fraction)), settings.training_steps),
        "magnitude": (1, settings.training_steps),
        "random search": (settings.samples * len(settings.densities), settings.training_steps),
    }
    return {name: counts[name] for name in dict.fromkeys(map(base, methods)) if name in counts}


def _like(transfer: Transfer) -> Architectures:
    settings = transfer.settings
    seeds = settings.seeds
    params, _ = jax.eval_shape(transfer.searching.init, jax.random.key(0))
    mask = map_selected(lambda leaf: jax.ShapeDtypeStruct((seeds, *leaf.shape), bool), select(params))
    return Architectures(
        {density_name(density): mask for density in settings.densities},
        jax.ShapeDtypeStruct((seeds,), jnp.float32),
        jax.ShapeDtypeStruct((seeds,), jnp.int32),
        np.zeros((), np.float64),
    )
