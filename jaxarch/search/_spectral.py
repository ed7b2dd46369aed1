"""Spectral networks trained under a penalty on their hidden eigenvalues ([S] eq. 4.4)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import optax
from jax import Array

from jaxarch._internal.errors import ArgumentError, check_flag, did_you_mean, is_choice, shown
from jaxarch._internal.trees import (
    PyTree,
    Where,
    by_path,
    everything,
    map_selected,
    merge,
    named_leaves,
    natural_order,
    placed,
    select,
    unselected,
)
from jaxarch.masks import full_mask
from jaxarch.optim._proximal import Strengths, check_strengths
from jaxarch.optim._proximal import proximal as proximal_steps
from jaxarch.run._descent import DescentChanges, own_descent
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._records import NeuronMask
from jaxarch.run._stage import Needs
from jaxarch.run._training import Training, TrainState
from jaxarch.search._scored import total
from jaxarch.spectral._network import hidden_eigenvalues, neurons_in, with_neurons
from jaxarch.spectral.penalty import PENALTIES, Penalty

ROWS, CLOSE = 16, 1e-5
"""Number of examples, and relative tolerance of outputs, to test whether a 0 silences a neuron."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """The penalty, the penalized and the trained leaves, and whether eigenvalues become exactly 0."""

    strength: Strengths
    depth_strength: Strengths
    penalty: Literal["l1", "l2", "squared l2"] | Penalty
    where: Where | None
    trainable: Where
    proximal: bool

    def architecture(self, params: PyTree) -> PyTree:
        """Return the leaves that are penalized, and counted as architecture."""
        return hidden_eigenvalues(params) if self.where is None else select(params, self.where)


class Fixed(NamedTuple):
    """Leaves that are not trained, and where an eigenvalue of 0 silences its neuron."""

    params: PyTree
    silencing: PyTree


@method("[S] eq. 4.4", parent="spectral")
def spectral(
    strength: Strengths = 1e-4,
    *,
    penalty: Literal["l1", "l2", "squared l2"] | Penalty = "l1",
    depth_strength: Strengths = 0.0,
    proximal: bool = False,
    where: Where | None = None,
    trainable: Where = everything,
    **descent: Unpack[DescentChanges],
) -> Training:
    r"""Train a spectral network under `loss + strength * Omega(hidden eigenvalues)` ([S] eq. 4.4).

    The default is L1, since it selects neurons: it pulls equally on every eigenvalue, however small. The norm
    that is not squared, in the code of [S], is a group lasso with one group per layer. It selects layers, and
    within a layer in use it pulls on small eigenvalues less than on large ones. The squared norm hardly pulls
    on small ones at all, and selects nothing. [S] appendix G uses L1 on pictures and L2 elsewhere, with
    strengths around 1e-4.

    Strengths may differ between layers, and a second term, ours, applies to layers as a whole:

        loss + sum_k (strength_k Omega(L_k) + depth_strength_k ||L_k||).

    A number for `depth_strength` means `depth_strength (k - 2)` in layer k: the first hidden layer is free,
    and later ones that the loss can do without are emptied first. L1 does not distinguish where neurons are.
    If skip connections lead from every layer to the output, neurons are spread over the layers that the loss
    does not distinguish. `search.spectral_depth` finds without it how many layers are needed, and
    `search.spectral_width` how many neurons, without a strength to choose.

    A gradient step makes no eigenvalue exactly 0, and `jaxarch.recruit` determines which are small enough.
    With `proximal`, steps end at 0 instead of passing it, and an eigenvalue stays at 0 until the loss pulls
    on it more than the penalty: see `jaxarch.optim.proximal`, also for the step size of the threshold. The
    neurons found are then those whose eigenvalue is not 0, without validation rows.

    Args:
      strength: rho of (4.4), at least 0; or one for each layer, `{"L2": 3e-4, "L3": 1e-4}`, by the path of
        its eigenvalues or the end of it. May be traced: a sweep is one program.
      penalty: Omega: `l1`, `l2` (one norm per layer, not squared), `squared l2`, or a function of a pytree
        with one vector of eigenvalues per layer.
      depth_strength: strength for the norms of layers: a number, by default 0, that counts once for each
        hidden layer before, or one for each layer, in the same form.
      proximal: whether eigenvalues become exactly 0, for `l1` and `l2`. An eigenvalue without a gradient at 0
        stays 0. So a strong penalty may remove early what would have been of use later; train without it
        first. Its `info["loss"]` is without the penalty.
      where: the leaves that are penalized and counted as architecture, by path. By default all hidden
        eigenvalues, L_2 to L_B, of every spectral network in the model, but not those of inputs and outputs.
        Where [S] trains L_1 (experiment 1) it penalizes it too: `where="eigenvalues/L[12]"`.
      trainable: the leaves that are trained, by path; the others keep their start. `"eigenvalues/*"` trains
        eigenvalues on fixed random eigenvectors.
      **descent: `optimizer`, `steps`, `batch_size`, `sampling`, replacing the problem's.

    Returns:
      A search. Its `NeuronMask` keeps all hidden neurons, one per eigenvalue. With `proximal`, it drops
      neurons with eigenvalue 0 if a 0 silences the neuron, so that its removal changes no output; the state
      then says so too. This is tested at the start, layer by layer. It holds in a layer after one whose
      eigenvalues are 0, if f(0) = 0. So in the form of [S] it does not hold beyond the first hidden layer. As
      a transform it continues training without the removed neurons:
      `chain(spectral(3e-4), recruit(), spectral(0))` prunes, then refits.

    Raises:
      ArgumentError: a strength that is negative or not finite, an unknown penalty, one that makes nothing 0
        with `proximal`, strengths by layer with a function. As training begins: strengths of layers that do
        not exist, or not of all.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.spectral_network((4, 8, 4))
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> network = jaxarch.search.spectral(1e-3)(jax.random.key(0), problem)
      >>> print(network[jaxarch.NeuronMask].count(), network.params["eigenvalues"]["L2"].shape)
      8 (8,)
      >>> network = jaxarch.search.spectral(1.0, proximal=True)(jax.random.key(0), problem)
      >>> print(network[jaxarch.NeuronMask].count(), network.params["eigenvalues"]["L2"].any())
      0 False
    """
    check_strengths("strength", strength)
    check_strengths("depth_strength", depth_strength)
    check_flag("proximal", proximal)
    if not callable(penalty) and not is_choice(penalty, PENALTIES):
        raise ArgumentError(f"penalty: unknown {shown(penalty)}; {did_you_mean(str(penalty), PENALTIES)}")
    if callable(penalty) and isinstance(strength, Mapping):
        raise ArgumentError(
            "strength: expected one number, since a penalty function weighs layers itself; got one per layer"
        )
    if proximal and not is_choice(penalty, ("l1", "l2")):
        raise ArgumentError(f"penalty: with proximal=True, expected 'l1' or 'l2', got {shown(penalty)}")
    return Training(
        "spectral",
        _init,
        _params,
        _network,
        Settings(strength, depth_strength, penalty, where, trainable, proximal),
        own_descent(descent),
        penalty=None if proximal else _penalty,
        wrap_optimizer=_wrap_optimizer if proximal else None,
        remedy="start from other eigenvalues (see `jaxarch.spectral_network`)",
        needs=Needs("optional", ("params",), forgets=("connections",)),
        removes=("neurons",) if proximal else (),
    )


def _init(settings: Settings, key: Array, problem: Problem, network: Network | None) -> TrainState:
    params, model = problem.start(key) if network is None else (network.params, network.state)
    trained = select(params, settings.trainable, "trainable")
    _strengths(settings, settings.architecture(params))
    silencing = _silencing(key, problem, params, model) if settings.proximal else None
    return TrainState(trained, Fixed(unselected(trained, params), silencing), model)


def _params(settings: Settings, state: TrainState) -> PyTree:
    return merge(state.trainable, state.fixed.params)


def _network(settings: Settings, state: TrainState) -> Network:
    params, model = _params(settings, state), state.model
    if settings.proximal:
        hidden = hidden_eigenvalues(params)
        active = map_selected(lambda values, silent: (values != 0) | ~silent, hidden, state.fixed.silencing)
        model = with_neurons(model, neurons_in(model, active))
    left = neurons_in(model, full_mask(settings.architecture(params)))
    return Network(params, state=model, records=(NeuronMask(left),))


def _strengths(settings: Settings, eigenvalues: PyTree) -> tuple[PyTree, PyTree]:
    """Return the strengths of each layer, for Omega and for the layer's norm."""
    depths = settings.depth_strength
    if not isinstance(depths, Mapping):
        depths = {path: before * jnp.asarray(depths) for path, before in _layers_before(eigenvalues).items()}
    return (
        by_path("strength", settings.strength, eigenvalues),
        by_path("depth_strength", depths, eigenvalues),
    )


def _layers_before(eigenvalues: PyTree) -> dict[str, int]:
    """Return how many layers of the same network come before each."""
    networks: dict[str, list[str]] = {}
    for path in sorted(named_leaves(eigenvalues), key=natural_order):
        networks.setdefault(path.rpartition("/")[0], []).append(path)
    return {path: before for layers in networks.values() for before, path in enumerate(layers)}


def _penalty(settings: Settings, state: TrainState) -> Array:
    eigenvalues = settings.architecture(_params(settings, state))
    omega = settings.penalty if callable(settings.penalty) else PENALTIES[settings.penalty]
    ones, depths = _strengths(settings, eigenvalues)
    if isinstance(settings.strength, Mapping):
        of_neurons = total(map_selected(lambda leaf, one: one * omega(leaf), eigenvalues, ones))
    else:
        of_neurons = jnp.asarray(settings.strength) * omega(eigenvalues)
    if isinstance(settings.depth_strength, (int, float)) and not settings.depth_strength:
        return of_neurons
    norms = map_selected(lambda leaf, depth: depth * PENALTIES["l2"](leaf), eigenvalues, depths)
    return of_neurons + total(norms)


def _wrap_optimizer(
    settings: Settings, key: Array, problem: Problem, state: TrainState
) -> optax.GradientTransformation:
    eigenvalues = settings.architecture(_params(settings, state))
    ones, depths = map(named_leaves, _strengths(settings, eigenvalues))
    trained = named_leaves(state.trainable).keys() & ones.keys()
    if not trained:
        raise ArgumentError(
            "trainable: it leaves none of the penalized eigenvalues to train; select at least one"
        )
    if settings.penalty == "l2":
        ones, depths = dict.fromkeys(ones, 0.0), {path: ones[path] + depths[path] for path in ones}
    l1, l2 = ({path: of_layers[path] for path in trained} for of_layers in (ones, depths))
    return proximal_steps(problem.descent.optimizer, l1, l2, where=lambda path, leaf: path in trained)


def _silencing(key: Array, problem: Problem, params: PyTree, model: PyTree) -> PyTree:
    """Return, for each hidden layer, whether eigenvalues of 0 have the effect of removing its neurons.

    It depends on the form of the network and on its activation, which a search does not know. So it is tested
    on the outputs, with all other eigenvalues, of all layers, drawn at random.
    """
    rows = jnp.arange(min(ROWS, jax.tree.leaves(problem.data)[0].shape[0]))
    names = named_leaves(select(params, "*eigenvalues/*"))
    keys = dict(zip(names, jax.random.split(key, len(names)), strict=True))
    drawn = {path: jax.random.normal(keys[path], leaf.shape, leaf.dtype) for path, leaf in names.items()}
    hidden = hidden_eigenvalues(params)

    def seen(values: dict[str, Array], kept: PyTree) -> list[Array]:
        network = merge(placed(values, params), params), with_neurons(model, neurons_in(model, kept))
        outputs = None if problem.predict is None else problem.outputs(*network, rows)
        return jax.tree.leaves((problem.objective(*network, rows), outputs))

    def of_layer(path: str) -> Array:
        values = {**drawn, path: jnp.zeros_like(drawn[path])}
        everyone = full_mask(hidden)
        without = placed(
            {name: leaf & (name != path) for name, leaf in named_leaves(everyone).items()}, everyone
        )
        pairs = zip(seen(values, everyone), seen(values, without), strict=True)
        return jnp.stack([jnp.abs(a - b).max() <= CLOSE * jnp.abs(a).max() for a, b in pairs]).all()

    return placed({path: of_layer(path) for path in named_leaves(hidden)}, hidden)
