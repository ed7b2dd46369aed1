"""Reports to the option `progress`."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from jaxarch.run._callbacks.chunk_end import ChunkEnd, Look
from jaxarch.run._options import TOO_LATE, Progress


class ReportProgress:
    """Report every chunk's end to a function, with a `Progress`."""

    def __init__(self, tell: Callable[[Progress], None]) -> None:
        self._tell_of = tell

    def __call__(self, end: ChunkEnd) -> None:
        """Report this chunk's end."""
        last = end.losses[:, -1].copy()
        finite = last[np.isfinite(last)]
        look = Look(end.look, TOO_LATE)
        self._tell_of(
            Progress(
                name=end.name,
                step=end.step,
                steps=end.steps,
                group=end.group,
                groups=end.groups,
                runs=len(last),
                loss=float(np.median(finite)) if finite.size else math.nan,
                losses=last,
                labels=end.labels,
                look=look,
            )
        )
        look.close()
