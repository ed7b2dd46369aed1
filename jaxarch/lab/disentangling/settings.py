"""Settings of the experiments of [D] section 5: data, network, training, strategies."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from jax import Array

from jaxarch import ArgumentError, disentangling_strategies
from jaxarch.lab.checks import check_count, check_distinct, check_known, check_positive
from jaxarch.lab.data import Dataset, Task, load, unit_norm
from jaxarch.lab.harness import TrainingSettings, check_room
from jaxarch.masks import check_temperatures


@dataclasses.dataclass(frozen=True)
class TaskSettings(TrainingSettings):
    """Settings shared by all experiments that train: data, network, training.

    Attributes:
      dataset: a name of `jaxarch data`, or an npz file with x and y; every example is scaled to unit norm.
      test_per_class: examples of each class to test on; none is used for training.
      seeds: independent runs, each with its own split and initial scores or weights.
      steps: gradient steps of each training.
      learning_rate: the learning rate of gradient descent.
      depth: layers of the network; each is as wide as the number of features.
    """

    dataset: str = "digits"
    test_per_class: int = 50
    seeds: int = 10
    steps: int = 600
    learning_rate: float = 0.3
    depth: int = 2

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        self.check_each(check_count, "test_per_class", "steps", "depth")
        check_positive("learning_rate", self.learning_rate)
        check_room(self.seeds, self.steps + self.test_per_class)

    def data(self) -> Dataset:
        """Load the data set and scale every example to unit norm."""
        return unit_norm(load(self.dataset))

    def or_known(self, name: str, known: Mapping[str, tuple[Any, ...]], example: str) -> tuple[Any, ...]:
        """Return a setting, or the value known for the data set if the setting is empty."""
        values = getattr(self, name) or known.get(self.dataset, ())
        if not values:
            raise ArgumentError(
                f"{name}: no default for {self.dataset}; give some, as in --set {name}={example}"
            )
        return values

    def run_keys(self, task: Task) -> Array:
        """Return one key a run, the same for both orientations of a split."""
        return self.seed_keys()[task.seeds]


@dataclasses.dataclass(frozen=True)
class StrategySettings(TaskSettings):
    """Settings shared by experiments that compare strategies.

    Attributes:
      hard: the inverse temperature M_hard of the mask in the loss.
      soft: the inverse temperature M_soft, at most M_hard, of the mask that the gradient passes through.
      std: standard deviation of the initial u, where weights are w = u^2.
      strategies: names of the strategies to run, as shown by `jaxarch list`; all of them if empty.
      lottery_rounds: number of times that the lottery trains and prunes.
      lottery_form: `rewind`: weights go back to their start each round; `printed`: the recursion of [D].
      agnostic_draws: random architectures that the weight-agnostic search draws.
      agnostic_weights: shared weights at which each architecture is judged.
    """

    hard: float = 50.0
    soft: float = 5.0
    std: float = 0.2
    strategies: tuple[str, ...] = ()
    lottery_rounds: int = 10
    lottery_form: Literal["rewind", "printed"] = "rewind"
    agnostic_draws: int = 20
    agnostic_weights: int = 10

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        check_positive("std", self.std)
        check_temperatures(self.hard, self.soft)
        known = self._known()
        if self.strategies:
            check_known("strategies", self.strategies, known)
        check_distinct("strategies", self.strategies)

    def chosen(self) -> dict[str, Any]:
        """Return the strategies to run, by name; all of them if none is named."""
        known = self._known()
        return {name: known[name] for name in self.strategies or known}

    def _known(self) -> dict[str, Any]:
        return disentangling_strategies(
            self.hard,
            self.soft,
            self.std,
            lottery_rounds=self.lottery_rounds,
            lottery_form=self.lottery_form,
            agnostic_draws=self.agnostic_draws,
            agnostic_weights=self.agnostic_weights,
        )
