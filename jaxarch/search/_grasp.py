"""GraSP: connections chosen before training by their contribution to the gradient's norm."""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch import saliency
from jaxarch._internal.errors import check_positive
from jaxarch._internal.trees import PyTree, Where, matrices
from jaxarch.masks._units import UnitsLike
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._stage import FunctionStage, Needs
from jaxarch.search._initial_saliency import Settings, begin, checked, largest, stage
from jaxarch.transforms._densities import Densities


@dataclasses.dataclass(frozen=True)
class Softened(Settings):
    """Settings with the temperature of the outputs."""

    temperature: float


@method("C. Wang, G. Zhang and R. Grosse, 2020", densities=0.5)
def grasp(
    densities: Densities,
    *,
    batches: int = 1,
    temperature: float = 1.0,
    where: Where = matrices,
    units: UnitsLike = None,
) -> FunctionStage:
    r"""Keep the connections that the norm of the gradient needs the most, at the problem's initial weights.

    The saliency of a connection is `theta (H g)`, with g the gradient of L and H its Hessian. L is the mean
    loss over some batches together, of outputs that are divided by T. The `round(d D)` of the D connections
    with the largest saliency are kept. Removing a connection reduces `|g|^2` by twice its saliency, to first
    order. C. Wang, G. Zhang and R. Grosse, Picking winning tickets before training by preserving gradient
    flow, 2020.

    In the authors' code T is 200, a temperature of the softmax that training does not use; it keeps other
    connections than T = 1. Outputs that are not classes have no softmax, so the default is 1. The authors
    draw equally many examples of each class; here batches are drawn as in training.

    Args:
      densities: d, the share of connections to keep, in (0, 1]. For several, the search returns the smallest,
        and `at_density` selects the others. With `units`, the share of units.
      batches: number of batches for the loss, of the problem's size, drawn as in training. One at a time is
        in memory.
      temperature: T, positive. Other than 1, it needs a problem of `supervised`, or one whose loss takes a
        `temperature` (see `Problem.softened`).
      where: the leaves that are masked, by path. g has zeros for all others.
      units: connections to keep or remove together (see `masks.keep`): `neurons`, `channels` or `heads` of
        the problem's model, or several of them, `("heads", "neurons")`; `Groups.units`; `(4, 4)`; `"2:4"`. A
        unit's saliency is the mean over its connections.

    Returns:
      A search. Its weights are the initial ones, masked: `retrain("warm", nonnegative=False)` trains them.
      Its `info` has the `saliency`.

    Raises:
      ArgumentError: a density outside (0, 1], batches that are not a positive integer; a temperature that is
        not positive, or that the problem's loss does not take; units that are not understood, or that the
        model does not have.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> network = jaxarch.search.grasp((0.5, 0.25))(jax.random.key(0), problem)
      >>> print(jaxarch.density(network.mask), sorted(network[jaxarch.ByDensity].masks))
      0.25 ['0.25', '0.5']
    """
    check_positive("temperature", temperature)
    settings = Softened(**vars(checked(densities, batches, where, units)), temperature=temperature)
    return stage("grasp", _grasp, settings, Needs(batches=batches))


def _grasp(settings: Softened, key: Array, problem: Problem, network: None) -> Network:
    start = begin(key, problem.softened(settings.temperature))

    def loss(params: PyTree) -> Array:
        # Recompute each batch for its derivative: otherwise the intermediates of all batches would be kept.
        of_batch = jax.checkpoint(partial(start.loss, params))
        return jax.lax.map(of_batch, jnp.arange(settings.batches)).mean()

    return largest(settings, problem, start, saliency.grasp(loss, start.params, settings.where))
