"""Records that one stage leaves in a network for a later one, each of its own type."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.tree_util import all_leaves

from jaxarch._internal.errors import ArgumentError, shown
from jaxarch._internal.trees import PyTree


@partial(jax.tree_util.register_dataclass, data_fields=["params", "state", "step"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Start:
    """Weights that `retrain("rewind")` goes back to: the initial weights, or those of an early step.

    Attributes:
      params: the weights, without a mask.
      state: the model's state that belongs to them; `None` for the problem's own.
      step: the number of steps that they were trained for; `None` if they are untrained.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> network = jaxarch.search.dense(rewind_to=1)(jax.random.key(0), problem)
      >>> print(network[jaxarch.Start].step)
      1
    """

    params: PyTree
    state: PyTree = None
    step: Array | None = None


@partial(jax.tree_util.register_dataclass, data_fields=["kept"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class NeuronMask:
    """Mask of the hidden neurons left in a spectral network; it is never used as a mask of connections.

    Attributes:
      kept: booleans of shape (N_i,) in the place of each hidden layer's eigenvalues, `None` elsewhere: the
        structure of the parameters.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> neurons = jaxarch.NeuronMask({"L2": jnp.array([True, False, True])})
      >>> print(jaxarch.Network().with_records(neurons)[jaxarch.NeuronMask].count())
      2
    """

    kept: PyTree

    def count(self) -> Array:
        """Return the number of neurons left, summed over layers; for many runs, one number each."""
        return jnp.sum(jnp.stack([jnp.sum(leaf, axis=-1) for leaf in jax.tree.leaves(self.kept)]), axis=0)


@partial(jax.tree_util.register_dataclass, data_fields=["masks", "weights", "failed_at"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class ByDensity:
    """Architectures of several densities found by one search; `at_density` selects one of them.

    Attributes:
      masks: masks by the name of the density, such as `0.05`, in any order.
      weights: the weights that the search ended with, without any mask.
      failed_at: `TrainingInfo.failed_at` of each density, by the same names, for searches in which some
        densities may fail and others not.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> network = jaxarch.search.snip((0.5, 0.25))(jax.random.key(0), problem)
      >>> sorted(network[jaxarch.ByDensity].masks)
      ['0.25', '0.5']
    """

    masks: dict[str, PyTree]
    weights: PyTree
    failed_at: dict[str, Array] | None = None


def in_order(records: Iterable[Any]) -> tuple[Any, ...]:
    """Return records sorted by type name, so that equal histories have equal pytree structures.

    Raises:
      ArgumentError: an object that is not a record; two records of one type.
    """
    named = [(name_of(type(record)), record) for record in records]
    for _, record in named:
        check_record(record)
    # Sort by name alone: records cannot be compared.
    named.sort(key=lambda pair: pair[0])
    for (one, record), (other, _) in itertools.pairwise(named):
        if one == other:
            raise ArgumentError(f"records: expected one per type, got two of {type(record).__name__}")
    return tuple(record for _, record in named)


def check_record(record: object) -> None:
    """Raise unless an object is a pytree of its own type, which JAX carries through `jit` and `vmap`."""
    if isinstance(record, type) or type(record) in (tuple, list, dict, type(None)) or is_array(record):
        raise ArgumentError(f"records: expected objects of your own classes, got {shown(record)}")
    if all_leaves([record]):
        kind = type(record).__name__
        raise ArgumentError(
            f"records: {kind} is not a pytree; register it with jax.tree_util.register_dataclass"
        )


def is_array(value: object) -> bool:
    """Return whether a value by itself is an array or a number: a leaf of any pytree."""
    return hasattr(value, "dtype") or isinstance(value, (bool, int, float, complex, str))


def name_of(kind: type) -> str:
    """Return the name that identifies a type of records, even after its class has been defined anew."""
    return f"{kind.__module__}.{kind.__qualname__}"
