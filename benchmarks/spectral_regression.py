"""What does a step of [S]'s experiment 1 cost in jaxarch, beside JAX by hand, PyTorch and a DataLoader?

    pip install '.[benchmark]'
    python benchmarks/spectral_regression.py             # the comparison, on one core of a CPU
    python benchmarks/spectral_regression.py --scaling   # jaxarch alone, 1 to 4200 networks; GPU if any

The work is a step of `jaxarch run spectral.fig7` with L_1 trained, as in the code of [S]: 2 inputs
and a bias neuron, 300 hidden neurons with ReLU, 1 output, all in spectral form; batches of 100 out of 10,000
points, mean squared error and the norms of L_1 and L_2 at strength 1e-4, Adam at rate 1e-3.

- jaxarch: `over_seeds` on the experiment's own problem, 16 networks in one program. The whole call is timed,
  all that the library does on the host included; only the first call, which compiles, is told apart.
- JAX by hand: the same step with `optax.adam`, 16 networks by `vmap` in one `scan`, written for nothing else.
- PyTorch: the same step, eager, on one thread, one network after the other: bundles W_21, W_32, W_31 from the
  spectral parameters, `index_select`, `backward`, and Adam in its fused form, the fastest of the three.
- DataLoader: the same network in the form that a user would write it, as an `nn.Module` trained by
  `torch.optim.Adam` on the batches of a shuffling `DataLoader` over a `TensorDataset`, its losses summed by
  `.item()`: the algorithm of [S], written anew.

Each side runs in a process of its own and they take turns, so that what else the machine does strikes them
alike. Ratios are of neighbours in time. Before anything is timed, 20 steps of jaxarch and PyTorch from one
start on the same rows must agree, and so must those by hand.

Measured on two shared x86-64 cores, one half as fast as the other, medians of 5 and 7: 31.0 and 67.8 us a
network and step in jaxarch, 322 and 616 in PyTorch (10.4 and 9.1 times as long) and 628 and 1173 from a
DataLoader (20 and 17 times). By hand it took 64.8 us on the slower one: jaxarch took 1.08 times as long,
quartiles 1.07 and 1.08, beside other work. All 4200 networks of the paper, 30,000 steps each, take 1.1 and
2.4 hours on one core.

[S] Peri, Chicchi, Fanelli and Giambagli, Spectral Architecture Search for Neural Network Models (SPARCS).
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
from jaxarch.io._gather import take_rows
from jaxarch.lab.spectral import fig7
from jaxarch.run import _training as training

HIDDEN, BATCH, RATE, STRENGTH = 300, 100, 1e-3, 1e-4
CHUNK = 500
ADAM = optax.adam(RATE)
SCALES = (1, 16, 128, 1024, 4200)
PAPER_NETWORKS, PAPER_STEPS = 42 * 100, 30_000
GOAL, GOAL_BY_HAND = 16.0, 1.25
AGREEMENT_STEPS, TOLERANCE = 20, 1e-5


# jaxarch ---------------------------------------------------------------------------------------------


def experiment(networks: int, steps: int) -> tuple[jaxarch.Training, jaxarch.Problem]:
    """The search of figure 7 and its problem, for so many networks on targets of all alphas."""
    settings = fig7.Settings(
        alphas=max(networks, 2),
        betas=(5.0,),
        seeds=1,
        hidden=HIDDEN,
        batch_size=BATCH,
        learning_rate=RATE,
        strength=STRENGTH,
    )
    problem = fig7.prepare(settings, "trained")
    per_run = jax.tree.map(lambda leaf: leaf[:networks], problem.per_run)
    search = jaxarch.search.spectral(STRENGTH, penalty="l2", where="eigenvalues/L[12]")
    return search, dataclasses.replace(problem.descending(steps=steps), per_run=per_run)


def trained(networks: int, steps: int) -> Callable[[], object]:
    """A call that trains them all in one program."""
    search, problem = experiment(networks, steps)
    keys = jax.random.split(jax.random.key(0), networks)

    def train() -> object:
        found, _ = jaxarch.over_seeds(search, keys, problem, chunk=CHUNK, dead_start="ignore")
        return jax.block_until_ready(found)

    return train


def jaxarch_tasks(networks: int, steps: int) -> dict[str, Task]:
    """Train all networks in one program on one CPU device."""
    jaxarch.use_cpu_cores(1)
    train = trained(networks, steps)
    return {"train": lambda: timed(train)}


def jaxarch_steps(start: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """The parameters after one step on each of some batches."""
    search, problem = experiment(1, len(x))
    carry = training.begin(search, jax.random.key(0), problem, None)
    params = jax.tree.map(jnp.asarray, nested(start))
    carry = carry._replace(state=carry.state._replace(trainable=params))
    step = jax.jit(partial(training.step, search))
    for index, batch in enumerate(zip(x, y, strict=True)):
        given = dataclasses.replace(
            problem.descending(batch_size=None),
            data=batch,
            per_run=None,
            gather=take_rows,
            train=np.arange(BATCH),
        )
        carry, _ = step(jax.random.key(0), given, carry, index)
    return flat(carry.state.trainable)


def nested(params: dict[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    """Parameters by their names, as jaxarch has them."""
    kinds = {"eigenvectors": "phi", "eigenvalues": "L"}
    return {kind: {k: v for k, v in params.items() if k.startswith(letter)} for kind, letter in kinds.items()}


def flat(params: Any) -> dict[str, np.ndarray]:
    """And back."""
    return {name: np.asarray(leaf) for group in params.values() for name, leaf in group.items()}


def start(random: np.random.Generator) -> dict[str, np.ndarray]:
    """Parameters near the perceptron start, with every eigenvalue at work."""
    shapes = {"phi1": (HIDDEN, 3), "phi2": (1, HIDDEN), "L1": (3,), "L2": (HIDDEN,), "L3": (1,)}
    return {name: random.normal(0.0, 0.1, shape).astype(np.float32) for name, shape in shapes.items()}


# JAX and Optax by hand -------------------------------------------------------------------------------


def by_hand(carry: Any, x: jax.Array, y: jax.Array) -> tuple[Any, jax.Array]:
    """One step of one network on a batch; `carry` is its parameters and what `ADAM` keeps of them."""

    def loss(params: dict[str, jax.Array]) -> jax.Array:
        first = params["phi1"] * (params["L1"] - params["L2"][:, None])
        last = params["phi2"] * (params["L2"] - params["L3"][:, None])
        outputs = jax.nn.relu(x @ first.T) @ last.T - x @ (last @ params["phi1"]).T
        penalty = jnp.linalg.norm(params["L1"]) + jnp.linalg.norm(params["L2"])
        return jnp.square(outputs - y).mean() + STRENGTH * penalty

    params, state = carry
    value, gradient = jax.value_and_grad(loss)(params)
    updates, state = ADAM.update(gradient, state)
    return (optax.apply_updates(params, updates), state), value


def optax_tasks(networks: int, steps: int) -> dict[str, Task]:
    """The same networks, all on one target, in one program on one CPU device."""
    jaxarch.use_cpu_cores(1)
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (10_000, 3)).astype(np.float32)
    x[:, 2] = 1
    y = np.square(x[:, :2]).sum(1, keepdims=True)

    def drawn(carry: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        rows = jax.random.randint(key, (BATCH,), 0, len(x))
        return by_hand(carry, jnp.asarray(x)[rows], jnp.asarray(y)[rows])

    @jax.jit
    def train(params: Any, keys: jax.Array) -> Any:
        return jax.lax.scan(jax.vmap(drawn), (params, jax.vmap(ADAM.init)(params)), keys)

    begins = [start(random) for _ in range(networks)]
    params = jax.tree.map(lambda *leaves: jnp.stack(leaves), *begins)
    keys = jax.random.split(jax.random.key(0), (steps, networks))
    return {"train": lambda: timed(lambda: jax.block_until_ready(train(params, keys)))}


def optax_steps(start: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """The parameters after one step on each of some batches."""
    carry = (start, ADAM.init(start))
    ones = np.ones((BATCH, 1), np.float32)
    for points, targets in zip(x, y, strict=True):
        carry, _ = by_hand(carry, np.hstack([points, ones]), targets)
    return {name: np.asarray(leaf) for name, leaf in carry[0].items()}


# PyTorch ---------------------------------------------------------------------------------------------


def network(params: dict[str, Any], x: Any) -> Any:
    """Outputs of the spectral network ([S] eq. 3.1 to 3.4) for inputs with their bias."""
    import torch

    first = params["phi1"] * (params["L1"] - params["L2"][:, None])
    last = params["phi2"] * (params["L2"] - params["L3"][:, None])
    return torch.relu(x @ first.T) @ last.T - x @ (last @ params["phi1"]).T


def loss(params: dict[str, Any], x: Any, y: Any) -> Any:
    """Mean squared error and penalty."""
    penalty = params["L1"].norm() + params["L2"].norm()
    return (network(params, x) - y).square().mean() + STRENGTH * penalty


def torch_params(params: dict[str, np.ndarray]) -> dict[str, Any]:
    """Leaves that are trained."""
    import torch

    return {name: torch.tensor(leaf, requires_grad=True) for name, leaf in params.items()}


def optimizer(params: dict[str, Any], **options: bool) -> Any:
    """Adam."""
    import torch

    return torch.optim.Adam(params.values(), lr=RATE, **options)


def descend(params: dict[str, Any], adam: Any, x: Any, y: Any) -> Any:
    """One step, in place."""
    value = loss(params, x, y)
    adam.zero_grad()
    value.backward()
    adam.step()
    return value


def torch_tasks(networks: int, steps: int) -> dict[str, Task]:
    """Train networks one after the other on one thread: on rows drawn by index, and from a DataLoader."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    x = torch.tensor(random.uniform(-1, 1, (10_000, 3)), dtype=torch.float32)
    x[:, 2] = 1
    y = x[:, :2].square().sum(1, keepdim=True)

    def train(steps: int) -> None:
        params = torch_params(start(random))
        adam = optimizer(params, fused=True)
        for _ in range(steps):
            rows = torch.randint(len(x), (BATCH,))
            descend(params, adam, x.index_select(0, rows), y.index_select(0, rows))

    class Spectral(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            leaves = {k: torch.nn.Parameter(torch.tensor(v)) for k, v in start(random).items()}
            self.params = torch.nn.ParameterDict(leaves)

        def forward(self, x: Any) -> Any:
            return network(self.params, x)

    def train_from_loader(steps: int) -> None:
        model, mse = Spectral(), torch.nn.MSELoss()
        adam = torch.optim.Adam(model.parameters(), lr=RATE)
        loader = DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True)
        total = 0.0
        for _ in range(steps // len(loader)):
            for points, targets in loader:
                adam.zero_grad()
                penalty = model.params["L1"].norm() + model.params["L2"].norm()
                value = mse(model(points), targets) + STRENGTH * penalty
                value.backward()
                adam.step()
                total += value.item()

    return {
        "train": lambda: timed(lambda: train(steps)),
        "DataLoader": lambda: timed(lambda: train_from_loader(steps)),
    }


def torch_steps(start: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """The parameters after one step on each of some batches."""
    import torch

    params = torch_params(start)
    adam = optimizer(params, fused=True)
    ones = np.ones((BATCH, 1), np.float32)
    for points, targets in zip(x, y, strict=True):
        descend(params, adam, torch.from_numpy(np.hstack([points, ones])), torch.from_numpy(targets))
    return {name: leaf.detach().numpy() for name, leaf in params.items()}


def agreement_tasks(networks: int, steps: int) -> dict[str, Task]:
    """How far both libraries lie apart after a few steps from the same start."""

    def difference() -> dict[str, float]:
        random = np.random.default_rng(0)
        begin = start(random)
        x = random.uniform(-1, 1, (AGREEMENT_STEPS, BATCH, 2)).astype(np.float32)
        y = np.square(x).sum(-1, keepdims=True)
        ours, others = jaxarch_steps(begin, x, y), (torch_steps(begin, x, y), optax_steps(begin, x, y))
        moved = max(float(abs(ours[name] - begin[name]).max()) for name in begin)
        apart = max(float(abs(ours[name] - other[name]).max()) for name in begin for other in others)
        return {"moved": moved, "apart": apart}

    return {"compare": difference}


WORKERS: dict[str, Callable[[int, int], dict[str, Task]]] = {
    "jaxarch": jaxarch_tasks,
    "optax": optax_tasks,
    "torch": torch_tasks,
    "agreement": agreement_tasks,
}


# Measuring and reporting -----------------------------------------------------------------------------


def compare(networks: int, steps: int, repeats: int) -> dict[str, list[float]]:
    """CPU microseconds per network and step, and ratios, one value a repetition."""
    with_torch = importlib.util.find_spec("torch") is not None
    if with_torch:
        check_agreement(__file__, AGREEMENT_STEPS, "parameters", TOLERANCE)
    else:
        print(NO_TORCH)
    ours = Worker(__file__, "jaxarch", networks=networks, steps=steps)
    by_hand = Worker(__file__, "optax", networks=networks, steps=steps)
    by_hand.ask("train")
    theirs = Worker(__file__, "torch", steps=steps) if with_torch else None
    print(f"first call, with compilation: {ours.ask('train')['wall']:.1f} s")
    figures: dict[str, list[float]] = {}

    def add(name: str, value: float) -> float:
        figures.setdefault(name, []).append(value)
        return value

    for _ in range(repeats):
        us = add("jaxarch", 1e6 * ours.ask("train")["cpu"] / (networks * steps))
        hand = add("JAX by hand", 1e6 * by_hand.ask("train")["cpu"] / (networks * steps))
        add("jaxarch / by hand", us / hand)
        if theirs is not None:
            bare = add("PyTorch", 1e6 * theirs.ask("train")["cpu"] / steps)
            loader = add("DataLoader", 1e6 * theirs.ask("DataLoader")["cpu"] / steps)
            add("PyTorch / jaxarch", bare / us)
            add("DataLoader / jaxarch", loader / us)
    ours.close()
    by_hand.close()
    if theirs is not None:
        theirs.close()
    return figures


def scaling(steps: int, repeats: int) -> dict[str, list[float]]:
    """Wall microseconds per network and step for more and more networks, on all devices there are."""
    jaxarch.use_cpu_cores()
    print(f"jaxarch on {len(jax.devices())} x {jax.devices()[0].device_kind}, {steps} steps")
    figures = {}
    for networks in SCALES:
        train = trained(networks, steps)
        train()
        walls = [timed(train)["wall"] for _ in range(repeats)]
        figures[f"jaxarch, networks: {networks}"] = [1e6 * wall / (networks * steps) for wall in walls]
    return figures


def show(figures: dict[str, list[float]], remarks: dict[str, str]) -> None:
    """A line a figure: median and quartiles."""
    print(f"{'':26}{'median':>10}{'quartiles':>22}")
    for name, values in figures.items():
        low, median, high = quartiles(values)
        spread = f"{low:.2f} to {high:.2f}"
        print(f"{name:26}{median:10.2f}{spread:>22}  {remarks.get(name, '')}".rstrip())


def cost_of_the_sweep(microseconds: float, of: str) -> str:
    """What all networks of [S] experiment 1 cost at so many microseconds a network and step."""
    hours = microseconds * 1e-6 * PAPER_NETWORKS * PAPER_STEPS / 3600
    return f"{of}: all {PAPER_NETWORKS} networks x {PAPER_STEPS} steps of the paper in {hours:.2f} hours"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--networks", type=int, default=16, help="networks in jaxarch's program")
    parser.add_argument("--steps", type=int, default=1000, help="steps a network, a multiple of 100")
    parser.add_argument("--repeats", type=int, default=7, help="repetitions of each measurement")
    parser.add_argument("--scaling", action="store_true", help="jaxarch alone, 1 to 4200 networks")
    parser.add_argument("--json", type=Path, help="a file for all measurements")
    parser.add_argument("--worker", choices=WORKERS, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    chosen = arguments()
    if chosen.worker:
        serve(lambda: WORKERS[chosen.worker](chosen.networks, chosen.steps), 1)
        return
    if chosen.scaling:
        figures = scaling(chosen.steps, chosen.repeats)
        show(figures, {})
        print(cost_of_the_sweep(min(quartiles(values)[1] for values in figures.values()), "on this machine"))
    else:
        figures = compare(chosen.networks, chosen.steps, chosen.repeats)
        goals = {
            "PyTorch / jaxarch": f"goal: at least {GOAL:.0f}",
            "jaxarch / by hand": f"goal: at most {GOAL_BY_HAND:g}",
        }
        show(figures, goals)
        print(cost_of_the_sweep(quartiles(figures["jaxarch"])[1], "on one core"))
    if chosen.json:
        chosen.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
