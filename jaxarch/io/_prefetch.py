"""Reading ahead: the next batches are made, checked and put on devices while the ones before are used."""

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
"""Whether nothing more is wanted."""
Items = Callable[[Closed], Iterator[Any]]


class Ahead:
    """What an iterator gives, so many ahead: a thread of its own runs it.

    The thread ends with the process, and does not keep it waiting. An error comes where its item is asked
    for, and again each time after that.

    Args:
      items: makes the iterator, of a function that says whether nothing more is wanted.
      ahead: how many are made before they are asked for.
      put: what is made of each, in that thread.
    """

    def __init__(self, items: Items, ahead: int, put: Callable[[Any], Any]) -> None:
        self._made: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        self._room, self._closed = threading.Semaphore(ahead), threading.Event()
        self._failure: BaseException | None = None
        # What a context of JAX's says holds for its own thread alone.
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
        """Make no more; `wait` until the iterator is left alone."""
        self._closed.set()
        self._room.release()
        if wait:
            self._thread.join()

    def __enter__(self) -> Ahead:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Nobody else reads the same loader meanwhile; who is interrupted is not kept waiting.
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
    """The batches of an iterator on devices: what `prefetch` returns. It ends where the iterator ends."""

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
        # Without a way back to this object, so that it goes when it is dropped.
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
                f"batches: {type(self._batches).__name__} has no get_state and set_state, so that nothing is "
                "known to go on from; count the steps, and skip as many batches"
            )


def _state_of(iterator: Any) -> Any:
    # Some hand out the object that they go on changing.
    return copy.deepcopy(iterator.get_state()) if hasattr(iterator, "get_state") else None


def _tuples(tree: Any) -> Any:
    """A pytree with tuples for lists, as batches have them."""
    if isinstance(tree, dict):
        return {key: _tuples(part) for key, part in tree.items()}
    return tuple(map(_tuples, tree)) if isinstance(tree, list) else tree


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
      >>> [int(batch["x"].sum()) for batch in jaxarch.io.prefetch(loader)]
      [0, 6, 12, 18]
    """
    if not hasattr(batches, "__iter__"):
        raise ArgumentError(f"batches: expected an iterable of batches, got {shown(batches)}")
    check_count("ahead", ahead)
    check_flag("same_shape", same_shape)
    return Prefetch(batches, ahead, sharding, same_shape)
