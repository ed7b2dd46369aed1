"""What does a spectral network's forward and backward pass cost, beside an ordinary network's of its widths?

    python benchmarks/spectral_pass.py              # on CPU, one core, one thread
    python benchmarks/spectral_pass.py --depths 2 4 # some of the depths only

Every pass is the gradient of a mean squared error in all parameters, and the error itself, as one compiled
program on float32; the last activation is left out, the others are ReLU.

- plain: `x = relu(x @ w.T)`, layer after layer: B products.
- spectral: `spectral.feedforward` with L_1 = 0 and `method="auto"`: the same layers with all their skips.
- gated: the same in the gated form, `form="gated"`.
- materialised: the same network with every W_ij built ([S] eq. 4.3). It is left out beyond 16 layers, where
  it costs more than a benchmark is worth.

All of them take turns in one process, so that what else the machine does strikes them alike; ratios are of
neighbours in time. Times are CPU times. Memory is what the compiled program asks for beside its inputs and
outputs.

[S] Peri, Chicchi, Fanelli and Giambagli, Spectral Architecture Search for Neural Network Models (SPARCS).

Measured on a shared x86-64 core, medians of 7, over widths 64 and 256 and batches of 128 and 1024: with 2, 4,
8, 16 and 32 blocks a spectral network takes at most 1.1, 1.7, 1.9, 1.9 and 2.1 times the plain one's time and
the same memory, or up to twice as much where the batch is smaller than the width. Materialising takes 1.3 to
2.4, 1.5 to 3.4, 2.7 to 6.3 and 5.5 to 15 times as long as that. With narrow ends the spectral network takes
1.07 to 1.21 times the plain one's time and up to 2.9 times its memory (784-300-300-10, batch 128), and
materialising 1.0 to 3.6 times the spectral one's time.

A gated network takes .79 to 1.05 times the plain one's time and the same memory; with narrow ends .98 to 1.11
times the time, the most for 3-300-1, and at most 1.01 times the memory (on a loaded machine; median 1.02).

Pruned to 60 neurons a hidden layer and exported, a network takes 1.04 to 1.26 times as long as an ordinary
one of that size with 3 inputs; with 784 inputs 2.1 times, since its skip connections double the products.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import typing
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np

from jaxarch import spectral

DEPTHS, WIDTHS, BATCHES = (2, 4, 8, 16, 32), (64, 256), (128, 1024)
NARROW = ((3, 300, 1), (3, 300, 300, 1), (784, 300, 300, 10))
LEFT = 60
"""Hidden neurons a layer in the networks of narrow ends that are pruned and exported."""
MATERIALISED_UP_TO = 16
SECONDS = 0.03

Network = Callable[[Any, jax.Array], jax.Array]


def plain(params: Any, x: jax.Array) -> jax.Array:
    """An ordinary network with the eigenvectors for its weights."""
    return chain(params["eigenvectors"], x)


def chain(weights: Any, x: jax.Array) -> jax.Array:
    """An ordinary network, layer after layer."""
    *hidden, last = weights.values()
    for weights in hidden:
        x = jax.nn.relu(x @ weights.T)
    return x @ last.T


def spectral_network(
    method: spectral.Method, form: spectral.algebra.Form, params: Any, x: jax.Array
) -> jax.Array:
    """A spectral network."""
    return spectral.feedforward(*spectral.unpack(params, form), x, jax.nn.relu, method, form=form)


def compiled(network: Network, params: Any, x: jax.Array, y: jax.Array) -> Any:
    """The program of a forward and a backward pass."""

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.mean(jnp.square(network(params, x) - y))

    return jax.jit(jax.value_and_grad(loss)).lower(params, x, y).compile()


def seconds(program: Any, args: tuple[Any, ...], times: int) -> float:
    """CPU time of one run."""
    start = time.process_time()
    for _ in range(times):
        results = program(*args)
    jax.block_until_ready(results)
    return (time.process_time() - start) / times


def examples(
    widths: tuple[int, ...], batch: int, form: spectral.algebra.Form = "eigendecomposition"
) -> tuple[Any, jax.Array, jax.Array]:
    """Random parameters of a spectral network, inputs and targets."""
    normal = jax.nn.initializers.normal(0.3)
    params = spectral.init(jax.random.key(0), widths, [normal] * len(widths), form=form)
    x = jax.random.normal(jax.random.key(1), (batch, widths[0]))
    return params, x, jax.random.normal(jax.random.key(2), (batch, widths[-1]))


def interleaved(programs: dict[str, Any], args: dict[str, Any], repeats: int) -> dict[str, list[float]]:
    """CPU times of programs that take turns, the first of which says how often each is run."""
    for name, program in programs.items():
        jax.block_until_ready(program(*args[name]))
    first = next(iter(programs))
    times = max(1, int(SECONDS / seconds(programs[first], args[first], 3)))
    figures: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(repeats):
        for name, program in programs.items():
            figures[name].append(seconds(program, args[name], times))
    return figures


def exported(widths: tuple[int, ...], batch: int, repeats: int) -> dict[str, list[float]]:
    """CPU times of outputs: a pruned and exported network, an ordinary one of the widths that are left."""
    params, x, _ = examples(widths, batch)
    masks = {f"L{i}": jnp.arange(n) < LEFT for i, n in enumerate(widths[1:-1], 2)}
    weights = spectral.direct_weights(params, {"neurons": masks})
    bundles = {f"W{i}_{i - 1}": weights[f"W{i}_{i - 1}"] for i in range(2, len(widths) + 1)}
    networks = {"dense": (chain, bundles), "exported": (spectral.direct_feedforward, weights)}
    programs = {name: jax.jit(net).lower(leaves, x).compile() for name, (net, leaves) in networks.items()}
    return interleaved(programs, {name: (leaves, x) for name, (_, leaves) in networks.items()}, repeats)


def measure(widths: tuple[int, ...], batch: int, repeats: int) -> dict[str, list[float]]:
    """CPU times, one a repetition, and memory of every network."""
    args = {form: examples(widths, batch, form) for form in typing.get_args(spectral.algebra.Form)}
    networks: dict[str, Network] = {
        "plain": plain,
        "spectral": partial(spectral_network, "auto", "eigendecomposition"),
        "gated": partial(spectral_network, "auto", "gated"),
    }
    if len(widths) - 1 <= MATERIALISED_UP_TO:
        networks["materialised"] = partial(spectral_network, "materialised", "eigendecomposition")
    given = {name: args["gated" if name == "gated" else "eigendecomposition"] for name in networks}
    programs = {name: compiled(network, *given[name]) for name, network in networks.items()}
    figures = interleaved(programs, given, repeats)
    for name, program in programs.items():
        figures[f"{name} bytes"] = [float(program.memory_analysis().temp_size_in_bytes)]
    return figures


def ratio(figures: dict[str, list[float]], first: str, second: str) -> np.ndarray:
    """Lower quartile, median and upper quartile of a ratio of neighbours in time."""
    return np.percentile(np.divide(figures[first], figures[second]), (25, 50, 75))


def show(name: str, batch: int, figures: dict[str, list[float]]) -> None:
    """A line: what a network costs in units of the plain one, and of which materialising is a multiple."""
    line = f"{name:20}{batch:7}{1e6 * float(np.median(figures['plain'])):10.0f}"
    for form in ("spectral", "gated"):
        low, median, high = ratio(figures, form, "plain")
        memory = figures[f"{form} bytes"][0] / figures["plain bytes"][0]
        line += f"{median:8.2f}  [{low:.2f}, {high:.2f}]{memory:10.2f}"
    if "materialised" in figures:
        line += f"{ratio(figures, 'materialised', 'spectral')[1]:12.2f}"
        line += f"{figures['materialised bytes'][0] / figures['spectral bytes'][0]:10.2f}"
    print(line, flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--depths", type=int, nargs="*", default=DEPTHS, help="B, layers but for the input's")
    parser.add_argument("--repeats", type=int, default=11, help="repetitions of each measurement")
    parser.add_argument("--json", type=Path, help="a file for all measurements")
    return parser.parse_args()


def main() -> None:
    chosen = arguments()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    cases = {f"B = {depth}, N = {n}": (n,) * (depth + 1) for n in WIDTHS for depth in chosen.depths}
    cases |= {"-".join(map(str, widths)): widths for widths in NARROW}
    ratios = f"{'time':>8}{'quartiles':>14}{'memory':>10}"
    print(
        f"{'':27}{'plain':>10}{'spectral / plain':>32}{'gated / plain':>32}{'materialised / spectral':>24}\n"
        f"{'widths':20}{'batch':>7}{'us':>10}{ratios}{ratios}{'time':>12}{'memory':>10}"
    )
    measured = {}
    for name, widths in cases.items():
        for batch in BATCHES:
            measured[f"{name}, batch {batch}"] = figures = measure(widths, batch, chosen.repeats)
            show(name, batch, figures)
    print(f"\npruned to {LEFT} neurons a hidden layer and exported, against an ordinary network of that size")
    for widths in NARROW:
        for batch in BATCHES:
            name = f"{'-'.join(map(str, widths))} exported"
            measured[f"{name}, batch {batch}"] = figures = exported(widths, batch, chosen.repeats)
            low, median, high = ratio(figures, "exported", "dense")
            dense = 1e6 * float(np.median(figures["dense"]))
            print(f"{name:28}{batch:7}{dense:10.1f}{median:8.2f}  [{low:.2f}, {high:.2f}]", flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps(measured, indent=2) + "\n")


if __name__ == "__main__":
    main()
