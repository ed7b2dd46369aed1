"""Available memory, and a check that refuses work that needs more."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from jaxarch._internal.errors import ArgumentError

_GROUPS = Path("/sys/fs/cgroup")
_CONTAINERS = (
    ("memory.current", "memory.max"),
    ("memory/memory.usage_in_bytes", "memory/memory.limit_in_bytes"),
)
"""Files in which the two versions of Linux's control groups give a container's memory use and limit."""


class ProgramMemory(NamedTuple):
    """Bytes that a chunk of a training run takes on each device, as the compiler counts them.

    Attributes:
      arguments: parameters, optimizer state, and the data.
      temporaries: intermediate values of the program: activations and gradients.
      outputs: the returned values, written in place of the carry.
      carry: the part of the arguments that a training run passes from one chunk to the next.
    """

    arguments: int
    temporaries: int
    outputs: int
    carry: int

    @property
    def whole(self) -> int:
        """Return the sum of arguments, temporaries and outputs."""
        return self.arguments + self.temporaries + self.outputs

    @property
    def fresh(self) -> int:
        """Return the bytes that are not taken before training begins."""
        return self.temporaries + self.carry

    def __str__(self) -> str:
        parts = ("arguments", "temporaries", "outputs")
        return ", ".join(f"{name} {in_bytes(getattr(self, name))}" for name in parts)


def free_memory() -> int | None:
    """Return how many bytes of memory this process may still use; `None` if unknown.

    It is the minimum of the machine's available memory and the rest of the container's limit.
    """
    limits = [limit for limit in (_available(), *map(_left, _CONTAINERS)) if limit is not None]
    return min(limits) if limits else None


def check_memory(name: str, needed: float, what: str, free: int | None = None) -> None:
    """Raise if something needs more bytes than are free.

    Args:
      name: the argument that causes the need.
      needed: bytes, or a lower bound on them.
      what: the consumer of the memory, such as `one run`.
      free: bytes; by default the result of `free_memory`.

    Raises:
      ArgumentError: too little memory; the message names the argument, the need and the free memory.
    """
    free = free_memory() if free is None else free
    if free is not None and needed > free:
        raise ArgumentError(
            f"{name}: {what} needs {in_bytes(needed)} of memory, but {in_bytes(free)} are free"
        )


def in_bytes(count: float) -> str:
    """Return a number of bytes in the largest unit that it fills, such as `1.5 GiB`."""
    power = next((power for power in range(4) if count < 1024 ** (power + 1)), 4)
    return f"{count / 1024**power:.4g} {('bytes', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


def _available() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    except (OSError, ValueError):
        pass
    return None


def _left(files: tuple[str, str]) -> int | None:
    try:
        used, limit = (int((_GROUPS / name).read_text()) for name in files)
    except (OSError, ValueError):
        return None
    return max(limit - used, 0)
