"""Labelled pictures, and the user's own arrays as such."""

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
      train: the first so many are for training, the rest for testing; all, where no split is published.
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    train: int

    def of_classes(self, classes: Sequence[int]) -> Images:
        """The pictures of some classes, in their order here, labelled 0, 1, ... in the order of `classes`.

        Raises:
          ArgumentError: no class, one that is named twice or that no picture has.
        """
        check_classes("classes", classes, self.y, self.name)
        kept = np.isin(self.y, classes)
        old = self.y[kept]
        new = np.zeros_like(old)
        for position, label in enumerate(classes):
            new[old == label] = position
        return Images(self.name, self.x[kept], new, int(kept[: self.train].sum()))

    def moments(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation of each channel, of pixels / 255, over the pictures for training."""
        pixels = self.x[: self.train]
        # Over examples first, which is ten times as fast; the square of a uint8 is a uint16.
        mean = pixels.mean(axis=0, dtype=np.float64).mean(axis=(0, 1))
        square = np.square(pixels, dtype=np.uint16).mean(axis=0, dtype=np.float64).mean(axis=(0, 1))
        std = np.sqrt(np.maximum(square - mean**2, 0))
        return tuple((mean / 255).tolist()), tuple((std / 255).tolist())


def images_from_arrays(x: object, y: object, name: str = "arrays", train: int | None = None) -> Images:
    """The user's arrays as labelled pictures.

    Args:
      x: pixels, uint8, shape (examples, height, width, channels), or (examples, height, width).
      y: integer labels, shape (examples,).
      name: shown in results.
      train: the first so many are for training; by default all.

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
