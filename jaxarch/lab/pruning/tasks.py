"""The two tasks of a transfer: one with many examples to search on, and a new one with few."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
import optax

from jaxarch import ArgumentError, Problem, models
from jaxarch.io import crop_and_flip, take_images
from jaxarch.lab.data import Dataset, Images, Text, balanced_rows, crop_and_pool, load_images
from jaxarch.lab.pruning.parents import parent_of
from jaxarch.lab.pruning.settings import TransferSettings


class Transfer(NamedTuple):
    """The two tasks of a transfer, ready to train on.

    Attributes:
      settings: settings with all defaults filled in.
      old: pictures of the search task, labeled 0, 1, ...
      new: pictures of the new task, labeled likewise.
      searching: the problem on which architectures are searched for.
      learning: the new problem; `train` has shape (seeds, largest size), balanced up to each size.
      test: rows of the new pictures to test on, shape (seeds, n).
    """

    settings: TransferSettings
    old: Images
    new: Images
    searching: Problem
    learning: Problem
    test: np.ndarray

    @property
    def task(self) -> str:
        """Describe in words the transfer from the old task to the new one."""
        settings = self.settings
        old = f"{settings.dataset} {_in_words(settings.classes)}"
        if settings.in_domain:
            return f"{old}, in domain"
        return f"{old} -> {settings.new_dataset} {_in_words(settings.new_classes)}"


def _in_words(classes: tuple[int, ...]) -> str:
    """Write consecutive classes as `0-4`, others as `0,2,5`."""
    first, last = classes[0], classes[-1]
    if len(classes) > 2 and classes == tuple(range(first, last + 1)):
        return f"{first}-{last}"
    return ",".join(map(str, classes))


def prepare(settings: TransferSettings) -> Transfer:
    """Load the data, draw the rows of all seeds, and build both problems, from settings with defaults.

    Raises:
      ArgumentError: classes that overlap, that the data lack, or that have fewer examples than asked for.
    """
    first = load_images(settings.dataset)
    second = first if settings.new_dataset == settings.dataset else load_images(settings.new_dataset)
    settings = settings.with_classes(*(np.unique(images.y).tolist() for images in (first, second)))
    old = pooled(first.of_classes(settings.classes), settings.pool)
    new = pooled(second.of_classes(settings.new_classes), settings.pool)
    searched, pool, test = _rows(settings, old, new)
    keys = settings.keys("rows")
    train = np.stack([balanced_rows(key, new.y, pool, size=max(settings.sizes)) for key in keys])
    if test is None:
        tested = np.stack([np.setdiff1d(pool, rows) for rows in train])
    else:
        tested = np.tile(test, (settings.seeds, 1))
    if not tested.size:
        raise ArgumentError(
            f"sizes: expected less than {len(pool)}, to leave examples to test on, got {max(settings.sizes)}"
        )
    moments = old.moments()
    searching = classification(settings, settings.model, old, searched, settings.training_steps, moments)
    learning = classification(settings, settings.model, new, train, settings.steps, moments)
    return Transfer(settings, old, new, searching, learning, tested.astype(np.int32))


class LearningSettings(Protocol):
    """Settings that determine how pictures are learned."""

    @property
    def widths(self) -> tuple[int, ...]:
        """Hidden neurons, or channels, of each layer."""

    @property
    def width_factor(self) -> float:
        """Factor of the channels, for a parent with fixed channel counts."""

    @property
    def batch_size(self) -> int:
        """Examples a step."""

    @property
    def rate(self) -> float:
        """Learning rate of Adam."""

    @property
    def augment(self) -> bool:
        """Tells whether pictures are augmented."""


Moments = tuple[Any, Any]
"""Means and standard deviations, of channels or features."""
Change = Callable[[Any, Any], Any]
"""Change applied to a parent after it is built: `(model, rngs) -> model`."""


def classification(
    settings: LearningSettings,
    model: str,
    data: Images | Dataset | Text,
    rows: np.ndarray,
    steps: int,
    moments: Moments | None,
    change: Change | None = None,
) -> Problem:
    """Build the problem of classifying pictures or features, or a text's next characters, with Adam.

    Args:
      settings: with widths, batch size, learning rate, and whether pictures are augmented.
      model: the name of the parent.
      data: the pictures, features or text to learn.
      rows: rows of the training examples.
      steps: steps of a training.
      moments: moments of the pixels, as returned by `Images.moments`; or of features, see `moments_of`. A
        text has none.
      change: a change of the parent, such as another head.
    """
    parent = parent_of(model, settings.widths, settings.width_factor, data)
    x = data.x
    options: dict[str, Any] = {}
    if moments is not None and isinstance(data, Images):
        options["gather"] = take_images(*moments)
    elif moments is not None:
        x = (x - moments[0]) / moments[1]
    return models.supervised(
        parent if change is None else lambda rngs: change(parent(rngs), rngs),
        (x, data.y),
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optax.adam(settings.rate),
        steps=steps,
        batch_size=settings.batch_size,
        train=rows,
        augment=crop_and_flip() if settings.augment else None,
        **options,
    )


def moments_of(features: np.ndarray) -> Moments:
    """Return the mean and standard deviation of each feature over examples, shapes (features,).

    Features that are all 0 or 1, such as words, stay as they are; so does the scale of a constant one.
    """
    if np.isin(features, (0, 1)).all():
        return np.float32(0), np.float32(1)
    # Sums of many float32 along the first axis lose digits.
    mean, std = (of(axis=0, dtype=np.float64).astype(np.float32) for of in (features.mean, features.std))
    return mean, np.where(std > 0, std, np.float32(1))


def _rows(
    settings: TransferSettings, old: Images, new: Images
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return rows to search on, rows to draw new examples from, and rows to test on.

    If the third is `None`, the test rows are those left over.

    The search uses the training examples. The new task draws from its training examples and is tested on the
    others. Without a published split, or in the same domain, it is tested on rows that are not trained on.
    """
    published = old.train < len(old.y)
    if settings.in_domain:
        if published:
            return np.arange(old.train), np.arange(old.train, len(old.y)), None
        half = int(np.bincount(old.y).min()) // 2
        key = jax.random.fold_in(settings.keys("rows")[0], 0)
        searched = np.sort(balanced_rows(key, old.y, np.arange(len(old.y)), per_class=half))
        return searched, np.setdiff1d(np.arange(len(old.y)), searched), None
    rest = np.arange(new.train, len(new.y))
    return np.arange(old.train), np.arange(new.train), rest if rest.size else None


def pooled(images: Images, window: int) -> Images:
    """Average pixels over windows, and round."""
    if window == 1:
        return images
    height, width = (side // window for side in images.x.shape[1:3])
    channels = [crop_and_pool(channel, 0, window) for channel in np.moveaxis(images.x, -1, 0)]
    pixels = np.stack(channels, axis=-1).reshape(len(images.y), height, width, -1)
    return images._replace(x=np.rint(pixels).astype(np.uint8))
