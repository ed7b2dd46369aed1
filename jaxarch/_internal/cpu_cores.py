"""Which CPU cores this process may use, and does, without JAX."""

from __future__ import annotations

import os


def available_cores() -> int:
    """The cores that this process is not kept from, or, where nothing tells, all of the machine."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def keep_to_cores(count: int, place: int) -> None:
    """Keep this thread, and those that it starts, to so many of its cores: those of one of several places.

    Processes that compute side by side on all cores get in one another's way. Where nothing keeps threads to
    cores, they stay free.
    """
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[(place * count + i) % len(cores)] for i in range(count)})
