"""Random gates that are exactly 0 or 1 at times, and a penalty on the expected number of open gates."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import (
    ArgumentError,
    check_one_finite,
    check_one_positive,
    check_one_strength,
    is_traced,
    shown,
)
from jaxarch._internal.trees import PyTree, Where, map_selected, matrices, select_floating
from jaxarch.masks import apply_mask, init_scores
from jaxarch.run._descent import DescentChanges
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._training import Training, TrainState
from jaxarch.search._scored import descent_of, logistic_noise, network_of, remarks, targets_of, total
from jaxarch.search._within import WITHIN_A_MASK, mask_before, within
from jaxarch.transforms._densities import Densities


@dataclasses.dataclass(frozen=True)
class Settings:
    """Targets, the distribution of the gates, their initial scores, and the penalty."""

    targets: tuple[float, ...] | None
    beta: ArrayLike
    gamma: ArrayLike
    zeta: ArrayLike
    mean: ArrayLike
    std: ArrayLike
    strength: ArrayLike
    where: Where


class Fixed(NamedTuple):
    """Fixed parts of the state: the mask that the weights had before, and the key of all noise."""

    mask: PyTree
    key: Array


@method("C. Louizos, M. Welling and D. Kingma, 2018", densities=0.5)
def hard_concrete(
    densities: Densities | None = None,
    *,
    strength: ArrayLike = 3e-3,
    mean: ArrayLike = 2.2,
    std: ArrayLike = 0.01,
    beta: ArrayLike = 2 / 3,
    gamma: ArrayLike = -0.1,
    zeta: ArrayLike = 1.1,
    where: Where = matrices,
    scores_optimizer: optax.GradientTransformation | None = None,
    **descent: Unpack[DescentChanges],
) -> Training:
    r"""Learn random gates with the weights, under a penalty on open gates (L0 regularization).

    With `log alpha`, one per connection, and u uniform in (0, 1), drawn anew at every step, the network
    computes with `z o w`,

        z = clip(sigma((log u - log(1 - u) + log alpha) / beta) (zeta - gamma) + gamma, 0, 1),

    and descends on `L(z o w) + strength sum sigma(log alpha - beta log(-gamma / zeta))`, whose sum is the
    expected number of nonzero gates. The search returns `w` times the gate without noise,
    `clip(sigma(log alpha) (zeta - gamma) + gamma, 0, 1)`. C. Louizos, M. Welling and D. Kingma, Learning
    sparse neural networks through L0 regularization, 2018.

    Departures from the published method: each connection has a gate (in its experiments, each neuron).
    `log alpha` is not clipped after each step, as it is in the authors' code. There is no additional penalty
    on the squares of weights.

    Args:
      densities: targets in (0, 1], `round(d D)` of the D connections each, those of the largest `log alpha`
        at the end of one training. For several, the search returns the smallest, and `at_density` selects the
        others. By default the mask is the method's own, of the gates above 0, whatever its density.
      strength: lambda, at least 0, a sum over connections. In the paper it is divided by the number of
        examples, for gates of whole neurons. The default is for a thousand steps of Adam: at a learning rate
        of .01 it leaves 15% of a network of 64, 100 and 10 neurons on digits. May be traced, like all numbers
        but densities.
      mean: mean of the initial `log alpha`. At the default gates are open, sigma(2.2) = .9. In the authors'
        layers it is 0 by default.
      std: standard deviation of the initial `log alpha`. In the paper, .01.
      beta: the temperature of the gates, positive. In the paper, 2/3.
      gamma: lower end of the gates' range, negative. In the paper, -.1.
      zeta: upper end of the gates' range, above 1. In the paper, 1.1.
      where: the leaves that have gates, by path. The others are trained as well.
      scores_optimizer: any optax transformation for `log alpha`; by default one optimizer trains everything.
      **descent: `optimizer`, `steps`, `batch_size`, `sampling`, replacing the problem's.

    Returns:
      A search; after another stage, one from its weights and within its mask. The weights found are w times
      the gate without noise. So a weight is 0 if it is in the mask of a larger density, but not in the
      method's own mask. Its `info` has `own_density`, the share of these gates that are above 0.

    Raises:
      ArgumentError: a density outside (0, 1], or none; a beta that is not positive, a gamma that is not
        negative, a zeta that is not above 1; a mean that is not finite; a strength or a std that is negative
        or not finite.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> network = jaxarch.search.hard_concrete((0.5, 0.25))(jax.random.key(0), problem)
      >>> print(jaxarch.density(network.mask), sorted(network[jaxarch.ByDensity].masks))
      0.25 ['0.25', '0.5']
    """
    check_one_strength("strength", strength)
    check_one_finite("mean", mean)
    check_one_strength("std", std)
    check_one_positive("beta", beta)
    check_one_finite("gamma", gamma)
    check_one_finite("zeta", zeta)
    if not is_traced(gamma) and not np.asarray(gamma) < 0:
        raise ArgumentError(f"gamma: expected a negative number, got {shown(gamma)}")
    if not is_traced(zeta) and not np.asarray(zeta) > 1:
        raise ArgumentError(f"zeta: expected a number above 1, got {shown(zeta)}")
    return Training(
        "hard concrete",
        _init,
        _params,
        _network,
        Settings(targets_of(densities), beta, gamma, zeta, mean, std, strength, where),
        descent_of(descent, scores_optimizer),
        penalty=_penalty,
        remedy="the gates are closed at the start: take a larger `mean`, or start from other weights",
        remarks=remarks,
        needs=WITHIN_A_MASK,
    )


def _init(settings: Settings, key: Array, problem: Problem, network: Network | None) -> TrainState:
    params_key, scores_key, noise_key = jax.random.split(key, 3)
    params, model = problem.start(params_key) if network is None else (network.params, network.state)
    scores = init_scores(scores_key, select_floating(params, settings.where), settings.mean, settings.std)
    fixed = Fixed(mask_before(network), noise_key)
    return TrainState({"scores": scores, "weights": params}, fixed, model)


def _params(settings: Settings, state: TrainState) -> PyTree:
    scores = state.trainable["scores"]
    noise = logistic_noise(jax.random.fold_in(state.fixed.key, state.step), scores)
    logits = map_selected(lambda drawn, leaf: (drawn + leaf) / settings.beta, noise, scores)
    return _gated(settings, _gates(settings, logits), state)


def _gates(settings: Settings, logits: PyTree) -> PyTree:
    """Compute gates: sigmoids stretched to (gamma, zeta), and clipped at 0 and 1."""
    gamma = jnp.asarray(settings.gamma, jnp.float32)

    def gate(leaf: Array) -> Array:
        stretched = jax.nn.sigmoid(leaf) * (settings.zeta - gamma) + gamma
        return jnp.clip(stretched, 0, 1)

    return map_selected(gate, logits)


def _gated(settings: Settings, gates: PyTree, state: TrainState) -> PyTree:
    return apply_mask(within(gates, state.fixed.mask), state.trainable["weights"])


def _penalty(settings: Settings, state: TrainState) -> Array:
    ratio = jnp.asarray(settings.gamma, jnp.float32) / settings.zeta
    shift = settings.beta * jnp.log(-ratio)
    open_ = map_selected(lambda leaf: jax.nn.sigmoid(leaf - shift), state.trainable["scores"])
    return jnp.asarray(settings.strength) * total(open_)


def _network(settings: Settings, state: TrainState) -> Network:
    scores = state.trainable["scores"]
    gates = _gates(settings, scores)
    own = map_selected(lambda leaf: leaf > 0, gates)
    weights = _gated(settings, gates, state)
    return network_of(settings.targets, scores, own, weights, state.fixed.mask, state.model, {})
