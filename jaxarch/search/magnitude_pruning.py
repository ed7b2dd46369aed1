"""Magnitude pruning to given densities: in rounds with rewinding, as lottery tickets are, or at once."""

from __future__ import annotations

import math
from itertools import pairwise

import jax.numpy as jnp
import optax
from jax import Array

from jaxarch.errors import ArgumentError
from jaxarch.finish import retrain
from jaxarch.finish.at_density import Densities, check_densities, connections_kept, with_densities
from jaxarch.finish.prune import check_fraction, largest_weights
from jaxarch.masks import apply_mask
from jaxarch.problem import Finish, Network, Problem
from jaxarch.running.strategy import Strategy, chain
from jaxarch.search.dense import dense
from jaxarch.trees import PyTree, Where, map_selected, matrices


def magnitude_pruning(
    densities: Densities,
    *,
    fraction: float | None = 0.2,
    where: Where = matrices,
    optimizer: optax.GradientTransformation | None = None,
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
      optimizer: any optax transformation; by default the problem's.

    Returns:
      A strategy. With rounds its weights are those that training began from, masked: the winning ticket,
      which `retrain("warm", nonnegative=False)` trains. In one shot they are those of the trained network.

    Raises:
      ArgumentError: a density outside (0, 1], or none; a fraction outside (0, 1).
    """
    targets = check_densities(densities)
    first = dense(nonnegative=False, where=where, optimizer=optimizer)
    if fraction is None:
        return chain(first, _one_shot(targets))
    check_fraction("fraction", fraction)
    if fraction == 0:
        raise ArgumentError("fraction: expected a number in (0, 1): a round has to remove something")
    sizes = rounds(targets, fraction)
    again = retrain("rewind", nonnegative=False, optimizer=optimizer)
    prune_to_next = _prune_to_next(sizes, targets)
    stages = [prune_to_next, *(again, prune_to_next) * (len(sizes) - 1)]
    return chain(first, _before_the_first_round(len(targets)), *stages, _tickets(targets))


def rounds(densities: Densities, fraction: float) -> list[float]:
    """The density after each round: geometric from one target to the next, in as few rounds as may be."""
    steps = []
    for before, after in pairwise([1.0, *check_densities(densities)]):
        # A hair of rounding must not cost a round.
        count = max(math.ceil(math.log(after / before) / math.log1p(-fraction) - 1e-9), 1)
        steps += [before * (after / before) ** (step / count) for step in range(1, count)] + [after]
    return steps


def _one_shot(targets: list[float]) -> Finish:
    def finish(key: Array, problem: Problem, network: Network) -> Network:
        masks = {d: largest_weights(network, connections_kept(d, network.mask)) for d in targets}
        return with_densities(masks, network.params, network.state)

    finish.__name__ = "largest weights"
    return finish


def _before_the_first_round(targets: int) -> Finish:
    """Room for the masks of all targets, so that all rounds are one program."""

    def finish(key: Array, problem: Problem, network: Network) -> Network:
        room = map_selected(lambda leaf: jnp.zeros((targets, *leaf.shape), bool), network.mask)
        return network._replace(info={"round": jnp.asarray(0), "tickets": room})

    finish.__name__ = "first round"
    return finish


def _prune_to_next(sizes: list[float], targets: list[float]) -> Finish:
    def finish(key: Array, problem: Problem, network: Network) -> Network:
        round_ = network.info["round"]
        counts = jnp.asarray([connections_kept(size, network.mask) for size in sizes])
        mask = largest_weights(network, counts[round_])
        met = jnp.asarray([sizes.index(target) for target in targets]) == round_

        def keep(before: Array, leaf: Array) -> Array:
            return jnp.where(met.reshape(-1, *[1] * leaf.ndim), leaf, before)

        tickets: PyTree = map_selected(keep, network.info["tickets"], mask)
        info = {"round": round_ + 1, "tickets": tickets}
        return Network(apply_mask(mask, network.params), mask, network.state, info)

    finish.__name__ = "prune"
    return finish


def _tickets(targets: list[float]) -> Finish:
    def finish(key: Array, problem: Problem, network: Network) -> Network:
        kept = network.info["tickets"]
        masks = {d: map_selected(lambda leaf, i=i: leaf[i], kept) for i, d in enumerate(targets)}
        _, state = problem.init(key)
        return with_densities(masks, network.info["start"], state, {"round": None, "tickets": None})

    finish.__name__ = "tickets"
    return finish
