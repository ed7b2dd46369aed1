"""Training the weights of an architecture, freely or kept non-negative as squares."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array
from jax.tree_util import tree_map_with_path
from jax.typing import ArrayLike

from jaxarch._internal.kernels import not_matrices
from jaxarch._internal.trees import PyTree, map_selected, merge, named_leaves, path_name
from jaxarch.masks import apply_mask
from jaxarch.run._network import Network
from jaxarch.run._records import Start
from jaxarch.run._training import TrainState


class Held(NamedTuple):
    """Fixed parts of a training of weights: the mask, and the start if a later stage needs it."""

    mask: PyTree
    start: PyTree = None
    start_state: PyTree = None


def squares(mask: PyTree, roots: PyTree) -> PyTree:
    """Square the masked leaves, `w = u^2` ([D] footnote 11); the others stay as they are."""
    return merge(map_selected(lambda m, u: jnp.square(u), mask, roots), roots)


def square_roots(mask: PyTree, weights: PyTree) -> PyTree:
    """Return the roots u of `squares`; NaN for a negative weight, so that it cannot go unnoticed."""
    return merge(map_selected(lambda m, w: jnp.sqrt(w), mask, weights), weights)


def fresh(
    key: Array,
    init: Callable[[Array], tuple[PyTree, PyTree]],
    mask: PyTree,
    nonnegative: bool,
    std: ArrayLike,
) -> tuple[PyTree, PyTree]:
    """Make a cold start: the problem's initial parameters, the masked leaves `u ~ N(0, std)` if non-negative.

    Args:
      key: key for everything drawn.
      init: the problem's `start` for a search, its `init` for fresh weights of an existing network.
      mask: mask of the leaves that may be squares.
      nonnegative: whether they are squares.
      std: standard deviation of their roots.

    Returns:
      The parameters to train, and the model's state.
    """
    params_key, weights_key = jax.random.split(key)
    params, state = init(params_key)
    if nonnegative:
        leaves, treedef = jax.tree.flatten(params)
        keys = jax.tree.unflatten(treedef, list(jax.random.split(weights_key, len(leaves))))

        def root(mask: Array, key: Array, leaf: Array) -> Array:
            return jnp.asarray(std * jax.random.normal(key, leaf.shape), leaf.dtype)

        params = merge(map_selected(root, mask, keys, params), params)
    return params, state


def he(key: Array, mask: PyTree, params: PyTree, density_aware: bool) -> PyTree:
    """Draw `N(0, sqrt(2 / n))` for the masked leaves, n a neuron's inputs: all, or those left by the mask.

    K. He et al., Delving Deep into Rectifiers, 2015. A leaf without connections counts as having one. Biases
    and scales, which are masked with their units, have no inputs: they are left out.
    """
    leaves, treedef = jax.tree.flatten(mask)
    keys = jax.tree.unflatten(treedef, list(jax.random.split(key, len(leaves))))
    others = not_matrices(named_leaves(params))
    kernels = tree_map_with_path(lambda path, m: None if path_name(path) in others else m, mask)

    def drawn(mask: Array, key: Array, leaf: Array) -> Array:
        share = jnp.maximum(jnp.sum(mask), 1) / mask.size if density_aware else 1.0
        inputs = share * leaf.size / leaf.shape[-1]
        return (jnp.sqrt(2 / inputs) * jax.random.normal(key, leaf.shape)).astype(leaf.dtype)

    return map_selected(drawn, kernels, keys, params)


class Squared(Protocol):
    """Settings of a training of weights: whether the masked ones are squares."""

    @property
    def nonnegative(self) -> bool:
        """True if the masked weights are squares."""


def weights_of(settings: Squared, state: TrainState) -> PyTree:
    """Return `m o u^2`, or `m o u`, with the mask m from the training's fixed part (a `Held`)."""
    mask = state.fixed.mask
    weights = squares(mask, state.trainable) if settings.nonnegative else state.trainable
    return apply_mask(mask, weights)


def trained(settings: Squared, state: TrainState) -> Network:
    """Return the network of the weights, with the recorded start if there is one."""
    mask, start, start_state = state.fixed
    records = () if start is None else (Start(start, start_state),)
    return Network(weights_of(settings, state), mask, state.model, records=records)
