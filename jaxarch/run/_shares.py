"""Assignment of a program's runs to processes: equally many per device, in the order of the processes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np


@dataclasses.dataclass(frozen=True)
class Shares:
    """Number of devices of each process over which the runs of one program are spread.

    All devices have equally many runs, so that all compile one program. If the number does not come out even,
    the last runs are copies, which are dropped. A process without any of these devices trains copies of the
    first runs. So it knows what the others find, except for the numbers.

    Attributes:
      counts: how many devices of each process are used.
      index: index of this process.
    """

    counts: tuple[int, ...]
    index: int = 0

    @classmethod
    def of(cls, devices: Sequence[int], used: int, index: int = 0) -> Shares:
        """Use the first `used` of all devices; `devices` counts those of each process."""
        ends = np.minimum(np.cumsum(devices), used)
        return cls(tuple(np.diff(ends, prepend=0).tolist()), index)

    @property
    def devices(self) -> int:
        """Number of devices used in all processes."""
        return sum(self.counts)

    @property
    def local(self) -> int:
        """Number of devices used in this process; at least one, to train copies on."""
        return max(self.counts[self.index], 1)

    def rows(self, per_device: int) -> tuple[int, ...]:
        """Return how many runs of a program each process finds, with `per_device` runs per device."""
        return tuple(count * per_device for count in self.counts)

    def mine(self, per_device: int) -> slice:
        """Return the positions of this process's runs in a program of all processes."""
        if not self.counts[self.index]:
            return slice(0, per_device)
        start = sum(self.counts[: self.index]) * per_device
        return slice(start, start + self.counts[self.index] * per_device)
