"""Products of activations with a matrix of bits: counting bits, or looking up sums.

The matrix is `W = c (P - 2 N)`, where P marks the entries that are not 0 and N those below 0. A product with
either plane is a sum of the activations that it marks. All ways go through the matrix a word at a time,
so that 32 rows of a column are one number, and the columns are next to each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxarch.binary._bits import WORD, Bits

TABLES_UP_TO = 4
"""The most examples that sums are looked up for. For more, unpacking and a dense product take less time."""
_OCTET = 8


def by_counting(x: Array, values: tuple[float, ...], bits: Bits) -> Array:
    """Return `x @ W / scales` for activations that are -a, 0 or a, in units of a: exact integers.

        x w = [x != 0 and w != 0] (1 - 2 [x < 0 xor w < 0])

    Args:
      x: activations of shape (examples, rows).
      values: the values that they may take.
      bits: the matrix.

    Returns:
      Integers of shape (examples, columns) in int32.
    """
    present = _words_of(x != 0) if 0 in values else None
    negative = _words_of(x < 0) if min(values) < 0 else None

    def counted(total: Array, row: tuple[Any, ...]) -> Array:
        mine, my_signs, its, its_signs = row
        both = _joined(jnp.bitwise_and, mine, its)
        signs = _joined(jnp.bitwise_xor, my_signs, its_signs)
        # Signs of entries that are 0 count for nothing.
        signs = signs if signs is None or both is None else signs & both
        total = total if both is None else total + _count(both)
        return total if signs is None else total - 2 * _count(signs)

    start = jnp.zeros((x.shape[0], bits.shape[1]), jnp.int32)
    total = _over_words(counted, start, (present, negative, _plane(bits.present), _plane(bits.negative)))
    return total + bits.shape[0] if present is None and bits.present is None else total


def by_rounding(x: Array, activation_bits: int, bits: Bits) -> Array:
    """Return `x @ (P - 2 N)` for activations rounded to a number of bits, by counting.

    Each example's activations are rounded to one of `2^b` equally spaced numbers from their smallest to their
    largest: `x = low + step sum_k 2^k x_k`. Its sums are exact integers.

    Args:
      x: activations of shape (examples, rows), float32 or float64.
      activation_bits: b.
      bits: the matrix.
    """
    low, high = x.min(axis=1, keepdims=True), x.max(axis=1, keepdims=True)
    step = (high - low) / (2**activation_bits - 1)
    step = jnp.where(step > 0, step, jnp.ones_like(step))
    level = jnp.round((x - low) / step).astype(jnp.uint32)
    planes = [_words_of((level >> np.uint32(k)) & np.uint32(1) > 0) for k in range(activation_bits)]

    def counted(sums: tuple[Array, Array], row: tuple[Any, ...]) -> tuple[Array, Array]:
        (mine, plane), (levels, number) = row, sums
        for k, of_k in enumerate(mine):
            levels = levels + (_count(of_k & plane) << np.int32(k))
        return levels, number + _count(plane)

    def marked(plane: Array | None) -> Array:
        """Return the sums of the activations that a plane marks."""
        if plane is None:
            everything = level.sum(axis=1, keepdims=True, dtype=jnp.int32)
            return low * bits.shape[0] + step * everything.astype(x.dtype)
        columns = bits.shape[1]
        start = jnp.zeros((x.shape[0], columns), jnp.int32), jnp.zeros((1, columns), jnp.int32)
        levels, number = _over_words(counted, start, (planes, _plane(plane)))
        return low * number.astype(x.dtype) + step * levels.astype(x.dtype)

    return _signed(marked, bits)


def by_tables(x: Array, bits: Bits) -> Array:
    """Return `x @ (P - 2 N)`, each sum of eight activations looked up in a table of all 256.

    Args:
      x: activations of shape (examples, rows), float32 or float64.
      bits: the matrix.
    """
    words = _in_words(x)
    groups = words.reshape(x.shape[0], words.shape[1] * WORD // _OCTET, _OCTET)
    sums = jnp.zeros((*groups.shape[:2], 1), x.dtype)
    for place in range(_OCTET):
        sums = jnp.concatenate([sums, sums + groups[..., place, None]], axis=-1)
    tables = sums.reshape(*words.shape[:2], WORD // _OCTET, 2**_OCTET).swapaxes(0, 1)

    def looked_up(total: Array, row: tuple[Any, ...]) -> Array:
        of_word, plane = row
        for octet in range(WORD // _OCTET):
            place = (plane >> np.uint32(octet * _OCTET)) & np.uint32(2**_OCTET - 1)
            total = total + of_word[:, octet].at[:, place.astype(jnp.int32)].get(mode="promise_in_bounds")
        return total

    def marked(plane: Array | None) -> Array:
        if plane is None:
            return x.sum(axis=1, keepdims=True)
        return _over_words(looked_up, jnp.zeros((x.shape[0], bits.shape[1]), x.dtype), (tables, plane))

    return _signed(marked, bits)


def _words_of(entries: Array) -> Array:
    """Return booleans of shape (examples, rows) as words of shape (ceil(rows / 32), examples, 1)."""
    each = _in_words(entries.astype(jnp.uint32)) << jnp.arange(WORD, dtype=jnp.uint32)[None, None]
    return each.sum(axis=-1, dtype=jnp.uint32).T[..., None]


def _plane(words: Array | None) -> Array | None:
    """Return the words of the matrix beside those of the examples, in shape (words, 1, columns)."""
    return None if words is None else words[:, None]


def _in_words(x: Array) -> Array:
    examples, rows = x.shape
    return jnp.pad(x, ((0, 0), (0, -rows % WORD))).reshape(examples, -(-rows // WORD), WORD)


def _signed(marked: Callable[[Array | None], Array], bits: Bits) -> Array:
    """Return the product with `P - 2 N`, from products with planes."""
    total = marked(bits.present)
    total = total if bits.negative is None else total - 2 * marked(bits.negative)
    return jnp.broadcast_to(total, (total.shape[0], bits.shape[1]))


def _over_words(step: Callable[[Any, Any], Any], start: Any, rows: Any) -> Any:
    """Go through the matrix a word at a time. All columns of a word are next to each other in memory."""
    if not jax.tree.leaves(rows):  # Every entry is present, and none is negative.
        return start
    return lax.scan(lambda total, row: (step(total, row), None), start, rows)[0]


def _joined(join: Callable[[Array, Array], Array], first: Array | None, second: Array | None) -> Array | None:
    """Join two planes. A missing plane has no effect: all entries are present, or no sign is set."""
    if first is None or second is None:
        return second if first is None else first
    return join(first, second)


def _count(words: Array) -> Array:
    return lax.population_count(words).astype(jnp.int32)
