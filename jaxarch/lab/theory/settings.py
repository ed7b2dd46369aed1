"""Settings of the experiment on the ratio of the temperatures."""

from __future__ import annotations

import dataclasses

import numpy as np

from jaxarch import ArgumentError
from jaxarch.lab.checks import check_count, check_distinct, check_known, check_positive
from jaxarch.lab.disentangling.settings import TaskSettings
from jaxarch.lab.theory.problems import PROBLEMS


@dataclasses.dataclass(frozen=True)
class Settings(TaskSettings):
    """Settings of `jaxarch run theory.temperature_ratio`, changed with `--set NAME=VALUE`.

    The network starts as in [D], from scores of N(-10, 5)/hard. The convex problems start from a mask of 1/2.

    Attributes:
      problems: network, of [D], and three problems convex in the mask: logistic, linear, quadratic.
      positive: classes of the first group, which is y = 1 unless the task is flipped.
      negative: classes of the second group; no class is in both.
      train_per_class: examples of each class to train on.
      hard: the inverse temperature of the mask in the loss.
      ratios: soft/hard, at most 1.
      reference: the ratio soft/hard at which the learning rate applies, and at which G is measured.
      multiples: multiples of the scaled learning rate over which it is tuned; 1 is always among them.
      dimension: connections of the linear and the quadratic problem.
      examples: examples of the linear and the quadratic problem.
      weight_std: standard deviation of the fixed weights of logistic regression.
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
        """Return the soft temperatures of all ratios."""
        return np.asarray(self.ratios) * self.hard

    def grid(self) -> list[float]:
        """Return the multiples of the scaled learning rate, including 1."""
        return sorted({*self.multiples, 1.0})
