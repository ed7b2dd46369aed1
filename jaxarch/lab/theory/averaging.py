"""The two compared steps, as searches whose masks are averaged over their steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from jaxarch import Network, Problem, PyTree, Training, TrainState, everything
from jaxarch.masks import soft_mask
from jaxarch.optim import mirror_descent
from jaxarch.search import two_temperature

ORDINARY, EXACT = "Algorithm 1", "exact mirror step"
STEPS: dict[str, Callable[[Any, Any], optax.GradientTransformation]] = {
    ORDINARY: lambda rate, soft: optax.sgd(rate),
    EXACT: mirror_descent,
}


@dataclasses.dataclass(frozen=True)
class Search:
    """Builds a run's search from its settings `hard`, `soft` and `rate`."""

    step: str
    mean: float
    std: float

    def __call__(self, sweep: dict[str, Any]) -> Training:
        """Return the search of one run."""
        hard, soft = sweep["hard"], sweep["soft"]
        optimizer = STEPS[self.step](sweep["rate"], soft)
        search = two_temperature(
            hard, soft, where=everything, mean=self.mean, std=self.std, optimizer=optimizer
        )
        return averaging(search, hard)


@dataclasses.dataclass(frozen=True)
class Averaged:
    """A search, and the temperature at which its masks are averaged."""

    search: Training
    hard: Any

    def mask(self, state: TrainState) -> PyTree:
        """Compute the mask of a state's scores."""
        return soft_mask(state.trainable, self.hard, self.hard)


def averaging(search: Training, hard: Any) -> Training:
    """Return the search with the mean mask over `v_1, ..., v_T` as `average` in the info of its network."""
    return dataclasses.replace(
        search,
        init=_init,
        params=_params,
        network=_network,
        after_step=_after_step,
        settings=Averaged(search, hard),
    )


def _init(settings: Averaged, key: Array, problem: Problem, network: Network | None) -> TrainState:
    state = settings.search.init(settings.search.settings, key, problem, network)
    return state._replace(memory=settings.mask(state))


def _params(settings: Averaged, state: TrainState) -> PyTree:
    return settings.search.params(settings.search.settings, state)


def _after_step(settings: Averaged, state: TrainState) -> PyTree:
    return jax.tree.map(jnp.add, state.memory, settings.mask(state))


def _network(settings: Averaged, state: TrainState) -> Network:
    made, last = settings.search.network(settings.search.settings, state), settings.mask(state)
    # The memory holds v_1 and a mask after each of T steps, so v_{T+1} is subtracted to leave v_1, ..., v_T.
    average = jax.tree.map(lambda total, v: (total - v) / state.step, state.memory, last)
    return made.replace(info=made.info | {"last": last, "average": average})
