"""Magnitude at initialization: the connections of the largest initial weights."""

from __future__ import annotations

from jax import Array

from jaxarch import saliency
from jaxarch._internal.trees import Where, matrices
from jaxarch.masks._units import UnitsLike
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._stage import NOTHING, FunctionStage
from jaxarch.search._initial_saliency import Settings, begin, checked, largest, stage
from jaxarch.transforms._densities import Densities


@method("J. Frankle et al., 2021", densities=0.5)
def initial_magnitude(
    densities: Densities, *, where: Where = matrices, units: UnitsLike = None
) -> FunctionStage:
    """Keep the connections of the largest `|theta|` of the problem's initial weights, pooled over all leaves.

    Nothing is trained and no data are read: the method only uses how much the layers' initial weights differ
    in size. It is one of the methods that J. Frankle, G. Dziugaite, D. Roy and M. Carbin compare, Pruning
    neural networks at initialization: Why are we missing the mark?, 2021.

    It depends on the tails of the initial weights. Flax's default, `lecun_normal`, is cut off at 2.27 of its
    standard deviations. So a layer of many inputs has none of the largest weights, and is left without a
    connection: at a density of .01 this happens to five of the 14 layers of VGG16. It happens to none if the
    weights are normal and as wide, as with `nnx.initializers.variance_scaling(1.0, "fan_in", "normal")`.
    PyTorch's default for a linear layer is bounded too, being uniform: beside normal convolutions, as in the
    ResNet-18 of H. Tanaka et al., 2020, the last layer is the only one that is empty at .01.

    Args:
      densities: d, the share of connections to keep, in (0, 1]. For several, the search returns the smallest,
        and `at_density` selects the others. With `units`, the share of units.
      where: the leaves that are masked, by path.
      units: connections to keep or remove together (see `masks.keep`), by the mean of their sizes.

    Returns:
      A search. Its weights are the initial ones, masked: `retrain("warm", nonnegative=False)` trains them.

    Raises:
      ArgumentError: a density outside (0, 1]; units that are not understood, or that the model does not have.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> network = jaxarch.search.initial_magnitude(0.25)(jax.random.key(0), problem)
      >>> sizes = abs(network[jaxarch.ByDensity].weights["W2_1"])
      >>> print(sizes[network.mask["W2_1"]].min() >= sizes[~network.mask["W2_1"]].max())
      True
    """
    settings = checked(densities, 1, where, units)
    return stage("magnitude at start", _found, settings, NOTHING)


def _found(settings: Settings, key: Array, problem: Problem, network: None) -> Network:
    start = begin(key, problem)
    return largest(settings, problem, start, saliency.magnitude(start.params, settings.where))
