"""Matrices of two or three values as bits: 32 rows of a column in each word."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

WORD = 32
"""Bits in a word. XLA counts the bits of 32-bit words with vector instructions."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Bits:
    """A matrix whose entries in each column are -c, 0 or c, as planes of bits.

    Attributes:
      present: the entries that are not 0, as words of shape (ceil(rows / 32), columns) in uint32, the first
        row in the lowest bit; `None` if no entry is 0. Bits beyond the last row are 0.
      negative: the entries below 0, likewise; `None` if there are none.
      scale: c, of the matrix's dtype and of shape () or (columns,).
      shape: the number of rows and columns.
    """

    present: Any
    negative: Any
    scale: Any
    shape: tuple[int, int] = dataclasses.field(metadata={"static": True})

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return nbytes(self)

    @property
    def values(self) -> str:
        """The values of the entries, in words."""
        below = "" if self.negative is None else "-c, "
        zero = "" if self.present is None else "0, "
        return f"{below}{zero}c"


def nbytes(tree: Any) -> int:
    """Return the size of all arrays of a tree in bytes."""
    return sum(leaf.nbytes for leaf in jax.tree.leaves(tree))


def as_bits(matrix: np.ndarray) -> Bits | None:
    """Return a matrix as bits; `None` if it has other values, or if bits are no smaller.

    Args:
      matrix: real numbers of a floating dtype, shape (rows, columns).
    """
    if not matrix.size:
        return None
    size = np.abs(matrix)
    scale = size.max(axis=0, initial=0)
    # A NaN is unequal to itself, and infinities times 0 would be NaN.
    if not np.isfinite(scale).all() or not ((size == scale) | (size == 0)).all():
        return None
    present, negative = size > 0, matrix < 0
    scale = np.where(scale > 0, scale, scale.max(initial=0))  # An empty column may have any.
    bits = Bits(
        None if present.all() else _words(present),
        _words(negative) if negative.any() else None,
        np.asarray(scale[0] if (scale == scale[0]).all() else scale),
        matrix.shape,
    )
    return bits if bits.nbytes < matrix.nbytes else None


def _words(entries: np.ndarray) -> np.ndarray:
    rows, columns = entries.shape
    padded = np.zeros((-(-rows // WORD) * WORD, columns), np.uint8)
    padded[:rows] = entries
    octets = np.packbits(padded, axis=0, bitorder="little").reshape(-1, WORD // 8, columns)
    return np.ascontiguousarray(octets.transpose(0, 2, 1)).view("<u4")[..., 0].astype(np.uint32)


def matrix_of(bits: Bits) -> Array:
    """Return the matrix. The inverse of `as_bits`, bit for bit, but for the sign of zeros."""
    ones = jnp.ones(bits.shape, bits.scale.dtype)
    present = ones if bits.present is None else _entries(bits.present, bits).astype(ones.dtype)
    scale = jnp.broadcast_to(bits.scale, bits.shape)
    if bits.negative is None:
        return present * scale
    return jnp.where(_entries(bits.negative, bits), -scale, present * scale)


def _entries(words: Array, bits: Bits) -> Array:
    """Return one plane as booleans of the matrix's shape."""
    places = jnp.arange(WORD, dtype=jnp.uint32)[None, :, None]
    each = jax.lax.shift_right_logical(*jnp.broadcast_arrays(words[:, None], places)) & np.uint32(1)
    return each.reshape(-1, bits.shape[1])[: bits.shape[0]].astype(bool)
