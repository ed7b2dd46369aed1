"""SET: a network that is sparse from the first step on; random connections replace its smallest weights."""

from __future__ import annotations

import dataclasses
from typing import Unpack

import optax
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.trees import Where, matrices
from jaxarch.masks import Scope
from jaxarch.optim import at_random, sparse
from jaxarch.run._descent import DescentChanges, own_descent
from jaxarch.run._methods import method
from jaxarch.run._problem import Problem
from jaxarch.run._training import Training, TrainState
from jaxarch.search._changing import check_changes, check_replaced, spacing_before, sparse_training

NAME = "sparse evolution"


@dataclasses.dataclass(frozen=True)
class Settings:
    """Density and its spread over the leaves, the share to replace, and the steps of the changes."""

    density: ArrayLike
    replaced: ArrayLike
    every: int | None
    scope: Scope
    where: Where


@method("D. Mocanu et al., 2018")
def sparse_evolution(
    density: ArrayLike = 0.1,
    *,
    replaced: ArrayLike = 0.3,
    every: int | None = None,
    scope: Scope = "erk",
    where: Where = matrices,
    **descent: Unpack[DescentChanges],
) -> Training:
    r"""Train `round(d D)` connections, random ones at first; random new ones replace the smallest.

    At the steps `t = every, 2 every, ...`, each leaf loses the `round(rho n)` of its n connections with the
    smallest `|w|`. As many grow, every free place being equally likely; grown connections begin at 0. Such a
    change replaces a step of the optimizer. So every leaf keeps its n from the first step to the last. SET,
    sparse evolutionary training: D. Mocanu et al., Scalable training of artificial neural networks with
    adaptive sparse connectivity inspired by network science, 2018.

    In the paper, changes are between steps; the smallest positive and the largest negative weights are
    removed, the same share of each sign; the first mask is drawn connection by connection; grown connections
    begin at random values; and after the last epoch there is one more removal, without growth.

    Args:
      density: d, the share of connections in the network, in (0, 1]. May be traced: a sweep is one program.
      replaced: rho, the share of a leaf's connections that is replaced at a change, in [0, 1). May be traced.
      every: steps from one change to the next, an epoch in the paper. By default a 50th of the training's
        steps.
      scope: how the first mask is spread over the leaves, as in `masks.keep`.
      where: the leaves that are masked, by path.
      **descent: `optimizer`, `steps`, `batch_size`, `sampling`, replacing the problem's.

    Returns:
      A search. Its network is trained: it has the weights of the last step, 0 where the mask is 0.

    Raises:
      ArgumentError: a density outside (0, 1], a share outside [0, 1), an unknown word; so few steps, or so
        large an `every`, that the mask would never change.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=10)
      >>> network = jaxarch.search.sparse_evolution(0.25)(jax.random.key(0), problem)
      >>> print(jaxarch.density(network.mask), network.info["loss"].shape)
      0.25 (10,)
    """
    check_changes(density, every, scope)
    check_replaced(replaced)
    return sparse_training(
        name=NAME,
        settings=Settings(density, replaced, every, scope, where),
        descent=own_descent(descent),
        wrap_optimizer=_wrap_optimizer,
    )


def _wrap_optimizer(
    settings: Settings, key: Array, problem: Problem, state: TrainState
) -> optax.GradientTransformation:
    steps = problem.descent.steps
    every = spacing_before(steps, NAME, settings.every, steps)
    return sparse(
        problem.descent.optimizer,
        replaced=optax.constant_schedule(settings.replaced),
        regrow=at_random(key),
        every=every,
        mask=state.memory,
    )
