"""The hidden neurons that a network needs: those that its validation loss asks for ([S] figure 10)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxarch.errors import check_one_strength
from jaxarch.masks import apply_mask
from jaxarch.network import Network, NeuronMask
from jaxarch.problem import Problem
from jaxarch.running.methods import method
from jaxarch.running.stage import FunctionStage, Needs
from jaxarch.spectral.direct import is_direct, neuron_mask, neuron_norms
from jaxarch.spectral.network import neurons_in, with_neurons
from jaxarch.spectral.readout import joint_order, neuron_order
from jaxarch.trees import map_selected

NEEDS = Needs("required", ("params",), validation=True, before="search.spectral()")


@method("[S] figure 10", parent="spectral")
def recruit(tolerance: ArrayLike = 0.05) -> FunctionStage:
    r"""Keep the hidden neurons that a network needs, by its validation loss ([S] figure 10).

    Neurons are removed in the joint order of `|eigenvalue|`, smallest first; those of a `direct_network`, in
    that of the norm of their weights, in and out. Of all removals, 0 to H neurons, the largest is taken whose
    loss on the problem's validation rows is at most `loss_0 + tolerance |loss_0|`, loss_0 that of the network
    as found. So a negative loss may rise by the same share of its size, and where it is 0 it may not rise at
    all. The curve need not be monotone: the largest removal counts, even if some smaller one is worse. A
    removal whose loss is NaN or +inf is never taken; if loss_0 is not finite, none is.

    A removed neuron has activation 0, whatever the layer, and all other weights W_ij stay as they are. [S]
    puts its eigenvalue to 0. That removes it too, but only if the eigenvalues of the layer before are 0 and
    f(0) = 0, and it changes the skip connections past it, by a term of the eigenvalue's size.

    Choose on rows that are used for nothing else: the loss there is no longer an estimate of a new one.

    Args:
      tolerance: relative increase of the loss, at least 0. May be traced.

    Returns:
      A finish, for `spectral_network`, models with a `SpectralMLP` inside, and `direct_network`. After the
      first two, the network's `neurons` are those that are left, its state says so to the model, and the
      parameters are unchanged; after the last, mask and parameters are without the neurons' weights. Its
      `info` has `losses`, shape (H + 1,), on the validation rows against the number of neurons removed, and
      `removed`, that number. A network in which some are removed already is pruned further; `losses` begins
      as many times with what it had.

    Raises:
      ArgumentError: a concrete tolerance that is negative or not finite; a problem without `validation` rows;
        parameters of another network, or without hidden neurons.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> net, x = jaxarch.spectral_network((4, 8, 4)), jnp.eye(4)
      >>> problem = jaxarch.supervised(
      ...     net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2, validation=jnp.arange(4)
      ... )
      >>> strategy = jaxarch.chain(jaxarch.search.spectral(), jaxarch.recruit(tolerance=1.0))
      >>> network = strategy(jax.random.key(0), problem)
      >>> print(network.neurons.count(), network.info["losses"].shape)
      0 (9,)
    """
    check_one_strength("tolerance", tolerance)
    return FunctionStage("recruit", _recruit, tolerance, NEEDS, removes=("neurons",))


def _recruit(tolerance: ArrayLike, key: Array, problem: Problem, network: Network) -> Network:
    direct = is_direct(network.params)
    places = (
        joint_order(neuron_norms(network.params)) if direct else neuron_order(network.params, network.state)
    )
    counts = jnp.arange(sum(leaf.size for leaf in jax.tree.leaves(places)) + 1)

    def without(removed: Array) -> Network:
        kept = map_selected(lambda place: place >= removed, places)
        if direct:
            mask = map_selected(jnp.logical_and, neuron_mask(network.params, kept), network.mask)
            return network.replace(params=apply_mask(mask, network.params), mask=mask)
        left = neurons_in(network.state, kept)
        return network.replace(neurons=NeuronMask(left), state=with_neurons(network.state, left))

    def loss(removed: Array) -> Array:
        pruned = without(removed)
        return problem.objective(pruned.params, pruned.state, problem.validation)

    losses = jax.lax.map(loss, counts)
    removed = largest_removal(losses, tolerance)
    pruned = without(removed)
    return pruned.replace(info=network.info | {"losses": losses, "removed": removed})


def largest_removal(losses: Array, tolerance: ArrayLike) -> Array:
    """The largest removal whose loss is at most `losses[0] + tolerance |losses[0]|`; 0 if that is not finite.

    Args:
      losses: after the removal of 0, 1, ..., H neurons, shape (H + 1,).
      tolerance: relative increase of the loss.
    """
    most = losses[0] + jnp.asarray(tolerance, losses.dtype) * jnp.abs(losses[0])
    within = (losses <= most) & jnp.isfinite(losses[0])
    return jnp.max(jnp.where(within, jnp.arange(losses.size), 0))
