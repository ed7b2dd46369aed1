"""Spectral networks trained under a penalty on their hidden eigenvalues ([S] eq. 4.4)."""

from __future__ import annotations

import dataclasses
from typing import Literal, Unpack

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxarch.descent import DescentChanges, own_descent
from jaxarch.errors import ArgumentError, check_one_strength, did_you_mean, shown
from jaxarch.masks import full_mask
from jaxarch.network import Network, NeuronMask
from jaxarch.problem import Problem
from jaxarch.running.methods import method
from jaxarch.running.stage import Needs
from jaxarch.running.training import Training, TrainState
from jaxarch.spectral.network import hidden_eigenvalues, neurons_in
from jaxarch.spectral.penalty import PENALTIES, Penalty
from jaxarch.trees import PyTree, Where, everything, merge, select, unselected


@dataclasses.dataclass(frozen=True)
class Settings:
    """The penalty, what is under it, and what is trained."""

    strength: ArrayLike
    penalty: Penalty
    where: Where | None
    trainable: Where

    def architecture(self, params: PyTree) -> PyTree:
        """The leaves that are penalised, and counted as architecture."""
        return hidden_eigenvalues(params) if self.where is None else select(params, self.where)


@method("[S] eq. 4.4", parent="spectral")
def spectral(
    strength: ArrayLike = 1e-4,
    *,
    penalty: Literal["l1", "l2", "squared l2"] | Penalty = "l1",
    where: Where | None = None,
    trainable: Where = everything,
    **descent: Unpack[DescentChanges],
) -> Training:
    r"""Train a spectral network under `loss + strength * Omega(hidden eigenvalues)` ([S] eq. 4.4).

    The default is L1, since it is the one that selects neurons: it pulls on every eigenvalue alike, however
    small. The norm that is not squared, in the code of [S], is a group lasso with one group a layer: it
    selects layers, and within one that is used it pulls on small eigenvalues less than on large ones. The
    squared norm hardly pulls on small ones at all, and selects nothing. [S] appendix G uses L1 on pictures
    and L2 elsewhere, with strengths around 1e-4.

    Args:
      strength: rho of (4.4), at least 0. May be traced: a sweep is one program.
      penalty: Omega: `l1`, `l2` (a norm a layer, not squared), `squared l2`, or a function of a pytree with
        one vector of eigenvalues a layer.
      where: the leaves that are penalised and counted as architecture, by path. By default all hidden
        eigenvalues, L_2 to L_B, of every spectral network in the model; those of inputs and outputs are left
        alone. Where [S] trains L_1 (experiment 1) it penalises it too: `where="eigenvalues/L[12]"`.
      trainable: the leaves that are trained, by path; the others keep their start. `"eigenvalues/*"` trains
        eigenvalues on fixed random eigenvectors.
      **descent: `optimizer`, `steps`, `batch_size`, `sampling` in place of the problem's.

    Returns:
      A search. Its `neurons` are all hidden neurons, one an eigenvalue. As a finish it trains on from what
      was found, without the neurons that `recruit` has removed: `chain(spectral(3e-4), recruit(),
      spectral(0))` prunes, then refits.

    Raises:
      ArgumentError: a strength that is negative or not finite, an unknown penalty.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.spectral_network((4, 8, 4))
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> network = jaxarch.search.spectral(1e-3)(jax.random.key(0), problem)
      >>> print(network.neurons.count(), network.params["eigenvalues"]["L2"].shape)
      8 (8,)
    """
    check_one_strength("strength", strength)
    if not callable(penalty) and penalty not in PENALTIES:
        raise ArgumentError(f"penalty: unknown {shown(penalty)}; {did_you_mean(str(penalty), PENALTIES)}")
    omega = penalty if callable(penalty) else PENALTIES[penalty]
    return Training(
        "spectral",
        _init,
        _params,
        _network,
        Settings(strength, omega, where, trainable),
        own_descent(descent),
        penalty=_penalty,
        remedy="start from other eigenvalues (see `jaxarch.spectral_network`)",
        needs=Needs("optional", ("params",), forgets=("connections",)),
        removes=(),
    )


def _init(settings: Settings, key: Array, problem: Problem, network: Network | None) -> TrainState:
    params, model = problem.init(key) if network is None else (network.params, network.state)
    trained = select(params, settings.trainable, "trainable")
    return TrainState(trained, unselected(trained, params), model)


def _params(settings: Settings, state: TrainState) -> PyTree:
    return merge(state.trainable, state.fixed)


def _network(settings: Settings, state: TrainState) -> Network:
    params = _params(settings, state)
    left = neurons_in(state.model, full_mask(settings.architecture(params)))
    return Network(params, state=state.model, neurons=NeuronMask(left))


def _penalty(settings: Settings, state: TrainState) -> Array:
    return jnp.asarray(settings.strength) * settings.penalty(settings.architecture(_params(settings, state)))
