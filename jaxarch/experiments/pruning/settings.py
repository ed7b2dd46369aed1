"""What can be set of a transfer of architectures, and what suits each data set."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, Self

from jax import Array

from jaxarch.errors import (
    ArgumentError,
    check_count,
    check_distinct,
    check_known,
    check_positive,
    check_strength,
)
from jaxarch.experiments.harness import TrainingSettings, check_room
from jaxarch.masks import check_temperatures

WEIGHTS = ("he", "density-aware")
MODELS = ("mlp", "cnn", "vit", "vgg19")
WIDTHS = {"mlp": (200, 100), "cnn": (16, 32, 64)}
PER_CLASS = {"mnist": (10, 20, 100), "cifar10": (50, 500)}
SUITS_ALL = {
    "model": "mlp",
    "pool": 1,
    "batch_size": 50,
    "search_steps": 2500,
    "training_steps": 600,
    "steps": 300,
    "strength": 1e-4,
}
SUITS: dict[str, dict[str, Any]] = {
    "digits": {"search_steps": 1500, "training_steps": 300, "strength": 3e-4},
    "mnist": {"pool": 2},
    "cifar10": {
        "new_dataset": "cifar100",
        "model": "cnn",
        "batch_size": 32,
        "search_steps": 4000,
        "steps": 500,
        "strength": 5e-5,
    },
}
"""What suits a data set where the user says nothing; and what suits those that have no entry."""

STREAMS = {"search": 1, "rows": 2, "reshuffle": 3, "new task": 4}


@dataclasses.dataclass(frozen=True)
class TransferSettings(TrainingSettings):
    """What all transfers of architectures have in common.

    Architectures are searched for on one task and trained with fresh weights on another, with few examples.
    What is empty, 0 or `auto` is what suits the data set.

    Attributes:
      dataset: the pictures to search on: a name of `jaxarch data`, or an npz file with x and y.
      classes: of the task that is searched on; half of them, or all where the new data set is another.
      new_dataset: the pictures of the new task; the same data set where that suits it.
      new_classes: of the new task; as many others as `classes` has.
      in_domain: whether the new task is the first one, with examples that the search has not seen.
      model: the parent of all architectures.
      widths: hidden neurons, or channels, of each layer of an mlp or a cnn.
      pool: side of the windows whose means are the pixels; 1 leaves pictures as they are.
      augment: whether pictures are cropped and flipped at random in training.
      sparsities: shares of the connections that are removed.
      sizes: examples to train on in the new task, multiples of its number of classes; a training for each.
      weights: how the fresh weights are drawn: `he`, or `density-aware`, wider where connections are fewer.
      search_steps: gradient steps of architecture pruning.
      training_steps: gradient steps of each training on the first task.
      steps: gradient steps of each training on the new task.
      batch_size: examples a step.
      rate: learning rate of Adam, which trains the weights on either task.
      hard: the inverse temperature of architecture pruning's mask that the loss sees.
      soft: the inverse temperature of the mask that its gradient passes through, at most `hard`.
      strength: architecture pruning's penalty for each connection.
      scores_std: standard deviation of its scores at the start.
      scores_rate: learning rate of its scores, by plain gradient descent.
      weights_rate: learning rate of its weights, by plain gradient descent.
      fraction: of the connections left, how many a round of magnitude pruning removes at most.
      samples: networks that random search draws.
    """

    dataset: str = "digits"
    classes: tuple[int, ...] = ()
    new_dataset: str = ""
    new_classes: tuple[int, ...] = ()
    in_domain: bool = False
    model: Literal["auto", "mlp", "cnn", "vit", "vgg19"] = "auto"
    widths: tuple[int, ...] = ()
    pool: int = 0
    augment: bool = False
    sparsities: tuple[float, ...] = (0.5, 0.9, 0.95, 0.99)
    sizes: tuple[int, ...] = ()
    weights: tuple[str, ...] = WEIGHTS
    search_steps: int = 0
    training_steps: int = 0
    steps: int = 0
    batch_size: int = 0
    rate: float = 3e-3
    hard: float = 100.0
    soft: float = 10.0
    strength: float = 0.0
    scores_std: float = 0.03
    scores_rate: float = 1.1
    weights_rate: float = 0.1
    fraction: float = 0.2
    samples: int = 8

    def complete(self) -> Self:
        """The same with what suits the data set where nothing is said; classes and sizes come later."""
        suits: dict[str, Any] = SUITS_ALL | {"new_dataset": self.dataset} | SUITS.get(self.dataset, {})
        if self.in_domain:
            suits["new_dataset"] = self.dataset
        chosen = {name: value for name, value in suits.items() if getattr(self, name) in ((), "", 0, "auto")}
        settings = dataclasses.replace(self, **chosen)
        return dataclasses.replace(settings, widths=settings.widths or WIDTHS.get(settings.model, ()))

    def with_classes(self, first: list[int], second: list[int]) -> Self:
        """The same with classes and sizes, where none are named.

        Of one data set each task has half of the classes; of two, the new one has as many as the first.

        Args:
          first: the classes that there are in the first data set.
          second: those in the new one.
        """
        if self.in_domain:
            classes = self.classes or tuple(first)
            if self.new_classes not in ((), classes):
                raise ArgumentError(_IN_DOMAIN)
            new = classes
        else:
            same = self.dataset == self.new_dataset
            classes = self.classes or tuple(first[: len(first) // 2] if same else first)
            others = [label for label in second if not (same and label in classes)]
            new = self.new_classes or tuple(others[: len(classes)])
            both = sorted(set(classes) & set(new)) if same else []
            if both:
                raise ArgumentError(
                    f"new_classes: the tasks must not overlap; both have {both}; for the same task on other "
                    "examples set in_domain=true"
                )
        for name, chosen in (("classes", classes), ("new_classes", new)):
            if len(chosen) < 2:
                raise ArgumentError(f"{name}: a task needs at least two classes, got {chosen}")
        sizes = self.sizes or tuple(len(new) * count for count in PER_CLASS.get(self.dataset, (10, 20)))
        for size in sizes:
            if size % len(new):
                raise ArgumentError(f"sizes: expected multiples of {len(new)}, the new classes; got {size}")
        return dataclasses.replace(self, classes=classes, new_classes=new, sizes=sizes)

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        self.check_each(check_count, "search_steps", "training_steps", "steps", "samples", "pool")
        check_room(
            self.seeds, max(self.steps, self.search_steps, self.training_steps) + max(self.sizes, default=0)
        )
        for name in ("sizes", "classes", "new_classes"):
            check_distinct(name, getattr(self, name))
        self.check_numbers(_check_share, "sparsities")
        self.check_each(_check_share, "fraction")
        self.check_each(check_count, "sizes", "widths")
        check_known("weights", self.weights, WEIGHTS)
        check_known("model", (self.model,), MODELS)
        check_temperatures(self.hard, self.soft)
        self.check_each(check_positive, "rate", "scores_rate", "weights_rate")
        self.check_each(check_strength, "strength", "scores_std")
        if self.model not in WIDTHS and self.widths:
            raise ArgumentError(f"widths: they are of an mlp or a cnn; the {self.model} has its own")
        if self.in_domain and self.new_dataset != self.dataset:
            raise ArgumentError(_IN_DOMAIN)

    @property
    def densities(self) -> tuple[float, ...]:
        """1 - sparsity, without the rounding that this would bring."""
        return tuple(round(1 - sparsity, 12) for sparsity in self.sparsities)

    def keys(self, purpose: Literal["search", "rows", "reshuffle", "new task"]) -> Array:
        """One key a seed, others for each purpose: fresh weights are not those that a search began from."""
        return self.seed_keys(STREAMS[purpose])


def _check_share(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise ArgumentError(f"{name}: expected numbers between 0 and 1, got {value}")


_IN_DOMAIN = "in_domain: the new task is the first one; leave new_dataset and new_classes out"
