"""Untrained networks with random weights: what training is compared with."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxarch.finish import cold_start
from jaxarch.masks import full_mask
from jaxarch.problem import Found, Problem
from jaxarch.trees import Where, map_selected, matrices, merge, select


def random(std: ArrayLike = 1.0, *, where: Where = matrices) -> Callable[[Array, Problem], Found]:
    """Random non-negative weights `w = u^2`, `u ~ N(0, std)`, and no training ([D] section 5).

    Args:
      std: standard deviation of u; [D] has 1.
      where: the leaves that are drawn and counted as connections, by path; the others are the problem's own.

    Returns:
      A search; its mask keeps every selected connection.
    """

    def search(key: Array, problem: Problem) -> Found:
        shapes, _ = jax.eval_shape(problem.init, key)
        start = cold_start(key, problem, full_mask(select(shapes, where)), True, std)
        squares = map_selected(lambda m, u: jnp.square(u), start.fixed, start.trainable)
        return Found(merge(squares, start.trainable), start.fixed, start.state, {})

    search.__name__ = "random"
    return search
