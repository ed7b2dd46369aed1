"""What SNIP and GraSP share: a saliency at the problem's initial weights, over some of its batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
from jax import Array

from jaxarch.errors import check_count
from jaxarch.finish.densities import Densities, check_densities, with_densities
from jaxarch.masks import keep
from jaxarch.masks.units import Units, UnitsLike
from jaxarch.network import Network
from jaxarch.problem import Problem
from jaxarch.search.units import check_counts, check_units, units_of
from jaxarch.trees import PyTree, Where


@dataclasses.dataclass(frozen=True)
class Settings:
    """How many connections are kept, of which leaves, and over how many batches they are judged."""

    densities: tuple[float, ...]
    batches: int
    where: Where
    units: tuple[str, ...] | Units


class Start(NamedTuple):
    """Where training would begin.

    Attributes:
      params: the problem's initial weights.
      state: the model's.
      loss: `(params, index) -> scalar`, of the batch of a step.
    """

    params: PyTree
    state: PyTree
    loss: Callable[[PyTree, Array], Array]


def checked(densities: Densities, batches: int, where: Where, units: UnitsLike) -> Settings:
    """Settings that can be used.

    Raises:
      ArgumentError: a density outside (0, 1], batches that are no positive integer, units that are not
        understood.
    """
    check_count("batches", batches)
    together, targets = check_units(units), check_densities(densities)
    check_counts(together, targets)
    return Settings(targets, batches, where, together)


def begin(key: Array, problem: Problem) -> Start:
    """Initial weights, and the loss of the batches that training would begin with."""
    params_key, batch_key, loss_key = jax.random.split(key, 3)
    params, state = problem.start(params_key)

    def loss(params: PyTree, index: Array) -> Array:
        batch = problem.batch(batch_key, index)
        dropout = jax.random.fold_in(loss_key, index)

        return problem.loss(params, state, batch, dropout)[0]

    return Start(params, state, loss)


def largest(settings: Settings, problem: Problem, start: Start, scores: PyTree) -> Network:
    """The architectures of the largest scores, one for each density."""
    units = units_of(settings.units, problem, start.params, start.state, scores)
    masks = {density: keep(scores, density, units=units) for density in settings.densities}
    return with_densities(masks, start.params, start.state, {"saliency": scores})
