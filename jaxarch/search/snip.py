"""SNIP: connections chosen before training, by how much the loss would change without them."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch import saliency
from jaxarch.errors import check_count
from jaxarch.finish.densities import Densities, check_densities, with_densities
from jaxarch.masks import keep
from jaxarch.network import Network
from jaxarch.problem import Problem
from jaxarch.running.methods import method
from jaxarch.running.stage import FunctionStage, Needs
from jaxarch.trees import PyTree, Where, matrices


@dataclasses.dataclass(frozen=True)
class Settings:
    """How many connections are kept, of which leaves, and over how many batches they are judged."""

    densities: tuple[float, ...]
    batches: int
    where: Where


@method("N. Lee, T. Ajanthan and P. Torr, 2019", densities=0.5)
def snip(densities: Densities, *, batches: int = 1, where: Where = matrices) -> FunctionStage:
    r"""Keep the connections whose removal would change the loss the most, at the problem's initial weights.

    The saliency of a connection is `|dL / dm|` at m = 1, that is `|theta dL/dtheta|`, with L the mean over
    some batches; the `round(d D)` of the D connections with the largest are kept. N. Lee, T. Ajanthan
    and P. Torr, SNIP: Single-shot network pruning based on connection sensitivity, 2019.

    Args:
      densities: d, the share of connections that are kept, in (0, 1]; of several, the smallest is found, and
        `at_density` takes the others.
      batches: over which the loss is taken, of the problem's size, drawn as in training.
      where: the leaves that are masked, by path.

    Returns:
      A search. Its weights are the initial ones, masked: `retrain("warm", nonnegative=False)` trains them.

    Raises:
      ArgumentError: a density outside (0, 1], batches that are no positive integer.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> network = jaxarch.search.snip((0.5, 0.25))(jax.random.key(0), problem)
      >>> print(jaxarch.density(network.mask), sorted(network.by_density.masks))
      0.25 ['0.25', '0.5']
    """
    check_count("batches", batches)
    settings = Settings(check_densities(densities), batches, where)
    return FunctionStage("snip", _snip, settings, Needs(batches=batches))


def _snip(settings: Settings, key: Array, problem: Problem, network: None) -> Network:
    params_key, batch_key, loss_key = jax.random.split(key, 3)
    params, state = problem.init(params_key)

    def gradient(index: Array) -> PyTree:
        batch = problem.batch(batch_key, index)
        dropout = jax.random.fold_in(loss_key, index)

        return jax.grad(lambda params: problem.loss(params, state, batch, dropout)[0])(params)

    total = jax.tree.map(lambda leaf: leaf.sum(0), jax.lax.map(gradient, jnp.arange(settings.batches)))
    scores = saliency.snip(params, total, settings.where)
    masks = {density: keep(scores, density) for density in settings.densities}
    return with_densities(masks, params, state, {"saliency": scores})
