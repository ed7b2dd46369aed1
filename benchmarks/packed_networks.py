"""How much smaller and faster is a network whose weights are bits?

    python benchmarks/packed_networks.py                     # a few minutes, on one core
    python benchmarks/packed_networks.py --dataset mnist     # the accuracies below
    python benchmarks/packed_networks.py --widths 512        # one width only

Perceptrons of 784, w, w, w and 10 units are packed by `jaxarch.binary.pack`. Both forms are timed as compiled
programs, interleaved. `weight-free` has weights 0 and c and normalised ReLUs, `signed` has -c, 0 and c, and
`binary` has -1 and 1 and signs as activations. Masks that a search finds are packed too, for their accuracy,
and for the additions that a minimum spanning tree of neurons would save.

At width 2,048, for one example, a weight-free network is 32 times smaller and 3.6 times as fast. With
activations of 8 bits it is 5.6 times as fast, and a binary network 5.8 times. At width 512 the ratios are
.96, 1.5 and 1.3. For 64 examples only counted products are faster. 8 bits cost no accuracy on MNIST. The tree
saves 1 to 4% of the additions of masks over weights of 1, and none over signs. docs/packed_networks.md has
the tables.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.sparse.csgraph import minimum_spanning_tree

import jaxarch
from jaxarch.lab.data import load_images

KINDS: dict[str, tuple[float, ...]] = {"weight-free": (0, 1), "signed": (-1, 0, 1), "binary": (-1, 1)}
BITS = (None, 8, 4)
"""Bits of the activations; `None` to round none."""
REPETITIONS = 30
SEEDS = 5
STEPS = 600


def normalised(x: jax.Array) -> jax.Array:
    """Return activations of mean 0 and standard deviation 1."""
    return (x - x.mean(axis=-1, keepdims=True)) / (x.std(axis=-1, keepdims=True) + 1e-5)


def relu(x: jax.Array) -> jax.Array:
    """Return normalised activations, those above 0 alone."""
    return jax.nn.relu(normalised(x))


def perceptron(activation: Callable[[jax.Array], jax.Array]) -> Callable[..., jax.Array]:
    """Return the function of a perceptron without biases, `(layers, x) -> outputs`."""

    def apply(layers: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        *hidden, last = layers.values()
        for layer in hidden:
            x = activation(x @ layer)
        return normalised(x @ last)

    return apply


def drawn(kind: str, width: int) -> dict[str, jax.Array]:
    """Draw the weights of a perceptron."""
    rng, sizes = np.random.default_rng(0), (784, width, width, width, 10)
    shapes = enumerate(itertools.pairwise(sizes))
    return {f"layer {i}": jnp.asarray(rng.choice(KINDS[kind], shape), jnp.float32) for i, shape in shapes}


def times(calls: list[tuple[Callable[..., Any], tuple[Any, ...]]]) -> np.ndarray:
    """Return the seconds of each call, shape (calls, repetitions), one call after the other."""
    for call, arguments in calls:
        jax.block_until_ready(call(*arguments))
    found = np.empty((len(calls), REPETITIONS))
    for repetition in range(REPETITIONS):
        for number, (call, arguments) in enumerate(calls):
            start = time.perf_counter()
            jax.block_until_ready(call(*arguments))
            found[number, repetition] = time.perf_counter() - start
    return found


def quartiles(values: Any, digits: int = 2) -> str:
    """Return the median and the quartiles in words."""
    low, median, high = np.quantile(values, (0.25, 0.5, 0.75))
    return f"{median:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def speed(widths: list[int], examples: list[int]) -> None:
    """Print how many times as fast packed networks are as dense ones in float32."""
    print("network      width  examples  smaller  float32, us  times as fast: exact, 8 bits, 4 bits")
    for kind in KINDS:
        apply = perceptron(jnp.sign if kind == "binary" else relu)
        for width in widths:
            layers = drawn(kind, width)
            for count in examples:
                x = jax.random.uniform(jax.random.key(1), (count, 784))
                bits = BITS[:1] if kind == "binary" else BITS
                packed = [jaxarch.binary.pack(apply, layers, x, activation_bits=of) for of in bits]
                calls = [(jax.jit(apply), (layers, x)), *((jax.jit(p.function), (p.tree, x)) for p in packed)]
                dense, *others = times(calls)
                ratios = "  ".join(quartiles(dense / each) for each in others)
                smaller = packed[0].before / packed[0].now
                head = f"{kind:12} {width:5} {count:9} {smaller:8.1f} {np.median(dense) * 1e6:12.0f}"
                print(f"{head}  {ratios}", flush=True)


def accuracy(dataset: str, width: int) -> None:
    """Print the accuracy of trained masks, packed with rounded activations, and the use of a tree of rows."""
    images = load_images(dataset)
    x = np.asarray(images.x, np.float32).reshape(len(images.x), -1)
    x, y = x / x.max(), np.asarray(images.y)
    held_out = np.arange(len(y)) >= (images.train if images.train < len(y) else len(y) * 2 // 3)
    apply = perceptron(relu)

    def init(key: jax.Array) -> dict[str, jax.Array]:
        sizes = (x.shape[1], width, width, 10)
        shapes = zip(jax.random.split(key, 3), sizes, sizes[1:], strict=False)
        return {f"layer {i}": jax.random.normal(each, shape) for i, (each, *shape) in enumerate(shapes)}

    problem = jaxarch.supervised(
        (init, lambda layers, x: 5 * apply(layers, x)),
        (x, y),
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optax.adam(1e-2),
        steps=STEPS,
        batch_size=100,
        train=np.flatnonzero(~held_out),
    )
    test, labels = jnp.asarray(x[held_out]), y[held_out]
    for weights in ("ones", "signed constant"):
        rows = []
        search = jaxarch.search.two_temperature(weights=weights)
        networks, _ = jaxarch.over_seeds(search, jax.random.split(jax.random.key(0), SEEDS), problem)
        for seed in range(SEEDS):
            network = networks.of_run(seed)
            layers = jaxarch.masks.apply_mask(network.mask, network.params)
            packed = [jaxarch.binary.pack(apply, layers, test[:8], activation_bits=bits) for bits in BITS]
            right = [np.mean(np.argmax(jax.jit(apply)(layers, test), -1) == labels)]
            right += [np.mean(np.argmax(jax.jit(each)(test), -1) == labels) for each in packed]
            rows.append([*right, packed[0].before / packed[0].now, *map(tree_of_rows, layers.values())])
        names = ("float32", "exact", "8 bits", "4 bits", "times smaller", "tree of layer 0", "of 1", "of 2")
        print(f"{dataset}, {weights}, {width} units, {SEEDS} seeds")
        for name, values in zip(names, np.transpose(rows), strict=True):
            print(f"  {name:16} {quartiles(values, 3)}")


def tree_of_rows(layer: jax.Array) -> float:
    """Return the additions that a minimum spanning tree of neurons takes, over those of the neurons alone.

    A neuron computes the sum of another one, and adds the inputs in which the two differ.
    """
    signs = np.sign(np.asarray(layer, np.float64)).T
    signs = np.vstack([np.zeros(signs.shape[1]), signs])  # A neuron without inputs is the root.
    additions = np.abs(signs).sum(axis=1)
    same = sum(entries @ entries.T for entries in ((signs > 0) * 1.0, (signs < 0) * 1.0))
    apart = additions[:, None] + additions - 2 * same
    # An edge of weight 0 counts as missing, so that equal neurons would not be linked.
    tree = minimum_spanning_tree(apart + 1)
    return float((tree.data - 1).sum() / additions.sum())


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--widths", type=int, nargs="+", default=[512, 1024, 2048, 4096])
    parser.add_argument("--examples", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--dataset", default="digits", help="digits or mnist, for the accuracies")
    arguments = parser.parse_args()
    accuracy(arguments.dataset, 512)
    speed(arguments.widths, arguments.examples)


if __name__ == "__main__":
    main()
