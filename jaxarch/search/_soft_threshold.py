"""Weights under a threshold that is learned with them, one for every leaf."""

from __future__ import annotations

import dataclasses
from typing import Literal, Unpack

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import check_choice, check_one_finite, check_one_strength
from jaxarch._internal.precision import widened
from jaxarch._internal.trees import PyTree, Where, map_selected, matrices, merge, select_floating
from jaxarch.masks import apply_mask
from jaxarch.run._descent import DescentChanges
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._training import Training, TrainState
from jaxarch.search._scored import descent_of, network_of, remarks, targets_of, total
from jaxarch.search._within import WITHIN_A_MASK, mask_before
from jaxarch.transforms._densities import Densities

FUNCTIONS = {"sigmoid": jax.nn.sigmoid, "exp": jnp.exp}


@dataclasses.dataclass(frozen=True)
class Settings:
    """Targets, the function from score to threshold, the initial scores, and the decay."""

    targets: tuple[float, ...] | None
    function: Literal["sigmoid", "exp"]
    start: ArrayLike
    strength: ArrayLike
    where: Where


@method("A. Kusupati et al., 2020", densities=0.5)
def soft_threshold(
    densities: Densities | None = None,
    *,
    function: Literal["sigmoid", "exp"] = "sigmoid",
    start: ArrayLike = -5.0,
    strength: ArrayLike = 1e-2,
    where: Where = matrices,
    scores_optimizer: optax.GradientTransformation | None = None,
    **descent: Unpack[DescentChanges],
) -> Training:
    r"""Learn a threshold for every leaf, below which its weights are 0, together with the weights (STR).

    The network computes with

        w' = sign(w) relu(|w| - g(s_l)),    g = sigma or exp,

    one score s_l per leaf, and descends on `L(w') + strength / 2 (sum w^2 + sum_l s_l^2)`. The decay of the
    scores raises thresholds, and the decay of the weights brings weights below them. The gradient of a score,
    `-g'(s_l) sum sign(w') dL/dw'`, gives the cost of that. A. Kusupati et al., Soft threshold weight
    reparameterization for learnable sparsity, 2020.

    Departure from the published method: the decay is a penalty on masked leaves and thresholds, whatever the
    optimizer is. In the paper, it is the weight decay of SGD, on all parameters alike.

    Args:
      densities: targets in (0, 1], `round(d D)` of the D connections each, those of the largest
        `|w| - g(s_l)` at the end of one training. For several, the search returns the smallest, and
        `at_density` selects the others. By default the mask is the method's own, `|w| > g(s_l)`, whatever its
        density.
      function: g, which maps a score to a positive threshold: `sigmoid` or `exp`.
      start: initial value of all scores. May be traced, like all numbers but densities. In the authors' code
        it is -3200 for ResNet-50 on ImageNet, where half a million steps bring it up.
      strength: lambda, at least 0, of the decay. In the paper, about 2e-5 with SGD over half a million steps.
        The default is for a thousand steps of Adam: at a learning rate of .01 it leaves a fifth of a network
        of 64, 100 and 10 neurons on digits.
      where: the leaves that have thresholds, by path. The others are trained as well, without decay.
      scores_optimizer: any optax transformation for the scores; by default one optimizer trains everything.
      **descent: `optimizer`, `steps`, `batch_size`, `sampling`, replacing the problem's.

    Returns:
      A search; after another stage, one from its weights and within its mask. The weights found are w'. So a
      weight is 0 if it is in the mask of a larger density, but not in the method's own mask. Its `info` has
      `thresholds`, g(s_l), and `own_density`, the density of the mask `|w| > g(s_l)`.

    Raises:
      ArgumentError: a density outside (0, 1], or none; an unknown function; a start that is not finite; a
        strength that is negative or not finite.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> network = jaxarch.search.soft_threshold((0.5, 0.25))(jax.random.key(0), problem)
      >>> print(jaxarch.density(network.mask), sorted(network[jaxarch.ByDensity].masks))
      0.25 ['0.25', '0.5']
    """
    check_choice("function", function, tuple(FUNCTIONS))
    check_one_finite("start", start)
    check_one_strength("strength", strength)
    return Training(
        "soft threshold",
        _init,
        _params,
        _network,
        Settings(targets_of(densities), function, start, strength, where),
        descent_of(descent, scores_optimizer),
        penalty=_penalty,
        remedy="all weights are below their thresholds: lower `start`, or start from larger weights",
        remarks=remarks,
        needs=WITHIN_A_MASK,
    )


def _init(settings: Settings, key: Array, problem: Problem, network: Network | None) -> TrainState:
    params, model = problem.start(key) if network is None else (network.params, network.state)
    selected = select_floating(params, settings.where)
    scores = map_selected(lambda leaf: jnp.asarray(settings.start, jnp.float32), selected)
    return TrainState({"scores": scores, "weights": params}, mask_before(network), model)


def _params(settings: Settings, state: TrainState) -> PyTree:
    weights = state.trainable["weights"]

    def shrunk(score: Array, leaf: Array) -> Array:
        return jnp.sign(leaf) * jax.nn.relu(_above(settings, score, leaf))

    params = merge(map_selected(shrunk, state.trainable["scores"], weights), weights)
    return params if state.fixed is None else apply_mask(state.fixed, params)


def _above(settings: Settings, score: Array, leaf: Array) -> Array:
    """Return how far weights are above their threshold."""
    return jnp.abs(leaf) - FUNCTIONS[settings.function](score).astype(leaf.dtype)


def _penalty(settings: Settings, state: TrainState) -> Array:
    scores, weights = state.trainable["scores"], state.trainable["weights"]

    def squares(score: Array, leaf: Array) -> Array:
        of_weights = jnp.sum(jnp.square(widened(leaf)))
        return jnp.square(score).astype(of_weights.dtype) + of_weights

    return jnp.asarray(settings.strength) / 2 * total(map_selected(squares, scores, weights))


def _network(settings: Settings, state: TrainState) -> Network:
    scores, weights = state.trainable["scores"], state.trainable["weights"]
    above = map_selected(lambda s, leaf: _above(settings, s, leaf), scores, weights)
    own = map_selected(lambda leaf: leaf > 0, above)
    info = {"thresholds": map_selected(FUNCTIONS[settings.function], scores)}
    found = _params(settings, state)
    return network_of(settings.targets, above, own, found, state.fixed, state.model, info)
