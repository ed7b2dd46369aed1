"""Validation and early stopping: metrics at a chunk's end, computed and judged on the devices."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxarch.run import _programs as programs
from jaxarch.run._callbacks.chunk_end import ChunkEnd
from jaxarch.run._devices import place
from jaxarch.run._loop import Loop
from jaxarch.run._programs import Best


class Validation:
    """Metrics at every chunk's end, and early stopping by one of them.

    Both are one program: early stopping keeps a run's best state where it is, on its device.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop, job, state = loop, loop.group.job, loop.state
        self._chunk = job.options.chunk
        best = self._first_best()
        args = (job.make, job.mesh, job.options.early_stopping, *self._inputs(), state.carry, best)
        metrics, _ = programs.chunk_end.eval_shape(*args)
        shape = (math.ceil(loop.steps / self._chunk), len(state.losses))
        validation = {name: np.full(shape, np.nan) for name in metrics}
        self._program = job.watch.compile(programs.chunk_end, *args)
        loop.state = state._replace(best=best, validation=validation)

    def tell(self) -> dict[str, Any]:
        """Validate and judge this process's runs, and return the metrics."""
        state, running = self._loop.state, self._loop.running_here()
        watch = self._loop.group.job.watch
        metrics, best = watch.run(self._program, *self._inputs(), state.carry, state.best)
        # The last chunk may be shorter than the others.
        row = (int(state.step) - 1) // self._chunk
        for name, values in metrics.items():
            # A stopped run keeps NaN on the host. No program returns NaN, because `jax_debug_nans` would
            # raise.
            state.validation[name][row, running] = np.asarray(values)[running]
        self._loop.state = state._replace(best=best)
        if not self._loop.group.job.options.callbacks:
            return {}
        return {"validation": {name: values[row] for name, values in state.validation.items()}}

    def __call__(self, end: ChunkEnd) -> None:
        """Do nothing: the chunk was judged before callbacks were called."""

    def metrics(self) -> dict[str, np.ndarray]:
        """Return the metrics of the members at all chunks' ends, each of shape (chunks, runs)."""
        group = self._loop.group
        by_run = group.gather("validation", {n: v.T for n, v in self._loop.state.validation.items()})
        return {name: values.T[:, : len(group.members)] for name, values in by_run.items()}

    def _inputs(self) -> tuple[Any, Any]:
        return self._loop.state.settings, self._loop.group.share.problem

    def _first_best(self) -> Best | None:
        group, carry = self._loop.group, self._loop.state.carry
        if group.job.options.early_stopping is None:
            return None
        width = group.share.keys.shape[0]
        # The state is copied, since `chunk_end` donates `best` while the carry is still in use.
        best = Best(
            value=jnp.full(width, jnp.inf),
            state=jax.tree.map(jnp.copy, carry.state),
            waited=jnp.zeros(width, jnp.int32),
            stopped=jnp.zeros(width, bool),
        )
        return place(group.job.mesh, (0,), (best,))[0]
