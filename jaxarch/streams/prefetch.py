"""Reading ahead: the next batches are made, checked and put on devices while the ones before are used."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

import jax
import numpy as np

from jaxarch.errors import ArgumentError, check_count, check_flag, shown
from jaxarch.precision import float64
from jaxarch.streams.host_batches import host_batches
from jaxarch.trees import PyTree


class Ahead:
    """What an iterator gives, so many ahead: it runs in a thread of its own.

    Args:
      items: the iterator.
      ahead: how many are made before they are asked for.
      put: what is made of each, in that thread.
    """

    def __init__(self, items: Iterator[Any], ahead: int, put: Callable[[Any], Any]) -> None:
        self._items, self._ahead, self._put = items, ahead, put
        # What a context of JAX's says holds for its own thread alone.
        self._is_wide = jax.dtypes.canonicalize_dtype(float) == np.float64
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="jaxarch-ahead")
        self._made: deque[Future[Any]] = deque()
        self._fill()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if not self._made:
            raise StopIteration
        made = self._made.popleft().result()
        self._fill()
        return made

    def close(self, wait: bool = False) -> None:
        """Make no more, and forget what was made; `wait` for what is being made."""
        self._made.clear()
        self._pool.shutdown(wait=wait, cancel_futures=True)

    def __enter__(self) -> Ahead:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _fill(self) -> None:
        while len(self._made) < self._ahead:
            self._made.append(self._pool.submit(self._make))

    def _make(self) -> Any:
        with float64() if self._is_wide else contextlib.nullcontext():
            return self._put(next(self._items))


class Prefetch:
    """The batches of an iterator on devices: what `prefetch` returns. It ends where the iterator ends."""

    def __init__(self, batches: Iterable[Any], ahead: int, sharding: Any, same_shape: bool) -> None:
        self._batches, self._size, self._same_shape = iter(batches), ahead, same_shape
        default = jax.config.jax_default_device  # type: ignore[attr-defined]
        self._device = default if sharding is None else sharding
        self._state = self._now()
        self._ahead = self._begun()

    def __iter__(self) -> Iterator[PyTree]:
        return self

    def __next__(self) -> PyTree:
        batch, self._state = next(self._ahead)
        return batch

    def get_state(self) -> Any:
        """The iterator's state after the last batch that was handed out, whatever was read ahead.

        Raises:
          ArgumentError: an iterator without `get_state`.
        """
        self._check_resumable()
        return self._state

    def set_state(self, state: Any) -> None:
        """Go on from a state: what was read ahead is dropped.

        Raises:
          ArgumentError: an iterator without `set_state`.
        """
        self._check_resumable()
        self._ahead.close(wait=True)
        self._batches.set_state(state)  # type: ignore[attr-defined]
        self._state = state
        self._ahead = self._begun()

    def close(self) -> None:
        """Read no more: there is no next batch then."""
        self._ahead.close()

    def _begun(self) -> Ahead:
        batches = host_batches("batches", self._batches, same_shape=self._same_shape)
        return Ahead(((batch, self._now()) for batch in batches), self._size, self._placed)

    def _placed(self, made: tuple[PyTree, Any]) -> tuple[PyTree, Any]:
        return jax.device_put(made[0], self._device), made[1]

    def _now(self) -> Any:
        return self._batches.get_state() if hasattr(self._batches, "get_state") else None

    def _check_resumable(self) -> None:
        if not (hasattr(self._batches, "get_state") and hasattr(self._batches, "set_state")):
            raise ArgumentError(
                f"batches: {type(self._batches).__name__} has no get_state and set_state, so that nothing is "
                "known to go on from; count the steps, and skip as many batches"
            )


def prefetch(
    batches: Iterable[Any], *, ahead: int = 2, sharding: Any = None, same_shape: bool = True
) -> Prefetch:
    """Batches of any loader on devices, the next ones read and put there while your step runs.

    A thread draws from the loader, looks at every batch and starts its transfer. Where the loader's iterator
    has `get_state` and `set_state`, as Grain's, so has what is returned, and its state is that after the last
    batch that you were given.

    Args:
      batches: an iterable of tuples, lists and dicts of arrays or tensors: Grain, tf.data, a PyTorch
        `DataLoader`, a generator.
      ahead: how many batches are on the devices before they are asked for, beside the one in use.
      sharding: how they are split, a `jax.sharding.Sharding` for all arrays or a pytree of them; by default
        JAX's default device.
      same_shape: whether a batch of another size is refused, for which a step would be compiled anew; the
        shapes of one example are the same in any case.

    Returns:
      An iterator of pytrees of JAX's arrays: lists are tuples, and 64-bit numbers have 32 unless JAX is told
      otherwise.

    Raises:
      ArgumentError: no iterable, an `ahead` that is no positive integer; and, when the batch is asked for:
        another structure, shape or dtype than before, NaN or infinite values, what is no array.

    Example:
      >>> import numpy as np, jaxarch
      >>> loader = ({"x": np.full((2, 3), step)} for step in range(4))
      >>> [int(batch["x"].sum()) for batch in jaxarch.data.prefetch(loader)]
      [0, 6, 12, 18]
    """
    if not hasattr(batches, "__iter__"):
        raise ArgumentError(f"batches: expected an iterable of batches, got {shown(batches)}")
    check_count("ahead", ahead)
    check_flag("same_shape", same_shape)
    return Prefetch(batches, ahead, sharding, same_shape)
