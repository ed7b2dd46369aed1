"""Networks in direct space trained under a group lasso on their neurons: the rival of spectral networks."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.typing import ArrayLike

from jaxarch.errors import check_one_strength
from jaxarch.masks import apply_mask
from jaxarch.problem import Network, Problem
from jaxarch.running.training import Training, TrainState
from jaxarch.spectral.direct import neuron_mask, neuron_norms


def group_lasso(
    strength: ArrayLike = 1e-3, *, optimizer: optax.GradientTransformation | None = None
) -> Training:
    r"""Train `jaxarch.direct_network` under `loss + strength * sum over hidden neurons of |weights|`.

    A neuron's group is all its weights, in and out: `sqrt(sum_j |W_kj[n, :]|^2 + sum_i |W_ik[:, n]|^2)`. The
    groups overlap, a weight between two hidden neurons is in both of theirs. A penalty on one side alone is
    evaded, under ReLU, by making the other side larger. Biases are not penalised.

    A gradient step makes no group exactly 0: `jaxarch.recruit` then removes neurons, in the order of these
    norms, and `retrain("warm", nonnegative=False)` refits the others.

    Args:
      strength: at least 0. May be traced: a sweep is one program.
      optimizer: any optax transformation; by default the problem's.

    Returns:
      A search. Its mask keeps all weights; as a finish it trains on within the mask that was found.

    Raises:
      ArgumentError: a strength that is negative or not finite; parameters of another kind of network.
    """
    check_one_strength("strength", strength)

    def init(key: Array, problem: Problem, network: Network | None) -> TrainState:
        if network is not None:
            return TrainState(network.params, network.mask, network.state)
        params, state = problem.init(key)
        everyone = jax.tree.map(lambda norms: jnp.ones(norms.shape, bool), neuron_norms(params))
        return TrainState(params, neuron_mask(params, everyone), state)

    def params(point: TrainState) -> dict[str, Array]:
        return apply_mask(point.fixed, point.trainable)

    def network(point: TrainState) -> Network:
        return Network(params(point), point.fixed, point.state, {})

    def penalty(point: TrainState) -> Array:
        norms = jnp.concatenate(list(neuron_norms(params(point)).values()))
        return jnp.asarray(strength) * norms.sum()

    remedy = "start from other weights"
    return Training("group lasso", init, params, network, optimizer, penalty=penalty, remedy=remedy)
