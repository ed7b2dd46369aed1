"""Radii of examples: how far all pixels may change before the class does, proven and attacked."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxarch import PyTree
from jaxarch.theory.lipschitz import lipschitz_bound
from jaxarch.theory.relaxation import linear_bounds

STARTS = 4
"""Points from which each attack begins."""
Logits = Callable[[PyTree, Array], Array]
"""A network: `(params, example) -> logits`, for an example whose entries are between 0 and 1."""


class Radii(NamedTuple):
    """Robustness of a network at examples; every array has shape (examples,).

    A change of radius r moves every entry by at most r, within 0 and 1.

    Attributes:
      proven: no change of this radius changes the class; 0 where the class is wrong.
      attacked: a change of this radius was found that does; 1 where none was.
      slope: no logit changes faster than this times the largest change of an entry, within the given radius.
    """

    proven: Array
    attacked: Array
    slope: Array


@partial(jax.jit, static_argnames=("logits", "rounds", "attacks"))
def radii(
    logits: Logits,
    params: PyTree,
    examples: Array,
    labels: Array,
    radius: Array,
    *,
    rounds: int,
    attacks: int,
) -> Radii:
    """Bound the radii of examples from both sides, by bisection.

    Args:
      logits: the network.
      params: its parameters.
      examples: entries between 0 and 1, with a leading axis of examples.
      labels: their classes.
      radius: the radius at which slopes are bounded.
      rounds: halvings of the interval that holds a radius, so its width is `2**-rounds`.
      attacks: steps of projected gradients of each attack, from each of its starts.
    """

    def one(given: tuple[Array, Array]) -> Radii:
        example, label = given
        margins = partial(_margins, logits, params, label)
        right = margins(example).min() > 0

        def holds(r: Array) -> Array:
            return linear_bounds(margins)(*_box(example, r))[0].min() > 0

        def survives(r: Array) -> Array:
            return _attacked(margins, *_box(example, r), attacks) > 0

        slope = lipschitz_bound(partial(logits, params))(*_box(example, radius))
        proven, _ = _bisected(holds, rounds)
        _, attacked = _bisected(survives, rounds)
        return Radii(jnp.where(right, proven, 0.0), jnp.where(right, attacked, 0.0), slope)

    return lax.map(one, (examples, labels))


def _margins(logits: Logits, params: PyTree, label: Array, example: Array) -> Array:
    """Return the lead of a class over each of the others."""
    of = logits(params, example)
    others = (label + jnp.arange(1, len(of))) % len(of)
    return of[label] - of[others]


def _box(example: Array, radius: Array) -> tuple[Array, Array]:
    return jnp.maximum(example - radius, 0.0), jnp.minimum(example + radius, 1.0)


def _bisected(holds: Callable[[Array], Array], rounds: int) -> tuple[Array, Array]:
    """Return the largest radius that was seen to hold, and the least one that was seen not to.

    Both are what was tried, so each is right even if `holds` is not monotone. Without any they are 0 and 1.
    """

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = (low + high) / 2
        held = holds(middle)
        return jnp.where(held, middle, low), jnp.where(held, high, middle)

    return lax.fori_loop(0, rounds, halve, (jnp.float32(0), jnp.float32(1)))


def _attacked(margins: Callable[[Array], Array], low: Array, high: Array, steps: int) -> Array:
    """Return the least margin that projected gradients find in a box, from its middle and random points."""

    def least(x: Array) -> Array:
        return margins(x).min()

    def descend(x: Array, left: Array) -> tuple[Array, Array]:
        value, slope = jax.value_and_grad(least)(x)
        # Long steps cross the box, and short ones at the end find a minimum that lies inside.
        return jnp.clip(x - (high - low) * (0.25 * left) * jnp.sign(slope), low, high), value

    def from_a_start(share: Array) -> Array:
        end, seen = lax.scan(descend, low + (high - low) * share, jnp.linspace(1.0, 0.05, steps))
        return jnp.minimum(seen.min(), least(end))

    shares = jax.random.uniform(jax.random.key(0), (STARTS, *low.shape)).at[0].set(0.5)
    return jax.vmap(from_a_start)(shares).min()
