"""Shared parts of the experiments of [S] section 5 that train: settings, inputs, read-out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from jaxarch import (
    ArgumentError,
    Network,
    NeuronMask,
    Problem,
    Report,
    Training,
    chain,
    compare,
    recruit,
)
from jaxarch.lab.checks import check_count, check_positive
from jaxarch.lab.harness import Context, TrainingSettings, check_room

CHUNK = 500
"""Steps between two reports of progress."""


@dataclasses.dataclass(frozen=True)
class RegressionSettings(TrainingSettings):
    """Settings shared by all experiments that train.

    Attributes:
      seeds: number of independent runs.
      examples: number of training points, uniform in [-1, 1].
      held_out: validation points, by which recruitment is judged, and as many more for testing.
      learning_rate: learning rate of Adam.
      tolerance: neurons are removed as long as the validation loss grows by at most this share of itself.
    """

    seeds: int = 3
    examples: int = 10_000
    held_out: int = 1000
    learning_rate: float = 1e-3
    tolerance: float = 0.05

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        self.check_each(check_count, "examples", "held_out")
        check_room(self.seeds, self.steps(1))
        if self.batch_size > self.examples:
            raise ArgumentError(
                f"batch_size: expected at most {self.examples} examples, got {self.batch_size}"
            )
        self.check_each(check_positive, "learning_rate", "tolerance")

    def steps(self, epochs: int) -> int:
        """Return the number of gradient steps in `epochs` epochs."""
        return epochs * -(-self.examples // self.batch_size)

    def rows(self) -> dict[str, np.ndarray]:
        """Return the rows for training, validation and testing."""
        total = self.examples + 2 * self.held_out
        train, validation, test = np.split(np.arange(total), (self.examples, self.examples + self.held_out))
        return {"train": train, "validation": validation, "test": test}

    def inputs(self, features: int) -> Array:
        """Draw x, uniform in [-1, 1], for training, validation and testing."""
        shape = (self.examples + 2 * self.held_out, features)
        return jax.random.uniform(jax.random.key(self.key), shape, minval=-1.0, maxval=1.0)


class Trained(NamedTuple):
    """Trained networks, with all neurons and with the recruited ones, and their cost."""

    network: Network
    pruned: Network
    report: Report

    def neurons_left(self, layer: str) -> np.ndarray:
        """Count the neurons of a hidden layer left in each pruned network."""
        return np.asarray(self.pruned[NeuronMask].kept["eigenvalues"][layer].sum(axis=-1))


def train(
    context: Context,
    name: str,
    search: Training,
    keys: Array,
    problem: Problem,
    labels: Sequence[str],
    tolerance: float,
) -> Trained:
    """Train, and keep the neurons that the validation rows require."""
    stages: dict[str, Any] = {name: search, f"{name}, recruited": chain(search, recruit(tolerance))}
    # From the perceptron start, the gradient of L_2 to L_{B-1} is exactly 0 at first, as it should be.
    done = compare(stages, keys, problem, labels=labels, chunk=CHUNK, dead_start="ignore", **context.options)
    (network, report), (pruned, _) = done.values()
    return Trained(network, pruned, report)
