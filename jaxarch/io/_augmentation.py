"""Random augmentation of training images, on the device."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch._internal.errors import ArgumentError, check_count, shown


def crop_and_flip(pad: int = 4, flip: bool = True) -> Callable[[Array, Array], Array]:
    """Return an augmentation that shifts images by up to `pad` pixels, and mirrors half of them at random.

    This is the usual augmentation of CIFAR-10 (He et al., Deep residual learning, 2016, section 4.2). Zeros
    are added on all sides, and a crop of the image's size is drawn uniformly. Left and right are swapped with
    probability 1/2. Each image is drawn independently.

    Args:
      pad: pixels of zeros on each side, at least 0.
      flip: whether to mirror images.

    Returns:
      `(key, x) -> x`, for `supervised(augment=...)`: x has shape (batch, height, width, channels) and any
      dtype; both are kept.

    Raises:
      ArgumentError: a `pad` that is not an integer of at least 0, or a `flip` that is not a boolean. When the
        result is called: an `x` of another rank.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch
      >>> x = jnp.zeros((100, 3, 3, 1)).at[:, 1, 1].set(1)  # a dot in the middle of each picture
      >>> moved = jaxarch.io.crop_and_flip(pad=1)(jax.random.key(0), x)
      >>> print(moved.sum())  # none is lost
      100.0
      >>> print(moved.max(axis=0)[..., 0])  # each of the nine places has it in some picture
      [[1. 1. 1.]
       [1. 1. 1.]
       [1. 1. 1.]]
    """
    check_count("pad", pad, least=0)
    if not isinstance(flip, bool):
        raise ArgumentError(f"flip: expected True or False, got {shown(flip)}")
    return _CropAndFlip(int(pad), flip)


@dataclasses.dataclass(frozen=True)
class _CropAndFlip:
    pad: int
    flip: bool

    def __call__(self, key: Array, x: Array) -> Array:
        if getattr(x, "ndim", None) != 4:
            found = f"shape {x.shape}" if hasattr(x, "shape") else shown(x)
            raise ArgumentError(
                f"x: expected pictures of shape (batch, height, width, channels), got {found}"
            )
        batch, height, width, _ = x.shape
        crop_key, flip_key = jax.random.split(key)
        corners = jax.random.randint(crop_key, (batch, 2, 1), 0, 2 * self.pad + 1)
        rows = corners[:, 0] + jnp.arange(height)[None]
        columns = corners[:, 1] + jnp.arange(width)[None]
        if self.flip:
            mirrored = jax.random.bernoulli(flip_key, shape=(batch, 1))
            columns = jnp.where(mirrored, columns[:, ::-1], columns)
        sides = (self.pad, self.pad)
        padded = jnp.pad(x, ((0, 0), sides, sides, (0, 0)))
        # Take rows, then columns: on CPU this is twice as fast as both at once, and 20 times as fast as one
        # slice per image.
        taken = jnp.take_along_axis(padded, rows[:, :, None, None], axis=1, mode="promise_in_bounds")
        return jnp.take_along_axis(taken, columns[:, None, :, None], axis=2, mode="promise_in_bounds")
