"""What does the loop of `over_seeds` cost beside a scan written by hand?

    pip install '.[benchmark]'
    python benchmarks/loop.py

The work is that of `algorithm1.py` (Algorithm 1 on the network of [D], 10 seeds) and of
`spectral_regression.py` (experiment 1 of [S], 16 networks), 1000 steps each, all in one program on one core.

- jaxarch: `over_seeds` with its default chunks of 100 steps. The whole call is timed, all that the library
  does on the host included, but for compilation.
- By hand: what a user of JAX would write for this one training, and no more: `jax.vmap` of one `lax.scan`
  over all steps, which draws rows, gathers them, and takes an optax step. It tells neither NaN nor dead
  starts, and stops at no end of a chunk. Starts, keys, batches and optimiser are the same, and the whole call
  is timed here too.

Experiment 1 validates at every chunk's end, which the scan does not: its time is told with and without.

Each side runs in a process of its own and they take turns, so that what else the machine does strikes them
alike. Ratios are of neighbours in time. Before anything is timed, 20 steps of both sides must lead to the
same parameters.

[D] Colombo & Gao, Disentangling Neural Architectures and Weights, 2021.
[S] Peri, Chicchi, Fanelli and Giambagli, Spectral Architecture Search for Neural Network Models (SPARCS).

Measured on a busy shared x86-64 core, medians of 5: Algorithm 1 takes 1.03 times as long as by hand (78.5 us
a step and network against 76.0), experiment 1 1.04 times (56.8 against 54.2), or 76.6 us with its validation.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import algorithm1
import jax
import jax.numpy as jnp
import optax
import spectral_regression
from workers import Task, Worker, check_agreement, quartiles, serve, timed

import jaxarch
from jaxarch import PyTree
from jaxarch.run import _training as training

SEEDS, NETWORKS = 10, 16
GOAL = 1.25
AGREEMENT_STEPS, TOLERANCE = 20, 1e-5

Loss = Callable[[Any, Any, Any], jax.Array]
"""`(params, x, y) -> scalar`."""
Gather = Callable[[PyTree, PyTree, jax.Array], tuple[jax.Array, jax.Array]]
"""`(data, own, rows) -> (x, y)`; `own` is what one network has of its own."""


@dataclasses.dataclass(frozen=True)
class Side:
    """One training: how jaxarch is told of it, and its loss and its batches by hand."""

    search: jaxarch.Training
    problem: jaxarch.Problem
    runs: int
    loss: Loss
    gather: Gather


# Algorithm 1 -----------------------------------------------------------------------------------------


@jax.custom_vjp
def mask(scores: jax.Array) -> jax.Array:
    """A sharp sigmoid with the derivative of a soft one."""
    return jax.nn.sigmoid(algorithm1.HARD * scores)


def _slope(scores: jax.Array, cotangent: jax.Array) -> tuple[jax.Array]:
    below = jax.nn.sigmoid(-jnp.abs(algorithm1.SOFT * scores))
    return (cotangent * algorithm1.SOFT * below * (1 - below),)


mask.defvjp(lambda scores: (mask(scores), scores), _slope)


def tanh_loss(scores: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
    """Loss (12) of the network (11) of [D]."""
    hidden = jnp.tanh(x @ mask(scores["w1"]).T)
    hidden = jnp.tanh(hidden @ mask(scores["w2"]).T)
    return jnp.mean(jax.nn.softplus(hidden.sum(-1)) * (1 - 2 * y))


def take_digits(data: PyTree, own: PyTree, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Some pictures and their labels."""
    x, y = data
    return x[rows], y[rows]


def disentangling(steps: int) -> Side:
    """Algorithm 1, both ways."""
    search, problem = algorithm1.algorithm1(steps)
    return Side(search, problem, SEEDS, tanh_loss, take_digits)


# Experiment 1 of [S] ---------------------------------------------------------------------------------


def norm(vector: jax.Array) -> jax.Array:
    """A norm whose derivative at 0 is 0."""
    squares = jnp.sum(jnp.square(vector))
    return jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1)), 0)


def spectral_loss(params: PyTree, x: jax.Array, y: jax.Array) -> jax.Array:
    """Mean squared error of the network of [S], its weights built from the spectrum, and the penalty."""
    phi, values = params["eigenvectors"], params["eigenvalues"]
    first = phi["phi1"] * (values["L1"] - values["L2"][:, None])
    last = phi["phi2"] * (values["L2"] - values["L3"][:, None])
    x = jnp.concatenate([x, jnp.ones((len(x), 1))], axis=1)
    outputs = jax.nn.relu(x @ first.T) @ last.T - x @ (last @ phi["phi1"]).T
    penalty = norm(values["L1"]) + norm(values["L2"])
    return jnp.mean(jnp.square(outputs - y)) + spectral_regression.STRENGTH * penalty


def take_points(data: PyTree, own: PyTree, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Some points and the targets of one network there."""
    x, functions = data
    return x[rows], (functions[rows] @ own["shares"])[:, None]


def validated(steps: int) -> Side:
    """Experiment 1, both ways, with its validation in jaxarch."""
    search, problem = spectral_regression.experiment(NETWORKS, steps)
    return Side(search, problem, NETWORKS, spectral_loss, take_points)


def spectral(steps: int) -> Side:
    """Experiment 1, both ways, without validation."""
    side = validated(steps)
    return dataclasses.replace(side, problem=dataclasses.replace(side.problem, validation=None))


# Both sides ------------------------------------------------------------------------------------------

CASES: dict[str, Callable[[int], Side]] = {"Algorithm 1": disentangling, "experiment 1": spectral}
VALIDATED = "experiment 1, validated"
RUNS = {"Algorithm 1": SEEDS, "experiment 1": NETWORKS, VALIDATED: NETWORKS}


def in_jaxarch(side: Side) -> Callable[[], tuple[PyTree, jax.Array]]:
    """Train all networks with `over_seeds`: what gradient descent moved, and the losses."""
    keys = jax.random.split(jax.random.key(0), side.runs)

    def train() -> tuple[PyTree, jax.Array]:
        found, _ = jaxarch.over_seeds(side.search, keys, side.problem, dead_start="ignore")
        # Algorithm 1 moves scores; experiment 1 moves all its parameters.
        moved = found.info.get("scores", found.params)
        return jax.block_until_ready((moved, found.info["loss"]))

    return train


def by_hand(side: Side) -> Callable[[], tuple[PyTree, jax.Array]]:
    """Train all networks with a scan: the parameters, and the losses."""
    problem, optimizer = side.problem, side.problem.descent.optimizer
    data, own = problem.data, problem.per_run
    rows = jnp.arange(len(data[0])) if problem.train is None else problem.train
    # The keys of a strategy's first stage.
    keys = jax.vmap(lambda key: jax.random.fold_in(key, 0))(jax.random.split(jax.random.key(0), side.runs))

    def start(key: jax.Array) -> PyTree:
        return training.begin(side.search, key, problem, None).point.trainable

    def train(key: jax.Array, own: PyTree, data: PyTree, rows: jax.Array) -> tuple[PyTree, jax.Array]:
        batch_key = jax.random.split(key, 3)[1]

        def step(carry: tuple[PyTree, PyTree], index: jax.Array) -> tuple[tuple[PyTree, PyTree], jax.Array]:
            params, state = carry
            drawn = jax.random.randint(
                jax.random.fold_in(batch_key, index), (problem.descent.batch_size,), 0, len(rows)
            )
            batch = side.gather(data, own, rows[drawn])
            value, gradient = jax.value_and_grad(side.loss)(params, *batch)
            updates, state = optimizer.update(gradient, state, params)
            return (optax.apply_updates(params, updates), state), value

        params = start(key)
        (params, _), losses = jax.lax.scan(
            step, (params, optimizer.init(params)), jnp.arange(problem.descent.steps)
        )
        return params, losses

    program = jax.jit(jax.vmap(train, in_axes=(0, 0, None, None)))
    return lambda: jax.block_until_ready(program(keys, own, data, rows))


# Workers ---------------------------------------------------------------------------------------------


def tasks(make: Callable[[Side], Callable[[], object]], steps: int) -> dict[str, Task]:
    """Each case on one side; in jaxarch, experiment 1 with its validation too."""
    jaxarch.use_cpu_cores(1)
    cases = CASES | {VALIDATED: validated} if make is in_jaxarch else CASES
    trains = {name: make(case(steps)) for name, case in cases.items()}
    return {name: lambda train=train: timed(train) for name, train in trains.items()}


def agreement_tasks() -> dict[str, Task]:
    """How far the parameters of both sides lie apart after a few steps."""

    def difference(case: str) -> dict[str, float]:
        side = CASES[case](AGREEMENT_STEPS)
        ours, theirs = in_jaxarch(side)()[0], by_hand(side)()[0]
        begun = by_hand(dataclasses.replace(side, problem=dataclasses.replace(side.problem, steps=0)))()[0]
        return {"moved": _apart(ours, begun), "apart": _apart(ours, theirs)}

    return {case: lambda case=case: difference(case) for case in CASES}


def _apart(some: PyTree, others: PyTree) -> float:
    differences = jax.tree.map(lambda a, b: jnp.abs(a - b).max(), some, others)
    return max(float(leaf) for leaf in jax.tree.leaves(differences))


WORKERS: dict[str, Callable[[int], dict[str, Task]]] = {
    "jaxarch": partial(tasks, in_jaxarch),
    "hand": partial(tasks, by_hand),
    "agreement": lambda steps: agreement_tasks(),
}


# Measuring and reporting -----------------------------------------------------------------------------


def compare(steps: int, repeats: int) -> dict[str, list[float]]:
    """CPU microseconds per step and network, and ratios, one value a repetition."""
    check_agreement(__file__, AGREEMENT_STEPS, "parameters", TOLERANCE, list(CASES))
    ours, theirs = (Worker(__file__, kind, steps=steps) for kind in ("jaxarch", "hand"))
    figures: dict[str, list[float]] = {}

    def ask(worker: Worker, side: str, case: str) -> float:
        microseconds = 1e6 * worker.ask(case)["cpu"] / (RUNS[case] * steps)
        figures.setdefault(f"{case}, {side}", []).append(microseconds)
        return microseconds

    for _ in range(1 + repeats):
        for case in CASES:
            hand = ask(theirs, "by hand", case)
            ratio = ask(ours, "jaxarch", case) / hand
            figures.setdefault(f"{case}, jaxarch / by hand", []).append(ratio)
        ask(ours, "jaxarch", VALIDATED)
    for worker in (ours, theirs):
        worker.close()
    # The first calls compile.
    return {name: values[1:] for name, values in figures.items()}


def show(figures: dict[str, list[float]]) -> None:
    """A line a figure: median and quartiles."""
    print(f"\n{'us per step and network':36}{'median':>8}{'quartiles':>18}")
    for name, values in figures.items():
        low, median, high = quartiles(values)
        spread = f"{low:.2f} to {high:.2f}"
        remark = f"goal: at most {GOAL}" if "/" in name else ""
        print(f"{name:36}{median:8.2f}{spread:>18}  {remark}".rstrip())


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=1000, help="steps a network")
    parser.add_argument("--repeats", type=int, default=7, help="repetitions of each measurement")
    parser.add_argument("--json", type=Path, help="a file for all measurements")
    parser.add_argument("--worker", choices=WORKERS, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    chosen = arguments()
    if chosen.worker:
        serve(lambda: WORKERS[chosen.worker](chosen.steps), 1)
        return
    figures = compare(chosen.steps, chosen.repeats)
    show(figures)
    if chosen.json:
        chosen.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
