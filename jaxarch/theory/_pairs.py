"""Maxima, pooling and sorting as programs of pairs, so that bounds remember what two values share."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

LONGEST_SORT = 32
"""Entries of the longest sort that is taken apart, into 15 rounds; each round compiles as a layer does."""


def in_pairs(name: str, params: Mapping[str, Any], shape: Sequence[int]) -> Callable[..., Array] | None:
    """Return a function of arrays that computes a primitive by pairs of entries; `None` if there is none.

    Args:
      name: the name of the primitive.
      params: its parameters.
      shape: the shape of its first input.
    """
    extreme = name.removeprefix("reduce_").removeprefix("window_")
    if name == "sort":
        length = shape[params["dimension"]]
        is_short = params["num_keys"] == 1 and length <= LONGEST_SORT
        return (lambda x: _sorted(x, params["dimension"])) if is_short else None
    if extreme not in ("max", "min"):
        return None
    place = 0 if extreme == "min" else 1
    if name == extreme:
        return lambda a, b: _pair(a, b)[place]
    if name == f"reduce_{extreme}":
        axes = tuple(params["axes"])
        count = math.prod(shape[axis] for axis in axes)
        return lambda x: _extreme(_in_front(x, axes, count), place)
    places = _window_places(params, shape)
    if not all(each.size and (each >= 0).all() for each in places.values()):
        return None
    return lambda x: _extreme(_windows(x, places), place)


def _pair(a: Array, b: Array) -> tuple[Array, Array]:
    """Return the smaller and the larger of two arrays, `b - r` and `a + r`, r the positive part of `b - a`.

    So r is a function of one number. It is a choice: derivatives of maxima compare entries with results.
    """
    difference = b - a
    rise = jnp.where(difference > 0, difference, jnp.zeros_like(difference))
    return b - rise, a + rise


def _in_front(x: Array, axes: Sequence[int], count: int) -> Array:
    """Return an array whose first axis runs over some axes."""
    moved = jnp.moveaxis(x, axes, range(len(axes)))
    return moved.reshape(count, *moved.shape[len(axes) :])


def _extreme(x: Array, place: int) -> Array:
    """Return the least or the largest entry along the first axis, by a tree of pairs."""
    while len(x) > 1:
        half = len(x) // 2
        found = _pair(x[:half], x[half : 2 * half])[place]
        x = found if len(x) == 2 * half else jnp.concatenate([found, x[2 * half :]])
    return x[0]


def _window_places(params: Mapping[str, Any], shape: Sequence[int]) -> dict[int, np.ndarray]:
    """Return, for each axis along which windows move, the entries of each window: (windows, size).

    Where a window reaches beyond the array, or between dilated entries, the first of its entries stands once
    more: no extreme minds that. It is -1 if the window has no entry.
    """
    names = ("window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation")
    places = {}
    for axis, (size, *of) in enumerate(zip(shape, *(params[name] for name in names), strict=True)):
        window, stride, (before, after), base, spread = of
        if (window, stride, before, after, base) == (1, 1, 0, 0, 1):
            continue
        padded = (size - 1) * base + 1 + before + after if size else before + after
        starts = np.arange(0, padded - (window - 1) * spread, stride) - before
        at = starts[:, None] + spread * np.arange(window)
        is_entry = (at >= 0) & (at <= (size - 1) * base) & (at % base == 0)
        first = np.take_along_axis(at, is_entry.argmax(1)[:, None], 1)
        places[axis] = np.where(is_entry, at // base, np.where(is_entry.any(1)[:, None], first // base, -1))
    return places


def _windows(x: Array, places: Mapping[int, np.ndarray]) -> Array:
    """Return the entries of each window along a new first axis."""
    x = x[None]
    for axis, at in places.items():
        x = x.at[(slice(None),) * (axis + 1) + (at,)].get(mode="promise_in_bounds")
        x = jnp.moveaxis(x, axis + 2, 1)
        x = x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])
    return x


def _sorted(x: Array, axis: int) -> Array:
    """Sort along an axis by Batcher's odd-even mergesort, a network of pairs."""
    x = jnp.moveaxis(x, axis, 0)
    for round_ in _rounds(len(x)):
        least, largest = (list(side) for side in zip(*round_, strict=True))
        others = [place for place in range(len(x)) if place not in {*least, *largest}]
        back = np.argsort(least + largest + others)
        parts = [*_pair(x[np.array(least)], x[np.array(largest)]), x[np.array(others, int)]]
        x = jnp.concatenate(parts)[back]
    return jnp.moveaxis(x, 0, axis)


@functools.cache
def _rounds(size: int) -> Sequence[Sequence[tuple[int, int]]]:
    """Return the rounds of a sorting network: pairs of places, of which the first gets the smaller entry."""
    rounds = []
    merged = 1
    while merged < size:
        apart = merged
        while apart:
            starts = range(apart % merged, size - apart, 2 * apart)
            places = [start + step for start in starts for step in range(min(apart, size - apart - start))]
            within = [place for place in places if place // (2 * merged) == (place + apart) // (2 * merged)]
            rounds.append([(place, place + apart) for place in within])
            apart //= 2
        merged *= 2
    return rounds
