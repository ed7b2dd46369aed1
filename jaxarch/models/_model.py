"""A model as two pure functions, whatever library it was written in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from jax import Array

from jaxarch._internal.trees import PyTree
from jaxarch.run._problem import Key


class Model(NamedTuple):
    """A network, without its parameters.

    Attributes:
      init: `key -> (params, state)`; the state is batch norm's and the like, `{}` where there is none.
      apply: `(params, state, x, key) -> (outputs, state)`. With a key it trains (dropout draws from it, batch
        norm uses the batch); with `None` it evaluates.
    """

    init: Callable[[Array], tuple[PyTree, PyTree]]
    apply: Callable[[PyTree, PyTree, Array, Key], tuple[Any, PyTree]]
