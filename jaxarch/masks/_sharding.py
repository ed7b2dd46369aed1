"""Arrays that are split over devices: gathered, split as they were, and brought beside others."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from jaxarch._internal.errors import is_traced


def explicit_sharding(leaf: Any) -> NamedSharding | None:
    """How an array is split over the explicit axes of a mesh; `None` for all others."""
    if not isinstance(leaf, Array):
        return None
    sharding = jax.typeof(leaf).sharding if is_traced(leaf) else leaf.sharding
    if isinstance(sharding, NamedSharding) and AxisType.Explicit in sharding.mesh.axis_types:
        return sharding
    return None


def whole(leaf: Array) -> Array:
    """An array that is split over explicit axes gathered, so that it can be reshaped; others as they are."""
    sharding = explicit_sharding(leaf)
    if sharding is None:
        return leaf
    return jax.sharding.reshard(leaf, NamedSharding(sharding.mesh, PartitionSpec()))


def split_like(leaf: Any, array: Array) -> Array:
    """An array split over explicit axes as another is."""
    sharding = explicit_sharding(leaf)
    return array if sharding is None else jax.sharding.reshard(array, sharding)


def beside(leaf: Any, array: Any) -> Array:
    """An array on the devices that another was put on, and split like it where it has its shape."""
    concrete = isinstance(leaf, Array) and not is_traced((leaf, array))
    if concrete and leaf.committed and jnp.shape(array) == leaf.shape:
        return jax.device_put(array, leaf.sharding)
    return jnp.asarray(array)
