"""Energies of filters and of filtered energies, and cells of colours: fixed features, which no data chose."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch import ArgumentError

WINDOW = 4
"""Side of the windows over which every map is averaged, in pixels."""
WAVES = 4
"""Frequencies of the cosines across a map, and largest sum of the two; a mean has frequency 0."""
SMALLEST = WINDOW * WAVES
"""Smallest side of a picture."""
FINE, COARSE, COARSEST = 0.9, 1.8, 3.6
"""Standard deviations of the Gaussian in the filters, in pixels of the map that they filter."""
DIRECTIONS, AGAIN = 8, 4
"""Directions of the filters of pictures, and of those that filter energies again."""
LEVELS = 5
"""Levels of brightness of the cells of colours; each has three of red against green, three of blue."""
REFERENCE = 1000
"""Number of made-up pictures by which features are centred and scaled."""
ELLIPSES = 60
"""Ellipses in each of these."""
LIMIT = 4.0
"""Largest absolute value of a feature, in standard deviations."""
AT_ONCE = 500
"""Pictures that are filtered at a time."""


def scattered(pictures: np.ndarray) -> tuple[np.ndarray, dict[str, int]]:
    r"""Measure energies in directions and scales, energies of these energies, and colours.

    Filters are pairs of waves under a Gaussian, `g cos(1.8 u/s)` and `g sin(1.8 u/s)`, with s = .9, 1.8 and
    3.6 pixels and u along one of 8 directions. The energy is the root of the sum of both squares. Energies of
    brightness are filtered again, in 4 directions, as in the scattering of J. Bruna and S. Mallat, 2013,
    arXiv:1203.1513. Each picture's energies of brightness are divided by their mean. Cells of colours tell
    which share of a window has one of 5 levels of brightness, 3 of red - green and 3 of
    blue - (red + green)/2. Grey pictures have none of the features of colours.

    Every map is averaged over windows of 4 x 4 pixels. Its features are the mean and the products of cosines
    of up to 3 half periods down and across. They are centred and scaled by their means and standard
    deviations over made-up pictures of random ellipses, not over data.

    Args:
      pictures: pixels from 0 to 255, shape (examples, height, width, colours). Rows and columns beyond the
        last whole window are dropped.

    Returns:
      Features, float32 of shape (examples, features) in [-4, 4], and the number of features by kind, in
      their order.

    Raises:
      ArgumentError: pictures with a side below 16.

    Example:
      >>> import numpy as np
      >>> from jaxarch.lab.theory.scattering import scattered
      >>> features, kinds = scattered(np.zeros((2, 16, 16, 1), np.uint8))
      >>> features.shape, sum(kinds.values())
      ((2, 1160), 1160)
    """
    if min(pictures.shape[1:3]) < SMALLEST:
        raise ArgumentError(
            f"features: expected pictures of {SMALLEST} x {SMALLEST} pixels or more for scattered, got "
            f"{pictures.shape[1]} x {pictures.shape[2]}; take pixels or oriented"
        )
    height, width = (side - side % WINDOW for side in pictures.shape[1:3])
    pictures = pictures[:, :height, :width]
    of_reference, kinds = _measured(_ellipses(pictures.shape[1:]))
    centre, spread = of_reference.mean(axis=0), of_reference.std(axis=0) + 1e-3
    found, _ = _measured(pictures)
    found -= centre
    found /= spread
    return np.clip(found, -LIMIT, LIMIT, out=found), kinds


def _measured(pictures: np.ndarray) -> tuple[np.ndarray, dict[str, int]]:
    """Measure all pictures, a few at a time; also count the features of each kind."""
    made, kinds = [], {}
    for at in range(0, len(pictures), AT_ONCE):
        by_kind = _features(pictures[at : at + AT_ONCE])
        kinds = {kind: values.shape[1] for kind, values in by_kind.items()}
        made.append(np.concatenate([np.asarray(values) for values in by_kind.values()], axis=1))
    return np.concatenate(made), kinds


@jax.jit
def _features(pixels: Array) -> dict[str, Array]:
    """Measure pictures: an array (pictures, features) by kind."""
    colours = pixels.astype(jnp.float32) / 255
    grey = colours.mean(axis=-1, keepdims=True)
    fine, coarse, coarsest = (
        _energy(grey, scale, DIRECTIONS, step) for scale, step in ((FINE, 1), (COARSE, 2), (COARSEST, 4))
    )
    halved = _averaged(fine, 2)
    maps = {
        "fine": _relative(_averaged(fine, 4)),
        "coarse": _relative(_averaged(coarse, 2)),
        "coarsest": _relative(coarsest),
        "fine again": _relative(_averaged(_energy(halved, FINE, AGAIN, 1), 2)),
        "coarse again": _relative(_energy(halved, COARSE, AGAIN, 2)),
        "brightness": _averaged(grey, WINDOW),
    }
    if colours.shape[-1] == 3:
        maps |= _colours(colours, grey)
    found = {}
    for kind, values in maps.items():
        found[f"{kind}, mean"], found[f"{kind}, waves"] = _waves(values)
    size = [jnp.log(energy.mean(axis=(1, 2, 3)) + 0.01) for energy in (fine, coarse, coarsest)]
    return found | {"energy": jnp.stack(size, axis=1)}


def _colours(colours: Array, grey: Array) -> dict[str, Array]:
    """Return maps of colours, of their energies, and of cells of colours."""
    red, green, blue = jnp.moveaxis(colours, -1, 0)
    against = jnp.stack([red - green, blue - (red + green) / 2], axis=-1)
    levels = jnp.arange(LEVELS, dtype=jnp.float32).reshape(1, 1, 1, -1)
    bright = jax.nn.relu(1 - jnp.abs((LEVELS - 1) * grey - levels))
    first, second = (
        jnp.stack([jnp.clip(-8 * of, 0, 1), jnp.clip(1 - 8 * jnp.abs(of), 0, 1), jnp.clip(8 * of, 0, 1)], -1)
        for of in jnp.moveaxis(against, -1, 0)
    )
    cells = jnp.einsum("nhwa,nhwb,nhwc->nhwabc", bright, first, second)
    shares = _averaged(cells.reshape(*grey.shape[:3], -1), WINDOW)
    return {
        "colours": _averaged(against, WINDOW),
        "strength of colours": _averaged(jnp.abs(against), WINDOW),
        "edges of colours": jnp.sqrt(_averaged(_energy(against, COARSE, DIRECTIONS, 2), 2)),
        "cells of colours": jnp.sqrt(shares + 1e-4),
    }


def _energy(maps: Array, scale: float, directions: int, step: int) -> Array:
    """Return the energy of each map in each direction, at every `step`-th pixel; maps last."""
    count, height, width, channels = maps.shape
    filters = _pairs(scale, directions)
    beyond = len(filters) // 2
    alone = jnp.moveaxis(maps, -1, 1).reshape(count * channels, height, width, 1)
    # A frame of zeros would be an edge around each picture that is not black at its border.
    framed = jnp.pad(alone, [(0, 0), (beyond, beyond), (beyond, beyond), (0, 0)], mode="edge")
    found = jax.lax.conv_general_dilated(
        framed, jnp.asarray(filters), (step, step), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    height, width = found.shape[1:3]
    squares = jnp.square(found.reshape(count, channels, height, width, directions, 2)).sum(axis=-1)
    # The root has no finite slope at 0; an energy of 1e-4 is nothing.
    return jnp.moveaxis(jnp.sqrt(squares + 1e-8), 1, 3).reshape(count, height, width, channels * directions)


def _pairs(scale: float, directions: int) -> np.ndarray:
    """Build the filters, shape (height, width, 1, 2 directions)."""
    across = np.arange(-math.ceil(3 * scale), math.ceil(3 * scale) + 1)
    y, x = np.meshgrid(across, across, indexing="ij")
    made = []
    for angle in math.pi * np.arange(directions) / directions:
        along = x * math.cos(angle) + y * math.sin(angle)
        aside = y * math.cos(angle) - x * math.sin(angle)
        bump = np.exp(-(along**2 + (aside / 1.5) ** 2) / (2 * scale**2))
        even = bump * np.cos(1.8 * along / scale)
        even -= bump * even.sum() / bump.sum()
        made += [even, bump * np.sin(1.8 * along / scale)]
    scaled = [2 * filter_ / np.abs(filter_).sum() for filter_ in made]
    return np.stack(scaled, axis=-1)[:, :, None].astype(np.float32)


def _averaged(maps: Array, window: int) -> Array:
    count, height, width, channels = maps.shape
    return maps.reshape(count, height // window, window, width // window, window, channels).mean(axis=(2, 4))


def _relative(energies: Array) -> Array:
    """Divide each picture's energies by their mean, and take roots."""
    return jnp.sqrt(energies / (energies.mean(axis=(1, 2, 3), keepdims=True) + 0.01))


def _waves(maps: Array) -> tuple[Array, Array]:
    """Return the means of maps, and their products with slow cosines."""
    count, height, width, _ = maps.shape
    down, across = (
        np.cos(np.pi / side * np.outer(np.arange(side) + 0.5, np.arange(WAVES))) / side
        for side in (height, width)
    )
    found = jnp.einsum("nhwc,hi,wj->nijc", maps, down.astype(np.float32), across.astype(np.float32))
    slow = [(i, j) for i in range(WAVES) for j in range(WAVES) if 0 < i + j <= WAVES]
    return found[:, 0, 0], jnp.stack([found[:, i, j] for i, j in slow], axis=1).reshape(count, -1)


def _ellipses(shape: tuple[int, ...]) -> np.ndarray:
    """Make up pictures of ellipses in random places, sizes and colours, each in front of the one before."""
    height, width, colours = shape
    random = np.random.default_rng(0)
    y, x = (of[None].astype(np.float32) for of in np.mgrid[:height, :width])

    def drawn(low: float, high: float, size: int = 1) -> np.ndarray:
        return random.uniform(low, high, (REFERENCE, 1, size)).astype(np.float32)

    made: np.ndarray = np.zeros((REFERENCE, *shape), np.float32)
    for _ in range(ELLIPSES):
        # Areas are as frequent at each scale, as in photographs: many small ellipses, and a few large ones.
        radius = np.minimum(1.5 / np.sqrt(drawn(0.002, 1)), 30)
        flat, angle = drawn(0.3, 1), drawn(0, math.pi)
        left, up = x - drawn(-5, width + 5), y - drawn(-5, height + 5)
        along = left * np.cos(angle) + up * np.sin(angle)
        aside = up * np.cos(angle) - left * np.sin(angle)
        inside = (along / radius) ** 2 + (aside / (radius * flat)) ** 2 < 1
        tint = random.normal(0, 0.12, (REFERENCE, 1, colours)).astype(np.float32)
        made = np.where(inside[..., None], np.clip(drawn(0, 1) + tint, 0, 1)[:, None], made)
    made += random.normal(0, 0.02, made.shape).astype(np.float32)
    for axis in (1, 2):
        made = (np.roll(made, 1, axis) + 2 * made + np.roll(made, -1, axis)) / 4
    return (255 * np.clip(made, 0, 1)).astype(np.uint8)
