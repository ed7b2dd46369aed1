"""Edge-popup: a subnetwork of fixed random weights, found by gradient descent on scores."""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Any, Literal, NamedTuple, Unpack

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import check_flag
from jaxarch._internal.trees import PyTree, Where, map_selected, matrices, select_floating
from jaxarch.masks import Scope, apply_mask, check_density, check_scope
from jaxarch.masks._keeping import largest_scores
from jaxarch.run._descent import DescentChanges, own_descent
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._records import Start
from jaxarch.run._training import Training, TrainState
from jaxarch.run._training_info import TrainingInfo
from jaxarch.search._fixed_weights import Function, check_weights, fixed_weights, inputs, rescaled
from jaxarch.search._straight_through import straight_through
from jaxarch.search._within import WITHIN_A_MASK, mask_before, within
from jaxarch.transforms._densities import layers_emptied

Weights = Literal["initial", "signed constant"] | Function


REMEDY = "a leaf keeps too little: raise `density`, or choose other leaves with `where`"


@dataclasses.dataclass(frozen=True)
class Settings:
    """The share that is kept, its spread over leaves, the fixed weights, and the leaves that are masked."""

    density: ArrayLike
    scope: Scope
    weights: Weights
    rescale: bool
    where: Where


class Fixed(NamedTuple):
    """Fixed parts of the state: the weights, their mask before, and `()` if no stage came before."""

    weights: PyTree
    mask: PyTree
    first: tuple[()] | None


@method("V. Ramanujan et al., 2020")
def edge_popup(
    density: ArrayLike = 0.5,
    *,
    scope: Scope = "layer",
    weights: Weights = "initial",
    rescale: bool = False,
    where: Where = matrices,
    **descent: Unpack[DescentChanges],
) -> Training:
    r"""Learn which of a network's random weights to keep, and train none of them.

    The network computes with `m o theta`, theta fixed, where `m` keeps the largest `|s|`, the share `density`
    of each leaf or of all leaves together. The scores s descend as if the mask were `|s|` itself, including
    those of removed connections:

        ds = sign(s) theta o dL/d(m o theta),

    from `s ~ U(-1/sqrt(n), 1/sqrt(n))`, n a neuron's inputs: the entries of a leaf over those of its last
    axis, or their mean over all connections if all leaves are compared. V. Ramanujan, M. Wortsman,
    A. Kembhavi, A. Farhadi and M. Rastegari, What's hidden in a randomly weighted neural network?, 2020,
    with `|s|` as in the authors' code.

    The authors use momentum SGD at learning rate .1 with weight decay on the scores. Here decay and the rest
    of the descent are the optimizer's, which is given the scores. Their networks have neither biases nor
    scales; here these stay as they are.

    Args:
      density: the share of connections that are kept, in (0, 1]. All together they are exactly
        `round(density D)` of D, as with `masks.keep`. May be traced: a sweep is one program.
      scope: how the kept connections spread over leaves: the same share in each `layer`, as the authors have
        it; the largest of all leaves, `global`; or `erk` densities (see `masks.keep`).
      weights: theta. `initial` for the problem's initial parameters; `signed constant` for their signs times
        `sqrt(2/n)`, the authors' best; or a function `(key, selected) -> values` in the structure of the
        masked leaves.
      rescale: whether weights are divided by the square root of the density, the authors' scaled weights. A
        neuron's sum over the kept share of its inputs then varies as much as over all of them.
      where: which leaves are masked, by path. By default kernels but neither biases nor norm scales. Leaves
        that are not masked keep their initial values.
      **descent: `optimizer`, `steps`, `batch_size`, `sampling`, replacing the problem's.

    Returns:
      A search; after another stage, one over the weights that it found. Its `Start` has theta, if no stage
      came before; its `info` has `scores`, the final scores.

    Raises:
      ArgumentError: a density outside (0, 1], an unknown `scope` or `weights`.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> network = jaxarch.search.edge_popup(0.25)(jax.random.key(0), problem)
      >>> {path: float(share) for path, share in jaxarch.layer_density(network.mask).items()}
      {'W2_1': 0.25, 'W3_2': 0.25}
    """
    check_density("density", density)
    check_scope(scope)
    check_flag("rescale", rescale)
    check_weights(weights, "initial", "signed constant")
    return ranked_training(
        name="edge-popup",
        params=_params,
        network=_network,
        settings=Settings(density, scope, weights, rescale, where),
        descent=own_descent(descent),
    )


def begin(settings: Settings, key: Array, problem: Problem, network: Network | None) -> TrainState:
    """Draw random scores, and make the weights that they belong to."""
    params_key, scores_key, weights_key = jax.random.split(key, 3)
    params, model = problem.start(params_key) if network is None else (network.params, network.state)
    selected = select_floating(params, settings.where)
    params = fixed_weights(settings.weights, weights_key, params, selected)
    if settings.rescale:
        params = rescaled(params, selected, settings.density, settings.scope)
    fixed = Fixed(params, mask_before(network), () if network is None else None)
    return TrainState(_scores(scores_key, selected, settings.scope), fixed, model)


def kept(settings: Settings, scores: PyTree) -> PyTree:
    """Return the mask of the largest `|s|`, booleans."""
    return largest_scores(map_selected(jnp.abs, scores), settings.density, settings.scope)


ranked_training = partial(Training, init=begin, remedy=REMEDY, needs=WITHIN_A_MASK, remarks=layers_emptied)
"""A training of random scores that keeps the largest, without name, `params`, `network` and settings."""


def _params(settings: Settings, state: TrainState) -> PyTree:
    scores, (weights, before, _) = state.trainable, state.fixed

    def learned(s: Array, m: Array) -> Array:
        return straight_through(m.astype(s.dtype), jnp.abs(s))

    mask = map_selected(learned, scores, kept(settings, scores))
    return apply_mask(within(mask, before), weights)


def _network(settings: Settings, state: TrainState) -> Network:
    weights, before, first = state.fixed
    mask = within(kept(settings, state.trainable), before)
    records = () if first is None else (Start(weights),)
    info = TrainingInfo({"scores": state.trainable})
    return Network(apply_mask(mask, weights), mask, state.model, records=records, info=info)


def _scores(key: Array, selected: PyTree, scope: Scope) -> PyTree:
    leaves, treedef = jax.tree.flatten(selected)
    keys = jax.random.split(key, len(leaves))
    connections = sum(leaf.size for leaf in leaves)
    mean = sum(inputs(leaf) * leaf.size for leaf in leaves) / max(connections, 1)

    def drawn(key: Array, leaf: Any) -> Array:
        # Scores of all leaves are compared under `global`: bounds of their own would empty the widest leaf.
        bound = 1 / math.sqrt(mean if scope == "global" else inputs(leaf))
        return jax.random.uniform(key, jnp.shape(leaf), jnp.float32, -bound, bound)

    return jax.tree.unflatten(treedef, [drawn(k, leaf) for k, leaf in zip(keys, leaves, strict=True)])
