"""A loader without an end: one epoch after another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from jaxarch._internal.errors import ArgumentError, shown


class Repeated:
    """Result of `repeat`: an iterable that restarts its loader whenever it ends."""

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
    """Repeat a loader without an end: it restarts whenever it ends, and may then have another order.

    Args:
      loader: an iterable that can be restarted, such as a list of batches or a PyTorch `DataLoader`.

    Raises:
      ArgumentError: an iterator, which can be used only once; a value that is not an iterable.

    Example:
      >>> import itertools, jaxarch
      >>> list(itertools.islice(jaxarch.io.repeat([1, 2, 3]), 5))
      [1, 2, 3, 1, 2]
    """
    if not hasattr(loader, "__iter__") or isinstance(loader, Iterator):
        raise ArgumentError(
            f"loader: expected an iterable that can be restarted, such as a list or a DataLoader, got "
            f"{shown(loader)}"
        )
    return Repeated(loader)
