"""The k-th largest of many numbers by counting: without sort or gather, and sharding is kept.

The bits of floating-point numbers, read as integers, have the order of the numbers, once the bits of negative
ones are flipped. Integers are used as they are. The k-th largest number of a list of arrays is then the key
at which the number of keys at or above it reaches k. A bracket around it shrinks in about eight rounds for a
million numbers. Each round counts at three cuts in one pass over the arrays, in place. If they are split over
devices, each device sends only these counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch._internal.errors import ArgumentError
from jaxarch._internal.precision import at_least_float32

ROUNDS = 12
"""Number of rounds with interpolated cuts, before each round cuts the bracket in quarters."""
WIDE = 0.25
"""Distance of the outer cuts from the middle one, in brackets, until the threshold lies between them."""

SHORT = 16
"""The length of axes up to which each number is compared with each; more would take too much memory."""


def count_dtype(size: int) -> jnp.dtype:
    """Return an integer dtype that counts up to `size` exactly.

    Raises:
      ArgumentError: 2^32 or more, if JAX has no 64-bit integers.
    """
    if size < 2**31:
        return jnp.dtype(jnp.int32)
    if jax.dtypes.canonicalize_dtype(jnp.int64) == jnp.int64:
        return jnp.dtype(jnp.int64)
    if size < 2**32:
        return jnp.dtype(jnp.uint32)
    raise ArgumentError(
        f"mask: {size} connections are too many for 32-bit integers; set jax_enable_x64, or count outside of "
        "jit"
    )


@jax.jit
def largest(arrays: Sequence[Array], k: Array, among: Sequence[Array] | None = None) -> list[Array]:
    """Mark the `k` largest numbers of all arrays together: booleans in the arrays' shapes.

    The number of marks is exactly k. Of equal numbers, the first in row-major order is marked, array after
    array. NaN is less than -inf.

    Args:
      arrays: the numbers.
      k: how many to mark.
      among: booleans in the arrays' shapes: no other number is marked. If they are fewer than k, all of them
        are marked.

    Raises:
      ArgumentError: arrays without a common dtype that holds all numbers exactly, such as int32 and float32.
    """
    size = sum(array.size for array in arrays)
    dtype = count_dtype(size)
    k = jnp.maximum(k, 0).astype(dtype)
    promoted = _promoted(arrays)
    ordered = _keys(promoted)
    least = jnp.iinfo(ordered[0].dtype).min
    if among is not None:
        ordered = [jnp.where(there, keys, least) for there, keys in zip(among, ordered, strict=True)]
    split = _split(ordered, k)
    threshold = split.low

    def before(end: Array) -> list[Array]:
        """Mark the numbers above the threshold, and the tied ones whose place is before `end`."""
        places = _places(arrays, dtype)
        marked = [
            (keys > threshold) | (keys == threshold) & (place < end)
            for keys, place in zip(ordered, places, strict=True)
        ]
        # Left-out numbers share the least key with NaN and the smallest integer, so they need a mask.
        return marked if among is None else [m & a for m, a in zip(marked, among, strict=True)]

    def halve(ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        # The sum of low and high may overflow; their difference does not.
        middle = low + (high - low) // 2
        enough = _count(before(middle), dtype) >= k
        return jnp.where(enough, low, middle + 1), jnp.where(enough, middle, high)

    def some_tied() -> list[Array]:
        """Find the place behind the last tied number that is wanted, by bisection."""
        ends = jnp.zeros_like(k), jnp.full_like(k, size)
        end, _ = jax.lax.while_loop(lambda ends: ends[0] < ends[1], halve, ends)
        return before(end)

    # Ties at the threshold are rare, and places take as long as half of all else.
    return jax.lax.cond(split.kept <= k, lambda: before(jnp.full_like(k, size)), some_tied)


@jax.jit
def largest_along(numbers: Array, n: int, among: Array | None = None) -> Array:
    """Mark the n largest numbers along the last axis.

    Of equal numbers, the first is marked. NaN is less than -inf. Along a short axis, each number is compared
    with each: along axes of 4, this takes a hundredth of the time of two sorts.

    Args:
      numbers: the numbers.
      n: how many to mark.
      among: booleans in the numbers' shape: no other number is marked.
    """
    (keys,) = _keys(_promoted([numbers]))
    if numbers.shape[-1] > SHORT:
        last = jnp.lexsort((~keys,) if among is None else (~keys, ~among), axis=-1)
        marked = jnp.argsort(last, axis=-1) < n  # ranks
    else:
        place = jnp.arange(numbers.shape[-1]).reshape([1] * (numbers.ndim - 1) + [-1])
        (other, own), (first, second) = _pairs(keys), _pairs(place)
        before = (other > own) | ((other == own) & (first < second))
        if among is not None:
            there, mine = _pairs(among)
            before = (there & ~mine) | ((there == mine) & before)
        marked = before.sum(-2) < n
    return marked if among is None else marked & among


def _pairs(of: Array) -> tuple[Array, Array]:
    """Return all numbers of the last axis beside each of them."""
    return of[..., :, None], of[..., None, :]


@jax.jit
def percentile(arrays: Sequence[Array], percentiles: Array) -> Array:
    """Return percentiles of all arrays together, interpolated linearly like `jnp.percentile`; NaN if any is.

    Args:
      arrays: floating-point arrays of any shapes.
      percentiles: numbers in [0, 100], of any shape; for other numbers the result is NaN.
    """
    promoted = _promoted(arrays)
    size = sum(array.size for array in arrays)
    dtype = count_dtype(size)
    ordered = _ordered(promoted)
    position = percentiles.astype(promoted[0].dtype) / 100 * (size - 1)
    low, high = jnp.floor(position), jnp.ceil(position)
    share = position - low

    def neighbours(rank: Array) -> tuple[Array, Array]:
        """Return the keys of a rank and of the next; rank 0 is the smallest."""
        at = _kth_largest(ordered, size - rank)
        above = [keys > at for keys in ordered]
        least = [_least(keys, a) for a, keys in zip(above, ordered, strict=True)]
        is_last = rank + 1 < size - _count(above, dtype)
        return at, jnp.where(is_last, at, jnp.min(jnp.stack(least)))

    ranks = jnp.clip(low, 0, size - 1).astype(dtype)
    at, after = jnp.vectorize(neighbours)(ranks)
    # At a whole position the next number must not count: if it is infinite, its product with 0 is NaN.
    below, above = (_number(keys, promoted[0].dtype) for keys in (at, jnp.where(high > low, after, at)))
    value = above * share + below * (1 - share)
    broken = jnp.stack([jnp.any(jnp.isnan(array)) for array in promoted]).any()
    is_one = (percentiles >= 0) & (percentiles <= 100)
    return jnp.where(broken | ~is_one, jnp.nan, value).astype(jnp.result_type(*arrays))


def _kth_largest(ordered: Sequence[Array], k: Array) -> Array:
    """Return the largest key such that at least k keys are at or above it."""
    least = _split(ordered, k).low
    return jnp.min(jnp.stack([_least(keys, keys >= least) for keys in ordered]))


def _least(keys: Array, where: Array | None = None) -> Array:
    """Return the least key, or the largest possible key if there are none."""
    return jnp.min(keys, where=where, initial=jnp.iinfo(keys.dtype).max)


def _split(ordered: Sequence[Array], k: Array) -> _Bracket:
    """Return a bracket around the threshold of the k largest keys.

    Exactly k keys are at or above `low`. If ties leave no such number, `low` is the largest one with more.

    The number of keys at or above a value falls across their range. Linear interpolation between the ends
    guesses where it reaches k, and two more cuts lie on both sides of the guess. If the threshold was between
    these last time, the keys are dense enough to be nearly uniform. Among n uniform keys a guess is off by
    `sqrt(n) / 2` keys at most in the mean, so the outer cuts are `2 / sqrt(n)` of the bracket away. After
    `ROUNDS` rounds, each round cuts the bracket in quarters.
    """
    bits = jnp.iinfo(ordered[0].dtype).bits
    unsigned, real = (jnp.uint32, jnp.float32) if bits == 32 else (jnp.uint64, jnp.float64)
    # Half a key off, so that no end of the bracket is hit exactly.
    wanted = k.astype(real) - 0.5

    def narrow(at: _Bracket) -> _Bracket:
        # The signed difference may overflow, but its bits, read as unsigned, are the distance.
        span = jax.lax.bitcast_convert_type(at.high - at.low, unsigned)
        inside = at.kept.astype(real) - at.above.astype(real)
        guess = (at.kept.astype(real) - wanted) / inside
        width = jnp.where(at.is_between, jnp.minimum(2 / jnp.sqrt(inside), WIDE), WIDE)
        # At most half of the way to an end, which would cut nothing off.
        cuts = (jnp.maximum(guess - width, guess / 2), guess, jnp.minimum(guess + width, (1 + guess) / 2))
        shares = jnp.where(at.rounds < ROUNDS, jnp.stack(cuts), jnp.asarray([0.25, 0.5, 0.75], real))
        # Kept below 1: in floating point, the span may round up beyond its unsigned dtype.
        steps = jnp.round(jnp.minimum(shares, 1 - 2.0**-20) * span.astype(real)).astype(unsigned)
        # A step is at least 1, so that every round shrinks the bracket.
        steps = jax.lax.bitcast_convert_type(jnp.clip(steps, 1, span), at.low.dtype)
        values = [at.low + steps[i] for i in range(3)]
        counts = _counts(ordered, values, k.dtype)
        low, high, kept, above = at.low, at.high, at.kept, at.above
        for value, count in zip(values, counts, strict=True):
            low, kept = jnp.where(count >= k, value, low), jnp.where(count >= k, count, kept)
        for value, count in reversed(list(zip(values, counts, strict=True))):
            high, above = jnp.where(count < k, value - 1, high), jnp.where(count < k, count, above)
        is_between = (counts[0] >= k) & (counts[-1] < k)
        return _Bracket(low, high, kept, above, is_between, at.rounds + 1)

    size = sum(keys.size for keys in ordered)
    low, high = _ends(ordered)
    start = _Bracket(
        low=low,
        high=high,
        kept=jnp.full_like(k, size),
        above=jnp.zeros_like(k),
        is_between=jnp.zeros_like(k, jnp.bool_),
        rounds=jnp.zeros_like(k, jnp.int32),
    )
    return jax.lax.while_loop(lambda at: (at.low < at.high) & (at.kept != k), narrow, start)


class _Bracket(NamedTuple):
    """Bracket around a threshold.

    Attributes:
      low: a value with k keys or more at or above it.
      high: a value with fewer than k keys above it.
      kept: the number of keys at or above `low`.
      above: the number of keys above `high`.
      is_between: whether the threshold lay between the outer cuts of the last round.
      rounds: number of rounds so far.
    """

    low: Array
    high: Array
    kept: Array
    above: Array
    is_between: Array
    rounds: Array


def _counts(ordered: Sequence[Array], values: Sequence[Array], dtype: jnp.dtype) -> list[Array]:
    """Count the keys at or above each of several values, in one pass.

    XLA makes faster code for a CPU of one reduction of several operands than of a single operand: counting at
    two values takes a third of the time of counting at one.
    """
    zeros = (jnp.zeros((), dtype),) * len(values)

    def add(first: tuple[Array, ...], second: tuple[Array, ...]) -> tuple[Array, ...]:
        return tuple(a + b for a, b in zip(first, second, strict=True))

    totals = zeros
    for keys in ordered:
        at_or_above = tuple((keys >= value).astype(dtype) for value in values)
        totals = add(totals, tuple(jax.lax.reduce(at_or_above, zeros, add, tuple(range(keys.ndim)))))
    return list(totals)


def _ends(ordered: Sequence[Array]) -> tuple[Array, Array]:
    """Return the least and the largest key, in one pass."""
    bounds = jnp.iinfo(ordered[0].dtype)
    ends = (jnp.asarray(bounds.max, ordered[0].dtype), jnp.asarray(bounds.min, ordered[0].dtype))

    def further(first: tuple[Array, Array], second: tuple[Array, Array]) -> tuple[Array, Array]:
        return jnp.minimum(first[0], second[0]), jnp.maximum(first[1], second[1])

    found = ends
    for keys in ordered:
        found = further(found, tuple(jax.lax.reduce((keys, keys), ends, further, tuple(range(keys.ndim)))))
    return found


def _promoted(arrays: Sequence[Array]) -> list[Array]:
    """Convert all arrays to one dtype of 32 or 64 bits that keeps their order."""
    dtype = jnp.result_type(*arrays)
    if jnp.issubdtype(dtype, jnp.floating):
        dtype = at_least_float32(dtype)
    elif jnp.issubdtype(dtype, jnp.bool_) or jnp.iinfo(dtype).bits < 32:
        dtype = jnp.dtype(jnp.int32)
    for array in arrays:
        if not _is_exact(array.dtype, dtype):
            raise ArgumentError(
                f"scores: {array.dtype} cannot be compared exactly as {dtype}, the leaves' common dtype; "
                "give all leaves the same dtype"
            )
    return [array.astype(dtype) for array in arrays]


def _is_exact(dtype: jnp.dtype, common: jnp.dtype) -> bool:
    """Return whether the common dtype holds every number of a dtype exactly."""
    if jnp.issubdtype(dtype, jnp.bool_) or jnp.issubdtype(dtype, jnp.floating):
        return True
    mine = jnp.iinfo(dtype)
    if jnp.issubdtype(common, jnp.floating):
        return mine.bits <= jnp.finfo(common).nmant + 1
    return jnp.iinfo(common).min <= mine.min and mine.max <= jnp.iinfo(common).max


def _key_dtype(dtype: jnp.dtype) -> jnp.dtype:
    return jnp.dtype(jnp.int32 if dtype.itemsize == 4 else jnp.int64)


def _ordered(arrays: Sequence[Array]) -> list[Array]:
    """Return integers in the order of the arrays' numbers; 0 and -0 are equal."""
    dtype = arrays[0].dtype
    integer = _key_dtype(dtype)
    # Replace -0, whose bits would order it below 0.
    bits = [jax.lax.bitcast_convert_type(jnp.where(array == 0, 0, array), integer) for array in arrays]
    if jnp.issubdtype(dtype, jnp.floating):
        return [_flipped(keys) for keys in bits]
    # Flipping the top bit gives unsigned numbers the order of signed ones.
    unsigned = jnp.issubdtype(dtype, jnp.unsignedinteger)
    return [keys ^ jnp.iinfo(integer).min for keys in bits] if unsigned else bits


def _keys(arrays: Sequence[Array]) -> list[Array]:
    """Return integers in the order of the arrays' numbers, NaN least."""
    # NaN's bits lie beyond those of one infinity or the other, by its sign, so it gets the least key.
    return [
        jnp.where(jnp.isnan(array), jnp.iinfo(keys.dtype).min, keys)
        for array, keys in zip(arrays, _ordered(arrays), strict=True)
    ]


def _number(keys: Array, dtype: jnp.dtype) -> Array:
    """Return the numbers with these keys."""
    return jax.lax.bitcast_convert_type(_flipped(keys), dtype)


def _flipped(bits: Array) -> Array:
    """Flip the bits of negative numbers except the sign; the function is its own inverse."""
    return jnp.where(bits < 0, bits ^ jnp.iinfo(bits.dtype).max, bits)


def _count(masks: Sequence[Array], dtype: jnp.dtype) -> Array:
    """Count the true entries. Rows are counted in float32, faster on CPUs, as long as it is exact."""
    rows = [
        jnp.sum(mask, axis=-1, dtype=jnp.float32).astype(dtype)
        if mask.ndim and mask.shape[-1] < 2**24
        else mask
        for mask in masks
    ]
    return jnp.sum(jnp.stack([jnp.sum(row, dtype=dtype) for row in rows]), dtype=dtype)


def _places(arrays: Sequence[Array], dtype: jnp.dtype) -> list[Array]:
    """Return the place of every number in row-major order, array after array."""
    places, start = [], 0
    for array in arrays:
        place = jnp.full([1] * array.ndim, start, dtype)
        for axis, length in enumerate(array.shape):
            stride = math.prod(array.shape[axis + 1 :])
            shape = [-1 if other == axis else 1 for other in range(array.ndim)]
            place = place + (jnp.arange(length, dtype=dtype) * stride).reshape(shape)
        places.append(place)
        start += array.size
    return places
