"""Checks of the sizes of parent models, and of the images that they get."""

from __future__ import annotations

from collections.abc import Sequence

from jax import Array

from jaxarch._internal.errors import ArgumentError, check_count


def check_counts(**sizes: int | Sequence[int]) -> None:
    """Raise unless all sizes are positive integers.

    Raises:
      ArgumentError: a size that is not; the message names the argument.
    """
    for name, given in sizes.items():
        for size in given if isinstance(given, Sequence) else [given]:
            check_count(name, size)


def check_pictures(x: Array, inputs: int, least: int = 1) -> None:
    """Raise unless `x` holds images with `inputs` channels, height and width at least `least`.

    Raises:
      ArgumentError: an array of another form; the message names x.
    """
    if x.ndim != 4 or x.shape[3] != inputs or min(x.shape[1:3]) < least:
        raise ArgumentError(
            f"x: expected images of shape (batch, height, width, {inputs}), with height and width at least "
            f"{least}, got shape {x.shape}"
        )
