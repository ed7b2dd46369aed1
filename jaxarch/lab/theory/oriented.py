"""Edges, bars and colours of pictures: fixed features, which no data chose."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from jaxarch import ArgumentError

WIDTH = 1.5
"""Standard deviation of the Gaussian in each filter, in pixels."""
RADIUS = 4
"""Pixels on each side of a filter's middle."""
DIRECTIONS = 8
"""Directions of the edges."""
LINES = 4
"""Directions of the bars, each bright or dark."""
AT_ONCE = 1000
"""Pictures that are filtered at a time."""


def oriented(pictures: np.ndarray, window: int = 4) -> np.ndarray:
    r"""Measure edges and bars in fixed directions, and take the largest of each window.

    With `g = exp(-(x^2 + y^2) / (2 s^2))`, `s = 1.5` pixels and `u = x cos a + y sin a`, the filters are

        u g                        edges, a = 0, 45, ..., 315 degrees
        +(u^2 / s^2 - 1) g         bars, dark on bright, a = 0, 45, 90, 135 degrees
        -(u^2 / s^2 - 1) g         bars, bright on dark

    each divided by half the sum of its absolute values; a bar's mean is taken out. Negative values become 0.
    These are the derivatives of a Gaussian (Freeman and Adelson, *The design and use of steerable filters*,
    1991). They filter the mean of the colours. Beyond its border a picture goes on as at the border.

    Pictures in red, green and blue have six more features, means over a window of values in [0, 1]: half of
    the brightness b, half of 1 - b, and half of the positive and negative parts of red - green and of
    blue - (red + green)/2.

    Args:
      pictures: pixels from 0 to 255, shape (examples, height, width, colours).
      window: side of the windows, in pixels; rows and columns beyond the last whole window are dropped.

    Returns:
      float32 of shape (examples, height // window, width // window, 16, or 22 with colours), in [0, 1].

    Raises:
      ArgumentError: pictures smaller than a window.

    Example:
      >>> import numpy as np
      >>> from jaxarch.lab.theory.oriented import oriented
      >>> picture = np.zeros((1, 8, 8, 1), np.uint8)
      >>> picture[:, :, 4:] = 255  # bright on the right: an edge across the columns
      >>> int(oriented(picture)[0, 0, 0].argmax())
      0
    """
    height, width = (side // window for side in pictures.shape[1:3])
    if min(height, width) < 1:
        raise ArgumentError(
            f"pool: expected at most {min(pictures.shape[1:3])}, the pictures' side, got {window}"
        )
    filters = jnp.asarray(_filters())

    def windows(values: jax.Array) -> jax.Array:
        cut = values[:, : height * window, : width * window]
        return cut.reshape(len(cut), height, window, width, window, -1)

    @jax.jit
    def measured(pixels: jax.Array) -> jax.Array:
        colours = pixels.astype(jnp.float32) / 255
        grey = colours.mean(axis=-1)
        # A frame of zeros would be an edge around each picture that is not black at its border.
        framed = jnp.pad(grey, [(0, 0), (RADIUS, RADIUS), (RADIUS, RADIUS)], mode="edge")[..., None]
        found = jax.lax.conv_general_dilated(
            framed, filters, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        largest = windows(jax.nn.relu(found)).max(axis=(2, 4))
        if colours.shape[-1] != 3:
            return largest
        red, green, blue = jnp.moveaxis(windows(colours).mean(axis=(2, 4)), -1, 0)
        bright = (red + green + blue) / 3
        against = jnp.stack([red - green, blue - (red + green) / 2], axis=-1)
        light = jnp.stack([bright, 1 - bright], axis=-1)
        return jnp.concatenate([largest, *(0.5 * jax.nn.relu(of) for of in (light, against, -against))], -1)

    starts = range(0, len(pictures), AT_ONCE)
    return np.concatenate([np.asarray(measured(pictures[at : at + AT_ONCE])) for at in starts])


def _filters() -> np.ndarray:
    """Build the filters, shape (height, width, 1, filters)."""
    across = np.arange(-RADIUS, RADIUS + 1)
    y, x = np.meshgrid(across, across, indexing="ij")
    bump = np.exp(-(x**2 + y**2) / (2 * WIDTH**2))
    made = []
    for angle in 2 * math.pi * np.arange(DIRECTIONS) / DIRECTIONS:
        made.append((math.cos(angle) * x + math.sin(angle) * y) * bump)
    for angle in math.pi * np.arange(LINES) / LINES:
        along = math.cos(angle) * x + math.sin(angle) * y
        bar = (along**2 / WIDTH**2 - 1) * bump
        bar -= bump * bar.sum() / bump.sum()
        made += [bar, -bar]
    scaled = [2 * filter_ / np.abs(filter_).sum() for filter_ in made]
    return np.stack(scaled, axis=-1)[:, :, None].astype(np.float32)
