"""The two steps that are compared, as searches whose masks are averaged over their steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from jaxarch import Network, Problem, Training, TrainState, everything
from jaxarch.masks import soft_mask
from jaxarch.search import two_temperature
from jaxarch.theory import mirror
from jaxarch.trees import PyTree

ORDINARY, EXACT = "Algorithm 1", "exact mirror step"
STEPS: dict[str, Callable[[Any, Any], optax.GradientTransformation]] = {
    ORDINARY: lambda rate, soft: optax.sgd(rate),
    EXACT: mirror.mirror_descent,
}


@dataclasses.dataclass(frozen=True)
class Search:
    """From one run's settings, `hard`, `soft` and `rate`, to its search."""

    step: str
    mean: float
    std: float

    def __call__(self, sweep: dict[str, Any]) -> Training:
        """The search of one run."""
        hard, soft = sweep["hard"], sweep["soft"]
        optimizer = STEPS[self.step](sweep["rate"], soft)
        search = two_temperature(
            hard, soft, where=everything, mean=self.mean, std=self.std, optimizer=optimizer
        )
        return averaging(search, hard)


def averaging(search: Training, hard: Any) -> Training:
    """The search, with `average`, the mean of the masks `v_1, ..., v_T`, in the info of what it finds."""

    def mask(point: TrainState) -> PyTree:
        return soft_mask(point.trainable, hard, hard)

    def init(key: Array, problem: Problem, network: Network | None) -> TrainState:
        point = search.init(key, problem, network)
        return point._replace(memory=mask(point))

    def observe(point: TrainState) -> PyTree:
        return jax.tree.map(jnp.add, point.memory, mask(point))

    def network(point: TrainState) -> Network:
        made, last = search.network(point), mask(point)
        average = jax.tree.map(lambda total, v: (total - v) / point.step, point.memory, last)
        return made._replace(info={**made.info, "last": last, "average": average})

    return dataclasses.replace(search, init=init, observe=observe, network=network)
