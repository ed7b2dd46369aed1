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
from jaxarch.masks.units import Units, UnitsLike
from jaxarch.network import Network
from jaxarch.problem import Problem
from jaxarch.running.methods import method
from jaxarch.running.stage import FunctionStage, Needs
from jaxarch.search.units import check_counts, check_units, needs_of, units_of
from jaxarch.trees import PyTree, Where, matrices


@dataclasses.dataclass(frozen=True)
class Settings:
    """How many connections are kept, of which leaves, and over how many batches they are judged."""

    densities: tuple[float, ...]
    batches: int
    where: Where
    units: tuple[str, ...] | Units


@method("N. Lee, T. Ajanthan and P. Torr, 2019", densities=0.5)
def snip(
    densities: Densities, *, batches: int = 1, where: Where = matrices, units: UnitsLike = None
) -> FunctionStage:
    r"""Keep the connections whose removal would change the loss the most, at the problem's initial weights.

    The saliency of a connection is `|dL / dm|` at m = 1, that is `|theta dL/dtheta|`, with L the mean over
    some batches; the `round(d D)` of the D connections with the largest are kept. N. Lee, T. Ajanthan
    and P. Torr, SNIP: Single-shot network pruning based on connection sensitivity, 2019.

    Args:
      densities: d, the share of connections that are kept, in (0, 1]; of several, the smallest is found, and
        `at_density` takes the others. With `units`, the share of these.
      batches: over which the loss is taken, of the problem's size, drawn as in training.
      where: the leaves that are masked, by path.
      units: what is kept or removed together (see `masks.keep`): `neurons`, `channels` or `heads` of the
        problem's model, or several of them, `("heads", "neurons")`; `Groups.units`; `(4, 4)`; `"2:4"`. A
        unit's saliency is the mean over its connections.

    Returns:
      A search. Its weights are the initial ones, masked: `retrain("warm", nonnegative=False)` trains them.

    Raises:
      ArgumentError: a density outside (0, 1], batches that are no positive integer; units that are not
        understood, or that the model has none of.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> network = jaxarch.search.snip((0.5, 0.25))(jax.random.key(0), problem)
      >>> print(jaxarch.density(network.mask), sorted(network.by_density.masks))
      0.25 ['0.25', '0.5']
    """
    check_count("batches", batches)
    together, targets = check_units(units), check_densities(densities)
    check_counts(together, targets)
    settings = Settings(targets, batches, where, together)
    return FunctionStage("snip", _snip, settings, needs_of(together, Needs(batches=batches)))


def _snip(settings: Settings, key: Array, problem: Problem, network: None) -> Network:
    params_key, batch_key, loss_key = jax.random.split(key, 3)
    params, state = problem.init(params_key)

    def gradient(index: Array) -> PyTree:
        batch = problem.batch(batch_key, index)
        dropout = jax.random.fold_in(loss_key, index)

        return jax.grad(lambda params: problem.loss(params, state, batch, dropout)[0])(params)

    total = jax.tree.map(lambda leaf: leaf.sum(0), jax.lax.map(gradient, jnp.arange(settings.batches)))
    scores = saliency.snip(params, total, settings.where)
    units = units_of(settings.units, problem, params, state, scores)
    masks = {density: keep(scores, density, units=units) for density in settings.densities}
    return with_densities(masks, params, state, {"saliency": scores})
