"""Training batches as a function of the step, in windows as long as the steps of one program."""

from __future__ import annotations

import copy
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from jaxarch._internal.digests import tree_digest
from jaxarch._internal.errors import ArgumentError, shown
from jaxarch._internal.trees import PyTree
from jaxarch.io._host_batches import Form, host_batches

Source = Any
"""An iterable of batches, or a function `step -> iterable`."""

_FIXED = "fix its order with a seed set at each start, as stream=lambda step: ... on the page 'Your data'"
_EXPECTED = "stream: expected an iterable of batches, or a function step -> iterable"


class Window(NamedTuple):
    """The batches of several successive steps.

    Attributes:
      first: the first of these steps, int32.
      batches: their batches, every array with a leading axis of steps.
    """

    first: Any
    batches: PyTree

    def at(self, step: int | Array) -> PyTree:
        """Return the batch of a step in the window."""
        size = jax.tree.leaves(self.batches)[0].shape[0]
        if isinstance(step, int) and step >= size:
            raise ArgumentError(
                f"stream: batch {step} was requested, but the stage has {size}; raise Needs(batches=...)"
            )
        index = jax.lax.dynamic_index_in_dim
        return jax.tree.map(lambda array: index(array, step - self.first, keepdims=False), self.batches)


class Stream:
    """Training batches in a fixed order: batch t belongs to step t, in every training run alike.

    Two streams of the same form compare equal, since a compiled program depends only on the form.

    Args:
      source: an iterable of batches that can be restarted with the same order: a list, a PyTorch `DataLoader`
        that does not shuffle, Grain's and TensorFlow's data sets; or a function `step -> iterable`, whose
        first batch belongs to the step. To continue at a step, a function is called with it; from an
        iterable, as many batches are drawn and dropped. The first batch is drawn at once, to learn its form.

    Attributes:
      form: the form of every batch.
      first: the first batch, on the host.
      digest: the digest of the first batch.
      check: the function given to `checked`; `None` for no check.

    Raises:
      ArgumentError: an iterator, which can be used only once; any other kind of value; a source without
        batches.
    """

    check: Callable[[int, PyTree], None] | None = None

    def __init__(self, source: Source) -> None:
        if isinstance(source, Iterator):
            raise ArgumentError(
                f"stream: a {type(source).__name__} can be used only once, but every training starts at the "
                "first batch; give the loader that makes it, or a function step -> iterable"
            )
        is_iterable = hasattr(source, "__iter__") and not isinstance(source, (Mapping, str, type))
        is_iterable = is_iterable and getattr(source, "ndim", 1) != 0
        if not is_iterable and not _takes_a_step(source):
            raise ArgumentError(f"{_EXPECTED}, got {shown(source)}")
        self.source = source
        batch = next(host_batches("stream", self._from(0)), None)
        if batch is None:
            raise ArgumentError("stream: expected at least one batch, got none")
        self.form = Form.of(batch)
        self.first = batch
        self.digest = tree_digest(batch)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.form == other.form

    def __hash__(self) -> int:
        return hash(self.form)

    def checked(self, check: Callable[[int, PyTree], None]) -> Stream:
        """Return the same stream with a check of each batch and its number; the first is checked now."""
        other = copy.copy(self)
        other.check = check
        check(0, self.first)
        return other

    def outline(self, size: int) -> Window:
        """Return a window of `size` steps, as shapes and dtypes."""
        return Window(jax.ShapeDtypeStruct((), np.int32), self.form.outline(size))

    def window(self, size: int) -> Window:
        """Return the first `size` batches, on the host."""
        return next(self.windows(0, size, size))[0]

    def windows(
        self,
        start: int,
        stop: int,
        size: int,
        last: np.ndarray | None = None,
        closed: Callable[[], bool] = bool,
    ) -> Iterator[tuple[Window, np.ndarray]]:
        """Yield the batches of the steps from `start` to `stop`, `size` at a time, on the host.

        Args:
          start: the first step.
          stop: the step after the last.
          size: steps per window; the last one is padded with 0.
          last: the digest of the batch before `start`, as yielded with its window; that batch is drawn again
            and compared.
          closed: whether no more batches are wanted; called before each batch.

        Yields:
          A window, and the digest of its last batch.

        Raises:
          ArgumentError: a stream that ends before `stop`, or differs from the one that gave `last`; a batch
            of another form.
        """
        self.check_length(stop)
        begun = start if last is None else start - 1
        batches = host_batches("stream", self._from(begun), self.form, begun)
        if last is not None and not np.array_equal(tree_digest(self._next(batches, begun, stop)), last):
            raise ArgumentError(
                f"stream: batch {begun} differs from the one before the training was interrupted; {_FIXED}, "
                "or use a fresh folder"
            )
        for first in range(start, stop, size):
            rooms = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), self.form.outline(size))
            for place in range(min(size, stop - first)):
                if closed():
                    return
                batch = self._next(batches, first + place, stop)
                if first + place == 0 and not np.array_equal(tree_digest(batch), self.digest):
                    raise ArgumentError(
                        "stream: its first batch differs each time, so runs and stages would see different "
                        f"batches; {_FIXED}"
                    )
                for room, leaf in zip(jax.tree.leaves(rooms), jax.tree.leaves(batch), strict=True):
                    room[place] = leaf
            yield Window(np.asarray(first, np.int32), rooms), tree_digest(batch)

    def _from(self, step: int) -> Iterable[Any]:
        """Return the batches from a step on."""
        if hasattr(self.source, "__iter__"):
            return itertools.islice(self.source, step, None)
        batches = self.source(step)
        if not hasattr(batches, "__iter__"):
            raise ArgumentError(f"{_EXPECTED}; it returned {shown(batches)}")
        return batches

    def _next(self, batches: Iterator[PyTree], step: int, stop: int) -> PyTree:
        batch = next(batches, None)
        if batch is None:
            raise ArgumentError(_ended(step, stop))
        if self.check is not None:
            self.check(step, batch)
        return batch

    def check_length(self, stop: int) -> None:
        """Raise if the stream is known to have fewer than `stop` batches."""
        try:
            length = len(self.source)
        except Exception:
            # The length is unknown; loaders raise different errors for this.
            return
        if length < stop:
            raise ArgumentError(_ended(length, stop))


def _ended(batches: int, steps: int) -> str:
    return (
        f"stream: it ends after {batches} batches, but {steps} are needed; take fewer steps, or repeat it "
        "with jaxarch.io.repeat(loader)"
    )


def _takes_a_step(source: Any) -> bool:
    """Return whether `source` is a function of one argument, as far as is known."""
    if not callable(source) or isinstance(source, type):
        return False
    try:
        inspect.signature(source).bind(0)
    except TypeError:
        return False
    except ValueError:
        # Some functions do not tell their signature.
        return True
    return True
