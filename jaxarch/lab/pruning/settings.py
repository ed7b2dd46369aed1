"""Settings of experiments that search for architectures and retrain them, and defaults per data set."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, Self

from jax import Array

from jaxarch import ArgumentError
from jaxarch.lab.checks import check_count, check_distinct, check_known, check_positive, check_strength
from jaxarch.lab.harness import PartSettings, TrainingSettings, check_room
from jaxarch.lab.pruning.parents import check_parent
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
"""Defaults per data set, used where the user sets nothing; `SUITS_ALL` covers data sets without an entry."""

STREAMS = {"search": 1, "rows": 2, "reshuffle": 3, "new task": 4}


@dataclasses.dataclass(frozen=True)
class ArchitectureSettings(TrainingSettings):
    """Settings shared by all experiments that search for architectures of pictures, and retrain them.

    Values that are empty, 0 or `auto` become the data set's defaults.

    Attributes:
      dataset: the pictures to search on: a name of `jaxarch data`, or an npz file with x and y.
      widths: hidden neurons, or channels, of each layer of an mlp or a cnn.
      width_factor: factor of the channels of a ResNet or a VGG.
      pool: side of the windows whose means become the pixels; 1 leaves pictures as they are.
      augment: whether pictures are cropped and flipped at random in training.
      search_steps: gradient steps of each search.
      steps: gradient steps of each training of a found architecture.
      batch_size: examples a step.
      rate: learning rate of Adam, which trains the weights.
      hard: the inverse temperature of a searched mask in the loss.
      soft: the inverse temperature of the mask that its gradient passes through, at most `hard`.
      strength: architecture pruning's penalty for each connection.
      scores_std: standard deviation of architecture pruning's initial scores.
      scores_rate: learning rate of architecture pruning's scores, by plain gradient descent.
      weights_rate: learning rate of architecture pruning's weights, by plain gradient descent.
    """

    dataset: str = "digits"
    widths: tuple[int, ...] = ()
    width_factor: float = 1.0
    pool: int = 0
    augment: bool = False
    search_steps: int = 0
    steps: int = 0
    batch_size: int = 0
    rate: float = 3e-3
    hard: float = 100.0
    soft: float = 10.0
    strength: float = 0.0
    scores_std: float = 0.03
    scores_rate: float = 1.1
    weights_rate: float = 0.1

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        self.check_each(check_count, "search_steps", "steps", "pool")
        self.check_each(check_count, "widths")
        check_temperatures(self.hard, self.soft)
        self.check_each(check_positive, "width_factor", "rate", "scores_rate", "weights_rate")
        self.check_each(check_strength, "strength", "scores_std")


@dataclasses.dataclass(frozen=True)
class TransferSettings(PartSettings, ArchitectureSettings):
    """Settings shared by all transfers of architectures.

    Architectures are searched for on one task and trained with fresh weights on another, with few examples.

    Attributes:
      classes: classes of the search task; if empty, half of them, or all of them in domain or with another
        new data set.
      new_dataset: the pictures of the new task; if empty, the data set's default, mostly the same data set.
      new_classes: classes of the new task; if empty, as many others as `classes` has, or the same in domain.
      in_domain: whether the new task is the first one, with examples that the search has not seen.
      model: the parent of all architectures.
      sparsities: shares of the connections that are removed.
      sizes: numbers of training examples in the new task, multiples of its class count; one training each.
      weights: how fresh weights are drawn: `he`, or `density-aware`, wider where connections are fewer.
      search_steps: gradient steps of architecture pruning.
      training_steps: gradient steps of each training on the first task.
      steps: gradient steps of each training on the new task.
      rate: learning rate of Adam, which trains the weights on either task.
      fraction: the largest share of the remaining connections that a round of magnitude pruning removes.
      samples: networks that random search draws.
    """

    classes: tuple[int, ...] = ()
    new_dataset: str = ""
    new_classes: tuple[int, ...] = ()
    in_domain: bool = False
    model: Literal["auto", "mlp", "cnn", "vit", "vgg19"] = "auto"
    sparsities: tuple[float, ...] = (0.5, 0.9, 0.95, 0.99)
    sizes: tuple[int, ...] = ()
    weights: tuple[str, ...] = WEIGHTS
    training_steps: int = 0
    fraction: float = 0.2
    samples: int = 8

    def complete(self) -> Self:
        """Fill in the data set's defaults; classes and sizes are filled in later."""
        suits: dict[str, Any] = SUITS_ALL | {"new_dataset": self.dataset} | SUITS.get(self.dataset, {})
        if self.in_domain:
            suits["new_dataset"] = self.dataset
        settings = self.suited(suits)
        return dataclasses.replace(settings, widths=settings.widths or WIDTHS.get(settings.model, ()))

    def with_classes(self, first: list[int], second: list[int]) -> Self:
        """Fill in classes and sizes, where none are named.

        Within one data set each task gets half of the classes. With two, the new task gets as many classes as
        the first.

        Args:
          first: the classes in the first data set.
          second: the classes in the new data set.
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
                raise ArgumentError(f"{name}: expected at least two classes, got {chosen}")
        sizes = self.sizes or tuple(len(new) * count for count in PER_CLASS.get(self.dataset, (10, 20)))
        for size in sizes:
            if size % len(new):
                raise ArgumentError(
                    f"sizes: expected multiples of {len(new)}, the number of new classes, got {size}"
                )
        return dataclasses.replace(self, classes=classes, new_classes=new, sizes=sizes)

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        self.check_each(check_count, "training_steps", "samples")
        check_room(
            self.seeds, max(self.steps, self.search_steps, self.training_steps) + max(self.sizes, default=0)
        )
        for name in ("sizes", "classes", "new_classes"):
            check_distinct(name, getattr(self, name))
        self.check_numbers(check_share, "sparsities")
        self.check_each(check_share, "fraction")
        self.check_each(check_count, "sizes")
        check_known("weights", self.weights, WEIGHTS)
        check_known("model", (self.model,), MODELS)
        check_parent(self.model, self.widths, self.width_factor)
        if self.in_domain and self.new_dataset != self.dataset:
            raise ArgumentError(_IN_DOMAIN)

    @property
    def densities(self) -> tuple[float, ...]:
        """Return the densities 1 - sparsity, without floating-point rounding errors."""
        return tuple(round(1 - sparsity, 12) for sparsity in self.sparsities)

    def keys(self, purpose: Literal["search", "rows", "reshuffle", "new task"]) -> Array:
        """Return one key a seed, different for each purpose: fresh weights differ from the search's start."""
        return self.seed_keys(STREAMS[purpose])


def check_share(name: str, value: float) -> None:
    """Raise unless the value is a share strictly between 0 and 1."""
    if not 0 < value < 1:
        raise ArgumentError(f"{name}: expected numbers between 0 and 1, got {value}")


_IN_DOMAIN = "in_domain: the new task is the first task; leave out new_dataset and new_classes"
