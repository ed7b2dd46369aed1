"""Reshuffling: nothing is left of an architecture but its layers' densities."""

from __future__ import annotations

from jax import Array

from jaxarch.masks import apply_mask, reshuffle
from jaxarch.network import Network
from jaxarch.problem import Problem
from jaxarch.running.methods import method
from jaxarch.running.stage import A_NETWORK, FunctionStage


@method("[A] section 3.3")
def reshuffled() -> FunctionStage:
    """The network with its connections permuted at random within each leaf ([A] section 3.3).

    What is left of an architecture is the density of its layers. Weights that are kept are those found at
    their new places, 0 where there was no connection: retrain them.

    Returns:
      A finish.
    """
    return FunctionStage("reshuffled", _reshuffled, None, A_NETWORK)


def _reshuffled(settings: None, key: Array, problem: Problem, network: Network) -> Network:
    mask = reshuffle(key, network.mask)
    return network.replace(params=apply_mask(mask, network.params), mask=mask)
