"""One weight on all connections of an architecture."""

from __future__ import annotations

from typing import Literal

import jax
from jax import Array

from jaxarch._internal.errors import check_choice
from jaxarch._internal.trees import PyTree, map_selected, merge
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._stage import A_NETWORK, FunctionStage, Needs


@method("[D] section 5")
def share_weight(weight: Literal["best", "random"] = "best") -> FunctionStage:
    """One weight on all connections of an architecture: agnostic -> real of [D] section 5.

    Args:
      weight: `random` for u_0 ~ N(0, 1), as [D] prints it; `best` for the one that `search.agnostic` chose
        the architecture with.

    Returns:
      A transform. The network's `shared_weight` is that weight.

    Raises:
      ArgumentError: an unknown `weight`; `best` after another search than `search.agnostic`.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> strategy = jaxarch.chain(jaxarch.search.agnostic(draws=3, weights=2), jaxarch.share_weight())
      >>> network = strategy(jax.random.key(0), problem)
      >>> print((network.params["W2_1"] == network.shared_weight * network.mask["W2_1"]).all())
      True
    """
    check_choice("weight", weight, ("best", "random"))
    best = Needs("required", ("params", "mask", "shared_weight"), before="search.agnostic()")
    needs = best if weight == "best" else A_NETWORK
    return FunctionStage(f"share {weight} weight", _share_weight, weight, needs, removes=())


def _share_weight(weight: str, key: Array, problem: Problem, network: Network) -> Network:
    shared = network.shared_weight if weight == "best" else jax.random.normal(key)
    assert shared is not None
    params = with_weight(shared, network.mask, network.params)
    return network.replace(params=params, shared_weight=shared)


def with_weight(weight: Array, mask: PyTree, params: PyTree) -> PyTree:
    """Every connection of an architecture with the same weight."""
    return merge(
        map_selected(lambda m, w: (weight * m.astype(weight.dtype)).astype(w.dtype), mask, params), params
    )
