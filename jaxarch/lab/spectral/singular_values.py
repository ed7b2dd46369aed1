"""Singular values of a network along a training: snapshots, ranks, and the gradualness of the rank's rise."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch import Network, OwnDescent, Problem, PyTree, Training, TrainingInfo, TrainState
from jaxarch.spectral import bundles
from jaxarch.spectral.algebra import Blocks

SNAPSHOTS = "snapshots"


def with_snapshots(steps: tuple[int, ...], descent: OwnDescent) -> Training:
    """Return plain training of all parameters, with snapshots at the start and after some steps, from 1 on.

    The snapshots are in the network's `info["snapshots"]`: parameters with a leading axis of 1 + len(steps).
    """
    return Training("training", _init, _params, _network, steps, descent, after_step=_after_step)


def _init(steps: tuple[int, ...], key: Array, problem: Problem, network: Network | None) -> TrainState:
    params, model = problem.start(key)
    kept = jax.tree.map(lambda leaf: jnp.zeros((1 + len(steps), *leaf.shape)).at[0].set(leaf), params)
    return TrainState(params, None, model, kept)


def _params(steps: tuple[int, ...], state: TrainState) -> PyTree:
    return state.trainable


def _network(steps: tuple[int, ...], state: TrainState) -> Network:
    return Network(state.trainable, state=state.model, info=TrainingInfo({SNAPSHOTS: state.memory}))


def _after_step(steps: tuple[int, ...], state: TrainState) -> PyTree:
    here = jnp.asarray((0, *steps)) == state.step
    # A step without a snapshot writes past the end, and `mode="drop"` ignores it.
    place = jnp.where(here.any(), here.argmax(), len(here))
    return jax.tree.map(
        lambda kept, leaf: kept.at[place].set(leaf, mode="drop"), state.memory, state.trainable
    )


def paths(blocks: Blocks) -> Array:
    """Compute the linear map through the hidden layers, without the bundle past them.

    With one hidden layer it is `W_32 W_21`.
    """
    last = max(i for i, _ in blocks)
    maps = {1: jnp.eye(blocks[2, 1].shape[1])}
    for i in range(2, last + 1):
        into = [blocks[i, j] @ maps[j] for j in range(1, i) if (i, j) in blocks and (i, j) != (last, 1)]
        maps[i] = sum(into[1:], into[0])
    return maps[last]


def along(problem: Problem, snapshots: PyTree) -> dict[str, np.ndarray]:
    """Compute R^2, and singular values of the changes since the start, on each run's validation rows.

    Because the start is subtracted, every start has rank 0.

    Args:
      problem: the problem of all runs, with inputs x and targets; without a state.
      snapshots: snapshots kept by `with_snapshots`, shape (runs, 1 + looks, ...).

    Returns:
      `r2`, shape (runs, looks). `non-linear part`: singular values of the outputs minus their least squares
      fit by an affine map of x, divided by the root of the number of rows. `paths`: singular values of the
      map through the hidden layers. Both have the largest first, shape (runs, looks, n).
    """
    return {name: np.asarray(values, np.float64) for name, values in _along(problem, snapshots).items()}


@jax.jit
def _along(problem: Problem, snapshots: PyTree) -> dict[str, Array]:
    def of_one(one: Problem, snapshots: PyTree) -> dict[str, Array]:
        x, y = one.gather(one.data, one.per_run, one.validation)
        affine, _ = jnp.linalg.qr(jnp.concatenate([x, jnp.ones_like(x[:, :1])], axis=1))

        def of(params: PyTree) -> tuple[Array, dict[str, Array]]:
            outputs = one.outputs(params, {}, one.validation)
            bent = (outputs - affine @ (affine.T @ outputs)) / jnp.sqrt(len(x))
            blocks = bundles(params)
            r2 = 1 - jnp.square(outputs - y).sum() / jnp.square(y - y.mean(axis=0)[None]).sum()
            return r2, {"non-linear part": bent, "paths": paths(blocks)}

        _, before = of(jax.tree.map(lambda leaf: leaf[0], snapshots))

        def look(params: PyTree) -> dict[str, Array]:
            r2, now = of(params)
            return {"r2": r2} | {name: _singular_values(now[name] - before[name]) for name in now}

        return jax.lax.map(look, jax.tree.map(lambda leaf: leaf[1:], snapshots))

    return jax.vmap(of_one, (problem.in_axes(), 0))(problem, snapshots)


def _singular_values(matrix: Array) -> Array:
    return jnp.asarray(jnp.linalg.svd(matrix, compute_uv=False))


def ranks(values: np.ndarray, share: float) -> np.ndarray:
    """Count the singular values, shape (..., looks, n), above a share of the largest at the last look."""
    return (values > share * values[..., -1:, :1]).sum(axis=-1)


def effective_ranks(values: np.ndarray) -> np.ndarray:
    """Compute the effective rank of Roy and Vetterli (2007).

    It is `exp(-sum_k p_k log p_k)` with `p_k = s_k / sum_k s_k`.

    Args:
      values: singular values s_k, shape (..., n).

    Returns:
      Numbers from 1 (only one is above 0) to n (all are equal), shape (...); 0 where all are 0.
    """
    total = values.sum(axis=-1, keepdims=True)
    p = values / np.where(total > 0, total, 1)
    return np.where(total[..., 0] > 0, np.exp(-(p * np.log(np.where(p > 0, p, 1))).sum(axis=-1)), 0)


def gradualness(steps: np.ndarray, values: np.ndarray, share: float) -> np.ndarray:
    """Compute `1 - min_k t_k / max_k t_k`, with t_k the first step at which value k is half its last.

    "Half its last" means at least half of singular value k at the last look. The k are those that count for
    the last rank. At 0 all rise at once, for example if all grow by one factor, however that factor grows. At
    .5 the last takes twice as long as the first. Near 1 it takes many times as long, whatever lies between.

    Args:
      steps: steps of the looks, positive and increasing, shape (looks,).
      values: singular values at each look, the largest first, shape (..., looks, n).
      share: share of the largest last value; values above it count, as in `ranks`.

    Returns:
      Numbers in [0, 1), shape (...); NaN where all last values are 0 or NaN.
    """
    last = values[..., -1, :]
    counted = last > share * last[..., :1]
    reached = steps[(values >= last[..., None, :] / 2).argmax(axis=-2)]
    first = np.where(counted, reached, steps[-1]).min(axis=-1)
    latest = np.where(counted, reached, steps[0]).max(axis=-1)
    return np.where(counted.any(axis=-1), 1 - first / latest, np.nan)


def of_last(values: np.ndarray) -> np.ndarray:
    """Divide each singular value, shape (..., looks, n), by its last one; NaN where the last one is 0."""
    last = values[..., -1:, :]
    return values / np.where(last > 0, last, np.nan)


def when(reached: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return a quantity, shape (runs, looks), at the first look where `reached` holds; NaN if none does."""
    found = np.take_along_axis(values, reached.argmax(axis=1)[:, None], axis=1)[:, 0]
    return np.where(reached.any(axis=1), found, np.nan)
