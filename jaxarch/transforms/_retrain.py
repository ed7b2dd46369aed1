"""Training of weights on a found architecture."""

from __future__ import annotations

import dataclasses
from typing import Literal, Unpack

import jax
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import ArgumentError, check_choice, check_flag, check_one_strength
from jaxarch._internal.trees import merge
from jaxarch.masks import check_fits
from jaxarch.run._descent import DescentChanges, own_descent
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._records import NeuronMask, Start
from jaxarch.run._stage import Needs
from jaxarch.run._training import Training, TrainState, weights_before
from jaxarch.transforms._weights import Held, fresh, he, square_roots, trained, weights_of

NEEDS = {
    "cold": Needs("required"),
    "warm": Needs("required", ("params",)),
    "rewind": Needs("required", records=(Start,)),
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """The initial weights of the training, and whether weights are squares."""

    start: Literal["warm", "cold", "rewind"]
    nonnegative: bool
    std: ArrayLike
    weights: Literal["initial", "he", "density-aware"]


@method("[D] section 5")
def retrain(
    start: Literal["warm", "cold", "rewind"] = "cold",
    *,
    nonnegative: bool = True,
    std: ArrayLike = 0.2,
    weights: Literal["initial", "he", "density-aware"] = "initial",
    **descent: Unpack[DescentChanges],
) -> Training:
    r"""Train weights on a found architecture: `argmin F(w o m)`, the mask m held fixed ([D] section 5).

    Args:
      start: `warm` from the found weights (after a weight-free search: from 1), `cold` from fresh ones,
        `rewind` from those that the chain's first search (`dense`, say) started from, or had after some
        steps.
      nonnegative: whether the masked leaves are `w = u^2`, u unconstrained ([D] footnote 11). A start other
        than cold then needs weights that are not negative; a run with negative weights is reported as failed
        at step 0.
      std: with `nonnegative`, a cold start draws `u ~ N(0, std)`, std the standard deviation. [D] draws from
        N(0, 1), where the network saturates and its gradient is exactly 0.
      weights: initial values in a cold start for masked leaves that are not squares: `initial`, the model's
        own; `he`, `N(0, sqrt(2 / n))`, n the inputs of a neuron (all axes of a kernel but the last);
        `density-aware`, `N(0, sqrt(2 / (n d)))`, d the leaf's density, so that signals keep their size
        however few connections are left. [A] has N(0, epsilon) without saying which epsilon. Biases and
        scales, which are masked with their units, keep the model's own.
      **descent: `optimizer`, `steps`, `batch_size`, `sampling`, replacing the problem's.

    Returns:
      A transform. Leaves that are not masked are trained too, unconstrained, from the found values (warm),
      the problem's initial ones (cold) or those of the search (rewind). A connection that is pruned stays
      exactly 0. The model's state starts as the problem's own (cold), as found (warm) or as it belongs to the
      rewound weights (rewind).

    Raises:
      ArgumentError: an unknown `start`; `rewind` after a search that does not record where it started; a
        spectral network, whose mask is one of neurons: refit it with the transform `search.spectral(0.0)`.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> again = jaxarch.retrain("cold", nonnegative=False, steps=3)
      >>> drawn = jaxarch.search.random_mask(0.25, scope="layer")
      >>> network = jaxarch.chain(drawn, again)(jax.random.key(0), problem)
      >>> {name: (weights != 0).sum().item() for name, weights in network.params.items()}  # of 32 each
      {'W2_1': 8, 'W3_2': 8}
    """
    check_choice("start", start, ("warm", "cold", "rewind"))
    check_flag("nonnegative", nonnegative)
    check_one_strength("std", std)
    check_choice("weights", weights, ("initial", "he", "density-aware"))
    if weights != "initial" and (start != "cold" or nonnegative):
        raise ArgumentError(
            f"weights: {weights!r} needs start='cold' and nonnegative=False; leave weights out"
        )
    if start != "cold" and nonnegative:
        remedy = f"a {start} start needs weights above 0, or nonnegative=False"
    else:
        remedy = (
            "the architecture keeps too little, or `std` saturates the network: use a denser one, or lower "
            "`std`"
        )
    return Training(
        f"retrain {start}",
        _init,
        weights_of,
        trained,
        Settings(start, nonnegative, std, weights),
        own_descent(descent),
        remedy=remedy,
        needs=NEEDS[start],
        removes=(),
    )


def _init(settings: Settings, key: Array, problem: Problem, network: Network) -> TrainState:
    if network.get(NeuronMask) is not None:
        raise ArgumentError(
            "retrain: the network's mask is over hidden neurons, not connections; to train the neurons that "
            "are left, use search.spectral(0.0) as a transform: chain(search, recruit(), "
            "search.spectral(0.0))"
        )
    if network.mask is None:
        raise ArgumentError("retrain: the network has no mask of connections; put a search before it")
    check_fits(network.mask, jax.eval_shape(problem.init, key)[0])
    if settings.start == "cold":
        params, model = fresh(key, problem.init, network.mask, settings.nonnegative, settings.std)
        if settings.weights != "initial":
            # Fold the key: from the key itself the model's own initial weights are drawn.
            density_aware = settings.weights == "density-aware"
            params = merge(he(jax.random.fold_in(key, 1), network.mask, params, density_aware), params)
        return TrainState(params, Held(network.mask), model)
    params, model = weights_before(settings.start, key, problem, network)
    if settings.nonnegative:
        params = square_roots(network.mask, params)
    return TrainState(params, Held(network.mask), model)
