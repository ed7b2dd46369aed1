"""How many CPU cores this process may use, asked without JAX."""

from __future__ import annotations

import os


def available_cores() -> int:
    """The cores that this process is not kept from, or, where nothing tells, all of the machine."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
