"""Common parts of saliencies at the problem's initial weights, over some of its batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch import saliency
from jaxarch._internal.errors import check_count, check_flag
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


@dataclasses.dataclass(frozen=True)
class Expanded(Settings):
    """Settings of a Taylor expansion: whether it has the first-order term, and the batches of the warm-up."""

    first_order: bool
    warm_up: int

    @property
    def needs(self) -> Needs:
        """Return the needed batches; the warm-up and the scores share them."""
        return Needs(batches=max(self.batches, self.warm_up))


class Start(NamedTuple):
    """State at which training would begin, and its batches.

    Attributes:
      problem: the problem.
      params: the problem's initial weights.
      state: the model's state.
      keys: the keys of the batches, and of dropout.
    """

    problem: Problem
    params: PyTree
    state: PyTree
    keys: tuple[Array, Array]

    def batch(self, index: Array) -> PyTree:
        """Return the batch of a step."""
        return self.problem.batch(self.keys[0], index)

    def loss(self, params: PyTree, index: Array) -> Array:
        """Return the loss of a step's batch, as in training."""
        return self._trained(params, self.state, index)[0]

    def evaluated(self, params: PyTree, batch: PyTree) -> Array:
        """Return the loss of a batch without dropout, with running statistics."""
        return self.problem.loss(params, self.state, batch, None)[0]

    def warmed_up(self, batches: int) -> Start:
        """Return the same start with the state after the first batches of training, at unchanged weights."""
        if batches == 0 or not jax.tree.leaves(self.state):
            return self

        def forward(state: PyTree, index: Array) -> tuple[PyTree, None]:
            return self._trained(self.params, state, index)[1], None

        return self._replace(state=jax.lax.scan(forward, self.state, jnp.arange(batches))[0])

    def _trained(self, params: PyTree, state: PyTree, index: Array) -> tuple[Array, PyTree]:
        dropout = jax.random.fold_in(self.keys[1], index)
        return self.problem.loss(params, state, self.batch(index), dropout)


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


def expanded(settings: Settings, first_order: bool, warm_up: int) -> Expanded:
    """Return checked settings of a Taylor expansion.

    Raises:
      ArgumentError: `first_order` that is no bool, a warm-up that is not a count.
    """
    check_flag("first_order", first_order)
    check_count("warm_up", warm_up, 0)
    return Expanded(**vars(settings), first_order=first_order, warm_up=warm_up)


def begin(key: Array, problem: Problem) -> Start:
    """Return initial weights, and the loss of the batches that training would begin with."""
    params_key, *keys = jax.random.split(key, 3)
    params, state = problem.start(params_key)
    return Start(problem, params, state, (keys[0], keys[1]))


def largest(settings: Settings, problem: Problem, start: Start, scores: PyTree) -> Network:
    """Return the architectures of the largest scores, one for each density."""
    units = units_of(settings.units, problem, start.params, start.state, scores)
    values = units.score(scores)
    masks = {
        density: largest_within(units, scores, units.counts(values, density), None, scores)
        for density in settings.densities
    }
    return with_densities(masks, start.params, start.state, {"saliency": scores})


def second_order(
    settings: Expanded, problem: Problem, start: Start, terms: Callable[[Array], tuple[PyTree, PyTree]]
) -> Network:
    """Return the architectures of the largest changes of the loss to second order.

    Args:
      settings: the settings.
      problem: the problem.
      start: the start.
      terms: `index -> (gradients, curvature)` of a step's batch.
    """
    of_batches = jax.lax.map(terms, jnp.arange(settings.batches))
    gradients, curvature = jax.tree.map(lambda leaf: leaf.mean(0), of_batches)
    if not settings.first_order:
        gradients = jax.tree.map(jnp.zeros_like, gradients)
    scores = saliency.taylor(start.params, gradients, curvature, settings.where)
    return largest(settings, problem, start, scores)


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
