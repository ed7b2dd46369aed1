"""Common parts of SNIP and GraSP: a saliency at the problem's initial weights, over some of its batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from jax import Array

from jaxarch._internal.errors import check_count
from jaxarch._internal.trees import PyTree, Where
from jaxarch.masks import _findings as findings
from jaxarch.masks._keeping import largest_within
from jaxarch.masks._units import Connections, Units, UnitsLike
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._records import ByDensity
from jaxarch.run._stage import FunctionStage, Needs
from jaxarch.search._units import check_counts, check_units, needs_of, units_of
from jaxarch.transforms._densities import Densities, check_densities, with_densities


@dataclasses.dataclass(frozen=True)
class Settings:
    """Densities, the leaves they apply to, the number of batches for saliencies, and the units."""

    densities: tuple[float, ...]
    batches: int
    where: Where
    units: tuple[str, ...] | Units


class Start(NamedTuple):
    """State at which training would begin.

    Attributes:
      params: the problem's initial weights.
      state: the model's initial state.
      loss: `(params, index) -> scalar`, of the batch of a step.
    """

    params: PyTree
    state: PyTree
    loss: Callable[[PyTree, Array], Array]


def checked(densities: Densities, batches: int, where: Where, units: UnitsLike) -> Settings:
    """Return checked settings.

    Raises:
      ArgumentError: a density outside (0, 1], batches that are not a positive integer, units that are not
        understood.
    """
    check_count("batches", batches)
    together, targets = check_units(units), check_densities(densities)
    check_counts(together, targets)
    return Settings(targets, batches, where, together)


def begin(key: Array, problem: Problem) -> Start:
    """Return initial weights, and the loss of the batches that training would begin with."""
    params_key, batch_key, loss_key = jax.random.split(key, 3)
    params, state = problem.start(params_key)

    def loss(params: PyTree, index: Array) -> Array:
        batch = problem.batch(batch_key, index)
        dropout = jax.random.fold_in(loss_key, index)

        return problem.loss(params, state, batch, dropout)[0]

    return Start(params, state, loss)


def largest(settings: Settings, problem: Problem, start: Start, scores: PyTree) -> Network:
    """Return the architectures of the largest scores, one for each density."""
    units = units_of(settings.units, problem, start.params, start.state, scores)
    values = units.score(scores)
    masks = {
        density: largest_within(units, scores, units.counts(values, density), None, scores)
        for density in settings.densities
    }
    return with_densities(masks, start.params, start.state, {"saliency": scores})


def stage(name: str, apply: Callable[..., Network], settings: Settings, needs: Needs) -> FunctionStage:
    """Return the search, with remarks on problems with its saliencies."""
    told = _remarks if settings.units == Connections() else _remarks_of_units
    return FunctionStage(name, apply, settings, needs_of(settings.units, needs), remarks=told)


def _remarks(network: Network, *, single: bool = True) -> list[str]:
    """Describe problems with the saliencies of all runs, or with the masks made from them.

    Raises:
      ArgumentError: saliencies that are NaN, all of them in all runs.
    """
    scores, several = network.info["saliency"], network[ByDensity]
    for density, mask in several.masks.items():
        seen = findings.look(scores, mask, runs=True)
        if not single:  # Connections of a unit are kept whatever their own scores are.
            seen = seen._replace(missed=np.zeros_like(seen.missed))
        if found := findings.lines(seen, several.weights):
            return [f"at density {density}, {line}" for line in found]
    return []


def _remarks_of_units(network: Network) -> list[str]:
    return _remarks(network, single=False)
