"""What the experiments of [S] section 5 that train share: settings, checkpoints, read-out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from jaxarch.errors import ArgumentError, check_count, check_key, check_positive
from jaxarch.experiments.harness.experiment import check_room, checkpoints, seed_keys
from jaxarch.finish.recruit import recruit
from jaxarch.problem import Network, Problem
from jaxarch.running.fit import Progress
from jaxarch.running.strategy import Report, chain, compare
from jaxarch.running.training import Training

CHUNK = 500
"""Steps between two reports of progress."""


@dataclasses.dataclass(frozen=True)
class Setup:
    """What can be set in every experiment that trains.

    Attributes:
      seeds: independent runs.
      examples: points to train on, uniform in [-1, 1].
      held_out: points for recruitment to judge on, and as many more for testing.
      batch_size: examples a step.
      learning_rate: of Adam.
      tolerance: neurons are removed as long as the validation loss grows by at most this share of itself.
      key: what all randomness derives from: an integer from 0 to 2^32 - 1.
      resume: a folder where what is done is kept, so that the same command goes on from there, to the same
        numbers; none if it is empty.
    """

    seeds: int = 3
    examples: int = 10_000
    held_out: int = 1000
    batch_size: int = 100
    learning_rate: float = 1e-3
    tolerance: float = 0.05
    key: int = 0
    resume: str = ""

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        for name in ("seeds", "examples", "held_out", "batch_size"):
            check_count(name, getattr(self, name))
        if self.batch_size > self.examples:
            raise ArgumentError(
                f"batch_size: expected at most {self.examples} examples, got {self.batch_size}"
            )
        check_positive("learning_rate", self.learning_rate)
        check_positive("tolerance", self.tolerance)
        check_key("key", self.key)
        check_room(self.seeds, self.steps(1))

    def steps(self, epochs: int) -> int:
        """Gradient steps of so many epochs."""
        return epochs * -(-self.examples // self.batch_size)

    def rows(self) -> dict[str, np.ndarray]:
        """The rows of the data to train on, to judge on, and to test on."""
        total = self.examples + 2 * self.held_out
        train, validation, test = np.split(np.arange(total), (self.examples, self.examples + self.held_out))
        return {"train": train, "validation": validation, "test": test}

    def run_keys(self) -> Array:
        """One key a seed."""
        return seed_keys(self.key, self.seeds)

    def inputs(self, features: int) -> Array:
        """x, uniform in [-1, 1], for training, validation and testing."""
        shape = (self.examples + 2 * self.held_out, features)
        return jax.random.uniform(jax.random.key(self.key), shape, minval=-1.0, maxval=1.0)


class Trained(NamedTuple):
    """What a training found, with all neurons and with those that are recruited; and what it cost."""

    network: Network
    pruned: Network
    report: Report


def train(
    settings: Setup,
    name: str,
    search: Training,
    keys: Array,
    problem: Problem,
    progress: Callable[[Progress], None] | None,
    labels: Sequence[str],
) -> Trained:
    """Train, and keep the neurons that the validation rows ask for."""
    checkpoint = checkpoints(settings.resume)
    stages: dict[str, Any] = {name: search, f"{name}, recruited": chain(search, recruit(settings.tolerance))}
    # From the perceptron start, the gradient of L_2 to L_{B-1} begins at exactly 0, as it should.
    done = compare(
        stages,
        keys,
        problem,
        progress=progress,
        labels=labels,
        chunk=CHUNK,
        checkpoint=checkpoint,
        dead_start="ignore",
    )
    (network, report), (pruned, _) = done.values()
    return Trained(network, pruned, report)
