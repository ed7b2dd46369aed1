"""Pruning by magnitude: the connections of the largest weights."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxarch.errors import ArgumentError, is_traced, shown
from jaxarch.masks import apply_mask, connections, top_k
from jaxarch.network import Network
from jaxarch.problem import Problem
from jaxarch.running.methods import method
from jaxarch.running.stage import A_NETWORK, FunctionStage
from jaxarch.trees import PyTree, map_selected


@method("J. Frankle and M. Carbin, 2019")
def prune(fraction: ArrayLike = 0.2) -> FunctionStage:
    """The connections of the largest weights: a fraction of those that are left is removed, the weights kept.

    One round of iterative magnitude pruning: of n connections, `n - round(fraction n)` with the largest
    `|w|` stay, pooled over all masked leaves. To given densities: `search.magnitude_pruning`.

    Args:
      fraction: of the connections that are left, in [0, 1). May be traced.

    Returns:
      A finish.

    Raises:
      ArgumentError: a concrete fraction outside [0, 1).

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> strategy = jaxarch.chain(jaxarch.search.untrained(), jaxarch.prune(0.5), jaxarch.prune(0.5))
      >>> print(jaxarch.density(strategy(jax.random.key(0), problem).mask))
      0.25
    """
    check_fraction("fraction", fraction)
    return FunctionStage("prune", _prune, fraction, A_NETWORK)


def _prune(fraction: ArrayLike, key: Array, problem: Problem, network: Network) -> Network:
    left = connections(network.mask)
    mask = largest_weights(network, left - jnp.round(fraction * left).astype(jnp.int32))
    return network.replace(params=apply_mask(mask, network.params), mask=mask)


def check_fraction(name: str, fraction: ArrayLike) -> None:
    """Raise unless it is a number in [0, 1), where it is concrete."""
    if not is_traced(fraction):
        number = np.asarray(fraction)
        if number.ndim or number.dtype.kind not in "iuf" or not 0 <= number < 1:
            raise ArgumentError(f"{name}: expected a number in [0, 1), got {shown(fraction)}")


def largest_weights(network: Network, count: ArrayLike) -> PyTree:
    """The mask of the `count` largest `|w|` among the connections that are left, pooled over all leaves.

    A weight that is NaN comes after all others that are left, but before what was pruned.
    """

    def magnitude(m: Array, w: Array) -> Array:
        return jnp.where(m, jnp.where(jnp.isnan(w), -1, jnp.abs(w)), -2)

    return top_k(map_selected(magnitude, network.mask, network.params), count)
