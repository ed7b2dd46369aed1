"""The mask in an optimiser's state."""

from __future__ import annotations

from typing import Any

import jax
from jax import Array

from jaxarch.errors import ArgumentError
from jaxarch.optim.hold import HoldState
from jaxarch.optim.masked_leaves import of_parameters
from jaxarch.optim.sparse import SparseState
from jaxarch.trees import PyTree, named_leaves, placed


def find_mask(state: PyTree, like: PyTree | None = None) -> PyTree:
    """The mask that an optimiser holds, wherever in its state `hold` or `sparse` has it.

    Args:
      state: of any optax transformation, or an `nnx.Optimizer`'s `opt_state`.
      like: the parameters; without them the mask comes as a dict by path, which `hold` takes, too.

    Returns:
      Booleans in the structure of the parameters, `None` for those that are not masked.

    Raises:
      ArgumentError: a state with no mask in it, or two masks of one leaf; parameters that do not fit it.
    """

    def holds(node: Any) -> bool:
        return isinstance(node, (HoldState, SparseState))

    found: dict[str, Array] = {}
    for node in filter(holds, jax.tree.leaves(state, is_leaf=holds)):
        for path, leaf in named_leaves(node.mask).items():
            if path in found:
                raise ArgumentError(
                    f"state: two transformations mask {path!r}; give the state of one of them"
                )
            found[path] = leaf
    if not found:
        raise ArgumentError("state: no mask is in it; it is of neither optim.hold nor optim.sparse")
    if like is None:
        return found
    return placed(of_parameters(found, like, everywhere=True), like)
