"""How much faster is Algorithm 1 of [D] in jaxarch than in an eager PyTorch loop, and how near to the floor?

    pip install '.[benchmark]'
    python benchmarks/algorithm1.py              # the comparison, on CPU
    python benchmarks/algorithm1.py --scaling    # jaxarch alone, 1 to 1000 seeds, on the default backend

The work is the two-temperature search on the network of [D]: `softplus(sum tanh(W2 tanh(W1 x)))`, 64 inputs,
two 64 x 64 masks, loss `psi (1 - 2y)`, batches of 100 out of 300 rows, SGD at rate 0.3, temperatures 50
and 5, scores from N(-.2, .1); 10 seeds of 1000 steps.

- jaxarch: `over_seeds`, all seeds in one program. The whole call is timed, all that the library does on the
  host included; only the first call, which compiles, is told apart.
- PyTorch: the same steps, eager, on one thread, one seed after the other, in the fastest of the forms that
  were tried: an autograd function for the two temperatures (not stop-gradient), `backward` with an in-place
  update (not `torch.optim.SGD`), `index_select` and `linear`. It neither multiplies with the weights, which
  are 1, nor keeps its losses; jaxarch does both.
- The floor: the arithmetic of a step alone, at the rates that XLA reaches on this machine in loops that do
  nothing else. Per step and seed:
  - 5 products of 100x64 with 64x64: two forwards, one back to the hidden layer, one back to each mask;
  - tanh of 2 arrays of 100x64, whose derivative is free given the value;
  - sigmoid of 2 x 2 arrays of 64x64: `sigma(hard w)` forwards, `sigma(-|soft w|)` back.

  Drawing batches, elementwise products, the loss and the update come on top.

Every side runs in a process of its own, which is kept and told when to run; the sides take turns, so that
what else the machine does strikes them alike. Ratios are of neighbours in time. Before anything is timed, 20
steps of both from the same scores on the same rows must agree.

[D] Colombo & Gao, Disentangling Neural Architectures and Weights, 2021.

Measured on 2 shared x86-64 cores, medians of 5: on one core jaxarch takes 38.5 us of CPU time per step and
seed and PyTorch 195, 5.1 times as much; on two cores 22.1 us of wall time against 199, 9.2 times as much. The
floor is 28.7 us (products 18.5, sigmoid 5.2, tanh 4.9); jaxarch takes 1.34 times that. With 1, 10, 100 and
1000 seeds on two cores it takes 67, 22, 18 and 23 us per step and seed (200 steps; an earlier run).
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from workers import NO_TORCH, Task, Worker, check_agreement, quartiles, serve, timed

import jaxarch
from jaxarch.models import signed_output_loss
from jaxarch.run import _training as training

SIZE, BATCH, ROWS = 64, 100, 300
RATE, HARD, SOFT, MEAN, STD = 0.3, 50.0, 5.0, -0.2, 0.1
CHUNK = 250
SCALES = (1, 10, 100, 1000)
CPU_GOAL, WALL_GOAL, FLOOR_GOAL = 4.5, 9.0, 1.4
FLOOR_LOOPS = 200
AGREEMENT_STEPS, TOLERANCE = 20, 1e-4


def digits() -> tuple[np.ndarray, np.ndarray]:
    """300 pictures of the digits 1 to 6, as rows of norm 1, and whether each is below 4."""
    data = jaxarch.lab.data.unit_norm(jaxarch.lab.data.load("digits"))
    rows = np.flatnonzero((data.y >= 1) & (data.y <= 6))[:ROWS]
    return data.x[rows], (data.y[rows] <= 3).astype(np.float32)


# jaxarch ---------------------------------------------------------------------------------------------


def algorithm1(steps: int) -> tuple[jaxarch.Training, jaxarch.Problem]:
    """The search and its problem."""
    problem = jaxarch.supervised(
        jaxarch.tanh_network((SIZE, SIZE, SIZE)),
        digits(),
        loss=signed_output_loss,
        optimizer=optax.sgd(RATE),
        steps=steps,
        batch_size=BATCH,
    )
    search = jaxarch.search.two_temperature(HARD, SOFT, mean=MEAN, std=STD, scale="absolute")
    return search, problem


def jaxarch_tasks(cores: int, seeds: int, steps: int) -> dict[str, Task]:
    """Train all seeds in one program, on so many CPU devices; the floor."""
    jaxarch.use_cpu_cores(cores)
    search, problem = algorithm1(steps)
    keys = jax.random.split(jax.random.key(0), seeds)

    def train() -> dict[str, float]:
        return timed(lambda: jax.block_until_ready(jaxarch.over_seeds(search, keys, problem, chunk=CHUNK)[0]))

    return {"warm up": train, "train": train, "floor": floor_task(seeds)}


def floor_task(seeds: int) -> Task:
    """Microseconds of the floor per step and seed, by kind of arithmetic."""
    orthogonal = np.linalg.qr(np.random.default_rng(0).standard_normal((SIZE, SIZE)))[0]
    matrices = jnp.asarray(np.tile(orthogonal, (seeds, 1, 1)), jnp.float32)
    hidden = jnp.ones((2, seeds, BATCH, SIZE))
    scores = jnp.ones((2, seeds, SIZE, SIZE))
    # Each loop feeds its result back, so that the compiler can neither drop nor merge its turns; products
    # with an orthogonal matrix stay in range for ever.
    loops = {
        "matmul": (5, partial(jax.jit(_repeat, static_argnums=0), jnp.matmul, hidden[0], matrices)),
        "tanh": (1, partial(jax.jit(_repeat, static_argnums=0), jnp.tanh, hidden)),
        "sigmoid": (2, partial(jax.jit(_repeat, static_argnums=0), jax.nn.sigmoid, scores)),
    }
    per_turn = 1e6 / (FLOOR_LOOPS * seeds)

    def floor() -> dict[str, float]:
        return {
            name: count * per_turn * timed(lambda loop=loop: jax.block_until_ready(loop()))["cpu"]
            for name, (count, loop) in loops.items()
        }

    return floor


def _repeat(function: Callable[..., jax.Array], values: jax.Array, *others: jax.Array) -> jax.Array:
    return jax.lax.fori_loop(0, FLOOR_LOOPS, lambda _, values: function(values, *others), values)


def jaxarch_steps(scores: list[np.ndarray], rows: np.ndarray) -> list[np.ndarray]:
    """The scores after one step of jaxarch on each of some batches of rows."""
    search, problem = algorithm1(len(rows))
    carry = training.begin(search, jax.random.key(0), problem, None)
    start = {"w1": jnp.asarray(scores[0]), "w2": jnp.asarray(scores[1])}
    carry = carry._replace(state=carry.state._replace(trainable=start))
    step = jax.jit(partial(training.step, search))
    for index, batch in enumerate(rows):
        given = dataclasses.replace(problem.descending(batch_size=None), train=batch)
        carry, _ = step(jax.random.key(0), given, carry, index)
    return [np.asarray(carry.state.trainable[name]) for name in ("w1", "w2")]


# PyTorch ---------------------------------------------------------------------------------------------


def torch_tasks(cores: int, seeds: int, steps: int) -> dict[str, Task]:
    """Train one seed after the other, on one thread, whatever the number of cores."""
    import eager
    import torch

    torch.set_num_threads(1)
    x, signs = eager_data()
    weights = eager.TwoTemperature.apply

    def train_one(seed: int, steps: int) -> None:
        torch.manual_seed(seed)
        scores = [torch.normal(MEAN, STD, (SIZE, SIZE)).requires_grad_() for _ in range(2)]
        for _ in range(steps):
            rows = torch.randint(ROWS, (BATCH,))
            eager.descend(weights, scores, x.index_select(0, rows), signs.index_select(0, rows))

    def train() -> dict[str, float]:
        return timed(lambda: [train_one(seed, steps) for seed in range(seeds)])

    return {"warm up": lambda: timed(lambda: train_one(0, min(steps, CHUNK))), "train": train}


def eager_data() -> tuple[Any, Any]:
    """The pictures, and `1 - 2y` of each."""
    import torch

    x, y = digits()
    return torch.from_numpy(x), torch.from_numpy(1 - 2 * y)


def torch_steps(scores: list[np.ndarray], rows: np.ndarray) -> list[np.ndarray]:
    """The scores after one step of PyTorch on each of some batches of rows."""
    import eager
    import torch

    x, signs = eager_data()
    leaves = [torch.tensor(leaf, requires_grad=True) for leaf in scores]
    for batch in torch.from_numpy(rows):
        eager.descend(eager.TwoTemperature.apply, leaves, x[batch], signs[batch])
    return [leaf.detach().numpy() for leaf in leaves]


def agreement_tasks(cores: int, seeds: int, steps: int) -> dict[str, Task]:
    """How far the scores of both libraries lie apart after a few steps from the same start."""

    def difference() -> dict[str, float]:
        random = np.random.default_rng(0)
        scores = [random.normal(MEAN, STD, (SIZE, SIZE)).astype(np.float32) for _ in range(2)]
        rows = random.integers(0, ROWS, (AGREEMENT_STEPS, BATCH))
        ours, theirs = jaxarch_steps(scores, rows), torch_steps(scores, rows)
        moved = max(float(abs(a - b).max()) for a, b in zip(ours, scores, strict=True))
        apart = max(float(abs(a - b).max()) for a, b in zip(ours, theirs, strict=True))
        return {"moved": moved, "apart": apart}

    return {"compare": difference}


# Workers ---------------------------------------------------------------------------------------------

WORKERS: dict[str, Callable[[int, int, int], dict[str, Task]]] = {
    "jaxarch": jaxarch_tasks,
    "torch": torch_tasks,
    "agreement": agreement_tasks,
}


# Measuring and reporting -----------------------------------------------------------------------------


def compare(seeds: int, steps: int, repeats: int) -> dict[str, list[float]]:
    """All figures by name, one value a repetition: microseconds per step and seed, and ratios."""
    with_torch = importlib.util.find_spec("torch") is not None
    if with_torch:
        check_agreement(__file__, AGREEMENT_STEPS, "scores", TOLERANCE)
    else:
        print(NO_TORCH)
    kinds = ("torch", "jaxarch") if with_torch else ("jaxarch",)
    workers = {
        (kind, cores): Worker(__file__, kind, cores=cores, seeds=seeds, steps=steps)
        for cores in (1, 2)
        for kind in kinds
    }
    for (kind, cores), worker in workers.items():
        seconds = worker.ask("warm up")["wall"]
        if kind == "jaxarch":
            worker.ask("floor")
            print(f"first call, with compilation, on {cores} CPU device(s): {seconds:.1f} s")
    figures: dict[str, list[float]] = {}
    for _ in range(repeats):
        for name, value in repetition(workers, seeds * steps).items():
            figures.setdefault(name, []).append(value)
    for worker in workers.values():
        worker.close()
    return figures


def repetition(workers: dict[tuple[str, int], Worker], step_seeds: int) -> dict[str, float]:
    """Every side once, one after the other."""
    scale = 1e6 / step_seeds
    one_core = {kind: scale * w.ask("train")["cpu"] for (kind, cores), w in workers.items() if cores == 1}
    floor = workers["jaxarch", 1].ask("floor")
    on_two = {kind: w.ask("train") for (kind, cores), w in workers.items() if cores == 2}
    two_cores = {kind: scale * seconds["wall"] for kind, seconds in on_two.items()}

    figures = {f"{kind}, CPU time, 1 core": value for kind, value in one_core.items()}
    figures |= {f"{kind}, wall time, 2 cores": value for kind, value in two_cores.items()}
    figures |= {f"floor: {name}": value for name, value in floor.items()}
    figures["floor"] = sum(floor.values())
    if "torch" in one_core:
        figures["torch / jaxarch, CPU time, 1 core"] = one_core["torch"] / one_core["jaxarch"]
        figures["torch / jaxarch, wall time, 2 cores"] = two_cores["torch"] / two_cores["jaxarch"]
    figures["jaxarch / floor, CPU time, 1 core"] = one_core["jaxarch"] / figures["floor"]
    figures["jaxarch, CPU / wall time, 2 cores"] = on_two["jaxarch"]["cpu"] / on_two["jaxarch"]["wall"]
    return figures


REMARKS = {
    "torch / jaxarch, CPU time, 1 core": f"goal: at least {CPU_GOAL}",
    "torch / jaxarch, wall time, 2 cores": f"goal: at least {WALL_GOAL}",
    "jaxarch / floor, CPU time, 1 core": f"goal: at most {FLOOR_GOAL}",
    "jaxarch, CPU / wall time, 2 cores": "near 1: others had a core",
}


def show(figures: dict[str, list[float]]) -> None:
    """A line for each figure: microseconds per step and seed, or a ratio."""
    print(f"\n{'us per step and seed':38}{'median':>8}{'quartiles':>18}{'least':>8}")
    for name, values in figures.items():
        low, median, high = quartiles(values)
        spread = f"{low:.2f} to {high:.2f}"
        print(f"{name:38}{median:8.2f}{spread:>18}{min(values):8.2f}  {REMARKS.get(name, '')}".rstrip())


def scaling(steps: int, repeats: int) -> dict[str, list[float]]:
    """Microseconds per step and seed of jaxarch for more and more seeds, on all devices there are."""
    jaxarch.use_cpu_cores()
    search, problem = algorithm1(steps)
    print(f"jaxarch on {len(jax.devices())} x {jax.devices()[0].device_kind}, {steps} steps")
    figures = {}
    for seeds in SCALES:
        keys = jax.random.split(jax.random.key(0), seeds)
        run = partial(jaxarch.over_seeds, search, keys, problem, chunk=CHUNK)
        run()
        walls = [timed(lambda run=run: jax.block_until_ready(run()[0]))["wall"] for _ in range(repeats)]
        figures[f"jaxarch, wall time, seeds: {seeds}"] = [1e6 * wall / (seeds * steps) for wall in walls]
    return figures


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=10, help="seeds of the comparison")
    parser.add_argument("--steps", type=int, help="steps a seed (default: 1000; 200 with --scaling)")
    parser.add_argument("--repeats", type=int, default=7, help="repetitions of each measurement")
    parser.add_argument("--scaling", action="store_true", help="jaxarch alone, for 1 to 1000 seeds")
    parser.add_argument("--json", type=Path, help="a file for all measurements")
    parser.add_argument("--worker", choices=WORKERS, help=argparse.SUPPRESS)
    parser.add_argument("--cores", type=int, default=1, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    chosen = arguments()
    steps = chosen.steps or (200 if chosen.scaling else 1000)
    if chosen.worker:
        serve(lambda: WORKERS[chosen.worker](chosen.cores, chosen.seeds, steps), chosen.cores)
        return
    figures = (
        scaling(steps, chosen.repeats) if chosen.scaling else compare(chosen.seeds, steps, chosen.repeats)
    )
    show(figures)
    if chosen.json:
        chosen.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
