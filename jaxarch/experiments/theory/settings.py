"""What can be set of the experiment on the ratio of the temperatures."""

from __future__ import annotations

import dataclasses

import numpy as np

from jaxarch.errors import ArgumentError, check_count, check_distinct, check_known, check_positive
from jaxarch.experiments.disentangling.settings import TaskSettings
from jaxarch.experiments.theory.problems import PROBLEMS


@dataclasses.dataclass(frozen=True)
class Settings(TaskSettings):
    """What can be set with `jaxarch run theory.temperature_ratio --set NAME=VALUE`.

    `ratios` are soft/hard. `learning_rate` is meant for the ratio `reference`, at which G is measured; it is
    scaled from there, and the scaled rate tuned over its `multiples`, 1 always among them. The network starts
    as in [D], from scores of N(-10, 5)/hard, the convex problems from a mask of 1/2. The linear and quadratic
    problems have `dimension` connections and `examples` examples; logistic regression, on the network's task,
    has fixed weights of N(0, `weight_std`).
    """

    seeds: int = 5
    problems: tuple[str, ...] = tuple(PROBLEMS)
    positive: tuple[int, ...] = (1, 2, 3)
    negative: tuple[int, ...] = (4, 5, 6)
    train_per_class: int = 100
    hard: float = 50.0
    ratios: tuple[float, ...] = (0.001, 0.01, 0.1, 0.3, 0.5, 0.9, 1.0)
    reference: float = 0.1
    multiples: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
    dimension: int = 100
    examples: int = 600
    weight_std: float = 5.0

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        check_known("problems", self.problems, PROBLEMS)
        check_distinct("problems", self.problems)
        self.check_each(check_count, "train_per_class", "dimension", "examples")
        self.check_each(check_positive, "hard", "reference", "weight_std")
        self.check_numbers(check_positive, "ratios", "multiples")
        for name, largest in (("ratios", max(self.ratios)), ("reference", self.reference)):
            if largest > 1:
                raise ArgumentError(f"{name}: expected soft/hard of at most 1, got {largest}")

    def softs(self) -> np.ndarray:
        """The soft temperatures of all ratios."""
        return np.asarray(self.ratios) * self.hard

    def grid(self) -> list[float]:
        """The multiples of the scaled rate, 1 among them."""
        return sorted({*self.multiples, 1.0})
