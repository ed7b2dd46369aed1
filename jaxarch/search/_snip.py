"""SNIP: connections chosen before training by how much the loss would change without them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch import saliency
from jaxarch._internal.trees import PyTree, Where, inexact, matrices, merge
from jaxarch.masks._units import UnitsLike
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._stage import FunctionStage, Needs
from jaxarch.search._initial_saliency import Settings, begin, checked, largest, stage
from jaxarch.transforms._densities import Densities


@method("N. Lee, T. Ajanthan and P. Torr, 2019", densities=0.5)
def snip(
    densities: Densities, *, batches: int = 1, where: Where = matrices, units: UnitsLike = None
) -> FunctionStage:
    r"""Keep the connections whose removal would change the loss the most, at the problem's initial weights.

    The saliency of a connection is `|dL / dm|` at m = 1, that is `|theta dL/dtheta|`, with L the mean over
    some batches. The `round(d D)` of the D connections with the largest saliency are kept. N. Lee, T.
    Ajanthan and P. Torr, SNIP: Single-shot network pruning based on connection sensitivity, 2019.

    Args:
      densities: d, the share of connections to keep, in (0, 1]. For several, the search returns the smallest,
        and `at_density` selects the others. With `units`, the share of units.
      batches: number of batches for the loss, of the problem's size, drawn as in training.
      where: the leaves that are masked, by path.
      units: connections to keep or remove together (see `masks.keep`): `neurons`, `channels` or `heads` of
        the problem's model, or several of them, `("heads", "neurons")`; `Groups.units`; `(4, 4)`; `"2:4"`. A
        unit's saliency is the mean over its connections.

    Returns:
      A search. Its weights are the initial ones, masked: `retrain("warm", nonnegative=False)` trains them.
      Its `info` has the `saliency`.

    Raises:
      ArgumentError: a density outside (0, 1], batches that are not a positive integer; units that are not
        understood, or that the model does not have.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> network = jaxarch.search.snip((0.5, 0.25))(jax.random.key(0), problem)
      >>> print(jaxarch.density(network.mask), sorted(network[jaxarch.ByDensity].masks))
      0.25 ['0.25', '0.5']
    """
    settings = checked(densities, batches, where, units)
    return stage("snip", _snip, settings, Needs(batches=batches))


def _snip(settings: Settings, key: Array, problem: Problem, network: None) -> Network:
    start = begin(key, problem)
    moves = inexact(start.params)

    def gradient(index: Array) -> PyTree:
        return jax.grad(lambda moves: start.loss(merge(moves, start.params), index))(moves)

    mean = jax.tree.map(lambda leaf: leaf.mean(0), jax.lax.map(gradient, jnp.arange(settings.batches)))
    return largest(settings, problem, start, saliency.snip(start.params, mean, settings.where))
