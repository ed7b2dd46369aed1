"""CPU cores that this process may use, and does use, without JAX."""

from __future__ import annotations

import os


def available_cores() -> int:
    """Return the number of cores that this process may use, or, if unknown, all cores of the machine."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def keep_to_cores(count: int, place: int) -> None:
    """Restrict this thread, and threads that it starts, to `count` of its cores: the group number `place`.

    Processes that compute on all cores side by side slow each other down. On systems without thread affinity,
    nothing is restricted.
    """
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[(place * count + i) % len(cores)] for i in range(count)})
