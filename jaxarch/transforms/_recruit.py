"""Removal of hidden neurons that a network's validation loss can spare ([S] figure 10)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import (
    ArgumentError,
    check_choice,
    check_count,
    check_finite,
    check_one_strength,
    shown,
)
from jaxarch._internal.trees import PyTree, by_path, map_selected, named_leaves
from jaxarch.masks import apply_mask, full_mask
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._records import NeuronMask
from jaxarch.run._stage import FunctionStage, Needs
from jaxarch.spectral._direct import neuron_mask, neuron_norms
from jaxarch.spectral._direct_names import is_direct
from jaxarch.spectral._network import hidden_eigenvalues, neurons_in, with_neurons
from jaxarch.spectral._readout import joint_order, split_like
from jaxarch.transforms._removals import REMOVALS

NEEDS = Needs("required", ("params",), validation=True, before="search.spectral()")

Sizes = Mapping[str, ArrayLike] | ArrayLike
"""A number for each hidden neuron: one array per layer by its name, or one array, layer after layer."""
Order = Literal["size", "loss"] | Callable[[PyTree, PyTree], Sizes] | Sizes


@dataclasses.dataclass(frozen=True)
class Settings:
    """Tolerance on the loss, order of the neurons, removals to try, and rows at a time."""

    tolerance: ArrayLike
    order: Order
    removals: Literal["all", "bisection"]
    batch_size: int | None


@method("[S] figure 10", parent="spectral")
def recruit(
    tolerance: ArrayLike = 0.05,
    *,
    order: Order = "size",
    removals: Literal["all", "bisection"] = "all",
    batch_size: int | None = None,
) -> FunctionStage:
    r"""Keep the hidden neurons that a network needs, by its validation loss ([S] figure 10).

    Neurons are removed in the joint order of `|eigenvalue|`, smallest first; neurons of a `direct_network` in
    the order of the norm of their weights, in and out. Of all removals, 0 to H neurons, the largest is taken
    whose loss is at most `loss_0 + tolerance |loss_0|`. The loss is computed on the problem's validation
    rows; loss_0 is the loss of the network as found. So a negative loss may rise by the same share of its
    size, and a loss of 0 may not rise at all. The curve need not be monotone: the largest removal counts,
    even if some smaller one is worse. A removal whose loss is NaN or +inf is never taken; if loss_0 is not
    finite, none is.

    A removed neuron has activation 0, whatever the layer, and all other weights W_ij stay as they are. [S]
    sets its eigenvalue to 0. That removes it too, but only if the eigenvalues of the layer before are 0 and
    f(0) = 0. It also changes the skip connections past it, by a term of the eigenvalue's size.

    Choose on rows that are used for nothing else: after the choice, the loss on them no longer estimates the
    loss on new data.

    Args:
      tolerance: relative increase of the loss, at least 0. May be traced.
      order: which neurons are removed first: `size`, as above; `loss`, those whose removal alone leaves the
        smallest loss, which takes H passes over the validation rows; a function `(params, state) -> numbers`,
        such as `jaxarch.spectral.path_norms`; or the numbers, an array for each layer,
        `{"L2": ..., "L3": ...}`, or one of all H, layer after layer. Neurons with small numbers are removed
        first, and of equal ones those that come first; neurons that are removed already come before all
        others.
      removals: `all`, H + 1 passes over the validation rows; or `bisection`, `1 + ceil(log2(H + 1))`, which
        halves the interval between a removal within the tolerance and a larger one beyond it. It finds the
        same removal if the loss grows with each, or at least if every removal smaller than that of `all` is
        within the tolerance. Otherwise it may take a smaller one, never a larger: one more neuron is then too
        many, although several more need not be.
      batch_size: validation rows at a time, to save memory; by default all. Losses are the same up to
        rounding.

    Returns:
      A transform, for `spectral_network`, models with a `SpectralMLP` inside, and `direct_network`. For the
      first two, the network's `NeuronMask` has the neurons that are left, its state tells the model, and the
      parameters are unchanged; for the last, mask and parameters lack the neurons' weights. Its `info` has
      `losses`, shape (H + 1,), on the validation rows by the number of neurons removed; NaN where bisection
      did not look. It also has `removed`, the number taken. A network in which r neurons are removed
      already is pruned further: `removed` counts these too, and entries 0 to r of `losses` are loss_0.

      `jaxarch.spectral.direct_weights` and, for a direct network, `jaxarch.spectral.without_unused` give the
      smaller matrices; a layer without neurons is left out.

    Raises:
      ArgumentError: a concrete tolerance that is negative or not finite; an unknown word; numbers of other
        layers or shapes, or that are not finite; a batch size that is not a positive integer; a problem
        without `validation` rows; parameters of another network, or without hidden neurons.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> net, x = jaxarch.spectral_network((4, 8, 4)), jnp.eye(4)
      >>> problem = jaxarch.supervised(
      ...     net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2, validation=jnp.arange(4)
      ... )
      >>> strategy = jaxarch.chain(jaxarch.search.spectral(), jaxarch.recruit(tolerance=1.0))
      >>> network = strategy(jax.random.key(0), problem)
      >>> print(network[jaxarch.NeuronMask].count(), network.info["losses"].shape)
      0 (9,)
      >>> few = jaxarch.recruit(1.0, order=jaxarch.spectral.path_norms, removals="bisection")
      >>> network = jaxarch.chain(jaxarch.search.spectral(), few)(jax.random.key(0), problem)
      >>> print(network[jaxarch.NeuronMask].count(), jnp.isfinite(network.info["losses"]).sum())
      0 5
    """
    check_one_strength("tolerance", tolerance)
    if isinstance(order, str) and order not in ("size", "loss"):
        raise ArgumentError(f"order: expected 'size', 'loss', a function or numbers, got {shown(order)}")
    check_choice("removals", removals, tuple(REMOVALS))
    if batch_size is not None:
        check_count("batch_size", batch_size)
    settings = Settings(tolerance, order, removals, batch_size)
    return FunctionStage("recruit", _recruit, settings, NEEDS, removes=("neurons",))


def _recruit(settings: Settings, key: Array, problem: Problem, network: Network) -> Network:
    direct = is_direct(network.params)

    def without(kept: PyTree) -> Network:
        if direct:
            mask = map_selected(jnp.logical_and, neuron_mask(network.params, kept), network.mask)
            return network.replace(params=apply_mask(mask, network.params), mask=mask)
        left = neurons_in(network.state, kept)
        state = with_neurons(network.state, left)
        return network.with_records(NeuronMask(left)).replace(state=state)

    def loss(kept: PyTree) -> Array:
        pruned = without(kept)
        return problem.objective(pruned.params, pruned.state, problem.validation, settings.batch_size)

    def after(removed: Array) -> PyTree:
        return map_selected(lambda place: place >= removed, places)

    places = _places(settings.order, network, loss)
    neurons = sum(leaf.size for leaf in jax.tree.leaves(places))
    losses, removed = REMOVALS[settings.removals](
        lambda removed: loss(after(removed)), neurons, settings.tolerance
    )
    pruned = without(after(removed))
    return pruned.replace(info=network.info | {"losses": losses, "removed": removed})


def _places(order: Order, network: Network, loss: Callable[[PyTree], Array]) -> PyTree:
    """Return the place of each hidden neuron in the order of removal, from 0."""
    if is_direct(network.params):
        sizes = neuron_norms(network.params)
        left = map_selected(lambda norms: norms > 0, sizes)
    else:
        sizes = map_selected(jnp.abs, hidden_eigenvalues(network.params))
        left = neurons_in(network.state, full_mask(sizes))
    if isinstance(order, str):
        numbers = sizes if order == "size" else _losses_alone(sizes, loss)
    else:
        numbers = _given(order(network.params, network.state) if callable(order) else order, sizes)
    return joint_order(numbers, left)


def _losses_alone(like: PyTree, loss: Callable[[PyTree], Array]) -> PyTree:
    """Compute the loss without each neuron alone."""
    neurons = sum(leaf.size for leaf in jax.tree.leaves(like))
    alone = jax.lax.map(lambda n: loss(split_like(jnp.arange(neurons) != n, like)), jnp.arange(neurons))
    return split_like(alone, like)


def _given(numbers: Any, like: PyTree) -> PyTree:
    """Return one array of numbers per layer, from numbers by layer name or one array of all neurons."""
    check_finite("order", numbers if not isinstance(numbers, Mapping) else 0)
    if not isinstance(numbers, Mapping):
        neurons = sum(leaf.size for leaf in jax.tree.leaves(like))
        if jnp.shape(numbers) != (neurons,):
            raise ArgumentError(
                f"order: expected a number for each of {neurons} hidden neurons, got shape "
                f"{jnp.shape(numbers)}"
            )
        return split_like(jnp.asarray(numbers, float), like)

    def of_layer(leaf: Array, given: Any) -> Array:
        check_finite("order", given)
        if jnp.shape(given) != leaf.shape:
            raise ArgumentError(
                f"order: expected a number for each of {leaf.size} neurons of a layer, got shape "
                f"{jnp.shape(given)}"
            )
        return jnp.asarray(given, float)

    return map_selected(of_layer, like, by_path("order", named_leaves(numbers), like))
