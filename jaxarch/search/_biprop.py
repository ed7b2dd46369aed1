"""Biprop: a subnetwork of the signs of random weights, with one size a leaf, found by edge-popup's scores."""

from __future__ import annotations

from typing import Unpack

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import check_flag
from jaxarch._internal.precision import widened
from jaxarch._internal.trees import PyTree, Where, map_selected, matrices, merge
from jaxarch.masks import Scope, apply_mask, check_density, check_scope
from jaxarch.run._descent import DescentChanges, own_descent
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._training import Training, TrainState
from jaxarch.run._training_info import TrainingInfo
from jaxarch.search._edge_popup import Settings, kept, ranked_training
from jaxarch.search._straight_through import straight_through
from jaxarch.search._within import within


@method("J. Diffenderfer and B. Kailkhura, 2021")
def biprop(
    density: ArrayLike = 0.5,
    *,
    scope: Scope = "layer",
    rescale: bool = False,
    where: Where = matrices,
    **descent: Unpack[DescentChanges],
) -> Training:
    r"""Learn which connections to keep in a network with two weights per leaf, `alpha` and `-alpha`.

    The network computes with `alpha m o sign(theta)`, theta the problem's initial parameters. The mask `m`
    keeps the largest `|s|`, the share `density` of each leaf or of all leaves together. In each leaf,
    `alpha = |m o theta|_1 / |m|_1` is the mean size of the weights that m keeps. The scores s descend like
    those of `edge_popup`, as if the leaf were `|s| o theta`, through which alpha has no gradient:

        ds = sign(s) theta o dL/d(alpha m o sign(theta)).

    J. Diffenderfer and B. Kailkhura, Multi-prize lottery ticket hypothesis: finding accurate binary neural
    networks by pruning a randomly weighted network, 2021. Initial scores and descent are as in `edge_popup`.
    Activations are the model's own; in the paper's second kind of networks they are binary.

    Args:
      density: the share of connections that are kept, in (0, 1]. All together they are exactly
        `round(density D)` of D, as with `masks.keep`. May be traced: a sweep is one program.
      scope: how the kept connections spread over leaves, as in `edge_popup`.
      rescale: whether alpha is divided by the square root of the density, as in `edge_popup`.
      where: which leaves are masked and binary, by path. By default kernels but neither biases nor norm
        scales. Leaves that are not masked keep their initial values.
      **descent: `optimizer`, `steps`, `batch_size`, `sampling`, replacing the problem's.

    Returns:
      A search; after another stage, one over the signs of the weights that it found. Its `info` has `scores`,
      the final scores.

    Raises:
      ArgumentError: a density outside (0, 1], an unknown `scope`.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> network = jaxarch.search.biprop(0.25)(jax.random.key(0), problem)
      >>> sizes = jnp.abs(network.params["W2_1"][network.mask["W2_1"]])
      >>> print(jaxarch.density(network.mask), sizes.size, (sizes == sizes[0]).all())
      0.25 8 True
    """
    check_density("density", density)
    check_scope(scope)
    check_flag("rescale", rescale)
    return ranked_training(
        name="biprop",
        params=_params,
        network=_network,
        settings=Settings(density, scope, "initial", rescale, where),
        descent=own_descent(descent),
    )


def _params(settings: Settings, state: TrainState) -> PyTree:
    scores, (weights, before, _) = state.trainable, state.fixed

    def learned(s: Array, m: Array, theta: Array) -> Array:
        return straight_through(_binary(m, theta), theta * jnp.abs(s).astype(theta.dtype))

    binary = map_selected(learned, scores, kept(settings, scores), weights)
    params = merge(binary, weights)
    return params if before is None else apply_mask(before, params)


def _network(settings: Settings, state: TrainState) -> Network:
    scores, (weights, before, _) = state.trainable, state.fixed
    mask = kept(settings, scores)
    binary = merge(map_selected(_binary, mask, weights), weights)
    mask = within(mask, before)
    return Network(apply_mask(mask, binary), mask, state.model, info=TrainingInfo({"scores": scores}))


def _binary(mask: Array, theta: Array) -> Array:
    """Compute `alpha m o sign(theta)`; 0 where nothing is kept."""
    sizes = widened(jnp.where(mask, jnp.abs(theta), 0))
    alpha = sizes.sum() / jnp.maximum(mask.sum(), 1).astype(sizes.dtype)
    return jnp.where(mask, alpha.astype(theta.dtype) * jnp.sign(theta), 0)
