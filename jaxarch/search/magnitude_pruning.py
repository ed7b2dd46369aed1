"""Magnitude pruning to given densities: in rounds with rewinding, as lottery tickets are, or at once."""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise
from typing import NamedTuple, Unpack

import jax.numpy as jnp
from jax import Array

from jaxarch.descent import DescentChanges
from jaxarch.errors import ArgumentError
from jaxarch.finish.densities import Densities, check_densities, with_densities
from jaxarch.finish.prune import check_fraction
from jaxarch.finish.retrain import retrain
from jaxarch.masks import apply_mask
from jaxarch.masks.units import NOfM, Units, UnitsLike
from jaxarch.network import Network
from jaxarch.problem import Problem
from jaxarch.running.methods import method
from jaxarch.running.stage import A_NETWORK, FunctionStage, Needs
from jaxarch.running.strategy import Strategy, chain
from jaxarch.search.dense import dense
from jaxarch.search.units import check_counts, check_units, needs_of, units_of
from jaxarch.trees import PyTree, Where, map_selected, matrices


class Tickets(NamedTuple):
    """What the rounds hand to one another, in the network's `memory`.

    Attributes:
      round: how many there were.
      masks: of all targets, with a leading axis of them; False for those to come.
      units: what is removed together.
    """

    round: Array
    masks: PyTree
    units: Units


@dataclasses.dataclass(frozen=True)
class Settings:
    """Densities that are targets, and what is removed together."""

    targets: tuple[float, ...]
    units: tuple[str, ...] | Units


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The density after each round, and those that are targets."""

    rounds: tuple[float, ...]
    targets: tuple[float, ...]


@method("J. Frankle and M. Carbin, 2019", densities=0.5)
def magnitude_pruning(
    densities: Densities,
    *,
    fraction: float | None = 0.2,
    where: Where = matrices,
    units: UnitsLike = None,
    **descent: Unpack[DescentChanges],
) -> Strategy:
    r"""Keep the connections of the largest weights of trained networks, `round(d D)` of D for a density d.

    Iterative magnitude pruning with rewinding (J. Frankle and M. Carbin, The lottery ticket hypothesis,
    2019): train the whole network; keep the largest `|w|`, pooled over all masked leaves; set what is left
    back to where training began, and train again; so on until the smallest density. Between two densities all
    rounds keep the same share, at least `1 - fraction`; every density is met exactly. It is the IMP of [A],
    which gives neither rounds nor fraction.

    Args:
      densities: d, the share of connections that are kept, in (0, 1]; of several, the smallest is found, and
        `at_density` takes the others.
      fraction: the largest share of the connections left that a round may remove, in (0, 1); `None` for one
        shot: every density from the whole network, trained once.
      where: the leaves that are masked, by path.
      units: what is kept or removed together (see `masks.keep`): `neurons`, `channels` or `heads` of the
        problem's model, or several of them, `("heads", "neurons")`; `Groups.units`; `(4, 4)`; `"2:4"`. The
        size of a unit is the mean `|w|` of its connections that are left, and densities are shares of units.
        N:M is made in one shot.
      **descent: `optimizer`, `steps`, `batch_size`, `sampling` in place of the problem's.

    Returns:
      A strategy. With rounds its weights are those that training began from, masked: the winning ticket,
      which `retrain("warm", nonnegative=False)` trains. In one shot they are those of the trained network.

    Raises:
      ArgumentError: a density outside (0, 1], or none; a fraction outside (0, 1), or any with N:M; units that
        are not understood, or that the model has none of.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> search = jaxarch.search.magnitude_pruning((0.5, 0.25), fraction=0.5)
      >>> network = search(jax.random.key(0), problem)
      >>> print(jaxarch.density(network.mask), sorted(network.by_density.masks))
      0.25 ['0.25', '0.5']
    """
    together, targets = check_units(units), check_densities(densities)
    check_counts(together, targets)
    settings, needs = Settings(targets, together), needs_of(together, A_NETWORK)
    first = dense(nonnegative=False, where=where, **descent)
    if fraction is None:
        return chain(first, FunctionStage("largest weights", _one_shot, settings, needs))
    if isinstance(together, NOfM):
        raise ArgumentError(
            f"fraction: {together.n}:{together.m} is made in one shot, not in rounds; give fraction=None"
        )
    check_fraction("fraction", fraction)
    if fraction == 0:
        raise ArgumentError("fraction: expected a number in (0, 1): a round has to remove something")
    sizes = Sizes(tuple(rounds(targets, fraction)), targets)
    again = retrain("rewind", nonnegative=False, **descent)
    begin = FunctionStage("first round", _first_round, settings, needs, removes=())
    prune_to_next = FunctionStage("prune", _prune_to_next, sizes, A_TICKET)
    stages = [prune_to_next, *(again, prune_to_next) * (len(sizes.rounds) - 1)]
    return chain(first, begin, *stages, FunctionStage("tickets", _tickets, targets, A_TICKET))


A_TICKET = Needs("required", ("params", "mask", "start", "memory"))


def rounds(densities: Densities, fraction: float) -> list[float]:
    """The density after each round: geometric from one target to the next, in as few rounds as may be."""
    steps = []
    for before, after in pairwise([1.0, *check_densities(densities)]):
        # A hair of rounding must not cost a round.
        count = max(math.ceil(math.log(after / before) / math.log1p(-fraction) - 1e-9), 1)
        steps += [before * (after / before) ** (step / count) for step in range(1, count)] + [after]
    return steps


def _one_shot(settings: Settings, key: Array, problem: Problem, network: Network) -> Network:
    units = _units(settings, problem, network)
    sizes = unit_sizes(units, network)
    masks = {
        d: units.spread(units.largest(sizes, units.counts(sizes, d)), network.params)
        for d in settings.targets
    }
    return network.then(with_densities(masks, network.params, network.state))


def _first_round(settings: Settings, key: Array, problem: Problem, network: Network) -> Network:
    """Room for the masks of all targets, so that all rounds are one program."""
    units = _units(settings, problem, network)
    everything = map_selected(lambda leaf: jnp.ones_like(leaf, bool), units.score(network.mask))
    mask = units.spread(everything, network.params)
    room = map_selected(lambda leaf: jnp.zeros((len(settings.targets), *leaf.shape), bool), mask)
    return network.replace(mask=mask, memory=Tickets(jnp.asarray(0), room, units))


def _units(settings: Settings, problem: Problem, network: Network) -> Units:
    masked = map_selected(lambda m, w: w, network.mask, network.params)
    return units_of(settings.units, problem, network.params, network.state, masked)


def unit_sizes(units: Units, network: Network) -> PyTree:
    """The mean `|w|` of each unit over the connections that are left.

    NaN comes after all other units that are left, but before those that were pruned.
    """
    left = units.score(map_selected(lambda m: m.astype(jnp.float32), network.mask))
    sums = units.score(map_selected(lambda m, w: jnp.abs(jnp.where(m, w, 0)), network.mask, network.params))

    def size(share: Array, total: Array) -> Array:
        mean = total / jnp.where(share > 0, share, 1)
        return jnp.where(share > 0, jnp.where(jnp.isnan(mean), -1, mean), -2)

    return map_selected(size, left, sums)


def _prune_to_next(sizes: Sizes, key: Array, problem: Problem, network: Network) -> Network:
    tickets: Tickets = network.memory
    units, measured = tickets.units, unit_sizes(tickets.units, network)
    counts = jnp.asarray([units.counts(measured, size) for size in sizes.rounds])
    mask = units.spread(units.largest(measured, counts[tickets.round]), network.params)
    met = jnp.asarray([sizes.rounds.index(target) for target in sizes.targets]) == tickets.round

    def keep(before: Array, leaf: Array) -> Array:
        return jnp.where(met.reshape(-1, *[1] * leaf.ndim), leaf, before)

    masks = map_selected(keep, tickets.masks, mask)
    return network.replace(
        params=apply_mask(mask, network.params),
        mask=mask,
        memory=Tickets(tickets.round + 1, masks, units),
    )


def _tickets(targets: tuple[float, ...], key: Array, problem: Problem, network: Network) -> Network:
    kept = network.memory.masks
    masks = {d: map_selected(lambda leaf, i=i: leaf[i], kept) for i, d in enumerate(targets)}
    _, state = problem.init(key)
    return network.replace(memory=None).then(with_densities(masks, network.start, state))
