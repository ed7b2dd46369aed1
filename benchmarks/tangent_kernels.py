"""Does the tangent kernel of a masked network at initialization tell how well the network will do?

    python benchmarks/tangent_kernels.py              # digits, six seeds: some minutes
    python benchmarks/tangent_kernels.py --seeds 2    # a first look

A perceptron 64-128-128-10 is pruned at its initial weights, and then trained with the mask. The kernel is of
200 training examples, before and after training. The accuracy is that on 397 rows held out.
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
import numpy as np
import optax
from scipy import stats

import jaxarch

WIDTHS = (64, 128, 128, 10)
EXAMPLES = 200


def init(key: jax.Array) -> dict[str, jax.Array]:
    """Draw weights from He's normal distribution."""
    keys = jax.random.split(key, len(WIDTHS) - 1)
    draw = jax.nn.initializers.he_normal()
    return {f"layer {i}": draw(keys[i], WIDTHS[i : i + 2]) for i in range(len(keys))}


def apply(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """Return the logits of a perceptron with ReLUs."""
    *hidden, last = params.values()
    for kernel in hidden:
        x = jax.nn.relu(x @ kernel)
    return x @ last


def searches(density: float) -> dict[str, Any]:
    """Return the ways to choose connections, which all leave the initial weights as they are."""
    search = jaxarch.search
    return {
        "random": search.random_mask(density),
        "SNIP": search.snip(density),
        "two temperatures": search.two_temperature(weights="initial", density=density),
    }


def measured(network: jaxarch.Network, x: Any, y: Any) -> dict[str, np.ndarray]:
    """Return the numbers of the kernels of all runs."""
    of = jax.vmap(lambda params, mask: jaxarch.analysis.ntk(apply, params, x, mask=mask, batch_size=100))
    tangents = of(network.params, network.mask)
    values = np.asarray(tangents.eigenvalues, np.float64)
    return {
        "trace": values.sum(-1),
        "effective rank": np.asarray(tangents.effective_rank),
        "alignment": np.asarray(tangents.alignment(y)),
    }


def quartiles(values: np.ndarray) -> str:
    """Return the median with both quartiles."""
    low, median, high = np.percentile(values, [25, 50, 75])
    return f"{median:.3g} [{low:.3g}, {high:.3g}]"


def main() -> None:
    """Print a table of each density, and rank correlations with the accuracy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--densities", type=float, nargs="*", default=[0.1, 0.02])
    options = parser.parse_args()
    digits = jaxarch.lab.data.load("digits")
    x, y = digits.x / 16, np.asarray(digits.y)
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[:1400], order[1400:]
    problem = jaxarch.supervised(
        (init, apply),
        (x, y),
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optax.adam(1e-3),
        steps=1000,
        batch_size=100,
        train=train,
    )
    keys = jax.random.split(jax.random.key(0), options.seeds)
    # All connections, so that the dense network also starts from the initial weights.
    ways = {("dense", 1.0): jaxarch.search.random_mask(1.0)}
    ways |= {(name, d): of for d in options.densities for name, of in searches(d).items()}
    found = {}
    for way, search in ways.items():
        network, _ = jaxarch.over_seeds(search, keys, problem)
        retrain = jaxarch.retrain("warm", nonnegative=False)
        trained, _ = jaxarch.over_seeds(retrain, keys, problem, network=network)
        outputs = jax.vmap(apply, (0, None))(trained.params, x[test])
        few = train[:EXAMPLES]
        before, after = (measured(of, x[few], y[few]) for of in (network, trained))
        accuracy = np.mean(np.argmax(outputs, -1) == y[test], axis=-1)
        found[way] = before | {"alignment after training": after["alignment"], "accuracy": accuracy}
        print(way, {name: quartiles(values) for name, values in found[way].items()}, flush=True)
    for density in options.densities:
        of = [values for (_, d), values in found.items() if d == density]
        for name in ("trace", "effective rank", "alignment", "alignment after training"):
            within = [stats.spearmanr(each[name], each["accuracy"])[0] for each in of]
            joined = stats.spearmanr(
                *(np.concatenate([each[key] for each in of]) for key in (name, "accuracy"))
            )
            print(
                f"density {density}: {name} and accuracy: {joined[0]:.2f} over all masks,",
                np.round(within, 2),
            )


if __name__ == "__main__":
    main()
