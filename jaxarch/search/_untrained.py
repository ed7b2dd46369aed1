"""Untrained networks with random weights, to compare training with."""

from __future__ import annotations

import dataclasses

import jax
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import check_one_strength
from jaxarch._internal.trees import Where, matrices, select_floating
from jaxarch.masks import full_mask
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._stage import FunctionStage
from jaxarch.transforms._weights import fresh, squares


@dataclasses.dataclass(frozen=True)
class Settings:
    """The size of the weights, and the leaves that are drawn."""

    std: ArrayLike
    where: Where


@method("[D] section 5")
def untrained(std: ArrayLike = 1.0, *, where: Where = matrices) -> FunctionStage:
    """Draw random non-negative weights `w = u^2`, `u ~ N(0, std)`, and do not train ([D] section 5).

    Args:
      std: standard deviation of u; [D] has 1.
      where: the leaves that are drawn and counted as connections, by path; the others are the problem's own.

    Returns:
      A search; its mask keeps every selected connection.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> network = jaxarch.search.untrained()(jax.random.key(0), problem)
      >>> print(jaxarch.density(network.mask), network.params["W2_1"].min() >= 0)
      1.0 True
    """
    check_one_strength("std", std)
    return FunctionStage("untrained", _untrained, Settings(std, where), removes=())


def _untrained(settings: Settings, key: Array, problem: Problem, network: None) -> Network:
    shapes, _ = jax.eval_shape(problem.init, key)
    mask = full_mask(select_floating(shapes, settings.where))
    roots, state = fresh(key, problem.start, mask, True, settings.std)
    return Network(squares(mask, roots), mask, state)
