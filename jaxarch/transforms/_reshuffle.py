"""Reshuffling: keep only the densities of an architecture's layers."""

from __future__ import annotations

from jax import Array

from jaxarch import masks
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._stage import A_NETWORK, FunctionStage


@method("[A] section 3.3")
def reshuffle() -> FunctionStage:
    """Permute the network's connections at random within each leaf ([A] section 3.3).

    Only the density of the architecture's layers is left. The weights are those found at the new places, 0
    where there was no connection: retrain them.

    Returns:
      A transform.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> mask = {"W2_1": jnp.arange(32).reshape(8, 4) < 8, "W3_2": jnp.ones((4, 8), bool)}
      >>> params, _ = net.init(jax.random.key(0))
      >>> network = jaxarch.reshuffle()(jax.random.key(1), problem, jaxarch.Network(params, mask, {}))
      >>> {path: float(share) for path, share in jaxarch.layer_density(network.mask).items()}
      {'W2_1': 0.25, 'W3_2': 1.0}
    """
    return FunctionStage("reshuffle", _reshuffle, None, A_NETWORK)


def _reshuffle(settings: None, key: Array, problem: Problem, network: Network) -> Network:
    mask = masks.reshuffle(key, network.mask)
    return network.replace(params=masks.apply_mask(mask, network.params), mask=mask)
