"""Selection of one architecture from a search that kept several densities."""

from __future__ import annotations

from jax import Array

from jaxarch._internal.errors import ArgumentError, is_traced
from jaxarch.masks import check_density
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._records import ByDensity
from jaxarch.run._stage import FunctionStage, Needs
from jaxarch.transforms._densities import density_name, of_density


@method("[A] appendix A.1", density=0.5)
def at_density(density: float) -> FunctionStage:
    """Select the architecture of one of the densities that a search was given.

    For `search.architecture_pruning`, `fisher`, `grasp`, `hutchinson`, `magnitude_pruning`, `ntk_sap`,
    `path_exclusion`, `prospr`, `random_mask`, `snip`, `synflow`, and, if they are given densities, for
    `soft_threshold`, `continuous_sparsification` and `hard_concrete`.

    Args:
      density: one of the values given to the search.

    Returns:
      A transform: the mask of that density, and the weights that the search ended with, masked by it.

    Raises:
      ArgumentError: an earlier search that kept no masks, or none of this density.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> search = jaxarch.search.random_mask((0.5, 0.25))
      >>> network = jaxarch.chain(search, jaxarch.at_density(0.5))(jax.random.key(0), problem)
      >>> print(jaxarch.density(network.mask))
      0.5
    """
    if is_traced(density):
        raise ArgumentError("density: expected a concrete number, since it names a mask; got a traced one")
    check_density("density", density)
    needs = Needs("required", records=(ByDensity,), before="search.snip((0.5, 0.1))")
    return FunctionStage(f"at density {density_name(density)}", _at_density, float(density), needs)


def _at_density(density: float, key: Array, problem: Problem, network: Network) -> Network:
    return of_density(network, density)
