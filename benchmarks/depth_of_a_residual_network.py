"""Is a residual network whose depth and widths were searched better than a random one of equal cost?

    python benchmarks/depth_of_a_residual_network.py            # ten minutes on CPU, one core
    python benchmarks/depth_of_a_residual_network.py --seeds 2  # a first look

The network is a ResNet of two stages of three blocks, with 8 and 16 channels, on the digits of scikit-learn.
`search.transformable` looks for architectures of 30% of its multiply-adds, give or take 5% of that:

- widths and depth: all blocks but the first of each stage may be removed.
- widths: all blocks stay.
- random widths and depth, random widths: candidates drawn uniformly, until the cost is in the same range.

In the searches, weights descend on 600 digits and logits on 600 others. Each architecture is then trained
from new weights on all 1,200, and tested on the other 597. Random architectures are trained alike. Nothing
was tuned here: the learning rate of the logits is that of `jaxarch run pruning.channels`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxarch

TARGET, TOLERANCE, RATE = 0.3, 0.05, 0.03
WIDTHS = (0.125, 0.25, 0.375, 0.5, 0.75, 1.0)
CHAINS = ("encoder/[12]", "encoder/[45]")


def digits(rows: np.ndarray, others: np.ndarray, steps: int) -> jaxarch.Problem:
    """Return a problem whose weights descend on some rows, and whose logits on others."""
    data = jaxarch.lab.data.load("digits")
    return jaxarch.supervised(
        lambda rngs: jaxarch.models.ResNet((8, 16), 3, shortcut="padding", inputs=1, outputs=10, rngs=rngs),
        ((data.x / 16).reshape(-1, 8, 8, 1).astype(np.float32), data.y),
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optax.adam(1e-2),
        steps=steps,
        batch_size=32,
        train=rows,
        validation=others,
    )


def searched(problem: jaxarch.Problem, depth: object) -> Callable[[jax.Array], jaxarch.Network]:
    """Return a search as a function of the key."""
    search = jaxarch.search.transformable(
        TARGET, tolerance=TOLERANCE, widths=WIDTHS, depth=depth, scores_optimizer=optax.adam(RATE)
    )
    return jax.jit(lambda key: search(key, problem))


def drawn(problem: jaxarch.Problem, depth: object) -> Callable[[jax.Array], jaxarch.Network]:
    """Return a function of the key that draws an architecture of the same cost."""
    search = jaxarch.search.transformable(TARGET, tolerance=TOLERANCE, widths=WIDTHS, depth=depth)

    @jax.jit
    def draw(key: jax.Array) -> jaxarch.Network:
        state = search.init(search.settings, key, problem, None)
        # Only the largest logit of each group and chain counts, so normal ones draw uniformly.
        logits = {
            name: jax.random.normal(jax.random.fold_in(key, number), of.shape)
            for number, (name, of) in enumerate(state.trainable["scores"].items())
        }
        state = state._replace(
            trainable={**state.trainable, "scores": logits},
            memory=state.memory._replace(reached=jnp.asarray(False)),
        )
        return search.network(
            search.settings, state._replace(memory=search.after_step(search.settings, state))
        )

    def until(key: jax.Array) -> jaxarch.Network:
        tries = (draw(jax.random.fold_in(key, number)) for number in range(10_000))
        return next(network for network in tries if network.info["reached"])

    return until


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    given = parser.parse_args()
    order = np.random.default_rng(0).permutation(1797)
    halves = digits(order[:600], order[600:1200], given.steps)
    whole = digits(order[:1200], order[:600], given.steps)
    pictures, labels = whole.gather(whole.data, None, jnp.asarray(order[1200:]))
    retrain = jaxarch.retrain("cold", nonnegative=False)
    train = jax.jit(lambda key, network: retrain(key, whole, network))
    ways = {
        "widths and depth": searched(halves, CHAINS),
        "random widths and depth": drawn(halves, CHAINS),
        "widths": searched(halves, None),
        "random widths": drawn(halves, None),
    }
    print("accuracy, median [quartiles]; share of the multiply-adds; blocks of both stages that may go, kept")
    for name, way in ways.items():
        accuracies, costs, depths = [], [], []
        for seed in range(given.seeds):
            key = jax.random.key(seed)
            network = way(key)
            trained = train(jax.random.fold_in(key, 1), network)
            outputs = whole.predict(trained.params, trained.state, (pictures, labels))
            accuracies.append(float((outputs.argmax(-1) == labels).mean()))
            costs.append(round(float(network.info["cost"]), 3))
            depths.append([int(kept) for kept in network.info.get("depths", {}).values()])
        low, middle, high = np.percentile(accuracies, (25, 50, 75))
        print(f"{name}: {middle:.3f} [{low:.3f}, {high:.3f}]; {costs}; {depths}", flush=True)
        print("   ", [round(of, 4) for of in accuracies], flush=True)


if __name__ == "__main__":
    main()
