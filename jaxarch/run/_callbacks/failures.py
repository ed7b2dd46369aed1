"""Warnings about runs whose loss became NaN or infinite."""

from __future__ import annotations

import numpy as np

from jaxarch._internal.errors import NonFiniteWarning
from jaxarch.run._callbacks.chunk_end import ChunkEnd
from jaxarch.run._loop import Loop


class Failures:
    """Report each run that fails, once; the others go on."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._reported: set[int] = set()

    def begins(self) -> None:
        """Report again when a fit resumes from a checkpoint."""
        self.report(self._loop.failed_at)

    def __call__(self, end: ChunkEnd) -> None:
        """Report runs that failed in this chunk."""
        self.report(end.failed_at)

    def report(self, failed_at: np.ndarray) -> None:
        """Report runs by the steps at which they failed, -1 if they did not; the members come first."""
        group = self._loop.group
        for run, step in zip(group.members, failed_at, strict=False):
            if step < 0 or run in self._reported:
                continue
            self._reported.add(run)
            remedy = group.training.remedy if step == 0 else "try a lower learning rate"
            self._loop.note(
                f"{group.job.name}: {group.job.options.label(run)}: the loss is NaN or infinite at step "
                f"{step}; the other runs go on ({remedy})",
                NonFiniteWarning,
            )
