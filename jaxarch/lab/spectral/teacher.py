"""The task of [S] experiment 2: learn the outputs of a random network with one hidden layer."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from jax import Array

from jaxarch import Model, Problem, PyTree, supervised
from jaxarch.lab.checks import check_count
from jaxarch.lab.spectral.training import RegressionSettings


@dataclasses.dataclass(frozen=True)
class TeacherSettings(RegressionSettings):
    """Settings of experiments in which students learn from teachers; each seed has its own teacher.

    Attributes:
      features: number of inputs of a teacher, and of its hidden neurons and outputs.
    """

    features: int = 20
    held_out: int = 5000

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        check_count("features", self.features, least=2)


def rotation(key: Array, size: int) -> Array:
    """Draw a matrix uniformly from SO(size)."""
    drawn = jax.random.orthogonal(key, size)
    return drawn.at[:, 0].multiply(jnp.linalg.det(drawn))


def teachers(settings: TeacherSettings) -> dict[str, Array]:
    """Draw the weights W^(1), W^(2) of every seed's teacher, shape (seeds, features, features) each."""
    keys = jax.random.split(jax.random.fold_in(jax.random.key(settings.key), 2), (2, settings.seeds))
    first, second = (jnp.stack([rotation(key, settings.features) for key in row]) for row in keys)
    return {"first": first, "second": second}


def teach(teacher: dict[str, Array], x: Array) -> Array:
    """Compute `t(x) = W^(2) relu(W^(1) x)` ([S] 5.2), for rows x."""
    return jax.nn.relu(x @ teacher["first"].T) @ teacher["second"].T


def take_taught_rows(data: PyTree, own: PyTree, rows: Array) -> PyTree:
    """Take rows of the inputs, with the outputs of one run's teacher as targets."""
    x = data[0][rows]
    return x, teach(own, x)


def problem(settings: TeacherSettings, student: Model, epochs: int) -> Problem:
    """Build the problem of all seeds: shared inputs, and one teacher per seed."""
    x, rows = settings.inputs(settings.features), settings.rows()
    return supervised(
        student,
        (x, x),  # The targets are the teachers', made in the gather.
        loss=optax.squared_error,
        optimizer=optax.adam(settings.learning_rate),
        steps=settings.steps(epochs),
        batch_size=settings.batch_size,
        train=rows["train"],
        validation=rows["validation"],
        per_run=teachers(settings),
        gather=take_taught_rows,
    )


def r_squared(outputs: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Compute `1 - sum (y - t)^2 / sum (t - mean t)^2` over all outputs; axes (runs, examples, outputs)."""
    total = np.square(truth - truth.mean(axis=-2, keepdims=True)).sum(axis=(-2, -1))
    return 1 - np.square(outputs - truth).sum(axis=(-2, -1)) / total


def truth(problem: Problem, rows: np.ndarray) -> np.ndarray:
    """Compute the teachers' outputs, shape (runs, rows, outputs)."""
    return np.asarray(jax.vmap(teach, (0, None))(problem.per_run, problem.data[0][rows]), np.float64)


def linear(settings: TeacherSettings, problem: Problem) -> pd.DataFrame:
    """Compute R^2 of least squares on the training rows, with and without an intercept: one row a seed."""
    rows, x = settings.rows(), np.asarray(problem.data[0], np.float64)
    taught, tested = truth(problem, rows["train"]), truth(problem, rows["test"])
    found = {}
    for name, intercept in (("linear_r2", True), ("linear_r2_no_intercept", False)):
        inputs = np.concatenate([x, np.ones((len(x), 1))], axis=1) if intercept else x
        maps = [np.linalg.lstsq(inputs[rows["train"]], targets, rcond=None)[0] for targets in taught]
        found[name] = r_squared(np.stack([inputs[rows["test"]] @ fitted for fitted in maps]), tested)
    return pd.DataFrame(found)
