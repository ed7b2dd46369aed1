"""What does a training step cost under a mask, beside a step without; and all seeds at once, beside in turn?

    python benchmarks/masked_step.py                    # some five minutes, on CPU, one core, one thread
    python benchmarks/masked_step.py --models MLP CNN   # some of the models only

The models are those of `jaxarch.models`, on random inputs in 10 classes: MLP 784-300-100-10 in batches of 128
and 1024, CNN with 16, 32 and 64 channels on 32 x 32 x 3 in batches of 64, VGG19 at full width (20 million
connections) on 32 x 32 x 3 in batches of 16. Every step is one of plain gradient descent (optax.sgd), in the
programs that `over_seeds` runs: loops over steps for the MLP, a program a step for the others.

- plain: all parameters descend, and nothing is masked.
- pruning: `search.architecture_pruning` to one density. It has twice the parameters, scores and weights that
  descend together under the penalty, and looks at the density after every step.
- retraining: `retrain("cold", nonnegative=False)` under a random mask of density .1.

The three take turns in one process, so that what else the machine does strikes them alike; ratios are of
neighbours in time. Times are CPU times.

The second table is of whole calls of `over_seeds`, 100 steps of the MLP in batches of 128, compiled before:
all seeds in one program, and one after the other (`max_parallel_runs=1`).

Measured on one core of a shared x86-64 machine beside other work, medians of 5 or 7 and quartiles: a step of
pruning takes 1.03 [.99, 1.06] times the plain one's time for the CNN, 1.03 [1.03, 1.07] for VGG19, and for
the MLP 1.10 [1.07, 1.11] in batches of 1024, but 1.46 [1.42, 1.49] in batches of 128. There what a
connection costs beside the products does not shrink with the batch: a second set of parameters (mask times
weight, its gradients, its update), two sigmoids, the penalty, the count of positive scores. A further
density is one more copy of the scores a step. Retraining takes .99 to 1.03 times the plain step's time.

10 seeds of this MLP in one program take 1.22 (pruning) and 1.11 (retraining) times as long on one core as one
after the other.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
import optax
import random_inputs
from flax import nnx
from random_inputs import CLASSES, mlp
from workers import quartiles

import jaxarch
from jaxarch import Training, models
from jaxarch.run import _programs as programs
from jaxarch.run._runs_mesh import runs_mesh

PLAIN, PRUNING, RETRAINING = "plain", "pruning", "retraining"
RATE = 0.01
SEEDS_STEPS = 100
DENSITY = 0.1
"""Of the mask that is retrained; and the target of the pruning, which so few steps do not reach."""

Figures = dict[str, list[float]]
"""By side: one value a repetition."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A model, the shape of its inputs, how many of them are in a batch, and the steps of one reading."""

    model: str
    make: Callable[[nnx.Rngs], nnx.Module]
    shape: tuple[int, ...]
    batch: int
    steps: int

    def problem(self, steps: int) -> jaxarch.Problem:
        """Random inputs with random labels."""
        return random_inputs.problem(
            self.make, self.shape, optimizer=optax.sgd(RATE), steps=steps, batch_size=self.batch
        )


def cnn(rngs: nnx.Rngs) -> nnx.Module:
    return models.CNN((16, 32, 64), inputs=3, outputs=CLASSES, rngs=rngs)


def vgg19(rngs: nnx.Rngs) -> nnx.Module:
    return models.VGG19(inputs=3, outputs=CLASSES, rngs=rngs)


CASES = (
    Case("MLP", mlp, (784,), batch=128, steps=50),
    Case("MLP", mlp, (784,), batch=1024, steps=10),
    Case("CNN", cnn, (32, 32, 3), batch=64, steps=5),
    Case("VGG19", vgg19, (32, 32, 3), batch=16, steps=1),
)
MODELS = tuple(dict.fromkeys(case.model for case in CASES))


def plain() -> Training:
    """Gradient descent on all parameters, without a mask."""

    def init(settings: None, key: jax.Array, problem: jaxarch.Problem, network: None) -> jaxarch.TrainState:
        params, model = problem.init(key)
        return jaxarch.TrainState(params, None, model)

    def network(settings: None, state: jaxarch.TrainState) -> jaxarch.Network:
        return jaxarch.Network(state.trainable, state=state.model)

    return Training("plain", init, lambda settings, state: state.trainable, network)


def trainings() -> dict[str, Training]:
    """The sides of the comparison; the others are compared with the first."""
    pruning = jaxarch.search.architecture_pruning(
        DENSITY, scores_optimizer=optax.sgd(RATE), weights_optimizer=optax.sgd(RATE)
    )
    return {PLAIN: plain(), PRUNING: pruning, RETRAINING: jaxarch.retrain("cold", nonnegative=False)}


class Side:
    """A training of one run that goes on by some steps whenever it is told to."""

    def __init__(self, training: Training, problem: jaxarch.Problem, network: jaxarch.Network | None) -> None:
        self.make = lambda settings: training
        self.problem = problem
        self.keys = jax.random.split(jax.random.key(2), 1)
        self.mesh = None
        first = programs.traced_step.trace(self.make, self.keys, {}, problem, network).jaxpr.jaxpr
        if not programs.is_slow_in_loops(first):
            self.mesh = runs_mesh(None, 1)
        self.carry = programs.begin(self.make, self.mesh, self.keys, {}, problem, network)
        self.step = jnp.zeros((), jnp.int32)

    def run(self, steps: int) -> None:
        """Take some steps, and wait for the last."""
        inputs = self.keys, {}, self.problem
        if self.mesh is None:
            for index in range(steps):
                self.carry, _ = programs.step(self.make, *inputs, self.carry, self.step + index)
        else:
            stop = self.step + steps
            self.carry, _ = programs.advance(
                self.make, self.mesh, steps, *inputs, self.carry, self.step, stop
            )
        self.step = jax.block_until_ready((self.step + steps, self.carry))[0]

    def seconds(self, steps: int) -> float:
        """CPU time of a step."""
        start = time.process_time()
        self.run(steps)
        return (time.process_time() - start) / steps


def random_masks(problem: jaxarch.Problem, seeds: int) -> jaxarch.Network:
    """Architectures to retrain."""
    keys = jax.random.split(jax.random.key(3), seeds)
    return jaxarch.over_seeds(jaxarch.search.random_mask(DENSITY), keys, problem)[0]


def in_turn(readings: dict[str, Callable[[], float]], repeats: int) -> Figures:
    """Readings that take turns, once for nothing."""
    for reading in readings.values():
        reading()
    figures: Figures = {name: [] for name in readings}
    for _ in range(repeats):
        for name, reading in readings.items():
            figures[name].append(reading())
    return figures


def one_step(case: Case, steps: int, repeats: int) -> Figures:
    """CPU times of a step of every side."""
    problem = case.problem(steps)
    network = random_masks(problem, 1)
    sides = {
        name: Side(training, problem, network if name == RETRAINING else None)
        for name, training in trainings().items()
    }
    return in_turn({name: partial(side.seconds, steps) for name, side in sides.items()}, repeats)


def many_seeds(name: str, case: Case, steps: int, seeds: int, repeats: int) -> Figures:
    """CPU times of a step and seed in whole calls of `over_seeds`: at once, and in turn."""
    training, problem = trainings()[name], case.problem(steps)
    network = random_masks(problem, seeds) if name == RETRAINING else None
    keys = jax.random.split(jax.random.key(4), seeds)

    def seconds(max_parallel_runs: int) -> float:
        start = time.process_time()
        jax.block_until_ready(
            jaxarch.over_seeds(training, keys, problem, network=network, max_parallel_runs=max_parallel_runs)
        )
        return (time.process_time() - start) / (steps * seeds)

    return in_turn({"at once": partial(seconds, seeds), "in turn": partial(seconds, 1)}, repeats)


def against(figures: Figures, side: str, other: str) -> str:
    """Median and quartiles of a ratio of neighbours in time."""
    low, median, high = quartiles(np.divide(figures[side], figures[other]).tolist())
    return f"{median:14.2f}  [{low:.2f}, {high:.2f}]"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", nargs="*", choices=MODELS, default=MODELS, help="some of them only")
    parser.add_argument("--repeats", type=int, default=9, help="repetitions of each measurement")
    parser.add_argument(
        "--steps", type=int, help="steps of a reading; by default 50 to 1 by model, 100 of all seeds"
    )
    parser.add_argument("--seeds", type=int, default=10, help="seeds of the second table")
    parser.add_argument("--json", type=Path, help="a file for all measurements")
    return parser.parse_args()


def main() -> None:
    chosen = arguments()
    # So few steps do not reach the density.
    warnings.simplefilter("ignore", jaxarch.ResultWarning)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    cases = [case for case in CASES if case.model in chosen.models]
    measured = {}

    print(f"{'a step':10}{'batch':>7}{'plain ms':>12}{'pruning / plain':>30}{'retraining / plain':>30}")
    for case in cases:
        figures = one_step(case, chosen.steps or case.steps, chosen.repeats)
        measured[f"{case.model}, batch {case.batch}"] = figures
        line = f"{case.model:10}{case.batch:7}{1e3 * float(np.median(figures[PLAIN])):12.2f}"
        print(line + "".join(f"{against(figures, s, PLAIN):>30}" for s in (PRUNING, RETRAINING)), flush=True)

    case = CASES[0]
    if case in cases:
        print(f"\n{chosen.seeds} seeds, {case.model}{'in turn ms':>20}{'in turn / at once':>30}")
        for name in (PRUNING, RETRAINING):
            figures = many_seeds(name, case, chosen.steps or SEEDS_STEPS, chosen.seeds, chosen.repeats)
            measured[f"{chosen.seeds} seeds, {name}"] = figures
            line = f"{name:17}{1e3 * float(np.median(figures['in turn'])):17.2f}"
            print(line + f"{against(figures, 'in turn', 'at once'):>30}", flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps(measured, indent=2) + "\n")


if __name__ == "__main__":
    main()
