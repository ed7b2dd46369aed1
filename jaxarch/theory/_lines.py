"""Lines below and above functions of one number, found by interval arithmetic on the function itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch.theory.intervals import Interval, bounded

_PIECES = 24
"""Pieces between two kinks. Twice as many bring a line four times as close to the hull, for four times the
work."""


class Line(NamedTuple):
    """A line `slope x + intercept` below or above a function, for each entry, and others on the same side.

    Attributes:
      slope: its slope.
      intercept: its height at 0.
      fan: slopes and intercepts of lines from the least to the largest slope of the convex hull, shape
        (lines, ...); the one in the middle has this line's slope. Empty if it was not asked for.
    """

    slope: Array
    intercept: Array
    fan: tuple[Array, ...] = ()

    def turned(self, turn: Array) -> Line:
        """Return a line between two neighbours of the fan, which is on the same side as they are.

        Args:
          turn: a place in the fan, counted from its middle.
        """
        slopes, intercepts = self.fan
        places = jnp.arange(len(slopes), dtype=turn.dtype) - len(slopes) // 2
        steps = turn[None] - places.reshape(-1, *[1] * turn.ndim)
        # Not `abs`: at a place of the fan, where every turn begins, maxima have the slope between both sides.
        shares = jnp.maximum(1 - jnp.maximum(steps, -steps), 0)
        # Huge heights overflow in steep lines; nothing is turned there.
        is_fan = jnp.isfinite(intercepts).all(0) & jnp.isfinite(self.intercept)
        intercept = (shares * jnp.where(is_fan[None], intercepts, 0)).sum(0)
        return self._replace(
            slope=jnp.where(is_fan, (shares * slopes).sum(0), self.slope),
            intercept=jnp.where(is_fan, intercept, self.intercept),
        )


class Lines(NamedTuple):
    """Two lines that enclose a function over an interval.

    Attributes:
      below: a line below the function.
      above: a line above it.
      values: the bounds of its values.
      jumps: whether it may jump, by more than a thousand roundings of its values there.
    """

    below: Line
    above: Line
    values: Interval
    jumps: Array


def lines(
    fun: Callable[[Array], Array], x: Interval, kinks: Sequence[Any] = (0.0,), *, has_fan: bool = False
) -> Lines:
    r"""Return lines below and above a function of one number that are closest in the middle of an interval.

    The interval is cut into pieces. On a piece with the middle c and derivatives between p and q,

        fun(x) >= fun(c) - q (c - x)  left of c,    fun(x) >= fun(c) + p (x - c)  right of c,

    so fun lies above the line that connects these bounds at the piece's ends. If the function may jump in the
    piece, or has no derivative, its least value there takes their place. All ends together are points whose
    convex hull lies below the function. The line is the edge of this hull over the middle of the interval,
    where it leaves the least area between itself and the function. The line above is found likewise.

    Args:
      fun: an elementwise function of arrays of this shape.
      x: the interval.
      kinks: where the function may have kinks; these then lie between pieces.
      has_fan: whether the lines are to have fans, to be turned.

    Returns:
      The lines and bounds. Where the interval is not finite, or the function not defined, they are infinite.
    """
    is_bounded = jnp.isfinite(x.upper - x.lower)
    low, high = (jnp.where(is_bounded, end, jnp.ones((), end.dtype)) for end in (x.lower, x.upper))
    edges = _edges(low, high, [jnp.asarray(kink, low.dtype) for kink in kinks])
    heights, jumps = _between(fun, edges)
    middle = low + (high - low) / 2
    slopes, intercepts = jax.vmap(lambda y: _supporting(edges, y, middle, is_bounded))(heights)
    below, above = Line(slopes[0], intercepts[0]), Line(-slopes[1], -intercepts[1])
    if has_fan:
        fans = jax.vmap(lambda y, slope: _fan(edges, y, slope))(heights, slopes)
        below = below._replace(fan=tuple(fan[0] for fan in fans))
        above = above._replace(fan=tuple(-fan[1] for fan in fans))
    ends = jnp.where(is_bounded, heights.min(1), -jnp.inf)
    return Lines(below, above, Interval(ends[0], -ends[1]), jumps | ~is_bounded)


def _edges(low: Array, high: Array, kinks: Sequence[Array]) -> Array:
    """Return the ends of pieces in ascending order; a piece around a kink is as narrow as can be told."""
    limits = jnp.finfo(low.dtype)
    parts = [low]
    inside = [jnp.where(jnp.isfinite(kink), jnp.clip(kink, low, high), low) for kink in kinks]
    for kink in jnp.sort(jnp.stack(inside), 0):
        next_to = jnp.maximum(4 * limits.eps * jnp.abs(kink), limits.tiny)
        parts += [jnp.clip(kink - next_to, parts[-1], high), jnp.clip(kink + next_to, parts[-1], high)]
    parts.append(high)
    shares = jnp.linspace(0, 1, _PIECES + 1, dtype=low.dtype).reshape(-1, *[1] * low.ndim)
    edges = [a[None] + shares * (b - a)[None] for a, b in zip(parts[::2], parts[1::2], strict=True)]
    # Rounding may have moved the last edge of a part beyond its end.
    ends = zip(edges, parts[1::2], strict=True)
    return jnp.concatenate([jnp.minimum(part, end[None]).at[-1].set(end) for part, end in ends])


def _between(fun: Callable[[Array], Array], edges: Array) -> tuple[Array, Array]:
    """Return heights at the edges, and jumps: a function and its negative lie above the connecting lines.

    Both are taken together, and pieces with their centres, so that programs have half as many operations.
    """
    low, high = edges[:-1], edges[1:]
    centre = jnp.clip(low + (high - low) / 2, low, high)

    def on_a_piece(low: Array, high: Array) -> tuple[tuple[Array, Array], tuple[Array, Array], Array]:
        jumps = []

        def note(name: str, inputs: Sequence[Interval]) -> None:
            # What chooses among values, and is not decided, may be a jump.
            if name == "select_n":
                jumps.append(inputs[0].lower != inputs[0].upper)

        def with_slope(x: Array) -> Any:
            # Not `jvp`: intervals recognize slopes, such as that of tanh, in the form that `grad` gives them.
            values, pull = jax.vjp(fun, x)
            return values, *pull(jnp.ones_like(x))

        least, largest = bounded(with_slope, note)(low, high)
        may_jump = jnp.stack([jnp.zeros(low.shape, bool), *(jnp.broadcast_to(j, low.shape) for j in jumps)])
        return (least[0], largest[0]), (least[1], largest[1]), may_jump.any(0)

    ends = jnp.concatenate([low, centre]), jnp.concatenate([high, centre])
    heights, slopes, may_jump = jax.vmap(on_a_piece)(*ends)
    pieces = len(low)
    at_centre = [end[pieces:] for end in heights]
    (least, largest), (flattest, steepest) = ([end[:pieces] for end in pair] for pair in (heights, slopes))
    # Elsewhere on the piece what is evaluated may be as far off as here.
    off = at_centre[1] - at_centre[0]
    limits = jnp.finfo(low.dtype)
    rise = jnp.maximum(jnp.abs(flattest), jnp.abs(steepest)) * (high - low)
    may_jump = may_jump[:pieces]

    def below(height: Array, least: Array, flattest: Array, steepest: Array) -> Array:
        """Return heights at the edges below the function, given its least values and slopes on each piece."""
        down = off + 8 * limits.eps * (jnp.abs(height) + rise) + limits.tiny
        left = height - steepest * (centre - low) - down
        right = height + flattest * (high - centre) - down
        # Either both or none: between the better of both ends the function need not lie above the line.
        is_closer = ~may_jump & (left / 2 + right / 2 >= least)
        left, right = (jnp.where(is_closer, end, least) for end in (left, right))
        nothing = jnp.full((1, *left.shape[1:]), jnp.inf, left.dtype)
        return jnp.minimum(jnp.concatenate([left, nothing]), jnp.concatenate([nothing, right]))

    known = 1000 * (limits.eps * jnp.maximum(jnp.abs(least), jnp.abs(largest)) + limits.tiny)
    pairs = ((at_centre[0], -at_centre[1]), (least, -largest), (flattest, -steepest), (steepest, -flattest))
    return jax.vmap(below)(*map(jnp.stack, pairs)), (may_jump & ~(largest - least <= known)).any(0)


@jax.jit
def _supporting(x: Array, y: Array, middle: Array, is_bounded: Array) -> tuple[Array, Array]:
    """Return slope and intercept of the edge of the lower hull over the middle, moved below all points."""
    (x_left, x_right), (y_left, y_right) = ((a[:, None], a[None]) for a in (x, y))
    over = middle[None, None]
    # A point over the middle itself would not tell between the edges on both of its sides.
    beside = ((x[-1] - x[0]) / (16 * _PIECES))[None, None]
    around = (x_left < over - beside) & (over + beside < x_right)
    slopes = (y_right - y_left) / jnp.where(around, x_right - x_left, 1)
    heights = jnp.where(around, y_left + slopes * (over - x_left), jnp.inf)
    flat = [a.reshape(len(x) ** 2, *middle.shape) for a in (slopes, heights)]
    slope = jnp.take_along_axis(flat[0], flat[1].argmin(0)[None], 0)[0]
    is_line = is_bounded & jnp.isfinite(slope) & (middle > x[0]) & (middle < x[-1])
    slope = jnp.where(is_line, slope, 0)
    intercept = _under(x, y, slope)
    return slope, jnp.where(is_bounded & ~jnp.isnan(intercept), intercept, -jnp.inf)


def _under(x: Array, y: Array, slope: Array) -> Array:
    """Return the largest intercept of a line of this slope below all points, rounded down."""
    rises = slope[None] * x
    off = 8 * jnp.finfo(x.dtype).eps * (jnp.abs(y) + jnp.abs(rises)).max(0) + 8 * jnp.finfo(x.dtype).tiny
    return (y - rises).min(0) - off


@jax.jit
def _fan(x: Array, y: Array, slope: Array) -> tuple[Array, Array]:
    """Return slopes and intercepts of five lines below all points, with a given slope in the middle."""
    first, last = _outermost(x, y)
    fan = jnp.stack([first, (first + slope) / 2, slope, (slope + last) / 2, last])
    fan = jnp.where(jnp.isfinite(fan), fan, slope[None])
    under = jax.vmap(lambda slope: _under(x, y, slope))(fan)
    # Lines between two of them are rounded once more.
    sizes = jnp.abs(under) + jnp.abs(fan) * jnp.abs(x).max(0, keepdims=True)
    limits = jnp.finfo(x.dtype)
    return fan, under - 8 * (limits.eps * sizes.max(0, keepdims=True) + limits.tiny)


def _outermost(x: Array, y: Array) -> tuple[Array, Array]:
    """Return the slopes of the first and the last edge of the points' lower hull."""
    beside = ((x[-1] - x[0]) / (16 * _PIECES))[None]

    def slopes(rise: Array, run: Array) -> Array:
        return jnp.where(run > beside, rise / jnp.where(run > beside, run, 1), jnp.nan)

    first, last = slopes(y - y[:1], x - x[:1]), slopes(y[-1:] - y, x[-1:] - x)
    return jnp.nanmin(first, 0), jnp.nanmax(last, 0)
