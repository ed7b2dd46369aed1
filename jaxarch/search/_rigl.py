"""RigL: a network that is sparse from the first step on, and grows connections with large gradients."""

from __future__ import annotations

import dataclasses
from typing import Unpack

import optax
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import ArgumentError, shown
from jaxarch._internal.trees import Where, matrices
from jaxarch.masks import Scope
from jaxarch.optim import sparse
from jaxarch.run._descent import DescentChanges, own_descent
from jaxarch.run._methods import method
from jaxarch.run._problem import Problem
from jaxarch.run._training import Training, TrainState
from jaxarch.search._changing import check_changes, check_replaced, spacing_before, sparse_training

NAME = "RigL"


@dataclasses.dataclass(frozen=True)
class Settings:
    """Density and its spread over the leaves, the share to replace, and the steps of the changes."""

    density: ArrayLike
    replaced: ArrayLike
    until: float
    every: int | None
    scope: Scope
    where: Where


@method("U. Evci et al., 2020")
def rigl(
    density: ArrayLike = 0.1,
    *,
    replaced: ArrayLike = 0.3,
    until: float = 0.75,
    every: int | None = None,
    scope: Scope = "erk",
    where: Where = matrices,
    **descent: Unpack[DescentChanges],
) -> Training:
    r"""Train `round(d D)` connections, random ones at first; they move to where the gradient is largest.

    At the steps `t = every, 2 every, ... < T`, each leaf loses the `round(rho_t n)` of its n connections with
    the smallest `|w|`,

        rho_t = rho / 2 (1 + cos(pi t / T)),

    and as many grow where `|dL/dw|` is largest among the places that are free then, those just lost included;
    grown connections begin at 0. Such a change replaces a step of the optimizer. So every leaf keeps its n
    from the first step to the last. U. Evci et al., Rigging the lottery: making all tickets winners, 2020,
    Algorithm 1.

    A change leaves the optimizer's moments as they are: they are 0 for a connection that was never there, and
    have decayed for one that was removed. The paper's interval is 100 of 32,000 steps and more.

    Args:
      density: d, the share of connections in the network, in (0, 1]. May be traced: a sweep is one program.
      replaced: rho (alpha in the paper), the share of a leaf's connections that is replaced at first, in
        [0, 1). May be traced.
      until: T, as a share of the training's steps, in (0, 1].
      every: steps from one change to the next. By default a 50th of the training's steps.
      scope: how the first mask is spread over the leaves, as in `masks.keep`.
      where: the leaves that are masked, by path.
      **descent: `optimizer`, `steps`, `batch_size`, `sampling`, replacing the problem's.

    Returns:
      A search. Its network is trained: it has the weights of the last step, 0 where the mask is 0.

    Raises:
      ArgumentError: a density outside (0, 1], shares out of range, an unknown word; so few steps, or so large
        an `every`, that the mask would never change.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=10)
      >>> network = jaxarch.search.rigl(0.25)(jax.random.key(0), problem)
      >>> print(jaxarch.density(network.mask), network.info["loss"].shape)
      0.25 (10,)
    """
    check_changes(density, every, scope)
    check_replaced(replaced)
    if isinstance(until, bool) or not isinstance(until, (int, float)) or not 0 < until <= 1:
        raise ArgumentError(f"until: expected a fraction of the steps, in (0, 1], got {shown(until)}")
    return sparse_training(
        name=NAME,
        settings=Settings(density, replaced, until, every, scope, where),
        descent=own_descent(descent),
        wrap_optimizer=_wrap_optimizer,
    )


def _wrap_optimizer(
    settings: Settings, key: Array, problem: Problem, state: TrainState
) -> optax.GradientTransformation:
    steps = problem.descent.steps
    last = round(settings.until * steps)
    every = spacing_before(last, NAME, settings.every, steps)
    return sparse(
        problem.descent.optimizer,
        replaced=optax.cosine_decay_schedule(settings.replaced, last),
        regrow="gradients",
        every=every,
        until=last,
        mask=state.memory,
    )
