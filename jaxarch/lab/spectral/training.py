"""What the experiments of [S] section 5 that train share: settings, inputs, read-out."""

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
    """What can be set in every experiment that trains.

    Attributes:
      seeds: independent runs.
      examples: points to train on, uniform in [-1, 1].
      held_out: points for recruitment to judge on, and as many more for testing.
      learning_rate: of Adam.
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
        """Gradient steps of so many epochs."""
        return epochs * -(-self.examples // self.batch_size)

    def rows(self) -> dict[str, np.ndarray]:
        """The rows of the data to train on, to judge on, and to test on."""
        total = self.examples + 2 * self.held_out
        train, validation, test = np.split(np.arange(total), (self.examples, self.examples + self.held_out))
        return {"train": train, "validation": validation, "test": test}

    def inputs(self, features: int) -> Array:
        """x, uniform in [-1, 1], for training, validation and testing."""
        shape = (self.examples + 2 * self.held_out, features)
        return jax.random.uniform(jax.random.key(self.key), shape, minval=-1.0, maxval=1.0)


class Trained(NamedTuple):
    """What a training found, with all neurons and with those that are recruited; and what it cost."""

    network: Network
    pruned: Network
    report: Report

    def neurons_left(self, layer: str) -> np.ndarray:
        """How many neurons of a hidden layer each pruned network has left."""
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
    """Train, and keep the neurons that the validation rows ask for."""
    stages: dict[str, Any] = {name: search, f"{name}, recruited": chain(search, recruit(tolerance))}
    # From the perceptron start, the gradient of L_2 to L_{B-1} begins at exactly 0, as it should.
    done = compare(stages, keys, problem, labels=labels, chunk=CHUNK, dead_start="ignore", **context.options)
    (network, report), (pruned, _) = done.values()
    return Trained(network, pruned, report)
