"""Which runs of a program each process trains: as many for every device, in the order of the processes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np


@dataclasses.dataclass(frozen=True)
class Shares:
    """How many devices of each process the runs of one program are spread over.

    Every device has as many runs as every other, so that all compile one program; the last runs of a program
    that does not come out even are copies, which are dropped. A process without any of these devices trains
    copies too, of the first runs, and so knows what the others find but for the numbers.

    Attributes:
      counts: the devices of each process that are used.
      index: which process this is.
    """

    counts: tuple[int, ...]
    index: int = 0

    @classmethod
    def of(cls, devices: Sequence[int], used: int, index: int = 0) -> Shares:
        """The first so many of all devices, of which each process has a number."""
        ends = np.minimum(np.cumsum(devices), used)
        return cls(tuple(np.diff(ends, prepend=0).tolist()), index)

    @property
    def devices(self) -> int:
        """All that are used."""
        return sum(self.counts)

    @property
    def local(self) -> int:
        """Those of this process, at least one: what it trains copies on, if it has none."""
        return max(self.counts[self.index], 1)

    def rows(self, per_device: int) -> tuple[int, ...]:
        """How many runs of a program each process finds, at so many for each device."""
        return tuple(count * per_device for count in self.counts)

    def mine(self, per_device: int) -> slice:
        """The places, in a program of all processes, of what this process trains."""
        if not self.counts[self.index]:
            return slice(0, per_device)
        start = sum(self.counts[: self.index]) * per_device
        return slice(start, start + self.counts[self.index] * per_device)
