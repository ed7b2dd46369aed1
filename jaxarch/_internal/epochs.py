"""Example indices for sampling by epochs: a shuffle that is computed, not stored."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

ROUNDS = 24


def epoch_rows(key: Array, step: ArrayLike, batch_size: int, examples: ArrayLike) -> Array:
    """Return the examples of a step, from a stream in which every epoch is a permutation of all examples.

    Step t takes places `t B` to `t B + B - 1` of the stream. They may lie across two epochs, so that no
    example is dropped. Place p holds example `pi_e(p mod n)` of epoch `e = p // n`. pi_e is the swap-or-not
    shuffle of V. Hoang, B. Morris and P. Rogaway (2012) with 24 rounds. It is a function of the key, so
    training can continue anywhere without a stored permutation.

    Args:
      key: a `jax.random.key`, one for all steps.
      step: t, an integer, traced or not; `n B` is below 2^32.
      batch_size: B.
      examples: n, traced or not.

    Returns:
      int32 of shape (B,), in [0, n).
    """
    n = jnp.asarray(examples, jnp.uint32)
    batch = jnp.uint32(batch_size)
    step = jnp.asarray(step, jnp.uint32)
    # Split t B into multiples of n and a rest, without a product that overflows.
    rest = step % n * batch
    first, place = step // n * batch + rest // n, rest % n + jnp.arange(batch_size, dtype=jnp.uint32)
    epoch, place = first + place // n, place % n
    for word in jax.random.bits(key, (ROUNDS, 2), jnp.uint32):
        partner = (_mixed(word[0] ^ _mixed(epoch)) % n + n - place) % n
        swap = _mixed(jnp.maximum(place, partner) ^ _mixed(word[1] ^ epoch)) & 1
        place = jnp.where(swap == 1, partner, place)
    return place.astype(jnp.int32)


def _mixed(word: Array) -> Array:
    """Mix a word so that every bit depends on every bit: the finalizer of MurmurHash3 (A. Appleby)."""
    word = (word ^ word >> 16) * jnp.uint32(0x85EBCA6B)
    word = (word ^ word >> 13) * jnp.uint32(0xC2B2AE35)
    return word ^ word >> 16
