"""Gradual magnitude pruning: the smallest weights are removed during training, along a cubic schedule."""

from __future__ import annotations

import dataclasses
from typing import Unpack

import optax
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.trees import Where, matrices, select_floating
from jaxarch.masks import Scope, full_mask
from jaxarch.optim import sparse
from jaxarch.run._descent import DescentChanges, own_descent
from jaxarch.run._methods import method
from jaxarch.run._problem import Problem
from jaxarch.run._training import Training, TrainState
from jaxarch.search._changing import check_changes, check_span, spacing, span, sparse_training

NAME = "gradual magnitude pruning"


@dataclasses.dataclass(frozen=True)
class Settings:
    """The final density, when and where it falls, and how weights are compared."""

    density: ArrayLike
    begin: float
    end: float
    every: int | None
    where: Where
    scope: Scope


@method("M. Zhu and S. Gupta, 2017")
def gradual_magnitude(
    density: ArrayLike = 0.1,
    *,
    begin: float = 0.1,
    end: float = 0.7,
    every: int | None = None,
    where: Where = matrices,
    scope: Scope = "global",
    **descent: Unpack[DescentChanges],
) -> Training:
    r"""Train the whole network while its density falls to d, removing the smallest weights first.

    At the steps `t = t_0, t_0 + every, ..., t_1`, the `round(d_t D)` connections with the largest `|w|` stay,

        d_t = d + (1 - d) (1 - (t - t_0) / (t_1 - t_0))^3,

    and after t_1 the weights train on. M. Zhu and S. Gupta, To prune, or not to prune: exploring the efficacy
    of pruning for model compression, 2017, equation (1), from a sparsity of 0 on. They compare weights within
    each layer, as with `scope="layer"`; here they are compared over all layers.

    Args:
      density: d, the share of connections that are left at the end, in (0, 1]. May be traced: a sweep is one
        program. `d_t D` is computed in float32.
      begin: t_0, as a share of the training's steps, in [0, 1).
      end: t_1, as a share of the steps, more than `begin`. Both are rounded down to a multiple of `every`.
      every: steps from one change to the next. By default a 50th of the training's steps.
      where: the leaves that are masked, by path.
      scope: where the smallest weights are looked for, as in `masks.keep`: wherever they are, or by leaf.
      **descent: `optimizer`, `steps`, `batch_size`, `sampling`, replacing the problem's.

    Returns:
      A search. Its network is trained: it has the weights of the last step, 0 where the mask is 0.

    Raises:
      ArgumentError: a density outside (0, 1], shares that are not `0 <= begin < end < 1`, an unknown word; so
        few steps, or so large an `every`, that no change comes between `begin` and `end`.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=10)
      >>> network = jaxarch.search.gradual_magnitude(0.25)(jax.random.key(0), problem)
      >>> print(jaxarch.density(network.mask), network.info["loss"].shape)
      0.25 (10,)
    """
    check_changes(density, every, scope)
    check_span(begin, end)
    return sparse_training(
        name=NAME,
        init=_init,
        remedy="start from other weights",
        settings=Settings(density, begin, end, every, where, scope),
        descent=own_descent(descent),
        wrap_optimizer=_wrap_optimizer,
    )


def _init(settings: Settings, key: Array, problem: Problem, network: None) -> TrainState:
    params, model = problem.start(key)
    return TrainState(params, None, model, memory=full_mask(select_floating(params, settings.where)))


def _wrap_optimizer(
    settings: Settings, key: Array, problem: Problem, state: TrainState
) -> optax.GradientTransformation:
    steps = problem.descent.steps
    every = spacing(settings.every, steps)
    first, last = span(NAME, settings.begin, settings.end, steps, every)
    return sparse(
        problem.descent.optimizer,
        optax.polynomial_schedule(1.0, settings.density, 3, last - first, first),
        mask=state.memory,
        every=every,
        until=last + 1,
        scope=settings.scope,
    )
