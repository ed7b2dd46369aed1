"""The fewest hidden neurons of a spectral network that its validation loss allows, at no chosen strength."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import (
    ArgumentError,
    check_count,
    check_one_positive,
    check_one_strength,
    is_traced,
    shown,
)
from jaxarch._internal.trees import PyTree, map_selected
from jaxarch.masks import full_mask
from jaxarch.run._descent import DescentChanges, own_descent
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._records import NeuronMask
from jaxarch.run._stage import FunctionStage, Needs
from jaxarch.run._strategy import Strategy, chain
from jaxarch.run._training import Training, TrainState
from jaxarch.spectral._network import hidden_eigenvalues, neurons_in, with_neurons
from jaxarch.spectral.penalty import PENALTIES
from jaxarch.transforms._recruit import recruit

REFIT = 1e-4
"""Strength of trainings without a penalty, as a share of the first strength.

It is not 0: the eigenvalues of a layer without neurons would have no gradient, and the training would be
reported as one with a dead start.
"""


@dataclasses.dataclass(frozen=True)
class Settings:
    """Number of rounds, strengths as shares of the linear loss, and tolerances."""

    rounds: int
    strength: ArrayLike
    growth: ArrayLike
    recruit_tolerance: ArrayLike
    tolerance: ArrayLike


class Candidates(NamedTuple):
    """Networks to choose from: the linear one, then the refitted one of each round.

    Attributes:
      networks: `(params, state)`, with an axis of rounds + 1 candidates; any values for those to come.
      counts: their hidden neurons.
      losses: their losses on the validation rows.
      strengths: strengths of the penalty before the refit, 0 for the linear network.
    """

    networks: tuple[PyTree, PyTree]
    counts: Array
    losses: Array
    strengths: Array


class Widths(NamedTuple):
    """State of the rounds, until the last stage removes it.

    Attributes:
      strength: strength of the penalty in the next training.
      of_round: strength of the penalty in this round.
      refit: strength of a refit.
      seen: how many candidates there were so far.
      penalized: `(params, state)` under the penalty, with which the next round goes on.
      candidates: the networks so far.
    """

    strength: Array
    of_round: Array
    refit: Array
    seen: Array
    penalized: tuple[PyTree, PyTree]
    candidates: Candidates


NEEDS = Needs("required", ("params",), validation=True, records=(Widths,))


@method("this library", parent="spectral", rounds=2)
def spectral_width(
    rounds: int = 10,
    *,
    strength: ArrayLike = 3e-4,
    growth: ArrayLike = 1.5,
    recruit_tolerance: ArrayLike = 0.05,
    tolerance: ArrayLike = 1e-3,
    **descent: Unpack[DescentChanges],
) -> Strategy:
    r"""Train a spectral network under a rising penalty, and choose the fewest neurons on validation rows.

    No strength is chosen by hand. First the network is trained without any hidden neuron. Let V_0 be its
    validation loss: with all skip connections, that of a linear model. Round k = 1, 2, ..., rounds then
    continues from the network of the round before, the first one from the start:

    1. train under `loss + rho_k |hidden eigenvalues|_1`, with
       `rho_k = strength growth^(k - 1) |V_0|`, as `search.spectral` does;
    2. remove the neurons that the validation loss can spare: `jaxarch.recruit(recruit_tolerance)`;
    3. train a copy without the penalty. It has n_k neurons and the validation loss V_k.

    The search returns the copy with the fewest neurons whose loss is hardly above the smallest,

        min { n_k : V_k <= min_j V_j + tolerance |V_0| },    n_0 = 0,

    of several the one with the smaller loss. For the squared error, where a linear model explains a share r
    of the variance, the choice costs at most `tolerance (1 - r)` of R^2. Only finite V count. If V_0 is not
    finite, it counts as 1 for the strengths and as 0 for the choice.

    One training keeps copies of neurons: the L1 norm of eigenvalues does not change if a neuron is divided
    among several. Copies go as the training converges under the penalty. Here each round continues where the
    last one ended, with fewer neurons and more penalty, so it needs few steps. A penalty that is too strong
    removes needed neurons; V_k shows it, and the choice passes over such rounds. Strengths are shares of V_0,
    so they follow the scale of the loss.

    Each training must be long enough for a model without hidden neurons to converge. Otherwise V falls from
    round to round because of the steps alone, and late rounds are chosen.

    The search takes `2 rounds + 1` trainings. All of them are one compiled program, and removed neurons are
    computed along with the others.

    Args:
      rounds: number of rounds. The last penalty should be too strong; if `info["chosen"]` is the last round,
        take more.
      strength: rho_1 as a share of V_0, above 0. May be traced.
      growth: factor of the strength from round to round, at least 1. May be traced.
      recruit_tolerance: relative increase of the penalized network's loss in step 2, as for
        `jaxarch.recruit`. May be traced.
      tolerance: by how much the loss of the chosen network may be above the smallest, as a share of V_0, at
        least 0. May be traced.
      **descent: `optimizer`, `steps`, `batch_size`, `sampling` of every training, replacing the problem's.

    Returns:
      A strategy. Its network is refitted: it needs no further training. `NeuronMask` and the state tell the
      neurons that are left. Its `info` has `neurons` and `width_losses`, the n and V of all candidates, shape
      (rounds + 1,), the network without neurons first; `strengths`, the rho; and `chosen`, the index of the
      network that was taken. If no loss is finite, that is the last one.

    Raises:
      ArgumentError: rounds that are not a positive integer; concrete numbers outside of their range; a
        problem without `validation` rows; parameters without hidden eigenvalues.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x = jnp.linspace(-1.0, 1.0, 100)[:, None]
      >>> problem = jaxarch.supervised(
      ...     jaxarch.spectral_network((1, 10, 1), form="gated", bias=True),
      ...     (x, jnp.abs(x)),
      ...     loss=optax.squared_error,
      ...     optimizer=optax.adam(0.01),
      ...     steps=300,
      ...     validation=jnp.arange(100),
      ... )
      >>> search = jaxarch.search.spectral_width(4, strength=1e-2, growth=3.0)
      >>> network = search(jax.random.key(0), problem)
      >>> print(network[jaxarch.NeuronMask].count() < 5, network.info["neurons"].shape)  # |x| = 2 relu(x) - x
      True (5,)
    """
    check_count("rounds", rounds)
    check_one_positive("strength", strength)
    check_one_positive("growth", growth)
    check_one_strength("recruit_tolerance", recruit_tolerance)
    check_one_strength("tolerance", tolerance)
    if not is_traced(growth) and np.less(growth, 1):
        raise ArgumentError(f"growth: expected a factor of at least 1, got {shown(growth)}")
    settings = Settings(int(rounds), strength, growth, recruit_tolerance, tolerance)
    begin = FunctionStage(
        "no neurons", _begin, settings, Needs("optional", ("params",), validation=True), removes=()
    )
    training = Training(
        "spectral",
        _init,
        _params,
        _network,
        descent=own_descent(descent),
        penalty=_penalty,
        remedy="start from other eigenvalues (see `jaxarch.spectral_network`)",
        needs=Needs("required", ("params",), forgets=("connections",), records=(Widths,)),
        removes=(),
    )
    linear = FunctionStage("linear network", _linear, settings, NEEDS, removes=())
    fewer = FunctionStage("recruit", _fewer, settings, NEEDS, removes=("neurons",))
    keep = FunctionStage("keep", _keep, settings, NEEDS, removes=("neurons",))
    choose = FunctionStage("fewest neurons", _choose, settings, NEEDS, removes=("neurons",))
    return chain(begin, training, linear, *(training, fewer, training, keep) * settings.rounds, choose)


# Stages ----------------------------------------------------------------------------------------------


def _begin(settings: Settings, key: Array, problem: Problem, network: Network | None) -> Network:
    """Remember the start, and take all its neurons out."""
    if network is None:
        params, state = problem.start(key)
        network = Network(params, state=state)
    kept = _left(network.params, network.state)
    network = _with(network, kept)
    start, candidates = (network.params, network.state), settings.rounds + 1
    room = jax.tree.map(lambda leaf: jnp.stack([leaf] * candidates), start)
    zeros = jnp.zeros(candidates, _dtype(network.params))
    widths = Widths(
        strength=jnp.full_like(zeros[0], REFIT**2),
        of_round=zeros[0],
        refit=zeros[0],
        seen=jnp.asarray(0),
        penalized=start,
        candidates=Candidates(room, jnp.zeros(candidates, jnp.int32), zeros, zeros),
    )
    nobody = map_selected(jnp.zeros_like, kept)
    return _with(network, nobody).with_records(widths)


def _linear(settings: Settings, key: Array, problem: Problem, network: Network) -> Network:
    """Keep the linear network, measure its loss, and go back to the start."""
    network = _kept(problem, network)
    widths = network[Widths]
    loss = widths.candidates.losses[0]
    first = jnp.asarray(settings.strength, loss.dtype) * jnp.where(jnp.isfinite(loss), jnp.abs(loss), 1)
    return _with_penalty(network, widths._replace(strength=first, of_round=first, refit=REFIT * first))


def _fewer(settings: Settings, key: Array, problem: Problem, network: Network) -> Network:
    """Remove the neurons that the validation loss can spare, and let the next training be a refit."""
    pruned = recruit(settings.recruit_tolerance)(key, problem, network)
    widths = network[Widths]
    widths = widths._replace(strength=widths.refit, penalized=(pruned.params, pruned.state))
    return pruned.with_records(widths).replace(info=network.info)


def _keep(settings: Settings, key: Array, problem: Problem, network: Network) -> Network:
    """Keep the refitted network as a candidate, and go back to the penalized one, with more penalty."""
    network = _kept(problem, network)
    widths = network[Widths]
    strength = widths.of_round * jnp.asarray(settings.growth, widths.of_round.dtype)
    return _with_penalty(network, widths._replace(strength=strength, of_round=strength))


def _choose(settings: Settings, key: Array, problem: Problem, network: Network) -> Network:
    _, counts, losses, strengths = candidates = network[Widths].candidates
    chosen = fewest_within(counts, losses, settings.tolerance)
    params, state = jax.tree.map(lambda leaf: leaf[chosen], candidates.networks)
    info = network.info | {
        "chosen": chosen,
        "neurons": counts,
        "width_losses": losses,
        "strengths": strengths,
    }
    return _with(network.without(Widths).replace(params=params, state=state, info=info), _left(params, state))


def fewest_within(counts: Array, losses: Array, tolerance: ArrayLike) -> Array:
    """Return the index of the fewest neurons whose loss is at most `min + tolerance |losses[0]|`.

    Of equal counts the smaller loss is taken. If no loss is finite, the index is that of the last one.
    """
    finite = jnp.isfinite(losses)
    slack = jnp.asarray(tolerance, losses.dtype) * jnp.where(finite[0], jnp.abs(losses[0]), 0)
    within = finite & (losses <= jnp.min(losses, where=finite, initial=jnp.inf) + slack)
    order = jnp.lexsort((losses, counts, ~within))
    return jnp.where(finite.any(), order[0], losses.size - 1)


# Training --------------------------------------------------------------------------------------------


def _init(settings: None, key: Array, problem: Problem, network: Network) -> TrainState:
    """Train all leaves; the strength of the penalty stays fixed."""
    return TrainState(network.params, network[Widths].strength, network.state)


def _params(settings: None, state: TrainState) -> PyTree:
    return state.trainable


def _network(settings: None, state: TrainState) -> Network:
    kept = _left(state.trainable, state.model)
    return Network(state.trainable, state=state.model, records=(NeuronMask(kept),))


def _penalty(settings: None, state: TrainState) -> Array:
    return state.fixed * PENALTIES["l1"](hidden_eigenvalues(state.trainable))


# Helpers ---------------------------------------------------------------------------------------------


def _kept(problem: Problem, network: Network) -> Network:
    """Add the network to the candidates, with its neurons and its validation loss."""
    widths = network[Widths]
    networks, counts, losses, strengths = widths.candidates
    mine = network.params, network.state
    loss = problem.objective(*mine, problem.validation)
    count = network[NeuronMask].count()
    strength = widths.of_round
    added = Candidates(
        jax.tree.map(lambda room, leaf: room.at[widths.seen].set(leaf), networks, mine),
        counts.at[widths.seen].set(count.astype(counts.dtype)),
        losses.at[widths.seen].set(loss.astype(losses.dtype)),
        strengths.at[widths.seen].set(strength),
    )
    return network.with_records(widths._replace(candidates=added, seen=widths.seen + 1))


def _with_penalty(network: Network, widths: Widths) -> Network:
    """Return the network as it was trained under the penalty."""
    params, state = widths.penalized
    network = network.with_records(widths).replace(params=params, state=state)
    return _with(network, _left(params, state))


def _left(params: PyTree, state: PyTree) -> PyTree:
    """Return the hidden neurons that the state has not removed."""
    return neurons_in(state, full_mask(hidden_eigenvalues(params)))


def _with(network: Network, kept: PyTree) -> Network:
    return network.with_records(NeuronMask(kept)).replace(state=with_neurons(network.state, kept))


def _dtype(params: PyTree) -> jnp.dtype:
    return jnp.result_type(*jax.tree.leaves(hidden_eigenvalues(params)))
