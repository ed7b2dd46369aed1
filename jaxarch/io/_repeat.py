"""A loader over and over: one epoch after another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from jaxarch._internal.errors import ArgumentError, shown


class Repeated:
    """What `repeat` returns: an iterable that begins its loader again whenever it ends."""

    def __init__(self, loader: Iterable[Any]) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        while True:
            is_empty = True
            for batch in self._loader:
                is_empty = False
                yield batch
            if is_empty:
                return


def repeat(loader: Iterable[Any]) -> Repeated:
    """A loader without an end: it is begun again whenever it ends, and may then have another order.

    Args:
      loader: an iterable that can be begun again, such as a list of batches or a PyTorch `DataLoader`.

    Raises:
      ArgumentError: an iterator, which ends once and for all; no iterable.

    Example:
      >>> import itertools, jaxarch
      >>> list(itertools.islice(jaxarch.io.repeat([1, 2, 3]), 5))
      [1, 2, 3, 1, 2]
    """
    if not hasattr(loader, "__iter__") or isinstance(loader, Iterator):
        raise ArgumentError(
            f"loader: expected an iterable that can be begun again, such as a list or a DataLoader, got "
            f"{shown(loader)}"
        )
    return Repeated(loader)
