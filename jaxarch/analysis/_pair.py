"""Checks of two networks that are compared."""

from __future__ import annotations

import jax.numpy as jnp

from jaxarch._internal.errors import check_leaves
from jaxarch._internal.trees import PyTree, check_distinct, named_leaves
from jaxarch.structure._groups import check_shapes
from jaxarch.structure._network_function import check_arrays_given


def check_pair(first: PyTree, second: PyTree, traced: bool = False) -> None:
    """Raise unless two trees have arrays of the same paths and shapes; traced ones only if they may be."""
    for name, tree in (("first", first), ("second", second)):
        check_leaves(name, tree, keys=True)
        check_distinct(name, tree)
        if not traced:
            check_arrays_given(**{name: tree})
    shapes = {path: jnp.shape(leaf) for path, leaf in named_leaves(first).items()}
    check_shapes(second, shapes, "with the first's", name="second")
