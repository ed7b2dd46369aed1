"""How long does each strategy of [D] figure 4 take in jaxarch, and how long in an eager PyTorch loop?

    pip install '.[benchmark]'
    python benchmarks/strategies.py                      # about a quarter of an hour
    python benchmarks/strategies.py --json figures.json  # all repetitions in a file as well

The work is that of figure 4 on one task: digits {1, 2, 3} v {4, 5, 6}, 100 training examples a class, the
network of [D] with two 64 x 64 matrices; trainings of 600 steps of SGD at rate 0.3 on batches of 100, weights
`u^2`; thresholds at 10 percentiles; lottery tickets of 10 rounds of 20%; 20 random architectures at 10
percentiles with 10 shared weights. 10 runs of each strategy, each with its own split.

- jaxarch: `compare`, all runs in one program. The whole call is timed, all that the library does on the host
  included: on one core in CPU time, and in wall time on two cores, or on the GPU if there is one.
- PyTorch (`eager.py`): the same, eager, on one thread, one run after the other, in CPU time, which is its
  wall time on a machine that does nothing else. It keeps no losses, and does not look for failed runs, dead
  starts, constant networks and ties; jaxarch does all of that.
- `all nine`: all strategies in one call; both sides run the beginnings that strategies share once.
- `real, by hand`: `real` against PyTorch without autograd, its gradient written out for this one network.
- Compiling: the first call with JAX's caches cleared, minus the next one. Later calls compile nothing while
  strategies and problem stay the same but for arrays: other keys, another task of the same size. A strategy
  that is made anew, with another temperature or the same, compiles anew.

Every side runs in a process of its own, which is kept and told when to run; the sides take turns, so that
what else the machine does strikes them alike. Ratios are of neighbours in time. Before anything is timed,
both sides run every strategy from the same random numbers, 20 steps of all rows a training: F of what is
found and of every candidate must agree.

[D] Colombo & Gao, Disentangling Neural Architectures and Weights, 2021.

Measured on 2 shared x86-64 cores that others used too, medians of 3, CPU time on one core: jaxarch takes .022
s a run for real, .025 for bin, .048 for bin->real, .27 for lottery and .15 for agnostic. PyTorch takes 4.0 to
5.0 times as much for each of these, 1.6 times for random->bin, 4.1 times for all nine together, and 3.1 times
for real with its gradient written by hand. To compile takes 2 to 6 s, 15 for lottery, and 27 for all nine: a
first call of 10 runs takes longer than PyTorch, but for agnostic (5.6 s against 6.1), a second one less. Wall
time on two cores could not be measured: the two did no more than the work of one.
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
import numpy as np
from workers import NO_TORCH, Task, Worker, quartiles, serve, timed

import jaxarch
from jaxarch.lab.disentangling import measuring, trial
from jaxarch.lab.disentangling.settings import StrategySettings
from jaxarch.masks import full_mask
from jaxarch.transforms._weights import fresh

NAMES = (
    "real",
    "real->bin",
    "bin",
    "bin->real warm",
    "bin->real cold",
    "lottery",
    "lottery->bin",
    "agnostic",
    "random->bin",
)
TOGETHER, BY_HAND = "all nine", "real, by hand"
ROWS: dict[str, tuple[str, ...]] = {**{name: (name,) for name in NAMES}, TOGETHER: NAMES, BY_HAND: ("real",)}
"""The lines of the table, and the strategies that each runs."""

GROUPS, TRAIN_PER_CLASS = ((1, 2, 3), (4, 5, 6)), 100
CORES = 2
AGREEMENT_STEPS, TOLERANCE = 20, 1e-4


# jaxarch ---------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Program:
    """What figure 4 of [D] runs on one task: strategies, a problem, a key a run."""

    strategies: dict[str, Any]
    problem: jaxarch.Problem
    keys: jax.Array

    def run(self, row: str) -> dict[str, tuple[jaxarch.Network, Any]]:
        """Run a line of the table, all seeds in one program, and wait for what is found."""
        strategies = {name: self.strategies[name] for name in ROWS[row]}
        return jax.block_until_ready(jaxarch.compare(strategies, self.keys, self.problem))


def program(seeds: int, steps: int) -> Program:
    """Digits {1, 2, 3} v {4, 5, 6}, every run with its own split."""
    settings = StrategySettings(seeds=seeds, steps=steps, strategies=NAMES)
    data = settings.data()
    task = trial.split(settings, data, GROUPS, TRAIN_PER_CLASS, orientations=(False,))
    return Program(settings.chosen(), trial.problem(settings, data, task), settings.run_keys(task))


def jaxarch_tasks(cores: int, seeds: int, steps: int) -> dict[str, Task]:
    """Run each line of the table as it is, or as in a fresh process; tell the devices."""
    jaxarch.use_cpu_cores(cores)
    runs = program(seeds, steps)

    def first(row: str) -> dict[str, float]:
        jax.clear_caches()
        return timed(lambda: runs.run(row))

    def device() -> dict[str, Any]:
        devices = jax.devices()
        return {"name": f"{len(devices)} x {devices[0].device_kind}", "backend": jax.default_backend()}

    tasks: dict[str, Task] = {row: lambda row=row: timed(lambda: runs.run(row)) for row in ROWS}
    return tasks | {f"first {row}": lambda row=row: first(row) for row in ROWS} | {"device": device}


# PyTorch ---------------------------------------------------------------------------------------------


def eager_stages(row: str) -> dict[str, tuple[Any, ...]]:
    """The strategies of a line in eager PyTorch."""
    import eager

    if row == BY_HAND:
        return {"real": (eager.dense_by_hand,)}
    return {name: eager.STRATEGIES[name] for name in ROWS[row]}


def examples(one: jaxarch.Problem) -> tuple[Any, Any]:
    """The training examples of a problem of one run, and `1 - 2y` of each, as tensors."""
    import torch

    x, y = one.gather(one.data, one.per_run, one.train)
    return torch.tensor(np.asarray(x)), torch.tensor(1 - 2 * np.asarray(y))


def torch_tasks(cores: int, seeds: int, steps: int) -> dict[str, Task]:
    """Run each line of the table for one seed after the other, on one thread."""
    import eager
    import torch

    torch.set_num_threads(1)
    runs = program(seeds, steps)
    batch = runs.problem.descent.batch_size
    assert batch is not None
    sets = [examples(runs.problem.of_run(run)) for run in range(seeds)]

    def run_one(row: str, seed: int, steps: int) -> None:
        torch.manual_seed(seed)
        x, signs = sets[seed]
        rows = partial(torch.randint, len(x), (batch,))
        eager.compare(eager_stages(row), eager.Run(x, signs, steps, rows, torch.normal))

    def run(row: str) -> dict[str, float]:
        return timed(lambda: [run_one(row, seed, steps) for seed in range(seeds)])

    tasks: dict[str, Task] = {row: lambda row=row: run(row) for row in ROWS}
    return tasks | {"warm up": lambda: timed(lambda: [run_one(row, 0, AGREEMENT_STEPS) for row in ROWS])}


# Agreement -------------------------------------------------------------------------------------------


def agreement_tasks(cores: int, seeds: int, steps: int) -> dict[str, Task]:
    """How far F of what both libraries find, and of all that they try, lies apart on the way there."""
    runs = program(1, AGREEMENT_STEPS)
    runs = dataclasses.replace(runs, problem=runs.problem.descending(batch_size=None))
    one = runs.problem.of_run(0)

    def difference(row: str) -> dict[str, float]:
        ((_, (network, _)),) = runs.run(row).items()
        info = network.info
        tried = info.get("candidates", info.get("losses", np.zeros(0)))
        ours = np.append(measuring.objectives(runs.problem, network.params, network.state), tried)
        theirs = eager_values(row, one, draws(row, runs.keys[0], one))
        return {"F": float(ours[0]), "apart": float(abs(ours - theirs).max())}

    return {row: lambda row=row: difference(row) for row in ROWS if row != TOGETHER}


def eager_values(row: str, problem: jaxarch.Problem, numbers: list[jax.Array]) -> np.ndarray:
    """F of what PyTorch finds with all rows a batch and given random numbers, and of all that it tries."""
    import eager
    import torch

    x, signs = examples(problem)
    left = iter(numbers)
    rows = torch.arange(len(x))
    run = eager.Run(
        x, signs, problem.descent.steps, lambda: rows, lambda *_: torch.tensor(np.asarray(next(left)))
    )
    (network,) = eager.compare(eager_stages(row), run).values()
    assert next(left, None) is None
    return np.array([run.objective(network.weights), *network.tried])


def draws(row: str, key: jax.Array, problem: jaxarch.Problem) -> list[jax.Array]:
    """The random numbers that a run of jaxarch draws, in the order in which the eager one asks for them."""
    import eager

    params, _ = problem.init(key)

    def roots(key: jax.Array, std: float) -> list[jax.Array]:
        return jax.tree.leaves(fresh(key, problem, full_mask(params), True, std)[0])

    first, second = (jax.random.fold_in(key, stage) for stage in (0, 1))
    begins = [jax.random.split(stage, 3)[0] for stage in (first, second)]
    if row.startswith("bin"):
        binary: Any = jaxarch.search.two_temperature()
        scores = jax.tree.leaves(binary.init(begins[0], problem, None).trainable)
        return scores + (roots(begins[1], eager.ROOTS_STD) if row.endswith("cold") else [])
    if row == "agnostic":
        _, draws_key, weights_key = jax.random.split(first, 3)
        keys = jax.random.split(draws_key, eager.AGNOSTIC_DRAWS)
        shared = jax.random.normal(weights_key, (eager.AGNOSTIC_WEIGHTS,))
        return [shared, *(leaf for key in keys for leaf in roots(key, 1.0))]
    return roots(first, 1.0) if row == "random->bin" else roots(begins[0], eager.ROOTS_STD)


def check_agreement() -> None:
    """Stop unless both libraries find the same with every strategy."""
    worker = Worker(__file__, "agreement")
    apart = {row: worker.ask(row)["apart"] for row in ROWS if row != TOGETHER}
    worker.close()
    print(
        f"after {AGREEMENT_STEPS} steps a training from equal starts on all rows, F of what each strategy "
        f"finds, and of all that it tries, agrees to {max(apart.values()):.1g}"
    )
    for row, value in apart.items():
        if not value <= TOLERANCE:
            raise SystemExit(f"{row}: the two sides are {value:.1g} apart; they must agree to {TOLERANCE}")


# Measuring and reporting -----------------------------------------------------------------------------

WORKERS: dict[str, Callable[[int, int, int], dict[str, Task]]] = {
    "jaxarch": jaxarch_tasks,
    "torch": torch_tasks,
    "agreement": agreement_tasks,
}

ONE_CORE, DEVICES, EAGER = "jaxarch, 1 core", "jaxarch, devices", "PyTorch"
OVER_ONE_CORE, OVER_DEVICES = "PyTorch / 1 core", "PyTorch / devices"
COMPILING, BUSY = "compiling", "CPU / wall time"
COLUMNS = (ONE_CORE, DEVICES, EAGER, OVER_ONE_CORE, OVER_DEVICES, COMPILING)

Figures = dict[str, dict[str, list[float]]]
"""By line of the table and column: one value a repetition."""


def compare(seeds: int, steps: int, repeats: int) -> tuple[Figures, dict[str, Any]]:
    """All measurements, and the devices of the second column."""
    with_torch = importlib.util.find_spec("torch") is not None
    if with_torch:
        check_agreement()
    else:
        print(NO_TORCH)
    workers = {
        ONE_CORE: Worker(__file__, "jaxarch", cores=1, seeds=seeds, steps=steps),
        DEVICES: Worker(__file__, "jaxarch", platform=None, cores=CORES, seeds=seeds, steps=steps),
    }
    if with_torch:
        workers[EAGER] = Worker(__file__, "torch", cores=1, seeds=seeds, steps=steps)
        workers[EAGER].ask("warm up")
    device = workers[DEVICES].ask("device")
    for row in ROWS:
        workers[ONE_CORE].ask(row)
        workers[DEVICES].ask(row)

    figures: Figures = {row: {} for row in ROWS}
    for _ in range(repeats):
        for row in ROWS:
            add(figures[row], steady(workers, row, seeds))
    for _ in range(repeats):
        for row in ROWS:
            first, again = (workers[DEVICES].ask(task)["wall"] for task in (f"first {row}", row))
            add(figures[row], {COMPILING: first - again})
    for worker in workers.values():
        worker.close()
    return figures, device


def steady(workers: dict[str, Worker], row: str, seeds: int) -> dict[str, float]:
    """A line of the table once on every side, one after the other: seconds a run, and ratios."""
    measured = {side: worker.ask(row) for side, worker in workers.items()}
    figures = {
        ONE_CORE: measured[ONE_CORE]["cpu"] / seeds,
        DEVICES: measured[DEVICES]["wall"] / seeds,
        BUSY: measured[DEVICES]["cpu"] / measured[DEVICES]["wall"],
    }
    if EAGER in measured:
        figures[EAGER] = measured[EAGER]["cpu"] / seeds
        figures[OVER_ONE_CORE] = figures[EAGER] / figures[ONE_CORE]
        figures[OVER_DEVICES] = figures[EAGER] / figures[DEVICES]
    return figures


def add(figures: dict[str, list[float]], values: dict[str, float]) -> None:
    """One more value of some figures."""
    for name, value in values.items():
        figures.setdefault(name, []).append(value)


def show(figures: Figures, device: dict[str, Any]) -> None:
    """The table: medians, and quartiles below them."""
    print(f"\nseconds a run, ratios, seconds of compilation; devices: {device['name']}")
    print(f"{'':16}" + "".join(f"{column:>21}" for column in COLUMNS))
    for row, measured in figures.items():
        medians, spreads = "", ""
        for column in COLUMNS:
            if column in measured:
                low, median, high = quartiles(measured[column])
                medians += f"{median:>#21.3g}"
                spreads += f"{f'{low:#.3g} to {high:#.3g}':>21}"
            else:
                medians += f"{'-':>21}"
                spreads += " " * 21
        print(f"{row:16}{medians}\n{'':16}{spreads}")
    if device["backend"] == "cpu":
        busy = quartiles([value for measured in figures.values() for value in measured[BUSY]])[1]
        print(f"jaxarch, CPU / wall time on {device['name']}: {busy:.2f} (near 1: others had a core)")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=10, help="runs of each strategy")
    parser.add_argument("--steps", type=int, default=600, help="steps of a training")
    parser.add_argument("--repeats", type=int, default=5, help="repetitions of each measurement")
    parser.add_argument("--json", type=Path, help="a file for all measurements")
    parser.add_argument("--worker", choices=WORKERS, help=argparse.SUPPRESS)
    parser.add_argument("--cores", type=int, default=1, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    chosen = arguments()
    if chosen.worker:
        serve(lambda: WORKERS[chosen.worker](chosen.cores, chosen.seeds, chosen.steps), chosen.cores)
        return
    figures, device = compare(chosen.seeds, chosen.steps, chosen.repeats)
    show(figures, device)
    if chosen.json:
        chosen.json.write_text(json.dumps({"device": device, "figures": figures}, indent=2) + "\n")


if __name__ == "__main__":
    main()
