"""Loss barriers: the loss along the line between two networks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch._internal.errors import (
    ArgumentError,
    check_batches,
    check_callable,
    check_count,
    is_traced,
    shown,
)
from jaxarch._internal.precision import at_least_float32, widened
from jaxarch._internal.trees import PyTree, named_leaves, raw_numbers
from jaxarch.analysis._pair import checked_pair, examples_of
from jaxarch.structure._tracing import hashable, traced


class Barrier(NamedTuple):
    """The loss along the line between two networks, as returned by `barrier`.

    Attributes:
      at: the places on the line, from 0, the first network, to 1, the second; shape (points,).
      losses: the loss at each place, shape (points,).
      height: the barrier: the largest difference of the loss from the line between the two networks'
        losses; at least 0. NaN if a loss is NaN, or that of an end infinite.
    """

    at: Array
    losses: Array
    height: Array


def barrier(
    loss: Callable[..., Any],
    first: PyTree,
    second: PyTree,
    batches: Iterable[PyTree] | None = None,
    points: int = 25,
) -> Barrier:
    r"""Compute the loss barrier between two networks: how much a straight path between them rises.

        found = jaxarch.analysis.barrier(loss, a, aligned.second, batches)
        figure = jaxarch.plots.barriers({"aligned": found})

    With theta_t = (1 - t) theta_0 + t theta_1 for t = 0, ..., 1,

        height = max_t L(theta_t) - [(1 - t) L(theta_0) + t L(theta_1)]

    (Entezari et al., *The role of permutation invariance in linear mode connectivity*, 2022,
    https://arxiv.org/abs/2110.06296). Frankle et al. (*Linear mode connectivity and the
    lottery ticket hypothesis*, 2020, https://arxiv.org/abs/1912.05671) subtract the mean of both losses
    instead; theirs is the same if the losses are. If L is convex, the height is 0. Networks that are apart by
    a permutation only have a barrier, so `align` the second first. Leaves between two networks are no
    network's: running statistics of a batch norm, for instance, are not those of the network halfway. Compute
    them within `loss`, or read the height as an upper bound.

    Args:
      loss: `params -> scalar`, pure and jittable; or `(params, batch) -> scalar`, a mean over the examples,
        if there are batches.
      first: the parameters of the first network.
      second: the parameters of the second network. Leaves without a value between, such as integers, must be
        equal; where traced ones are not, the losses are NaN.
      batches: batches of examples along the first axis of each leaf, over which the loss is averaged,
        weighted by their sizes. Each shape of a batch is compiled once.
      points: the number of places on the line, at least 3, both ends included.

    Returns:
      `Barrier`. The losses are computed one after another, so the memory is that of one. `jax.vmap` over the
      parameters gives the barriers of many pairs, and `jax.jit` and gradients work.

    Raises:
      ArgumentError: parameters of different paths or shapes, or with different integers; fewer than 3 points;
        a loss that is no scalar; no batch, or batches without examples.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> def loss(params):  # two minima, at -1 and 1, and a hill of height 1 between
      ...     return (params["w"] ** 2 - 1) ** 2
      >>> found = jaxarch.analysis.barrier(loss, {"w": jnp.float32(-1)}, {"w": jnp.float32(1)}, points=5)
      >>> found.losses.round(2).tolist(), float(found.height)
      ([0.0, 0.5600000023841858, 1.0, 0.5600000023841858, 0.0], 1.0)
    """
    second = checked_pair(first, second, traced=True)
    is_known = _check_between(first, second)
    check_count("points", points, 3)
    check_callable("loss", loss, *(["params"] if batches is None else ["params", "batch"]))
    loss, at = hashable(loss), np.linspace(0.0, 1.0, points, dtype=np.float32)
    sums: Any = 0.0
    examples = 0
    for batch, count in [((), 1)] if batches is None else _counted(batches):
        if not examples:
            _check_loss(loss, first, *batch)
        sums = sums + count * _losses(loss, first, second, at, *batch)
        examples += count
    if not examples:
        raise ArgumentError("batches: expected at least one example, got none")
    losses = jnp.where(is_known, sums / examples, jnp.nan)
    straight = (1 - at) * losses[0] + at * losses[-1]
    return Barrier(jnp.asarray(at), losses, jnp.max(losses - straight))


def _counted(batches: Iterable[PyTree]) -> Iterator[tuple[tuple[PyTree], int]]:
    """Yield the further argument of the loss, a batch, with its number of examples."""
    check_batches(batches)
    for batch in batches:
        yield (batch,), examples_of(batch, 1)


def _check_between(first: PyTree, second: PyTree) -> Any:
    """Raise unless the leaves have values between; return whether those that have none, traced, are equal."""
    leaves, equal = named_leaves(first), jnp.asarray(True)
    for path, leaf in named_leaves(second).items():
        if jnp.result_type(leaf) != jnp.result_type(leaves[path]):
            raise ArgumentError(
                f"second: expected {path!r} of {jnp.result_type(leaves[path])}, like the first's, got "
                f"{jnp.result_type(leaf)}"
            )
        if _is_between(leaf):
            continue
        if is_traced((leaf, leaves[path])):
            equal = equal & (leaf == leaves[path]).all()
        elif not np.array_equal(*(raw_numbers(of) for of in (leaf, leaves[path]))):
            raise ArgumentError(
                f"second: {path!r} has no values between its own and the first's, of {leaf.dtype}; give both "
                "networks the same"
            )
    return equal


def _is_between(leaf: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)


def _losses(loss: Callable[..., Any], first: PyTree, second: PyTree, at: np.ndarray, *batch: PyTree) -> Array:
    # Not one program over all places: XLA runs convolutions in a loop many times slower on a CPU.
    return jnp.stack([_loss(first, second, place, *batch, loss=loss) for place in at])


def _check_loss(loss: Callable[..., Any], params: PyTree, *batch: PyTree) -> None:
    _, made = traced(loss, params, *batch, name="loss")
    if getattr(made, "shape", None) != () or not jnp.issubdtype(made.dtype, jnp.floating):
        raise ArgumentError(
            f"loss: expected one real number, got shapes {shown(jax.tree.map(jnp.shape, made))}"
        )


@functools.partial(jax.jit, static_argnames="loss")
def _loss(first: PyTree, second: PyTree, place: Any, *batch: PyTree, loss: Callable[..., Any]) -> Array:
    def between(one: Any, other: Any) -> Any:
        if not _is_between(one):
            return one
        # Halfway between two bfloat16 weights lies a number that bfloat16 may not have.
        wide = at_least_float32(one.dtype)
        t = place.astype(jnp.finfo(wide).dtype)
        return ((1 - t) * one.astype(wide) + t * other.astype(wide)).astype(one.dtype)

    made = loss(jax.tree.map(between, first, second), *batch)
    return widened(made)
