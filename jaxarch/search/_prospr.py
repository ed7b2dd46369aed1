"""ProsPr: connections chosen before training by the loss that some steps of training lead to."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.typing import ArrayLike

from jaxarch import saliency
from jaxarch._internal.errors import check_count, check_one_positive, check_one_strength
from jaxarch._internal.trees import PyTree, Where, inexact, matrices, path_name
from jaxarch.masks._units import UnitsLike
from jaxarch.run._frozen import frozen
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._stage import FunctionStage, Needs
from jaxarch.search._initial_saliency import Settings, begin, checked, largest, stage
from jaxarch.transforms._densities import Densities


@dataclasses.dataclass(frozen=True)
class Prospect(Settings):
    """Settings with the learning rate and the momentum of the steps."""

    learning_rate: ArrayLike
    momentum: ArrayLike


@method("M. Alizadeh et al., 2022", densities=0.5)
def prospr(
    densities: Densities,
    *,
    steps: int = 3,
    learning_rate: ArrayLike = 0.1,
    momentum: ArrayLike = 0.0,
    where: Where = matrices,
    units: UnitsLike = None,
) -> FunctionStage:
    r"""Keep the connections that matter the most to the loss after some steps of training.

    The saliency of a connection is `|dL_M / dm|` at m = 1, that is `|theta dL_M / dtheta|`. L_M is the loss
    of a batch after M steps of gradient descent, each on its own batch, from the initial weights `m theta`.
    The derivative goes through all steps. The `round(d D)` of the D connections with the largest saliency are
    kept. M. Alizadeh, S. Tailor, L. Zintgraf, J. van Amersfoort, S. Farquhar, N. Lane and Y. Gal, Prospect
    pruning: finding trainable weights at initialization using meta-gradients, 2022. Without a step it would
    be SNIP on one batch.

    Departures: with a momentum, the authors' code takes no derivative of the first step's gradient; here all
    steps have theirs. It keeps a connection more where d D is no integer. Leaves that the problem's optimizer
    holds still are held still here too. The authors' approximation without second derivatives is left out.

    Args:
      densities: d, the share of connections to keep, in (0, 1]. For several, the search returns the smallest,
        and `at_density` selects the others. With `units`, the share of units.
      steps: M, at least 1. A step costs about as much as four gradients. M + 1 batches are drawn.
      learning_rate: the learning rate of the steps, positive. May be traced.
      momentum: the momentum of the steps, at least 0. May be traced. The authors have .9 with a learning rate
        of .5 in their example, and 0 with .1 by default.
      where: the leaves that are masked, by path. All others take the steps too.
      units: connections to keep or remove together (see `masks.keep`): `neurons`, `channels` or `heads` of
        the problem's model, or several of them, `("heads", "neurons")`; `Groups.units`; `(4, 4)`; `"2:4"`. A
        unit's saliency is the mean over its connections.

    Returns:
      A search. Its weights are the initial ones, masked: `retrain("warm", nonnegative=False)` trains them.
      Its `info` has the `saliency`.

    Raises:
      ArgumentError: a density outside (0, 1], steps that are not a positive integer; a learning rate that is
        not positive, a negative momentum; units that are not understood, or that the model does not have.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> network = jaxarch.search.prospr((0.5, 0.25))(jax.random.key(0), problem)
      >>> print(jaxarch.density(network.mask), sorted(network[jaxarch.ByDensity].masks))
      0.25 ['0.25', '0.5']
    """
    check_count("steps", steps)
    check_one_positive("learning_rate", learning_rate)
    check_one_strength("momentum", momentum)
    common = checked(densities, steps + 1, where, units)
    settings = Prospect(**vars(common), learning_rate=learning_rate, momentum=momentum)
    return stage("prospr", _prospr, settings, Needs(batches=steps + 1))


def _prospr(settings: Prospect, key: Array, problem: Problem, network: None) -> Network:
    start = begin(key, problem)
    held = set(frozen(problem.descent.optimizer, inexact(start.params)))

    def is_held(params: PyTree) -> PyTree:
        return jax.tree_util.tree_map_with_path(lambda path, leaf: path_name(path) in held, params)

    steps = optax.chain(
        optax.sgd(settings.learning_rate, settings.momentum), optax.masked(optax.set_to_zero(), is_held)
    )
    batches = jnp.arange(settings.batches)
    return largest(
        settings,
        problem,
        start,
        saliency.prospr(start.loss, start.params, batches, steps, settings.where),
    )
