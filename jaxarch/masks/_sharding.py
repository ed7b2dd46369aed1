"""Arrays that are split over devices: gather them, split them like another, place them beside another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from jaxarch._internal.errors import is_traced


def explicit_sharding(leaf: Any) -> NamedSharding | None:
    """Return an array's sharding over the explicit axes of a mesh; `None` if it has none."""
    if not isinstance(leaf, Array):
        return None
    sharding = jax.typeof(leaf).sharding if is_traced(leaf) else leaf.sharding
    if isinstance(sharding, NamedSharding) and AxisType.Explicit in sharding.mesh.axis_types:
        return sharding
    return None


def whole(leaf: Array) -> Array:
    """Gather an array that is split over explicit axes, so that it can be reshaped; keep others as given."""
    sharding = explicit_sharding(leaf)
    if sharding is None:
        return leaf
    return jax.sharding.reshard(leaf, NamedSharding(sharding.mesh, PartitionSpec()))


def whole_outside(array: Any) -> Any:
    """Take an array that is made inside `jax.sharding.auto_axes` out of it, whole; keep others as given."""
    explicit = AxisType.Explicit in jax.sharding.get_abstract_mesh().axis_types
    if not explicit or explicit_sharding(array) is not None:
        return array
    return jax.sharding.reshard(array, PartitionSpec())


def automatic(function: Callable[..., Any], *arguments: Any, like: Any = None) -> Any:
    """Call a function whose steps say nothing of explicit axes, and let the compiler split its arrays.

    Args:
      function: the function.
      *arguments: its arguments.
      like: an array that the results are split as; by default they are whole.
    """
    shardings = [explicit_sharding(leaf) for leaf in jax.tree.leaves((arguments, like))]
    sharding = next((each for each in shardings if each is not None), None)
    if sharding is None:
        return function(*arguments)
    out = PartitionSpec() if like is None or (of := explicit_sharding(like)) is None else of.spec
    return jax.sharding.auto_axes(function, out_sharding=NamedSharding(sharding.mesh, out))(*arguments)


def split_like(leaf: Any, array: Array) -> Array:
    """Split an array over the explicit axes of a mesh as another array is split."""
    sharding = explicit_sharding(leaf)
    return array if sharding is None else jax.sharding.reshard(array, sharding)


def beside(leaf: Any, array: Any) -> Array:
    """Put an array on the devices of a committed one, and split it alike, if both have the same shape."""
    concrete = isinstance(leaf, Array) and not is_traced((leaf, array))
    if concrete and leaf.committed and jnp.shape(array) == leaf.shape:
        return jax.device_put(array, leaf.sharding)
    return jnp.asarray(array)
