"""Reshuffling: nothing is left of an architecture but its layers' densities."""

from __future__ import annotations

from jax import Array

from jaxarch.masks import (
    apply_mask,
    reshuffle,
)
from jaxarch.problem import Finish, Network, Problem


def reshuffled() -> Finish:
    """The network with its connections permuted at random within each leaf ([A] section 3.3).

    What is left of an architecture is the density of its layers. Weights that are kept are those found at
    their new places, 0 where there was no connection: retrain them.

    Returns:
      A finish.
    """

    def finish(key: Array, problem: Problem, network: Network) -> Network:
        mask = reshuffle(key, network.mask)
        return Network(apply_mask(mask, network.params), mask, network.state, {})

    finish.__name__ = "reshuffled"
    return finish
