"""Training weights on an architecture that was found."""

from __future__ import annotations

from typing import Literal

import jax
import optax
from jax import Array
from jax.typing import ArrayLike

from jaxarch.errors import ArgumentError
from jaxarch.finish.weights import Held, fresh, he, square_roots, weight_training
from jaxarch.masks import (
    check_fits,
)
from jaxarch.problem import Network, Problem
from jaxarch.running.training import Training, TrainState
from jaxarch.spectral.network import tells_neurons
from jaxarch.trees import merge


def retrain(
    start: Literal["warm", "cold", "rewind"] = "cold",
    *,
    nonnegative: bool = True,
    std: ArrayLike = 0.2,
    weights: Literal["initial", "he", "density-aware"] = "initial",
    optimizer: optax.GradientTransformation | None = None,
) -> Training:
    r"""Train weights on a found architecture: `argmin F(w o m)`, the mask m held fixed ([D] section 5).

    Args:
      start: `warm` from the found weights (after a weight-free search: from 1), `cold` from fresh ones,
        `rewind` from those that the search `real` at the beginning of the chain started from.
      nonnegative: whether the masked leaves are `w = u^2`, u unconstrained ([D] footnote 11). A start other
        than cold then needs weights that are not negative; a run that has some is reported as failed at
        step 0.
      std: with `nonnegative`, a cold start draws `u ~ N(0, std)`, std the standard deviation. [D] draws from
        N(0, 1), where the network saturates and its gradient is exactly 0.
      weights: where a cold start of masked leaves that are not squares comes from: `initial`, the model's
        own; `he`, `N(0, sqrt(2 / n))`, n the inputs of a neuron (all axes of a kernel but the last);
        `density-aware`, `N(0, sqrt(2 / (n d)))`, d the leaf's density, so that signals keep their size
        however few connections are left. [A] has N(0, epsilon) without saying which epsilon.
      optimizer: any optax transformation; by default the problem's.

    Returns:
      A finish. Leaves that are not masked are trained too, unconstrained, from the found values (warm), the
      problem's initial ones (cold) or those of the search (rewind). A connection that is pruned stays
      exactly 0. The model's state starts as the problem's own, but for a warm start.

    Raises:
      ArgumentError: an unknown `start`; `rewind` after a search that does not tell where it started; a
        spectral network that `recruit` has removed neurons from: its mask is one of neurons, and eigenvalues
        of 0 do not remove them. There, `search.spectral(0.0)` is the finish that refits.
    """
    if start not in ("warm", "cold", "rewind"):
        raise ArgumentError(f"start: expected 'warm', 'cold' or 'rewind', got {start!r}")
    if weights not in ("initial", "he", "density-aware"):
        raise ArgumentError(f"weights: expected 'initial', 'he' or 'density-aware', got {weights!r}")
    if weights != "initial" and (start != "cold" or nonnegative):
        raise ArgumentError("weights: they are of a cold start with nonnegative=False; leave them out")

    def init(key: Array, problem: Problem, network: Network | None) -> TrainState:
        if network is None:
            raise ArgumentError("retrain: it finishes what a search found; use chain(search, retrain())")
        if "removed" in network.info and tells_neurons(network.state):
            raise ArgumentError(
                "retrain: the mask is of hidden neurons, not of connections; to train on with those that are "
                "left, use search.spectral(0.0) as a finish: chain(search, recruit(), search.spectral(0.0))"
            )
        check_fits(network.mask, jax.eval_shape(problem.init, key)[0])
        if start == "cold":
            params, state = fresh(key, problem, network.mask, nonnegative, std)
            if weights != "initial":
                # Not the key itself: what is drawn from it is the model's own initial weights.
                drawn = he(jax.random.fold_in(key, 1), network.mask, params, weights == "density-aware")
                params = merge(drawn, params)
            return TrainState(params, Held(network.mask), state)
        if start == "rewind" and "start" not in network.info:
            raise ArgumentError("retrain: to rewind, the chain must begin with search.dense()")
        params, state = (
            (network.params, network.state)
            if start == "warm"
            else (network.info["start"], problem.init(key)[1])
        )
        if nonnegative:
            params = square_roots(network.mask, params)
        return TrainState(params, Held(network.mask), state)

    if start != "cold" and nonnegative:
        remedy = f"a {start} start needs weights that are neither 0 nor negative; or nonnegative=False"
    else:
        remedy = "the architecture keeps too little, or `std` saturates the network: change either"
    return weight_training(f"retrain {start}", init, nonnegative, optimizer, remedy)
