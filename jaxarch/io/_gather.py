"""Functions `gather(data, per_run, rows)` that take a batch from the arrays of a problem, on the device."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch._internal.errors import ArgumentError, check_finite, check_positive, real_numbers, shown
from jaxarch._internal.trees import PyTree


def take_rows(data: PyTree, per_run: PyTree, rows: Array) -> PyTree:
    """Return the batch of some rows: every array of `data`, indexed along its leading axis.

    This is the default `gather` of a problem.

    Args:
      data: any pytree of arrays, or `None`.
      per_run: unused; part of the signature of a `gather`.
      rows: integers, shape (batch,).
    """
    return jax.tree.map(lambda array: array[rows], data)


def take_images(
    mean: Sequence[float], std: Sequence[float]
) -> Callable[[PyTree, PyTree, Array], tuple[Array, PyTree]]:
    """Return a `gather` for image problems: `(pixels / 255 - mean) / std` in float32, made on the device.

    The data, `(x, y)`, thus stay on the device as uint8, a quarter of their size in float32. y may be any
    pytree of arrays, or `None`.

    Args:
      mean: the mean of each channel, of pixels / 255; for instance from `lab.data.Images.moments`.
      std: the standard deviation of each channel, positive, likewise.

    Raises:
      ArgumentError: numbers that are not finite, deviations that are not positive. When the result is called:
        pixels that are not uint8, or another number of channels.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> x, y = jnp.array([0, 255, 51], jnp.uint8).reshape(3, 1, 1, 1), jnp.array([0, 1, 0])
      >>> gather = jaxarch.io.take_images(mean=[0.5], std=[0.25])
      >>> inputs, labels = gather((x, y), None, jnp.array([0, 1]))  # (0 - 0.5)/0.25, (1 - 0.5)/0.25
      >>> inputs.ravel().tolist(), labels.tolist()
      ([-2.0, 2.0], [0, 1])
    """
    shapes = real_numbers("mean", mean).shape, real_numbers("std", std).shape
    if len(shapes[0]) != 1 or shapes[0] != shapes[1]:
        raise ArgumentError(
            "mean: expected one number per channel, and as many in std, got shapes "
            f"{shapes[0]} and {shapes[1]}"
        )
    check_positive("std", std)
    check_finite("mean", mean)
    return _TakeImages(tuple(map(float, mean)), tuple(map(float, std)))


@dataclasses.dataclass(frozen=True)
class _TakeImages:
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, data: PyTree, per_run: PyTree, rows: Array) -> tuple[Array, PyTree]:
        x, y = data
        if getattr(x, "dtype", None) != np.uint8 or x.shape[-1] != len(self.mean):
            found = f"{x.dtype} of shape {x.shape}" if hasattr(x, "dtype") else shown(x)
            raise ArgumentError(
                f"data: expected uint8 pixels with {len(self.mean)} channels, like mean and std, got {found}"
            )
        shape = (1,) * (x.ndim - 1) + (-1,)
        mean, std = (np.asarray(numbers, np.float32).reshape(shape) for numbers in (self.mean, self.std))
        return (x[rows].astype(jnp.float32) / 255 - mean) / std, take_rows(y, None, rows)
