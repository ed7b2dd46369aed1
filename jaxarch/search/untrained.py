"""Untrained networks with random weights: what training is compared with."""

from __future__ import annotations

from collections.abc import Callable

import jax
from jax import Array
from jax.typing import ArrayLike

from jaxarch.finish.weights import fresh, squares
from jaxarch.masks import full_mask
from jaxarch.problem import Network, Problem
from jaxarch.trees import Where, matrices, select


def untrained(std: ArrayLike = 1.0, *, where: Where = matrices) -> Callable[[Array, Problem], Network]:
    """Random non-negative weights `w = u^2`, `u ~ N(0, std)`, and no training ([D] section 5).

    Args:
      std: standard deviation of u; [D] has 1.
      where: the leaves that are drawn and counted as connections, by path; the others are the problem's own.

    Returns:
      A search; its mask keeps every selected connection.
    """

    def search(key: Array, problem: Problem) -> Network:
        shapes, _ = jax.eval_shape(problem.init, key)
        mask = full_mask(select(shapes, where))
        roots, state = fresh(key, problem, mask, True, std)
        return Network(squares(mask, roots), mask, state, {})

    search.__name__ = "random"
    return search
