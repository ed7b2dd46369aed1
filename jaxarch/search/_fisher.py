"""Fisher-Taylor sensitivity: connections chosen before training by the empirical Fisher diagonal."""

from __future__ import annotations

from jax import Array

from jaxarch import saliency
from jaxarch._internal.trees import PyTree, Where, matrices
from jaxarch.masks._units import UnitsLike
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._stage import FunctionStage
from jaxarch.search._initial_saliency import Expanded, begin, checked, expanded, second_order, stage
from jaxarch.transforms._densities import Densities


@method("I. Gollini Navarrete et al., 2025", densities=0.5)
def fisher(
    densities: Densities,
    *,
    batches: int = 1,
    first_order: bool = True,
    warm_up: int = 0,
    where: Where = matrices,
    units: UnitsLike = None,
) -> FunctionStage:
    r"""Keep the connections whose removal would change the loss the most, by Fisher information.

    The saliency of a connection is `|theta g - theta^2 F / 2|`, the change to second order, at the problem's
    initial weights. g is the mean gradient over the examples of some batches, and F the mean of its square,
    the diagonal of the empirical Fisher matrix. The `round(d D)` of the D connections with the largest
    saliency are kept. I. Gollini Navarrete, N. M. Cuadrado Avila, M. Takac and S. Horvath, What scalable
    second-order information knows for pruning at initialization, 2025. They call it Fisher-Taylor
    sensitivity, and Fisher pruning if it has the second term alone.

    Departures: the authors' code adds the two terms, which is the change of the loss for a doubled weight.
    Here they have the signs of a removal. Their code scores equally many examples of each class. Here batches
    are drawn as in training. They never mask the last layer; leave it out by `where` if you want that.

    Each gradient is the one of a batch of a single example, without augmentation and dropout. So batch norm
    needs its running statistics, since a batch of one has no variance. At first these are a mean of 0 and a
    variance of 1. With `warm_up` they come from batches first, while weights stay as they are. The paper
    finds that this keeps layers from losing all of their connections. We find the opposite in one run: a
    VGG16 of a quarter of the width on CIFAR-10, second term alone, density .01. No layer of 14 is empty
    without a warm-up, and 7 are after 30 batches of it.

    At initial weights the first term is often the larger one: the mask is then close to SNIP's.

    Args:
      densities: d, the share of connections to keep, in (0, 1]. For several, the search returns the smallest,
        and `at_density` selects the others. With `units`, the share of units.
      batches: number of batches that are scored, of the problem's size, drawn as in training. Their examples
        go through the network one after another.
      first_order: whether the saliency has the term with g.
      warm_up: number of batches, from the first one on, that update the model's state before the scores. A
        model without a state skips them. The authors take one epoch.
      where: the leaves that are masked, by path.
      units: connections to keep or remove together (see `masks.keep`): `neurons`, `channels` or `heads` of
        the problem's model, or several of them, `("heads", "neurons")`; `Groups.units`; `(4, 4)`; `"2:4"`. A
        unit's saliency is the mean over its connections.

    Returns:
      A search. Its weights are the initial ones, masked: `retrain("warm", nonnegative=False)` trains them.
      Its state is the one after the warm-up. Its `info` has the `saliency`.

    Raises:
      ArgumentError: a density outside (0, 1], batches that are not a positive integer, a negative warm-up;
        units that are not understood, or that the model does not have.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> network = jaxarch.search.fisher((0.5, 0.25))(jax.random.key(0), problem)
      >>> print(jaxarch.density(network.mask), sorted(network[jaxarch.ByDensity].masks))
      0.25 ['0.25', '0.5']
    """
    settings = expanded(checked(densities, batches, where, units), first_order, warm_up)
    return stage("fisher", _fisher, settings, settings.needs)


def _fisher(settings: Expanded, key: Array, problem: Problem, network: None) -> Network:
    start = begin(key, problem).warmed_up(settings.warm_up)

    def terms(index: Array) -> tuple[PyTree, PyTree]:
        return saliency.fisher_diagonal(start.evaluated, start.params, start.batch(index), settings.where)

    return second_order(settings, problem, start, terms)
