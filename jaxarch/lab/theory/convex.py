"""Learning problems that are convex in the mask, with a known least F: the setting of the theorems."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.optimize import minimize

from jaxarch import Problem, PyTree, float64
from jaxarch.lab.data import Dataset, Task
from jaxarch.lab.disentangling.measuring import objectives

Loss = Callable[[Array, PyTree], Array]
"""Loss function `(v, batch) -> values`, one value an example, with v of shape (d,)."""


def logistic(data: Dataset, task: Task, keys: Array, std: float, **training: Any) -> Problem:
    """Build the problem of choosing weights of a logistic regression, fixed at N(0, std) ([A] section 3.1).

    `f(v) = softplus(s) - y s`, `s = (v o theta)^T x`; theta is each run's own.
    """
    features = data.x.shape[1]
    weights = std * jax.vmap(lambda key: jax.random.normal(key, (features,)))(keys)

    def gather(data: PyTree, per_run: PyTree, rows: Array) -> tuple[Array, Array]:
        x, y = data
        return x[rows] * per_run["weights"][None], per_run["targets"][y[rows]]

    def loss(v: Array, batch: PyTree) -> Array:
        x, y = batch
        logits = x @ v
        return jax.nn.softplus(logits) - y * logits

    per_run = {"weights": weights, "targets": task.targets}
    return _problem(
        loss, features, (data.x, data.y), train=task.train, per_run=per_run, gather=gather, **training
    )


def linear(keys: Array, dimension: int, examples: int, **training: Any) -> Problem:
    """Build `f(v) = <a, v>`, `a = b + e`, with b of N(0, 1/d) for each run, e likewise for each example."""

    @jax.jit
    @jax.vmap
    def draw(key: Array) -> Array:
        drawn = jax.random.normal(key, (examples + 1, dimension)) / np.sqrt(dimension)
        return drawn[:1] + drawn[1:]

    def loss(v: Array, slopes: Array) -> Array:
        return slopes @ v

    return _drawn(loss, draw(keys), **training)


def quadratic(keys: Array, dimension: int, examples: int, **training: Any) -> Problem:
    """Build `f(v) = |v - c|^2 / (2 sqrt d)`, `c = b + e`: b uniform in [-1/2, 3/2], e of N(0, 1/4).

    About half of the entries of the v with the least F are 0 or 1, and half are between.
    """

    @jax.jit
    @jax.vmap
    def draw(key: Array) -> Array:
        centre_key, key = jax.random.split(key)
        centre = jax.random.uniform(centre_key, (1, dimension), minval=-0.5, maxval=1.5)
        return centre + jax.random.normal(key, (examples, dimension)) / 2

    def loss(v: Array, centres: Array) -> Array:
        return jnp.square(v[None] - centres).sum(axis=-1) / (2 * np.sqrt(dimension))

    return _drawn(loss, draw(keys), **training)


def _drawn(loss: Loss, drawn: Array, **training: Any) -> Problem:
    """Build a problem whose runs have separate examples, shape (runs, examples, d)."""
    runs, examples, dimension = drawn.shape
    train = np.arange(runs * examples).reshape(runs, examples)
    return _problem(loss, dimension, drawn.reshape(-1, dimension), train=train, **training)


def _problem(loss: Loss, dimension: int, data: PyTree, **rest: Any) -> Problem:
    def init(key: Array) -> tuple[PyTree, PyTree]:
        return {"v": jnp.ones(dimension)}, {}

    def mean(params: PyTree, state: PyTree, batch: PyTree, key: Array | None) -> tuple[Array, PyTree]:
        return loss(params["v"], batch).mean(), state

    return Problem(init, mean, data, **rest)


def exact_objectives(problem: Problem, masks: np.ndarray) -> np.ndarray:
    """Compute F of every run's mask, in float64; masks have shape (runs, d)."""
    with float64():
        return np.asarray(objectives(_in_float64(problem), {"v": jnp.asarray(masks, jnp.float64)}, {}))


class Least(NamedTuple):
    """The mask in [0, 1]^d of least F for every run.

    Attributes:
      masks: shape (runs, d).
      values: F there, shape (runs,).
      excess: an upper bound of F there minus its infimum, shape (runs,).
    """

    masks: np.ndarray
    values: np.ndarray
    excess: np.ndarray


def least(problem: Problem) -> Least:
    """Find the least F of every run, by L-BFGS-B in float64.

    The gradient g bounds the error: `F(v) - inf F <= sum_i max_u g_i (v_i - u_i)`, u in {0, 1}.
    """
    with float64():
        wide = _in_float64(problem)
        slope = jax.jit(jax.value_and_grad(lambda v, one: one.objective({"v": v}, {})))
        found = [_least_of_run(slope, wide.of_run(run)) for run in range(problem.runs or 1)]
    return Least(*(np.stack(parts) for parts in zip(*found, strict=True)))


def _least_of_run(slope: Callable[[Any, Problem], Any], problem: Problem) -> Least:
    start = np.full(problem.init(jax.random.key(0))[0]["v"].shape, 0.5)
    result = minimize(
        lambda v: jax.device_get(slope(v, problem)),
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, 1)] * start.size,
        options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 10_000, "maxfun": 100_000},
    )
    gradient = np.asarray(slope(result.x, problem)[1])
    excess = np.maximum(gradient * result.x, gradient * (result.x - 1)).sum()
    return Least(result.x, result.fun, excess)


def _in_float64(problem: Problem) -> Problem:
    def widened(leaf: Any) -> Any:
        return leaf.astype(jnp.float64) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    data, per_run = jax.tree.map(widened, (problem.data, problem.per_run))
    return dataclasses.replace(problem, data=data, per_run=per_run)
