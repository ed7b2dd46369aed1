"""Flipping connections one at a time, as long as the loss on all training examples falls."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

from jaxarch._internal.errors import ArgumentError, check_count, shown
from jaxarch._internal.precision import widened
from jaxarch._internal.trees import PyTree, map_selected, merge
from jaxarch.masks import apply_mask
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._records import Start
from jaxarch.run._stage import A_NETWORK, FunctionStage, Needs
from jaxarch.theory.optimality import flip_slopes

Returning = Literal["ones", "start"] | None


@dataclasses.dataclass(frozen=True)
class Settings:
    """Limits on rounds, tries and memory, and the weights of connections that come back."""

    rounds: int
    tried: int | None
    returning: Returning
    at_once: int
    batch_size: int | None


@method("this library; docs/theory.md", rounds=2)
def flip(
    rounds: int = 100,
    *,
    tried: int | None = None,
    returning: Returning = None,
    at_once: int = 8,
    batch_size: int | None = None,
) -> FunctionStage:
    r"""Remove or bring back one connection at a time, each the best of those tried.

        i* = argmin F(u with u_i flipped) over the `tried` smallest s_i g_i + c_i,    g = grad F(u)

    F is the loss over all training rows. s_i is 1 if there is no connection and -1 if there is one
    (`theory.optimality.flip_slopes`). c_i is how far F was beyond that slope when i was tried last, 0 before:
    the curvature along the edge, which other flips change little. All this only ranks: each candidate's F is
    computed. If none is below F(u) by more than rounding, the next round tries the candidates that come
    after. It ends when all connections were tried and none was better: then no single flip lowers F.

    Args:
      rounds: upper limit. Each round takes a gradient and `tried` evaluations of F, and makes one flip or
        none.
      tried: how many candidates are compared in a round; by default every connection.
      returning: the weight of a connection that comes back: `ones` for weight-free networks; `start` for its
        weight in the network's `Start`, which the first stage of a chain leaves; `None` if no connection
        comes back that the given network did not have. Existing connections keep their weights.
      at_once: candidates that are evaluated together.
      batch_size: rows at a time, to save memory; by default all.

    Returns:
      A transform. Its `info` has `flips`, how many were made; `objective`, F before the first round and after
      each, shape (rounds + 1,), the last value repeated; and `locally_optimal`, whether all single flips that
      `returning` allows were tried at the end, and none was better.

    Raises:
      ArgumentError: counts below 1; an unknown `returning`; `start` for a network without a `Start`.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> search = jaxarch.search.two_temperature()
      >>> network = jaxarch.chain(search, jaxarch.flip(returning="ones"))(jax.random.key(0), problem)
      >>> print(network.params["W2_1"].astype(int), network.info["locally_optimal"])
      [[1 0 0 0]
       [0 1 0 0]
       [0 0 1 0]
       [0 0 0 1]] True
    """
    check_count("rounds", rounds)
    for name, count in (("tried", tried), ("batch_size", batch_size)):
        if count is not None:
            check_count(name, count)
    check_count("at_once", at_once)
    if returning is not None and not (isinstance(returning, str) and returning in ("ones", "start")):
        raise ArgumentError(f"returning: expected 'ones', 'start' or None, got {shown(returning)}")
    needs = A_NETWORK if returning != "start" else Needs("required", ("params", "mask"), records=(Start,))
    settings = Settings(rounds, tried, returning, at_once, batch_size)
    return FunctionStage("flip", _flip, settings, needs)


class _Flipped(NamedTuple):
    """State of the rounds: the mask as a vector, the flips so far, F, and facts about each flip.

    Attributes:
      untried: which flips were not tried yet.
      curvature: how far F of each flip was beyond its slope when it was last tried, on any mask; 0 before.
    """

    mask: Array
    flips: Array
    objectives: Array
    round: Array
    untried: Array
    curvature: Array


def _flip(settings: Settings, key: Array, problem: Problem, network: Network) -> Network:
    on = MaskedObjective.of(network, settings.returning, problem, settings.batch_size)
    tried = min(settings.tried or on.flat.size, on.flat.size)

    def body(now: _Flipped) -> _Flipped:
        slopes = on.slopes(now.mask)
        tries = on.flips(now.mask, now.untried, slopes + now.curvature, tried, settings.at_once)
        best = jnp.argmin(tries.values)
        improved = tries.better[best]
        after = jnp.where(improved, tries.values[best], now.objectives[now.round])
        later = jnp.arange(settings.rounds + 1) > now.round
        # If fewer are untried than `tried`, the positions that fill up were not evaluated.
        beyond = jnp.where(
            now.untried[tries.positions],
            tries.values - tries.before - slopes[tries.positions],
            now.curvature[tries.positions],
        )
        return _Flipped(
            mask=jnp.where(improved, flipped(now.mask, tries.positions[best]), now.mask),
            flips=now.flips + improved.astype(now.flips.dtype),
            objectives=jnp.where(later, after, now.objectives),
            round=now.round + 1,
            untried=jnp.where(improved, on.allowed, now.untried.at[tries.positions].set(False)),
            curvature=now.curvature.at[tries.positions].set(beyond),
        )

    none = jnp.zeros((), jnp.int32)
    first = jnp.full((settings.rounds + 1,), on.objective(on.flat))
    start = _Flipped(on.flat, none, first, none, on.allowed, jnp.zeros_like(widened(on.flat)))
    end = jax.lax.while_loop(lambda now: now.untried.any() & (now.round < settings.rounds), body, start)
    mask = map_selected(lambda leaf: leaf > 0, on.unravel(end.mask))
    info = {"flips": end.flips, "objective": end.objectives, "locally_optimal": ~end.untried.any()}
    return network.replace(params=apply_mask(mask, on.weights), mask=mask, info=network.info | info)


class Tries(NamedTuple):
    """F after each of several flips.

    Attributes:
      positions: which connections, the most promising first.
      values: F after each alone, infinite if it is NaN or the flip is not among those to try.
      before: F of the mask, infinite if it is NaN.
      better: whether the value is below F of the mask by more than rounding.
    """

    positions: Array
    values: Array
    before: Array
    better: Array


class MaskedObjective(NamedTuple):
    """F as a function of the mask alone, a vector of zeros and ones.

    Attributes:
      objective: function from a vector to F.
      flat: the network's mask as a vector.
      unravel: function from a vector to the tree.
      weights: weights that a mask multiplies: the network's for existing connections, elsewhere those that
        come back.
      allowed: which connections may be flipped.
    """

    objective: Callable[[Array], Array]
    flat: Array
    unravel: Callable[[Array], PyTree]
    weights: PyTree
    allowed: Array

    @classmethod
    def of(
        cls, network: Network, returning: Returning, problem: Problem, batch_size: int | None
    ) -> MaskedObjective:
        """Make the objective of a network; `returning` defines the weights that come back, as in `flip`."""
        mask = network.mask
        elsewhere = (
            network[Start].params if returning == "start" else jax.tree.map(jnp.ones_like, network.params)
        )

        def weight(m: Array, found: Array, other: Array) -> Array:
            return jnp.where(m, found, other.astype(found.dtype))

        all_of = map_selected(weight, mask, network.params, elsewhere)
        # A weight that is not finite may stand where there is no connection, and cannot come back.
        usable = map_selected(lambda m, leaf: m | jnp.isfinite(leaf), mask, all_of)
        weights = merge(apply_mask(usable, all_of), network.params)
        numbers = map_selected(lambda m, leaf: m.astype(leaf.dtype), mask, weights)
        flat, unravel = ravel_pytree(numbers)
        allowed = flat > 0 if returning is None else ravel_pytree(usable)[0]

        def objective(vector: Array) -> Array:
            params = merge(map_selected(jnp.multiply, unravel(vector), weights), weights)
            return widened(problem.objective(params, network.state, batch_size=batch_size))

        return cls(objective, flat, unravel, weights, allowed)

    def slopes(self, mask: Array) -> Array:
        """Return the change of F with each flip, to first order."""
        slopes: Array = flip_slopes(mask > 0, widened(jax.grad(self.objective)(mask)))
        return slopes

    def flips(self, mask: Array, among: Array, expected: Array, tried: int, at_once: int) -> Tries:
        """Compute F after some of the flips in `among`: those expected to lower it most."""
        # NaN becomes finite, so that unknown flips come last, but still before those not in `among`.
        expected = jnp.nan_to_num(expected, nan=jnp.finfo(expected.dtype).max)
        positions = jax.lax.top_k(jnp.where(among, -expected, -jnp.inf), tried)[1]

        def value(position: Array) -> Array:
            return self.objective(flipped(mask, position))

        # Evaluate the mask itself, which no position flips, in the same program: another one could round
        # otherwise.
        tries = jnp.append(positions, mask.size)
        computed = jax.lax.map(value, tries, batch_size=min(at_once, tried + 1))
        before = jnp.where(jnp.isnan(computed[-1]), jnp.inf, computed[-1])
        usable = among[positions] & ~jnp.isnan(computed[:-1])
        values = jnp.where(usable, computed[:-1], jnp.inf)
        rounding = jnp.where(jnp.isinf(before), 0, 8 * jnp.finfo(before.dtype).eps * jnp.abs(before))
        return Tries(positions, values, before, values < before - rounding)


def flipped(mask: Array, position: Array) -> Array:
    """Return a mask's vector with one connection flipped; a position beyond its end changes nothing."""
    return mask.at[position].set(1 - mask[position], mode="drop")
