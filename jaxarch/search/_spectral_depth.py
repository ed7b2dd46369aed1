"""The fewest hidden layers of a spectral network that its validation loss allows."""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple, Unpack

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import ArgumentError, check_count, check_one_strength
from jaxarch._internal.trees import PyTree, named_leaves, placed
from jaxarch.masks import full_mask
from jaxarch.optim._proximal import Strengths
from jaxarch.run._descent import DescentChanges
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._records import NeuronMask
from jaxarch.run._stage import FunctionStage, Needs
from jaxarch.run._strategy import Strategy, chain
from jaxarch.search._spectral import spectral
from jaxarch.spectral._network import hidden_eigenvalues, neurons_in, with_neurons
from jaxarch.spectral.penalty import Penalty

NEEDS = Needs("required", ("params",), validation=True, before="search.spectral()")


@dataclasses.dataclass(frozen=True)
class Settings:
    """Number of hidden layers, and tolerance for a loss to count as no worse."""

    layers: int
    tolerance: ArrayLike


class Depths(NamedTuple):
    """State of the rounds, until the last stage removes it; its arrays have an axis of layers + 1 networks.

    Attributes:
      seen: how many networks there were so far.
      networks: `(params, state)` of all; any values for those to come.
      losses: on the validation rows, shape (layers + 1,), 0 for those to come.
    """

    seen: Array
    networks: tuple[PyTree, PyTree]
    losses: Array


IN_ROUNDS = dataclasses.replace(NEEDS, records=(Depths,))


@method("this library", parent="spectral", layers=1)
def spectral_depth(
    layers: int,
    strength: Strengths = 1e-4,
    *,
    tolerance: ArrayLike = 0.01,
    penalty: Literal["l1", "l2", "squared l2"] | Penalty = "l1",
    **descent: Unpack[DescentChanges],
) -> Strategy:
    r"""Train a spectral network, take its hidden layers out one by one, and keep as few as it needs.

    Each round trains like `search.spectral`, from the current network, under its penalty. The first round has
    all B - 1 hidden layers. Before each later round one layer loses all its neurons: the layer whose removal
    from the trained network leaves the smallest validation loss. Round B has none left: with its skip
    connections the network is linear then. Let V_d be the validation loss of the network with d hidden layers
    after its round. The search returns the network with the fewest layers whose loss is hardly above the
    smallest,

        min { d : V_d <= min_k V_k + tolerance |V_0| }.

    So the tolerance is a share of the loss of the linear network. For the squared error, where that network
    explains a share r of the variance, R^2 may fall by `tolerance (1 - r)`. Only finite V count; if none is
    finite, all layers stay, and if V_0 is not, the tolerance is 0.

    In the gated form (`spectral_network(form="gated")`) a layer without neurons is linear, and its factors on
    both sides act as one: the rest is a gated network of fewer layers. It need not be trained from nothing,
    and all rounds are one program. In the form of [S] a layer without neurons is gone as well, and the skip
    connections past it stay as they are.

    `jaxarch.recruit` then determines how many neurons the remaining layers need:

        chain(search.spectral_depth(4, 1e-5), recruit(), search.spectral(0.0))

    The depth belongs to the network that gradient descent finds at the given widths. If a shallower one is as
    good, because of the task or because wide layers make up for depth, it is found. Validation rows decide
    the order and the depth: the loss on them is no longer an estimate of the loss on new data.

    Args:
      layers: hidden layers of the model, of all its spectral networks together, at least 1.
      strength: of the penalty, in all rounds, as for `search.spectral`.
      tolerance: by how much a loss may be above the smallest, as a share of the loss without hidden layers,
        at least 0. May be traced.
      penalty: Omega, as for `search.spectral`.
      **descent: `optimizer`, `steps`, `batch_size`, `sampling` of every round, replacing the problem's.

    Returns:
      A strategy of layers + 1 trainings. The network's `NeuronMask` and state lack the neurons of the removed
      layers. Its `info` has `layers`, how many are left, and `depth_losses`, shape (layers + 1,), the V of
      the networks in the order of the rounds: with all layers first, with none last.

    Raises:
      ArgumentError: layers that are not a positive integer, or not as many as the model has; a concrete
        tolerance that is negative or not finite; arguments that `search.spectral` does not take; a problem
        without `validation` rows.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.spectral_network((4, 8, 8, 4), form="gated")
      >>> problem = jaxarch.supervised(
      ...     net, (x, x), loss=optax.l2_loss, optimizer=optax.adam(0.01), steps=200, validation=jnp.arange(4)
      ... )
      >>> network = jaxarch.search.spectral_depth(2)(jax.random.key(0), problem)
      >>> print(network.info["layers"], network.info["depth_losses"].shape)  # the task is linear
      0 (3,)
    """
    check_count("layers", layers)
    check_one_strength("tolerance", tolerance)
    training = spectral(strength, penalty=penalty, **descent)
    settings = Settings(int(layers), tolerance)
    begin = FunctionStage("all layers", _begin, settings, NEEDS, removes=())
    remove = FunctionStage("remove a layer", _remove, needs=IN_ROUNDS, removes=("neurons",))
    keep = FunctionStage("keep", _keep, needs=IN_ROUNDS, removes=())
    choose = FunctionStage("fewest layers", _choose, settings, IN_ROUNDS, removes=("neurons",))
    return chain(training, begin, keep, *(remove, training, keep) * settings.layers, choose)


def _begin(settings: Settings, key: Array, problem: Problem, network: Network) -> Network:
    """Make room for the networks of all rounds, so that all rounds are one program."""
    kept = _left(network.params, network.state)
    if (there := len(named_leaves(kept))) != settings.layers:
        raise ArgumentError(
            f"layers: expected {there}, the number of hidden layers of the model, got {settings.layers}"
        )
    network = _with(network, kept)
    networks = settings.layers + 1
    room = jax.tree.map(lambda leaf: jnp.stack([leaf] * networks), (network.params, network.state))
    return network.with_records(Depths(jnp.asarray(0), room, jnp.zeros(networks)))


def _keep(settings: None, key: Array, problem: Problem, network: Network) -> Network:
    depths = network[Depths]
    loss = problem.objective(network.params, network.state, problem.validation)
    networks = jax.tree.map(
        lambda room, leaf: room.at[depths.seen].set(leaf), depths.networks, (network.params, network.state)
    )
    losses = depths.losses.at[depths.seen].set(loss.astype(depths.losses.dtype))
    return network.with_records(Depths(depths.seen + 1, networks, losses))


def _remove(settings: None, key: Array, problem: Problem, network: Network) -> Network:
    """Remove the neurons of the layer that costs least; change nothing if no layer has neurons left."""
    kept = _left(network.params, network.state)
    masks = named_leaves(kept)

    def without(layer: Array) -> PyTree:
        return placed({path: mask & (layer != i) for i, (path, mask) in enumerate(masks.items())}, kept)

    def loss(layer: Array) -> Array:
        fewer = _with(network, without(layer))
        value = problem.objective(fewer.params, fewer.state, problem.validation)
        return jnp.where(jnp.isnan(value), jnp.inf, value)

    losses = jax.lax.map(loss, jnp.arange(len(masks)))
    there = jnp.stack([mask.any() for mask in masks.values()])
    # Layers that still have neurons go first, also if all losses are infinite.
    order = jnp.lexsort((losses, ~there))
    return _with(network, without(order[0]))


def _choose(settings: Settings, key: Array, problem: Problem, network: Network) -> Network:
    depths = network[Depths]
    chosen = fewest(depths.losses, settings.tolerance)
    params, state = jax.tree.map(lambda leaf: leaf[chosen], depths.networks)
    kept = _left(params, state)
    layers = jnp.stack([mask.any() for mask in named_leaves(kept).values()]).sum()
    info = network.info | {"layers": layers, "depth_losses": depths.losses}
    left = network.without(Depths).with_records(NeuronMask(kept))
    return left.replace(params=params, state=state, info=info)


def fewest(losses: Array, tolerance: ArrayLike) -> Array:
    """Return the index of the last loss that is at most `min + tolerance |last|`; 0 if none is finite."""
    finite = jnp.isfinite(losses)
    slack = tolerance * jnp.where(finite[-1], jnp.abs(losses[-1]), 0)
    within = finite & (losses <= jnp.min(losses, where=finite, initial=jnp.inf) + slack)
    return jnp.max(jnp.where(within, jnp.arange(losses.shape[0]), 0))


def _left(params: PyTree, state: PyTree) -> PyTree:
    """Return the hidden neurons that the state has not removed."""
    return neurons_in(state, full_mask(hidden_eigenvalues(params)))


def _with(network: Network, kept: PyTree) -> Network:
    return network.with_records(NeuronMask(kept)).replace(state=with_neurons(network.state, kept))
