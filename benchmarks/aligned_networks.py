"""Are networks of different seeds the same up to permutation, and does alignment remove their loss barrier?

    export JAXARCH_DATA=...                                    # where MNIST lies; digits are taken without
    python benchmarks/aligned_networks.py                      # MNIST, three widths: some ten minutes
    python benchmarks/aligned_networks.py --widths 64          # a first look
    python benchmarks/aligned_networks.py --authors FOLDER     # beside a clone of samuela/git-re-basin

Pairs of perceptrons with three hidden layers are trained from different seeds. The second network of a pair
is aligned with the first by weights, and by correlations of units on 2,000 training examples. The barrier is
the rise of the test loss along the line between the two networks, above the line between their losses.
Medians of three pairs, by Adam for ten epochs:

| width | loss | barrier as they are | aligned by weights | aligned by units |
|---|---|---|---|---|
| 32 | .140 | 2.77 | 1.82 | .831 |
| 128 | .075 | 1.85 | 1.41 | .229 |
| 512 | .063 | 1.25 | .64 | .079 |

Inner products after alignment by weights, on one pair a width: 63.2, 143.5 and 369.3. Five runs of the
authors' function reach 57.9 to 60.8, 141.2 to 147.6 and 363.0 to 368.7. All are local optima.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxarch
from jaxarch.lab import data

Params = dict[str, dict[str, Any]]
LAYERS = 4


def init(key: jax.Array, widths: tuple[int, ...]) -> Params:
    """Draw weights from He's normal distribution, by layer."""
    keys = jax.random.split(key, len(widths) - 1)
    draw = jax.nn.initializers.he_normal()
    return {
        f"Dense_{layer}": {"kernel": draw(keys[layer], sizes), "bias": jnp.zeros(sizes[1])}
        for layer, sizes in enumerate(itertools.pairwise(widths))
    }


def apply(params: Params, x: jax.Array) -> jax.Array:
    """Return the logits of a perceptron with ReLUs."""
    for layer in range(LAYERS):
        of = params[f"Dense_{layer}"]
        x = x @ of["kernel"] + of["bias"]
        x = jax.nn.relu(x) if layer < LAYERS - 1 else x
    return x


def mean_loss(params: Params, batch: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Return the mean cross-entropy of a batch."""
    x, y = batch
    return optax.softmax_cross_entropy_with_integer_labels(apply(params, x), y).mean()


def task(name: str) -> tuple[Any, Any, Any, Any]:
    """Return training inputs and labels, then those of the test."""
    found = data.load_images(name)
    x = found.x.reshape(len(found.x), -1).astype(np.float32)
    x = (x - x.mean()) / x.std()
    count = found.train if name == "mnist" else len(x) * 4 // 5
    return x[:count], found.y[:count], x[count:], found.y[count:]


def trained(width: int, seeds: int, epochs: int, x: Any, y: Any) -> list[Params]:
    """Train one perceptron a seed, by Adam at a rate that falls to 0."""
    widths = (x.shape[1], *[width] * (LAYERS - 1), 10)
    steps = epochs * len(x) // 500
    problem = jaxarch.supervised(
        (lambda key: init(key, widths), apply),
        (x, y),
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optax.adam(optax.cosine_decay_schedule(1e-3, steps)),
        steps=steps,
        batch_size=500,
        sampling="epochs",
    )
    search = jaxarch.search.dense(nonnegative=False)
    # One after the other: on a CPU, seeds at once gain nothing.
    return [search(key, problem).params for key in jax.random.split(jax.random.key(0), seeds)]


def measured(width: int, pairs: int, epochs: int, arrays: Any) -> list[dict[str, float]]:
    """Return losses, barriers and cosines of some pairs of networks."""
    x, y, *test = arrays
    networks = trained(width, 2 * pairs, epochs, x, y)
    batches = [
        (test[0][start : start + 2000], test[1][start : start + 2000])
        for start in range(0, len(test[0]), 2000)
    ]
    rows = []
    for a, b in zip(networks[::2], networks[1::2], strict=True):
        begun = time.perf_counter()
        by_weights = jaxarch.analysis.align(apply, a, b, x[:32])
        seconds = time.perf_counter() - begun
        units = jaxarch.analysis.unit_correlations(apply, a, b, [x[:1000], x[1000:2000]])
        by_units = jaxarch.analysis.align(apply, a, b, x[:32], by=units)
        found = {
            name: jaxarch.analysis.barrier(mean_loss, a, second, batches)
            for name, second in (
                ("as they are", b),
                ("weights", by_weights.second),
                ("units", by_units.second),
            )
        }
        matched = [np.diag(of[:, by_units.orders[name]]).mean() for name, of in units.items()]
        rows.append(
            {
                "loss": float(found["weights"].losses[0] + found["weights"].losses[-1]) / 2,
                "cosine, weights": by_weights.cosine[1],
                "cosine, units": by_units.cosine[1],
                "correlation": float(np.mean(matched)),
                "seconds": seconds,
                **{f"barrier, {name}": float(of.height) for name, of in found.items()},
            }
        )
    return rows


def beside_the_authors(folder: Path, width: int, epochs: int, arrays: Any) -> None:
    """Print the inner product after alignment by jaxarch, and by five runs of the authors' function."""
    sys.path.insert(0, str(folder / "src"))
    # Their `utils` imports names that JAX no longer has.
    sys.modules["utils"] = SimpleNamespace(rngmix=lambda key, number: jax.random.fold_in(key, number))  # type: ignore[assignment]
    theirs: Any = importlib.import_module("weight_matching")
    a, b = trained(width, 2, epochs, *arrays[:2])

    def flat(params: Params) -> dict[str, Any]:
        return {f"{layer}/{name}": leaf for layer, of in params.items() for name, leaf in of.items()}

    def inner(second: dict[str, Any]) -> float:
        return float(sum(jnp.vdot(leaf, second[path]) for path, leaf in flat(a).items()))

    begun = time.perf_counter()
    ours = inner(flat(jaxarch.analysis.align(apply, a, b, arrays[0][:32]).second))
    print(f"width {width}: jaxarch {ours:.4f} in {time.perf_counter() - begun:.1f} s", end="")
    spec = theirs.mlp_permutation_spec(LAYERS - 1)
    for seed in range(5):
        begun = time.perf_counter()
        found = theirs.weight_matching(jax.random.key(seed), spec, flat(a), flat(b), silent=True)
        reached = inner(theirs.apply_permutation(spec, found, flat(b)))
        print(f", theirs {reached:.4f} in {time.perf_counter() - begun:.1f} s", end="", flush=True)
    print()


def main() -> None:
    """Train, align and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--widths", type=int, nargs="+", default=[32, 128, 512])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--authors", type=Path, help="a clone of samuela/git-re-basin")
    options = parser.parse_args()
    arrays = task("mnist" if os.environ.get("JAXARCH_DATA") else "digits")
    for width in options.widths:
        if options.authors:
            beside_the_authors(options.authors, width, options.epochs, arrays)
            continue
        rows = measured(width, options.pairs, options.epochs, arrays)
        print(f"width {width}, medians [least, largest] of {len(rows)} pairs")
        for name in rows[0]:
            values = [row[name] for row in rows]
            print(f"  {name:24} {np.median(values):.4f} [{min(values):.4f}, {max(values):.4f}]", flush=True)


if __name__ == "__main__":
    main()
