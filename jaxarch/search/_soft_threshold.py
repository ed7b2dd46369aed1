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
    """Targets, what makes a threshold of a score, where scores start, and the decay."""

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

    one score s_l a leaf, and descends on `L(w') + strength / 2 (sum w^2 + sum_l s_l^2)`: the decay of the
    scores raises thresholds, that of the weights brings weights below them, and the gradient of a score,
    `-g'(s_l) sum sign(w') dL/dw'`, says what that costs. A. Kusupati et al., Soft threshold weight
    reparameterization for learnable sparsity, 2020.

    It departs from the published method in this: the decay is a penalty on masked leaves and thresholds,
    whatever the optimiser is. There, it is the weight decay of SGD, of all parameters alike.

    Args:
      densities: targets in (0, 1], `round(d D)` of the D connections each, those of the largest
        `|w| - g(s_l)` at the end of one training; of several, the smallest is found, and `at_density` takes
        the others. By default the mask is the method's own, `|w| > g(s_l)`, of whatever density it comes to.
      function: g, which makes a positive threshold of a score: `sigmoid` or `exp`.
      start: of all scores. May be traced, like all numbers but densities. In the authors' code it is -3200
        for ResNet-50 on ImageNet, where half a million steps bring it up.
      strength: lambda, at least 0, of the decay. There, about 2e-5 with SGD over half a million steps. The
        default is for a thousand steps of Adam: at a rate of .01 it leaves a fifth of a network of 64, 100
        and 10 neurons on digits.
      where: the leaves that have thresholds, by path. The others are trained as well, without decay.
      scores_optimizer: any optax transformation for the scores; by default there is one optimiser for all.
      **descent: `optimizer`, `steps`, `batch_size`, `sampling` in place of the problem's.

    Returns:
      A search; after another stage, one from its weights and within its mask. The weights that are found are
      w', so that those between a mask of its own and one of a larger density are 0. Its `info` has
      `thresholds`, g(s_l), and `own_density`, that of the mask `|w| > g(s_l)`.

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
        remedy="all weights are below their thresholds: lower `start`, or begin with larger weights",
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
    """How far weights are above their threshold."""
    return jnp.abs(leaf) - FUNCTIONS[settings.function](score).astype(leaf.dtype)


def _penalty(settings: Settings, state: TrainState) -> Array:
    scores, weights = state.trainable["scores"], state.trainable["weights"]
    of_leaves = map_selected(lambda s, leaf: jnp.square(s) + jnp.sum(jnp.square(leaf)), scores, weights)
    return jnp.asarray(settings.strength) / 2 * total(of_leaves)


def _network(settings: Settings, state: TrainState) -> Network:
    scores, weights = state.trainable["scores"], state.trainable["weights"]
    above = map_selected(lambda s, leaf: _above(settings, s, leaf), scores, weights)
    own = map_selected(lambda leaf: leaf > 0, above)
    info = {"thresholds": map_selected(FUNCTIONS[settings.function], scores)}
    found = _params(settings, state)
    return network_of(settings.targets, above, own, found, state.fixed, state.model, info)
