"""Networks with batch norm under an L1 penalty on its scales: network slimming (Liu et al. 2017)."""

from __future__ import annotations

import dataclasses
from typing import Unpack

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import check_one_strength
from jaxarch._internal.normalisation import scales_and_shifts
from jaxarch._internal.trees import PyTree, Where, select
from jaxarch.masks import apply_mask, full_mask
from jaxarch.run._descent import DescentChanges, own_descent
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._stage import Needs
from jaxarch.run._training import Training, TrainState
from jaxarch.spectral.penalty import l1


@dataclasses.dataclass(frozen=True)
class Settings:
    """The strength of the penalty, and which leaves are scales."""

    strength: ArrayLike
    where: Where


@method("Z. Liu et al., 2017", parent="batch norm")
def network_slimming(
    strength: ArrayLike = 1e-4, *, where: Where = "*scale", **descent: Unpack[DescentChanges]
) -> Training:
    r"""Train a network with batch norm under `loss + strength * sum |gamma|`, gamma the scales of channels.

    Batch norm makes `gamma (z - mean) / std + beta` of each channel. So gamma determines the channel's size,
    whatever the weights into it are. Weights after it can still make up for a small gamma.

    A gradient step makes no scale exactly 0: `jaxarch.slim` then removes channels in the order of `|gamma|`,
    and `retrain("warm", nonnegative=False)` refits the others.

    Departures from the paper: any optimizer works (the paper takes subgradient steps of SGD). As many
    channels are pruned as a tolerance on the validation loss allows (the paper prunes a percentage of all
    channels).

    Source: Z. Liu, J. Li, Z. Shen, G. Huang, S. Yan, C. Zhang, Learning Efficient Convolutional Networks
    through Network Slimming, ICCV 2017, eq. (1).

    Args:
      strength: lambda of (1), at least 0. May be traced: a sweep is one program.
      where: the leaves that are scales, one number per channel, by path. The shift is the leaf `bias` beside
        it.
      **descent: `optimizer`, `steps`, `batch_size`, `sampling`, replacing the problem's.

    Returns:
      A search. Its mask covers scales and shifts, and keeps all. As a transform it continues training within
      the network's mask.

    Raises:
      ArgumentError: a strength that is negative or not finite. As training begins: leaves that are not
        scales, or none.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> from flax import nnx
      >>> def model(rngs):
      ...     return nnx.Sequential(nnx.Linear(4, 8, rngs=rngs), nnx.BatchNorm(8, rngs=rngs), nnx.relu)
      >>> x = jnp.eye(4)
      >>> problem = jaxarch.supervised(
      ...     model, (x, jnp.zeros((4, 8))), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=3
      ... )
      >>> network = jaxarch.search.network_slimming(1.0)(jax.random.key(0), problem)
      >>> {path: leaf.shape for path, leaf in jaxarch.named_leaves(network.mask).items()}
      {'layers/1/bias': (8,), 'layers/1/scale': (8,)}
    """
    check_one_strength("strength", strength)
    return Training(
        "network slimming",
        _init,
        _params,
        _network,
        Settings(strength, where),
        own_descent(descent),
        penalty=_penalty,
        remedy="start from other weights",
        needs=Needs("optional", ("params", "mask")),
        removes=(),
    )


def _init(settings: Settings, key: Array, problem: Problem, network: Network | None) -> TrainState:
    if network is not None:
        return TrainState(network.params, network.mask, network.state)
    params, model = problem.start(key)
    return TrainState(params, full_mask(scales_and_shifts(params, settings.where)), model)


def _params(settings: Settings, state: TrainState) -> PyTree:
    return apply_mask(state.fixed, state.trainable)


def _network(settings: Settings, state: TrainState) -> Network:
    return Network(_params(settings, state), state.fixed, state.model)


def _penalty(settings: Settings, state: TrainState) -> Array:
    return jnp.asarray(settings.strength) * l1(select(_params(settings, state), settings.where, "where"))
