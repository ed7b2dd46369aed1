"""Group lasso on the neurons of networks in direct space, to compare with spectral networks."""

from __future__ import annotations

from typing import Unpack

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import check_one_strength
from jaxarch.masks import apply_mask
from jaxarch.run._descent import DescentChanges, own_descent
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._stage import Needs
from jaxarch.run._training import Training, TrainState
from jaxarch.spectral._direct import neuron_mask, neuron_norms


@method("[S] section 5, in direct space", parent="direct")
def group_lasso(strength: ArrayLike = 1e-3, **descent: Unpack[DescentChanges]) -> Training:
    r"""Train `jaxarch.direct_network` under `loss + strength * sum over hidden neurons of |weights|`.

    A neuron's group is all its weights, in and out: `sqrt(sum_j |W_kj[n, :]|^2 + sum_i |W_ik[:, n]|^2)`.
    Groups overlap: a weight between two hidden neurons is in the groups of both. Under ReLU, a network evades
    a penalty on one side alone by making the other side larger. Biases are not penalized.

    A gradient step makes no group exactly 0: `jaxarch.recruit` then removes neurons in the order of these
    norms, and `retrain("warm", nonnegative=False)` refits the others.

    Args:
      strength: at least 0. May be traced: a sweep is one program.
      **descent: `optimizer`, `steps`, `batch_size`, `sampling`, replacing the problem's.

    Returns:
      A search. Its mask keeps all weights. As a transform it continues training within the network's mask.

    Raises:
      ArgumentError: a strength that is negative or not finite; parameters of another kind of network.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> norms = {}
      >>> for strength in (0.0, 1.0):
      ...     network = jaxarch.search.group_lasso(strength)(jax.random.key(0), problem)
      ...     norms[strength] = jnp.linalg.norm(network.params["W2_1"])
      >>> print(norms[1.0] < norms[0.0], jaxarch.density(network.mask))  # nothing is exactly 0 yet
      True 1.0
    """
    check_one_strength("strength", strength)
    return Training(
        "group lasso",
        _init,
        _params,
        _network,
        strength,
        own_descent(descent),
        penalty=_penalty,
        remedy="start from other weights",
        needs=Needs("optional", ("params", "mask")),
        removes=(),
    )


def _init(strength: ArrayLike, key: Array, problem: Problem, network: Network | None) -> TrainState:
    if network is not None:
        return TrainState(network.params, network.mask, network.state)
    params, model = problem.start(key)
    everyone = jax.tree.map(lambda norms: jnp.ones(norms.shape, bool), neuron_norms(params))
    return TrainState(params, neuron_mask(params, everyone), model)


def _params(strength: ArrayLike, state: TrainState) -> dict[str, Array]:
    return apply_mask(state.fixed, state.trainable)


def _network(strength: ArrayLike, state: TrainState) -> Network:
    return Network(_params(strength, state), state.fixed, state.model)


def _penalty(strength: ArrayLike, state: TrainState) -> Array:
    norms = jnp.concatenate(list(neuron_norms(_params(strength, state)).values()))
    return jnp.asarray(strength) * norms.sum()
