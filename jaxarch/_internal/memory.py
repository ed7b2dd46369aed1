"""How much memory there is, and the refusal of what would need more."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from jaxarch._internal.errors import ArgumentError

_GROUPS = Path("/sys/fs/cgroup")
_CONTAINERS = (
    ("memory.current", "memory.max"),
    ("memory/memory.usage_in_bytes", "memory/memory.limit_in_bytes"),
)
"""Where the two versions of Linux's control groups say what a container uses, and how much it may."""


class ProgramMemory(NamedTuple):
    """Bytes that a chunk of a training takes on each device, as the compiler counts them.

    Attributes:
      arguments: parameters, what the optimiser keeps of them, and the data.
      temporaries: what the program puts aside: activations and gradients.
      outputs: what it returns, written in place of the carry.
      carry: those of the arguments that a training hands from one chunk to the next.
    """

    arguments: int
    temporaries: int
    outputs: int
    carry: int

    @property
    def whole(self) -> int:
        """All of them."""
        return self.arguments + self.temporaries + self.outputs

    @property
    def fresh(self) -> int:
        """Those that are not taken before a training begins."""
        return self.temporaries + self.carry

    def __str__(self) -> str:
        parts = ("arguments", "temporaries", "outputs")
        return ", ".join(f"{name} {in_bytes(getattr(self, name))}" for name in parts)


def free_memory() -> int | None:
    """Bytes of the machine's memory that this process may still use; `None` where nothing tells.

    The least of what the machine has available and of what its container may use.
    """
    limits = [limit for limit in (_available(), *map(_left, _CONTAINERS)) if limit is not None]
    return min(limits) if limits else None


def check_memory(name: str, needed: float, what: str, free: int | None = None) -> None:
    """Raise if something needs more bytes than are free.

    Args:
      name: the argument that asks for so much.
      needed: bytes, or a number that they are not below.
      what: what needs them, such as `one run`.
      free: bytes; by default what `free_memory` says.

    Raises:
      ArgumentError: naming the argument, what it needs and what there is.
    """
    free = free_memory() if free is None else free
    if free is not None and needed > free:
        raise ArgumentError(
            f"{name}: {what} needs {in_bytes(needed)} of memory, but {in_bytes(free)} are free"
        )


def in_bytes(count: float) -> str:
    """A number of bytes in the largest unit that it fills, such as `1.5 GiB`."""
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
