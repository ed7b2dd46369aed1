"""A record of training: failures, dead starts and the arrays that methods keep for inspection."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import jax
from jax import Array

from jaxarch._internal.errors import ArgumentError, did_you_mean, shown


@partial(jax.tree_util.register_dataclass, data_fields=["arrays", "failed_at", "dead_start"], meta_fields=[])
@dataclasses.dataclass(frozen=True, eq=False)
class TrainingInfo(Mapping[str, Any]):
    """Record of how a network was made, for inspection only: no stage reads it.

    It is a mapping from names to recorded arrays: `network.info["loss"]`, `"scores" in network.info`. A
    training records `loss`, one value per step; in a chain the loss of the last training stays. Methods add
    their own arrays, which their docstrings name. `info | {"sizes": sizes}` adds one more.

    Attributes:
      arrays: the recorded arrays, by name.
      failed_at: the first step whose loss was NaN or infinite, in the first training where that happened; -1
        if none was. For `search.synflow`, the first round whose saliencies were NaN or infinite, or were all
        0.
      dead_start: whether the gradient of some leaf stayed exactly 0 at the start of some training.

    Raises:
      ArgumentError: arrays that are not by name; a name under which nothing was recorded.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
      >>> problem = jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=2)
      >>> info = jaxarch.search.dense()(jax.random.key(0), problem).info
      >>> print(info.failed_at, info.dead_start, info["loss"].shape)
      -1 False (2,)
      >>> sorted(info | {"mine": jnp.zeros(3)})
      ['loss', 'mine']
    """

    arrays: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    _: dataclasses.KW_ONLY
    failed_at: Array | None = None
    dead_start: Array | None = None

    def __post_init__(self) -> None:
        """Refuse an argument that is not a dict, where a method's array may have been meant."""
        if isinstance(self.arrays, (TrainingInfo, list, tuple)) or hasattr(self.arrays, "dtype"):
            raise ArgumentError(f"arrays: expected a dict of arrays by name, got {shown(self.arrays)}")

    def __getitem__(self, name: str) -> Any:
        """Return the array recorded under a name."""
        if name not in self.arrays:
            is_field = name in ("failed_at", "dead_start")
            instead = f"use `info.{name}`" if is_field else did_you_mean(name, self.arrays)
            raise _Unrecorded(f"info: nothing was recorded as {shown(name)}; {instead}")
        return self.arrays[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the recorded arrays."""
        return iter(self.arrays)

    def __len__(self) -> int:
        """Return the number of recorded arrays."""
        return len(self.arrays)

    def __or__(self, other: Mapping[str, Any]) -> TrainingInfo:
        """Return the union of both records; entries set in `other` win."""
        arrays = {**self.arrays, **other}
        if not isinstance(other, TrainingInfo):
            return dataclasses.replace(self, arrays=arrays)
        failed_at = self.failed_at if other.failed_at is None else other.failed_at
        dead_start = self.dead_start if other.dead_start is None else other.dead_start
        return TrainingInfo(arrays, failed_at=failed_at, dead_start=dead_start)

    def replace(self, **changes: Any) -> TrainingInfo:
        """Return the info with some fields replaced."""
        return dataclasses.replace(self, **changes)


class _Unrecorded(ArgumentError, KeyError):
    """A name under which nothing was recorded; also a `KeyError`, so that `get` and `in` work."""

    # `KeyError` would print the message in quotation marks.
    __str__ = Exception.__str__
