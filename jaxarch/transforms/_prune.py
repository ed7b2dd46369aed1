"""Pruning by magnitude: the connections of the largest weights."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import ArgumentError, is_traced, real_numbers, shown
from jaxarch._internal.trees import PyTree, by_path, map_selected
from jaxarch.masks import apply_mask, connections
from jaxarch.masks._largest import largest_of
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._stage import A_NETWORK, FunctionStage
from jaxarch.transforms._densities import layers_lost


@method("J. Frankle and M. Carbin, 2019")
def prune(fraction: ArrayLike | Mapping[str, ArrayLike] = 0.2) -> FunctionStage:
    """Remove a fraction of the connections that are left, those of the smallest weights.

    One round of iterative magnitude pruning: of n connections, the `n - round(fraction n)` with the largest
    `|w|` stay, pooled over all masked leaves, or in each leaf by itself. The weights that stay are not
    changed. For given densities use `search.magnitude_pruning`.

    Args:
      fraction: share of the connections left that is removed, in [0, 1). May be traced. A dict has one for
        each masked leaf, by its path or the end of it; each is then pruned by itself.

    Returns:
      A transform.

    Raises:
      ArgumentError: a concrete fraction outside [0, 1); paths other than those of the masked leaves.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> strategy = jaxarch.chain(jaxarch.search.untrained(), jaxarch.prune(0.5), jaxarch.prune(0.5))
      >>> print(jaxarch.density(strategy(jax.random.key(0), problem).mask))
      0.25
    """
    if not isinstance(fraction, Mapping):
        check_fraction("fraction", fraction)
        return FunctionStage("prune", _prune, fraction, A_NETWORK, remarks=layers_lost)
    for path, share in fraction.items():
        check_fraction(f"fraction of {shown(path)}", share)
    return FunctionStage("prune", _prune_each, tuple(fraction.items()), A_NETWORK, remarks=layers_lost)


def _prune(fraction: ArrayLike, key: Array, problem: Problem, network: Network) -> Network:
    mask = largest_weights(network, _left(connections(network.mask), fraction))
    return network.replace(params=apply_mask(mask, network.params), mask=mask)


def _prune_each(
    fractions: tuple[tuple[str, ArrayLike], ...], key: Array, problem: Problem, network: Network
) -> Network:
    of_each = by_path("fraction", dict(fractions), network.mask)
    counts = map_selected(lambda leaf, share: _left(connections(leaf), share), network.mask, of_each)
    mask = largest_weights(network, jnp.stack(jax.tree.leaves(counts)))
    return network.replace(params=apply_mask(mask, network.params), mask=mask)


def _left(count: ArrayLike, fraction: ArrayLike) -> Array:
    counted = jnp.asarray(count).astype(jnp.result_type(fraction))
    return jnp.asarray(count) - jnp.round(fraction * counted).astype(jnp.int32)


def check_fraction(name: str, fraction: ArrayLike) -> None:
    """Raise unless the fraction is a number in [0, 1); a traced one passes."""
    if not is_traced(fraction):
        number = real_numbers(name, fraction)
        if number.ndim or isinstance(fraction, bool) or not 0 <= number < 1:
            raise ArgumentError(f"{name}: expected a number in [0, 1), got {shown(fraction)}")


def largest_weights(network: Network, count: ArrayLike) -> PyTree:
    """Return the mask of the `count` largest `|w|` among the connections left, pooled over all leaves.

    With several counts, one per leaf, each leaf is ranked by itself.

    A weight that is NaN comes after all others that are left, but before pruned ones.
    """
    sizes = map_selected(lambda m, w: jnp.abs(w), network.mask, network.params)
    return largest_of(sizes, count, network.mask)
