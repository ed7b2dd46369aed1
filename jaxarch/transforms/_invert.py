"""The opposite of an architecture: connections that it lacks, as many in each leaf."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from jaxarch._internal.trees import PyTree, map_selected
from jaxarch.masks import apply_mask, init_scores, top_k
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._stage import A_NETWORK, FunctionStage


@method("J. Frankle et al., 2021")
def invert() -> FunctionStage:
    """Replace a network's connections by others that it lacks, as many in each leaf.

    A sanity check after J. Frankle, G. Dziugaite, D. Roy and M. Carbin, Pruning neural networks at
    initialization: Why are we missing the mark?, 2021, who keep the connections of the lowest scores. Not
    every method has scores, so here new connections are drawn among the pruned ones, all equally likely. If a
    leaf has more connections than it lacks, all pruned ones are taken, and the others are drawn among those
    it has. If an architecture tells which connections matter, little performance should be left.

    Returns:
      A transform. The weights are those found at the new places, 0 where there was no connection: retrain
      them.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> strategy = jaxarch.chain(jaxarch.search.random_mask(0.25, scope="layer"), jaxarch.invert())
      >>> print(jaxarch.layer_density(strategy(jax.random.key(0), problem).mask)["W2_1"])
      0.25
    """
    return FunctionStage("invert", _invert, None, A_NETWORK)


def _invert(settings: None, key: Array, problem: Problem, network: Network) -> Network:
    mask = opposite(key, network.mask)
    return network.replace(params=apply_mask(mask, network.params), mask=mask)


def opposite(key: Array, mask: PyTree) -> PyTree:
    """Return a mask with as many connections in each leaf, of those that were missing as far as they go."""
    drawn = init_scores(key, mask, 0.0, 1.0)

    def of_leaf(there: Array, scores: Array) -> Array:
        first = jnp.where(there, -jnp.inf, scores)
        missing = ~there
        count = jnp.sum(there, dtype=jnp.int32)
        new = top_k(first, jnp.minimum(count, jnp.sum(missing, dtype=jnp.int32)))
        rest = top_k(jnp.where(there, scores, -jnp.inf), count - jnp.sum(new, dtype=jnp.int32))
        return new | rest

    return map_selected(of_leaf, mask, drawn)
