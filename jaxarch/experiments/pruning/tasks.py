"""The two tasks of a transfer: one with many examples to search on, and a new one with few."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeVar

import jax
import numpy as np
import optax
from jax import Array

from jaxarch import models
from jaxarch.data.augmentation import crop_and_flip
from jaxarch.data.balanced_rows import balanced_rows
from jaxarch.data.images import Images, take_images
from jaxarch.data.sources import load_images
from jaxarch.data.transforms import crop_and_pool
from jaxarch.errors import (
    ArgumentError,
    check_count,
    check_distinct,
    check_key,
    check_known,
    check_positive,
    check_strength,
)
from jaxarch.experiments.experiment import seed_keys
from jaxarch.finish import check_fraction
from jaxarch.masks import check_temperatures
from jaxarch.models.supervised import supervised
from jaxarch.problem import Problem

WEIGHTS = ("he", "density-aware")
WIDTHS = {"mlp": (200, 100), "cnn": (16, 32, 64)}
SUITS_ALL = {
    "model": "mlp",
    "pool": 1,
    "sizes": (50, 100),
    "batch_size": 50,
    "search_steps": 2500,
    "training_steps": 600,
    "strength": 1e-4,
}
SUITS: dict[str, dict[str, Any]] = {
    "digits": {"search_steps": 1500, "training_steps": 300, "strength": 3e-4},
    "mnist": {"pool": 2, "sizes": (50, 100, 500)},
    "cifar10": {
        "new_dataset": "cifar100",
        "model": "cnn",
        "sizes": (500, 5000),
        "batch_size": 32,
        "search_steps": 4000,
        "strength": 2e-5,
    },
}
"""What suits a data set where the user says nothing; and what suits those that have no entry."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What all transfers of architectures have in common.

    Architectures are searched for on the `classes` of `dataset`, and trained with fresh `weights` on so many
    examples (`sizes`) of the `new_classes` of `new_dataset`. With `in_domain` these are the same classes, and
    examples that the search has not seen. What is empty, 0 or `auto` is what suits the data set.

    `widths` are of the hidden layers of an MLP or the channels of a CNN; `pool` is the side of the windows
    whose means are the pixels; `augment` crops and flips. Architecture pruning takes `search_steps`, every
    other training on the first task `training_steps`, every one on the new task `steps`.
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
    seeds: int = 5
    search_steps: int = 0
    training_steps: int = 0
    steps: int = 300
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
    key: int = 0
    resume: str = ""

    def complete(self: S) -> S:
        """The same with what suits the data set where nothing is said, checked."""
        suits: dict[str, Any] = SUITS_ALL | {"new_dataset": self.dataset} | SUITS.get(self.dataset, {})
        if self.in_domain:
            suits["new_dataset"] = self.dataset
        chosen = {name: value for name, value in suits.items() if getattr(self, name) in ((), "", 0, "auto")}
        settings = dataclasses.replace(self, **chosen)
        if not settings.widths:
            settings = dataclasses.replace(settings, widths=WIDTHS.get(settings.model, ()))
        settings.check()
        return settings

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        for name in ("seeds", "search_steps", "training_steps", "steps", "batch_size", "samples", "pool"):
            check_count(name, getattr(self, name))
        for name in ("sparsities", "sizes", "classes", "new_classes"):
            check_distinct(name, getattr(self, name))
        for name in ("sparsities", "sizes"):
            check_count(name, len(getattr(self, name)))
        for size in (*self.sizes, *self.widths):
            check_count("sizes" if size in self.sizes else "widths", size)
        for sparsity in self.sparsities:
            check_fraction("sparsities", sparsity)
        check_known("weights", self.weights, WEIGHTS)
        check_temperatures(self.hard, self.soft)
        for name in ("rate", "scores_rate", "weights_rate"):
            check_positive(name, getattr(self, name))
        for name in ("strength", "scores_std"):
            check_strength(name, getattr(self, name))
        check_fraction("fraction", self.fraction)
        check_key("key", self.key)
        if self.model not in WIDTHS and self.widths:
            raise ArgumentError(f"widths: they are of an mlp or a cnn; the {self.model} has its own")
        if self.in_domain and self.new_dataset != self.dataset:
            raise ArgumentError(
                "in_domain: the new task is the first one; leave new_dataset and new_classes out"
            )

    @property
    def densities(self) -> tuple[float, ...]:
        """1 - sparsity, without the rounding that this would bring."""
        return tuple(round(1 - sparsity, 12) for sparsity in self.sparsities)

    def keys(self) -> Array:
        """One key a seed."""
        return seed_keys(self.key, self.seeds)


S = TypeVar("S", bound=Settings)


class Transfer(NamedTuple):
    """The two tasks, ready.

    Attributes:
      settings: complete.
      old: pictures of the task that is searched on, labelled 0, 1, ...
      new: those of the new task.
      searching: the problem that architectures are searched on.
      validation: rows of it that are left out where a search is judged by others than it trains on.
      learning: the new problem; `train` has shape (seeds, largest size), balanced up to each size.
      test: rows of the new pictures to test on, shape (seeds, n).
    """

    settings: Any
    old: Images
    new: Images
    searching: Problem
    validation: np.ndarray
    learning: Problem
    test: np.ndarray

    @property
    def task(self) -> str:
        """The new task in words."""
        settings = self.settings
        classes = ",".join(map(str, settings.new_classes))
        return (
            f"{settings.dataset} {','.join(map(str, settings.classes))} -> {settings.new_dataset} {classes}"
        )


def prepare(settings: S) -> Transfer:
    """Load the data, draw the rows of all seeds, and build both problems.

    Raises:
      ArgumentError: settings that cannot be used; classes that overlap, that the data lack or that have fewer
        examples than asked for.
    """
    settings = settings.complete()
    first = load_images(settings.dataset)
    second = first if settings.new_dataset == settings.dataset else load_images(settings.new_dataset)
    settings = _with_classes(settings, first, second)
    old = _pooled(first.of_classes(settings.classes), settings.pool)
    new = _pooled(second.of_classes(settings.new_classes), settings.pool)
    draws = jax.random.fold_in(jax.random.key(settings.key), 2)
    split_key, validation_key, *seeds = jax.random.split(draws, settings.seeds + 2)
    searched, pool, test = _rows(split_key, settings, old, new)
    tenth = len(searched) // (10 * len(settings.classes)) or 1
    validation = balanced_rows(validation_key, old.y, searched, per_class=tenth)
    train = np.stack([balanced_rows(key, new.y, pool, size=max(settings.sizes)) for key in seeds])
    if test is None:
        tested = np.stack([np.setdiff1d(pool, rows) for rows in train])
    else:
        tested = np.tile(test, (settings.seeds, 1))
    if not tested.size:
        raise ArgumentError(f"sizes: {max(settings.sizes)} leave none of {len(pool)} examples to test on")
    moments = old.moments()

    def problem(images: Images, rows: np.ndarray, steps: int) -> Problem:
        return supervised(
            _model(settings, images),
            (images.x, images.y),
            loss=optax.softmax_cross_entropy_with_integer_labels,
            optimizer=optax.adam(settings.rate),
            steps=steps,
            batch_size=settings.batch_size,
            train=rows,
            gather=take_images(*moments),
            augment=crop_and_flip() if settings.augment else None,
        )

    return Transfer(
        settings,
        old,
        new,
        problem(old, searched, settings.training_steps),
        validation,
        problem(new, train, settings.steps),
        tested.astype(np.int32),
    )


def _with_classes(settings: S, first: Images, second: Images) -> S:
    """The same with all classes, or half of them for each task of one data set, where none are named."""
    labels = np.unique(first.y).tolist()
    if settings.in_domain:
        classes = settings.classes or tuple(labels)
        if settings.new_classes not in ((), classes):
            raise ArgumentError(
                "in_domain: the new task is the first one; leave new_dataset and new_classes out"
            )
        return dataclasses.replace(settings, classes=classes, new_classes=classes)
    same = first is second
    classes = settings.classes or tuple(labels[: len(labels) // 2] if same else labels)
    others = [label for label in np.unique(second.y).tolist() if not (same and label in classes)]
    new = settings.new_classes or tuple(others[: len(classes)])
    both = sorted(set(classes) & set(new)) if same else []
    if both:
        raise ArgumentError(
            f"new_classes: the tasks must not overlap; both have {both}; for the same task on other examples "
            "set in_domain=true"
        )
    return dataclasses.replace(settings, classes=classes, new_classes=new)


def _rows(
    key: Array, settings: Settings, old: Images, new: Images
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Rows to search on, rows to draw new examples from, and rows to test on; `None`: on what is left.

    The search has the examples for training; of the new task, these are for training and the others for
    testing. Without a published split, or in the same domain, it is tested on what is not trained on.
    """
    published = old.train < len(old.y)
    if settings.in_domain:
        if published:
            return np.arange(old.train), np.arange(old.train, len(old.y)), None
        half = int(np.bincount(old.y).min()) // 2
        searched = np.sort(balanced_rows(key, old.y, np.arange(len(old.y)), per_class=half))
        return searched, np.setdiff1d(np.arange(len(old.y)), searched), None
    rest = np.arange(new.train, len(new.y))
    return np.arange(old.train), np.arange(new.train), rest if rest.size else None


def _pooled(images: Images, window: int) -> Images:
    """Pictures whose pixels are the means over windows, rounded."""
    if window == 1:
        return images
    height, width = (side // window for side in images.x.shape[1:3])
    channels = [crop_and_pool(channel, 0, window) for channel in np.moveaxis(images.x, -1, 0)]
    pixels = np.stack(channels, axis=-1).reshape(len(images.y), height, width, -1)
    return images._replace(x=np.rint(pixels).astype(np.uint8))


def _model(settings: Settings, images: Images) -> Callable[[Any], Any]:
    """The parent of all architectures, a function of Flax's rngs."""
    _, height, width, channels = images.x.shape
    outputs = len(np.unique(images.y))
    match settings.model:
        case "mlp":
            widths = (height * width * channels, *settings.widths, outputs)
            return lambda rngs: models.MLP(widths, rngs=rngs)
        case "cnn":
            return lambda rngs: models.CNN(settings.widths, inputs=channels, outputs=outputs, rngs=rngs)
        case "vgg19":
            return lambda rngs: models.VGG19(inputs=channels, outputs=outputs, rngs=rngs)
        case _:
            size = (height, width)
            return lambda rngs: models.VisionTransformer(
                size=size, inputs=channels, outputs=outputs, rngs=rngs
            )
