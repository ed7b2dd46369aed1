"""A model as two pure functions, independent of its library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from jax import Array

from jaxarch._internal.trees import PyTree
from jaxarch.run._problem import Key


class Model(NamedTuple):
    """A network, without its parameters.

    Attributes:
      init: `key -> (params, state)`; the state holds batch statistics and the like, `{}` if there is none.
      apply: `(params, state, x, key) -> (outputs, state)`. With a key it trains (dropout draws from the key,
        batch norm uses the batch); with `None` it evaluates.
    """

    init: Callable[[Array], tuple[PyTree, PyTree]]
    apply: Callable[[PyTree, PyTree, Array, Key], tuple[Any, PyTree]]
