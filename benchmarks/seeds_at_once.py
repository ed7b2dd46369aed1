"""How much faster are all seeds in one program than one after the other, and how many pay off?

    python benchmarks/seeds_at_once.py                # minutes on a GPU, which it takes if there is one
    python benchmarks/seeds_at_once.py --models MLP --seeds 1 8 64
    python benchmarks/seeds_at_once.py --json figures.json --figure seeds.png

Networks are trained under random masks of density .1 by `retrain("cold")`, with Adam, on random inputs in 10
classes: the MLP 784-300-100-10 in batches of 60, as in the tournament on MNIST, and ResNet-20 on 32 x 32 x 3
in batches of 128, as on CIFAR-10. The whole call of `over_seeds` is timed, by the wall, all that the library
does on the host included; only the first call, which compiles, is not. One after the other is the same call
with `max_parallel_runs=1`, of 8 seeds: a program of one seed, run for each in turn.

Measured on one H200: the MLP takes 143 us per step and seed one after the other, and 14.5, 7.1, 4.8 and 4.1
with 16, 64, 256 and 1024 seeds at once; ResNet-20 5.3 ms one after the other, and 4.6 and 2.9 with 4 and 16.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import optax
import random_inputs
from flax import nnx
from random_inputs import CLASSES, mlp
from workers import quartiles, timed

import jaxarch
from jaxarch import models

RATE, DENSITY = 1.2e-3, 0.1
IN_TURN = 8
"""Seeds of the call that trains one after the other, whose time goes with their number."""

Figures = dict[str, dict[str, list[float]]]
"""By model, and by number of seeds or `in turn`: microseconds per step and seed, a value a repetition."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A model, the shape of its inputs, how many a batch has, the steps of a call, numbers of seeds."""

    make: Callable[[nnx.Rngs], nnx.Module]
    shape: tuple[int, ...]
    batch: int
    steps: int
    seeds: tuple[int, ...]

    def problem(self) -> jaxarch.Problem:
        """Random inputs with random labels."""
        return random_inputs.problem(
            self.make, self.shape, optimizer=optax.adam(RATE), steps=self.steps, batch_size=self.batch
        )


def resnet(rngs: nnx.Rngs) -> nnx.Module:
    return models.ResNet20(inputs=3, outputs=CLASSES, rngs=rngs)


CASES = {
    "MLP": Case(mlp, (784,), batch=60, steps=500, seeds=(1, 4, 16, 64, 256, 1024)),
    "ResNet-20": Case(resnet, (32, 32, 3), batch=128, steps=50, seeds=(1, 4, 16)),
}


def readings(case: Case, seeds: int, max_parallel_runs: int, repeats: int) -> list[float]:
    """Microseconds per step and seed of whole calls, compiled before."""
    problem = case.problem()
    keys = jax.random.split(jax.random.key(2), seeds)
    found, _ = jaxarch.over_seeds(jaxarch.search.random_mask(DENSITY), keys, problem)
    stage = jaxarch.retrain("cold", nonnegative=False)

    def train() -> None:
        jax.block_until_ready(
            jaxarch.over_seeds(stage, keys, problem, network=found, max_parallel_runs=max_parallel_runs)[0]
        )

    train()
    return [1e6 * timed(train)["wall"] / (seeds * case.steps) for _ in range(repeats)]


def figure(figures: Figures) -> plt.Figure:
    """Time per step and seed against the number of seeds; dashed, one after the other."""
    drawing, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
    for model, by_seeds in figures.items():
        counts = [int(count) for count in by_seeds if count != "in turn"]
        low, median, high = np.transpose([quartiles(by_seeds[str(count)]) for count in counts])
        (line,) = axes.plot(counts, median, marker="o", label=f"{model}, all at once")
        axes.fill_between(counts, low, high, color=line.get_color(), alpha=0.2)
        if "in turn" in by_seeds:
            axes.axhline(
                quartiles(by_seeds["in turn"])[1], color=line.get_color(), ls="--", label=f"{model}, in turn"
            )
    axes.set(xscale="log", yscale="log", xlabel="seeds", ylabel="microseconds per step and seed")
    axes.legend(loc="lower left")
    return drawing


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", nargs="*", choices=CASES, default=tuple(CASES), help="some of them only")
    parser.add_argument("--seeds", nargs="*", type=int, help="numbers of seeds; by default by model")
    parser.add_argument("--steps", type=int, help="steps of a call; by default by model")
    parser.add_argument("--repeats", type=int, default=5, help="repetitions of each measurement")
    parser.add_argument("--json", type=Path, help="a file for all measurements, written after each")
    parser.add_argument("--figure", type=Path, help="a file for the figure")
    return parser.parse_args()


def main() -> None:
    chosen = arguments()
    jaxarch.use_cpu_cores()
    print(f"{len(jax.devices())} x {jax.devices()[0].device_kind}, JAX {jax.__version__}")
    print(f"{'model':12}{'seeds':>8}{'us per step and seed':>32}{'in turn / at once':>20}")
    figures: Figures = {}
    for model in chosen.models:
        case = CASES[model]
        case = dataclasses.replace(
            case, steps=chosen.steps or case.steps, seeds=tuple(chosen.seeds or case.seeds)
        )
        calls = {"in turn": (IN_TURN, 1)} | {str(count): (count, count) for count in case.seeds}
        for name, (seeds, max_parallel_runs) in calls.items():
            values = readings(case, seeds, max_parallel_runs, chosen.repeats)
            figures.setdefault(model, {})[name] = values
            low, median, high = quartiles(values)
            ratio = quartiles(figures[model]["in turn"])[1] / median
            print(
                f"{model:12}{name:>8}{f'{median:.2f} [{low:.2f}, {high:.2f}]':>32}{ratio:20.2f}", flush=True
            )
            if chosen.json:
                chosen.json.write_text(json.dumps(figures, indent=2) + "\n")
    if chosen.figure:
        figure(figures).savefig(chosen.figure, dpi=150)


if __name__ == "__main__":
    main()
