"""Rules for the learning rate of a run: fixed, scaled with the temperatures, prescribed, tuned."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array
from jax.flatten_util import ravel_pytree

from jaxarch import PyTree
from jaxarch.lab.theory.settings import Settings
from jaxarch.theory import mirror

FIXED, SCALED, MEASURED, CERTIFIED, TUNED = "fixed", "scaled", "measured G", "certified G", "tuned"
LINES = (FIXED, SCALED, MEASURED, CERTIFIED, TUNED)
"""Rules for the learning rate, one line of a figure each.

`FIXED` is the same at every ratio, as in [D]. `SCALED` keeps rate x soft the same. `MEASURED` and
`CERTIFIED` are prescribed by the theorem, with the largest gradient of a first run or a certified bound.
`TUNED` is the best multiple of the scaled rate.
"""


def cells_of(settings: Settings, start: PyTree, norms: dict[str, np.ndarray]) -> pd.DataFrame:
    """List every run's rule, ratio, seed, temperatures and learning rate; a cell's seeds are consecutive."""
    cells = []
    farthest = _farthest(start, settings.hard, settings.softs())
    for ratio, soft, distance in zip(settings.ratios, settings.softs(), farthest, strict=True):
        scaled = settings.learning_rate * settings.reference / ratio
        rates: list[tuple[str, float, Any]] = [(FIXED, 1.0, settings.learning_rate)]
        rates += [(SCALED, multiple, multiple * scaled) for multiple in settings.grid()]
        if ratio < 1:
            for rule, norm in norms.items():
                rate = mirror.prescribed_rate(
                    distance, settings.hard, soft, gradient_bound=norm, steps=settings.steps
                )
                rates.append((rule, 1.0, np.asarray(rate)))
        for rule, multiple, rate in rates:
            cell = {"rate_rule": rule, "multiple": multiple, "ratio": ratio, "seed": range(settings.seeds)}
            cells.append(pd.DataFrame({**cell, "hard": settings.hard, "soft": soft, "rate": rate}))
    return pd.concat(cells, ignore_index=True)


@jax.jit
def _farthest(start: PyTree, hard: Array, softs: Array) -> Array:
    """Compute D(u, v_1) to the farthest architecture u, shape (softs, seeds); one bound holds for all u."""

    def farthest(scores: PyTree, soft: Array) -> Array:
        return mirror.vertex_distance(-jnp.abs(ravel_pytree(scores)[0]), hard, soft).sum()

    return jax.vmap(jax.vmap(farthest, (0, None)), (None, 0))(start, softs)
