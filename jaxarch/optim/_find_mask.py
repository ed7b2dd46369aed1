"""The mask in an optimizer's state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch._internal.errors import ArgumentError, is_traced
from jaxarch._internal.trees import PyTree, named_leaves, placed
from jaxarch.optim._hold import HoldState
from jaxarch.optim._masked_leaves import of_parameters
from jaxarch.optim._sparse import SparseState


def find_mask(state: PyTree, like: PyTree | None = None) -> PyTree:
    """Return the mask that an optimizer holds, wherever `hold` or `sparse` is in its state.

    Args:
      state: the state of any optax transformation, or an `nnx.Optimizer`'s `opt_state`.
      like: the parameters; without them the mask is a dict by path, which `hold` also accepts.

    Returns:
      Copies of the booleans in the structure of the parameters, `None` for unmasked ones.

    Raises:
      ArgumentError: a state without a mask, or with two masks of one leaf; parameters that do not fit it.

    Example:
      >>> import jax.numpy as jnp, jaxarch, optax
      >>> params = {"kernel": jnp.array([3.0, 1.0, 2.0, 4.0]), "bias": jnp.ones(1)}
      >>> sparse = jaxarch.optim.sparse(optax.sgd(0.1), where="kernel", density=0.5, every=1)
      >>> tx = optax.chain(optax.clip(1.0), sparse)
      >>> state = tx.init(params)
      >>> for _ in range(2):
      ...     _, state = tx.update(params, state, params)
      >>> jaxarch.optim.find_mask(state, params)
      {'bias': None, 'kernel': Array([ True, False, False,  True], dtype=bool)}
    """
    found: dict[str, Array] = {}
    for mask in _masks_in(state):
        for path, leaf in named_leaves(mask).items():
            if path in found:
                raise ArgumentError(
                    f"state: two transformations mask {path!r}; pass the state of one of them"
                )
            # A copy outlives a step that donates the state. A traced value has no buffer to lose.
            concrete = isinstance(leaf, Array) and not is_traced(leaf)
            found[path] = jnp.copy(leaf) if concrete else leaf
    if not found:
        raise ArgumentError(
            "state: it holds no mask; expected the state of an optimizer with optim.hold or optim.sparse"
        )
    if like is None:
        return found
    return placed(of_parameters(found, like, everywhere=True), like)


def _masks_in(state: PyTree) -> Iterator[PyTree]:
    """Yield all masks in a state, including those of an optimizer inside `hold` or `sparse`."""

    def holds(node: Any) -> bool:
        return isinstance(node, (HoldState, SparseState))

    for node in filter(holds, jax.tree.leaves(state, is_leaf=holds)):
        yield node.mask
        yield from _masks_in(node.inner)
