"""Hutchinson-Taylor sensitivity: connections chosen before training by an estimated Hessian diagonal."""

from __future__ import annotations

import dataclasses

import jax
from jax import Array

from jaxarch import saliency
from jaxarch._internal.errors import check_count, check_positive
from jaxarch._internal.trees import PyTree, Where, matrices
from jaxarch.masks._units import UnitsLike
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._stage import FunctionStage
from jaxarch.search._initial_saliency import Expanded, begin, checked, expanded, second_order, stage
from jaxarch.transforms._densities import Densities


@dataclasses.dataclass(frozen=True)
class Sampled(Expanded):
    """Settings with the number of random signs, and the temperature of the outputs."""

    samples: int
    temperature: float


@method("I. Gollini Navarrete et al., 2025", densities=0.5)
def hutchinson(
    densities: Densities,
    *,
    batches: int = 1,
    samples: int = 10,
    temperature: float = 1.0,
    first_order: bool = True,
    warm_up: int = 0,
    where: Where = matrices,
    units: UnitsLike = None,
) -> FunctionStage:
    r"""Keep the connections whose removal would change the loss the most, by samples of the Hessian.

    The saliency of a connection is `|theta g - theta^2 h / 2|`, the change to second order, at the problem's
    initial weights. g is the gradient of the mean loss over some batches, of outputs that are divided by T. h
    is the mean of `z * (H z)` over random signs z, Hutchinson's estimate of the diagonal of the Hessian H.
    The `round(d D)` of the D connections with the largest saliency are kept. I. Gollini Navarrete, N. M.
    Cuadrado Avila, M. Takac and S. Horvath, What scalable second-order information knows for pruning at
    initialization, 2025. They call it Hutchinson-Taylor sensitivity, and Hutchinson pruning if it has the
    second term alone.

    Departures: the authors' code adds the two terms, which is the change of the loss for a doubled weight.
    Here they have the signs of a removal. Their Hutchinson pruning keeps the largest `theta^2 h / 2` with
    their signs; here these count by their sizes. Their signs z are drawn for biases and norms too; here for
    the masked leaves alone, which is less noise. Their batches have one example each, equally many of each
    class. Here batches are drawn as in training. In their code T is 200, as in GraSP's; here it is 1, since
    outputs that are not classes have no softmax. They never mask the last layer; leave it out by `where`.

    The loss is the one of evaluation, without augmentation and dropout, with the running statistics of batch
    norm. At first these are a mean of 0 and a variance of 1. With `warm_up` they come from batches first,
    while weights stay as they are. The paper finds that this keeps layers from losing all of their
    connections. We find the opposite in one run (see `fisher`): at density .01 the emptiest of the last
    layers has 332 connections without a warm-up, and 3 after 30 batches of it.

    On digits at density .02, T = 200 raises the accuracy from .674 to .791 (median of 5 seeds). SNIP with
    outputs that are divided by 200 has .803: the gain there is the temperature's, not the Hessian's.

    Args:
      densities: d, the share of connections to keep, in (0, 1]. For several, the search returns the smallest,
        and `at_density` selects the others. With `units`, the share of units.
      batches: number of batches for the loss, of the problem's size, drawn as in training. One at a time is
        in memory.
      samples: number of signs z that each batch has. One costs about as much as two gradients of the batch.
      temperature: T, positive. Other than 1, it needs a problem of `supervised`, or one whose loss takes a
        `temperature` (see `Problem.softened`).
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
      ArgumentError: a density outside (0, 1], batches or samples that are not positive integers, a negative
        warm-up; a temperature that is not positive, or that the problem's loss does not take; units that are
        not understood, or that the model does not have.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> network = jaxarch.search.hutchinson((0.5, 0.25))(jax.random.key(0), problem)
      >>> print(jaxarch.density(network.mask), sorted(network[jaxarch.ByDensity].masks))
      0.25 ['0.25', '0.5']
    """
    check_count("samples", samples)
    check_positive("temperature", temperature)
    both = expanded(checked(densities, batches, where, units), first_order, warm_up)
    settings = Sampled(**vars(both), samples=samples, temperature=temperature)
    return stage("hutchinson", _hutchinson, settings, settings.needs)


def _hutchinson(settings: Sampled, key: Array, problem: Problem, network: None) -> Network:
    # Folding a number into `key` itself could give a key that `begin` splits off.
    key, signs_key = jax.random.split(key)
    start = begin(key, problem.softened(settings.temperature)).warmed_up(settings.warm_up)

    def terms(index: Array) -> tuple[PyTree, PyTree]:
        batch, signs = start.batch(index), jax.random.fold_in(signs_key, index)

        def loss(params: PyTree) -> Array:
            return start.evaluated(params, batch)

        return saliency.hessian_diagonal(loss, start.params, signs, settings.samples, settings.where)

    return second_order(settings, problem, start, terms)
