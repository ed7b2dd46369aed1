"""Labelled pictures, also from the user's own arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxarch import ArgumentError
from jaxarch.lab.checks import check_count
from jaxarch.lab.data.dataset import array_of, check_classes, checked_labels


class Images(NamedTuple):
    """Labelled pictures.

    Attributes:
      name: shown in results.
      x: pixels, uint8, shape (examples, height, width, channels).
      y: class labels, int32, shape (examples,).
      train: number of pictures for training, which come first; the rest is for testing. All of them if no
        split is published.
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    train: int

    def of_classes(self, classes: Sequence[int]) -> Images:
        """Return the pictures of some classes, in their order here, labelled 0, 1, ... as in `classes`.

        Raises:
          ArgumentError: no class, a class that is named twice or that no picture has.
        """
        check_classes("classes", classes, self.y, self.name)
        kept = np.isin(self.y, classes)
        old = self.y[kept]
        new = np.zeros_like(old)
        for position, label in enumerate(classes):
            new[old == label] = position
        return Images(self.name, self.x[kept], new, int(kept[: self.train].sum()))

    def moments(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return mean and standard deviation of pixels / 255 for each channel, over the training pictures."""
        pixels = self.x[: self.train]
        # Averaging over examples first is ten times as fast. The square of a uint8 fits a uint16.
        mean = pixels.mean(axis=0, dtype=np.float64).mean(axis=(0, 1))
        square = np.square(pixels, dtype=np.uint16).mean(axis=0, dtype=np.float64).mean(axis=(0, 1))
        std = np.sqrt(np.maximum(square - mean**2, 0))
        return tuple((mean / 255).tolist()), tuple((std / 255).tolist())


def images_from_arrays(x: object, y: object, name: str = "arrays", train: int | None = None) -> Images:
    """Make labelled pictures from the user's arrays.

    Args:
      x: pixels, uint8, shape (examples, height, width, channels), or (examples, height, width).
      y: integer labels, shape (examples,).
      name: shown in results.
      train: number of pictures for training, which come first; by default all.

    Raises:
      ArgumentError: wrong rank or dtype, lengths that differ, fewer than two classes.

    Example:
      >>> import jaxarch, numpy as np
      >>> pictures = jaxarch.lab.data.images_from_arrays(np.zeros((4, 8, 8), np.uint8), [0, 1, 0, 1], train=3)
      >>> pictures.x.shape, pictures.train
      ((4, 8, 8, 1), 3)
    """
    pixels = array_of("x", x)
    if pixels.dtype != np.uint8 or pixels.ndim not in (3, 4) or 0 in pixels.shape[1:]:
        raise ArgumentError(
            "x: expected uint8 pixels of shape (examples, height, width) or (examples, height, width, "
            f"channels), got {pixels.dtype} of shape {pixels.shape}"
        )
    if pixels.ndim == 3:
        pixels = pixels[..., None]
    labels = checked_labels(y, len(pixels))
    train = len(pixels) if train is None else train
    check_count("train", train)
    if train > len(pixels):
        raise ArgumentError(f"train: expected at most {len(pixels)}, the number of pictures, got {train}")
    return Images(name, pixels, labels, train)
