"""One weight on all connections of an architecture."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Literal

import jax
from jax import Array

from jaxarch._internal.errors import check_choice
from jaxarch._internal.trees import PyTree, map_selected, merge
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._stage import A_NETWORK, FunctionStage, Needs


@partial(jax.tree_util.register_dataclass, data_fields=["weight"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class SharedWeight:
    """The one weight that an architecture was chosen with, or given: `share_weight("best")` reads it.

    Attributes:
      weight: the weight, a number.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> network = jaxarch.search.agnostic(draws=3, weights=2)(jax.random.key(0), problem)
      >>> print(network[jaxarch.SharedWeight].weight.shape)
      ()
    """

    weight: Array


@method("[D] section 5")
def share_weight(weight: Literal["best", "random"] = "best") -> FunctionStage:
    """Put one weight on all connections of an architecture: agnostic -> real of [D] section 5.

    Args:
      weight: `random` for u_0 ~ N(0, 1), as [D] prints it; `best` for the weight with which `search.agnostic`
        chose the architecture.

    Returns:
      A transform. The network's `SharedWeight` is that weight.

    Raises:
      ArgumentError: an unknown `weight`; `best` after another search than `search.agnostic`.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> strategy = jaxarch.chain(jaxarch.search.agnostic(draws=3, weights=2), jaxarch.share_weight())
      >>> network = strategy(jax.random.key(0), problem)
      >>> weight = network[jaxarch.SharedWeight].weight
      >>> print((network.params["W2_1"] == weight * network.mask["W2_1"]).all())
      True
    """
    check_choice("weight", weight, ("best", "random"))
    best = Needs("required", ("params", "mask"), before="search.agnostic()", records=(SharedWeight,))
    needs = best if weight == "best" else A_NETWORK
    return FunctionStage(f"share {weight} weight", _share_weight, weight, needs, removes=())


def _share_weight(weight: str, key: Array, problem: Problem, network: Network) -> Network:
    shared = network[SharedWeight].weight if weight == "best" else jax.random.normal(key)
    params = with_weight(shared, network.mask, network.params)
    return network.with_records(SharedWeight(shared)).replace(params=params)


def with_weight(weight: Array, mask: PyTree, params: PyTree) -> PyTree:
    """Return parameters with the same weight on every connection of an architecture."""
    return merge(
        map_selected(lambda m, w: (weight * m.astype(weight.dtype)).astype(w.dtype), mask, params), params
    )
