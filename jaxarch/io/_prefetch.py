"""Prefetching: the next batches are read, checked and put on devices while the current ones are in use."""

from __future__ import annotations

import contextlib
import copy
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any

import jax
import numpy as np

from jaxarch._internal.errors import ArgumentError, check_count, check_flag, first_line, shown
from jaxarch._internal.precision import float64
from jaxarch._internal.trees import PyTree
from jaxarch.io._host_batches import host_batches

Closed = Callable[[], bool]
"""A function that tells whether no more items are wanted."""
Items = Callable[[Closed], Iterator[Any]]


class Ahead:
    """Iterator whose items a thread of its own makes, some of them ahead of use.

    The thread ends with the process, and does not delay its exit. An error is raised where its item is
    requested, and at every request after that.

    Args:
      items: makes the iterator, given a function that tells whether no more items are wanted.
      ahead: the number of items made before they are requested.
      put: function applied to each item, in that thread.
    """

    def __init__(self, items: Items, ahead: int, put: Callable[[Any], Any]) -> None:
        self._made: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        self._room, self._closed = threading.Semaphore(ahead), threading.Event()
        self._failure: BaseException | None = None
        # A JAX context manager, such as enable_x64, applies only to its own thread, so it is passed on.
        is_wide = jax.dtypes.canonicalize_dtype(float) == np.float64
        makes = (items(self._closed.is_set), put, self._made, self._room, self._closed, is_wide)
        self._thread = threading.Thread(target=_make, args=makes, daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._closed.is_set():
            raise StopIteration
        if self._failure is None:
            item, self._failure = self._made.get()
        if self._failure is not None:
            raise self._failure
        self._room.release()
        return item

    def close(self, wait: bool = False) -> None:
        """Make no more items; with `wait`, return only when the thread has left the iterator alone."""
        self._closed.set()
        # Wake the thread if it waits for room, so that it can end.
        self._room.release()
        if wait:
            self._thread.join()

    def __enter__(self) -> Ahead:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Wait, so that nobody else reads the same loader meanwhile. On an error or interrupt, do not wait.
        self.close(wait=kind is None)

    def __del__(self) -> None:
        self.close()


def _make(
    items: Iterator[Any],
    put: Callable[[Any], Any],
    made: queue.SimpleQueue[tuple[Any, BaseException | None]],
    room: threading.Semaphore,
    closed: threading.Event,
    is_wide: bool,
) -> None:
    try:
        with float64() if is_wide else contextlib.nullcontext():
            while True:
                room.acquire()
                if closed.is_set():
                    return
                made.put((put(next(items)), None))
    except BaseException as error:
        made.put((None, error))


class Prefetch:
    """Batches of an iterator on devices, the result of `prefetch`. It ends when the iterator ends."""

    def __init__(self, batches: Iterable[Any], ahead: int, sharding: Any, same_shape: bool) -> None:
        try:
            self._batches, self._size, self._same_shape = iter(batches), ahead, same_shape
        except TypeError as error:
            raise ArgumentError(f"batches: expected an iterable, got {shown(batches)}: {error}") from None
        self._sharding = _tuples(sharding)
        if sharding is None:
            default = jax.config.jax_default_device  # type: ignore[attr-defined]
            self._sharding = jax.devices(default)[0] if isinstance(default, str) else default
        self._state = _state_of(self._batches)
        self._ahead = self._begun()

    def __iter__(self) -> Iterator[PyTree]:
        return self

    def __next__(self) -> PyTree:
        batch, self._state = next(self._ahead)
        return batch

    def get_state(self) -> Any:
        """Return the iterator's state after the last batch that was handed out, ignoring batches read ahead.

        Raises:
          ArgumentError: an iterator without `get_state`.
        """
        self._check_resumable()
        return self._state

    def set_state(self, state: Any) -> None:
        """Continue from a state; batches read ahead are dropped.

        Raises:
          ArgumentError: an iterator without `set_state`.
        """
        self._check_resumable()
        self._ahead.close(wait=True)
        self._batches.set_state(state)  # type: ignore[attr-defined]
        self._state = state
        self._ahead = self._begun()

    def close(self) -> None:
        """Read no more: after this, there is no next batch."""
        self._ahead.close()

    def _begun(self) -> Ahead:
        # The thread holds no reference to this object, so that it is freed when dropped.
        iterator, sharding, same_shape = self._batches, self._sharding, self._same_shape

        def items(closed: Closed) -> Iterator[tuple[PyTree, Any]]:
            for batch in host_batches("batches", iterator, same_shape=same_shape):
                yield batch, _state_of(iterator)

        def placed(item: tuple[PyTree, Any]) -> tuple[PyTree, Any]:
            try:
                return jax.device_put(item[0], sharding), item[1]
            except ValueError as error:
                raise ArgumentError(f"sharding: it does not fit a batch: {first_line(error)}") from error

        return Ahead(items, self._size, placed)

    def _check_resumable(self) -> None:
        if not (hasattr(self._batches, "get_state") and hasattr(self._batches, "set_state")):
            raise ArgumentError(
                f"batches: {type(self._batches).__name__} has no get_state and set_state, so its position "
                "cannot be saved or restored; count the steps, and skip as many batches when you resume"
            )


def _state_of(iterator: Any) -> Any:
    # Copy: some iterators return the object that they go on changing.
    return copy.deepcopy(iterator.get_state()) if hasattr(iterator, "get_state") else None


def _tuples(tree: Any) -> Any:
    """Replace lists by tuples in a pytree, as in batches."""
    if isinstance(tree, dict):
        return {key: _tuples(part) for key, part in tree.items()}
    return tuple(map(_tuples, tree)) if isinstance(tree, list) else tree


def prefetch(
    batches: Iterable[Any], *, ahead: int = 2, sharding: Any = None, same_shape: bool = True
) -> Prefetch:
    """Put batches of any loader on devices, reading the next ones while your step runs.

    A thread draws from the loader, checks every batch and starts its transfer. If the loader's iterator has
    `get_state` and `set_state`, like Grain's, the result has them, too. Its state is the one after the last
    batch that you received.

    Args:
      batches: an iterable of tuples, lists and dicts of arrays or tensors: Grain, tf.data, a PyTorch
        `DataLoader`, a generator.
      ahead: the number of batches on the devices before they are requested, beside the one in use.
      sharding: how batches are split, a `jax.sharding.Sharding` for all arrays or a pytree of them; by
        default JAX's default device.
      same_shape: whether a batch of another size raises an error, since it would compile the step again. The
        shapes of one example must agree in any case.

    Returns:
      An iterator of pytrees of JAX arrays. Lists become tuples, and 64-bit numbers become 32-bit ones unless
      JAX is configured otherwise.

    Raises:
      ArgumentError: a value that is not an iterable, an `ahead` that is not a positive integer. When a batch
        is requested: another structure, shape or dtype than before, NaN or infinite values, values that are
        not arrays.

    Example:
      >>> import numpy as np, jaxarch
      >>> loader = ({"x": np.full((2, 3), step)} for step in range(4))
      >>> [int(batch["x"].sum()) for batch in jaxarch.io.prefetch(loader)]
      [0, 6, 12, 18]
    """
    if not hasattr(batches, "__iter__"):
        raise ArgumentError(f"batches: expected an iterable of batches, got {shown(batches)}")
    check_count("ahead", ahead)
    check_flag("same_shape", same_shape)
    return Prefetch(batches, ahead, sharding, same_shape)
