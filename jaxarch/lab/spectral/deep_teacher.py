"""Teachers of several hidden layers, whose neurons bend within the range of their inputs."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from jaxarch import ArgumentError, Model, Problem, PyTree, supervised
from jaxarch.lab.checks import check_count
from jaxarch.lab.spectral.training import RegressionSettings

SEEN = 10_000
"""Number of points on which a teacher's layers are centered and scaled."""


@dataclasses.dataclass(frozen=True)
class DeepTeacherSettings(RegressionSettings):
    """Settings of experiments in which students of several layers learn from teachers of as many or fewer.

    Attributes:
      depths: hidden layers of the teachers; each seed has one teacher of each depth.
      hidden: neurons of each hidden layer of a student.
      epochs: passes over the training points in each training of a student; the learning rate falls to 0 by
        a cosine.
    """

    depths: tuple[int, ...] = (1, 2, 3)
    hidden: tuple[int, ...] = (60, 60, 60, 60)
    epochs: int = 12
    examples: int = 100_000
    held_out: int = 2000
    batch_size: int = 200
    learning_rate: float = 3e-3

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        self.check_each(check_count, "hidden", "epochs")
        self.check_numbers(check_count, "depths")
        if max(self.depths) > len(self.hidden):
            raise ArgumentError(
                f"hidden: expected at least {max(self.depths)} layers, as the deepest teacher has, got "
                f"{len(self.hidden)}"
            )


def teachers(settings: DeepTeacherSettings, depth: int, features: int, neurons: int) -> dict[str, Array]:
    """Draw the teachers of one depth, for every seed.

    The arrays have shape (seeds, deepest + 1, neurons, ...); `depth` has shape (seeds,).

    Args:
      settings: settings of the experiment.
      depth: number of hidden layers.
      features: number of inputs, at most `neurons`.
      neurons: neurons of each hidden layer, and number of outputs.
    """
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(settings.key), 2), depth)
    x = settings.inputs(features)[:SEEN]

    def teacher(key: Array) -> dict[str, Array]:
        weights = jax.random.orthogonal(key, neurons, (max(settings.depths) + 1,))
        a, centres, scales = _widened(x, neurons), [], []
        # Arrays have the deepest teacher's size, and all depths run in one program. Layers from `depth` on
        # pass their inputs through.
        for layer, matrix in enumerate(weights[:-1]):
            z = a @ matrix.T
            centres.append(z.mean(axis=0))
            scales.append(z.std(axis=0))
            a = jnp.where(layer < depth, jax.nn.relu((z - centres[-1][None]) / scales[-1][None]), a)
        y = a @ weights[-1].T
        centre = y.mean(axis=0)
        return {
            "depth": jnp.asarray(depth),
            "weights": weights,
            "centres": jnp.stack([*centres, centre]),
            "scales": jnp.stack([*scales, jnp.full_like(centre, (y - centre[None]).std())]),
        }

    return jax.jit(jax.vmap(teacher))(jax.random.split(key, settings.seeds))


def teach(teacher: dict[str, Array], x: Array) -> Array:
    """Compute a teacher's outputs: `a_l = relu((W_l a_{l-1} - c_l) / d_l)`, without relu in the last layer.

    The W_l are orthogonal; the first one has as many columns as inputs. c_l and d_l are means and standard
    deviations of `W_l a_{l-1}`, neuron by neuron, so that each neuron bends where its inputs are. The last
    layer has a single d, the standard deviation of all outputs together.
    """
    neurons = teacher["weights"].shape[-1]
    a = _widened(x, neurons)
    for layer, matrix in enumerate(teacher["weights"][:-1]):
        z = (a @ matrix.T - teacher["centres"][layer][None]) / teacher["scales"][layer][None]
        a = jnp.where(layer < teacher["depth"], jax.nn.relu(z), a)
    return (a @ teacher["weights"][-1].T - teacher["centres"][-1][None]) / teacher["scales"][-1][None]


def _widened(x: Array, neurons: int) -> Array:
    return jnp.pad(x, ((0, 0), (0, neurons - x.shape[-1])))


def take_taught_rows(data: PyTree, own: PyTree, rows: Array) -> PyTree:
    """Take rows of the inputs, with the outputs of one run's teacher as targets."""
    x = data[0][rows]
    return x, teach(own, x)


def problem(
    settings: DeepTeacherSettings, student: Model, per_run: PyTree, features: int, epochs: int
) -> Problem:
    """Build the problem of all runs: shared inputs, and one teacher per run."""
    x, rows, steps = settings.inputs(features), settings.rows(), settings.steps(epochs)
    # The steps are a float: optax's schedule converts an integer at its first call, and checkpoints would not
    # recognize the changed schedule.
    rate = optax.cosine_decay_schedule(settings.learning_rate, float(steps))
    return supervised(
        student,
        (x, x),  # The targets are the teachers', made in the gather.
        loss=optax.squared_error,
        optimizer=optax.adam(rate),
        steps=steps,
        batch_size=settings.batch_size,
        train=rows["train"],
        validation=rows["validation"],
        per_run=per_run,
        gather=take_taught_rows,
    )


def truth(problem: Problem, rows: np.ndarray) -> np.ndarray:
    """Compute the teachers' outputs, shape (runs, rows, outputs)."""
    taught = [
        teach(jax.tree.map(lambda leaf, run=run: leaf[run], problem.per_run), problem.data[0][rows])
        for run in range(problem.runs or 0)
    ]
    return np.stack([np.asarray(of_run, np.float64) for of_run in taught])
