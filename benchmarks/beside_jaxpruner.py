"""Do jaxpruner and jaxarch prune alike, on the same training with the same schedule?

    pip install git+https://github.com/google-research/jaxpruner
    python benchmarks/beside_jaxpruner.py               # a minute, on one core of a CPU

MLP 64-100-100-10 on handwritten digits (1200 to train on, 597 to test on), optax.adamw(3e-3), 1000 steps of
batch 100; each seed draws initial weights and batches, which are the same for all. Kernels alone are masked,
to density .1.

- leaf: gradual magnitude pruning, the same density in every kernel, a change every 20 steps from 100 to 700.
- all: the same over all kernels together.
- shares: as `all`, of magnitudes divided by the norm of their kernel, which is jaxpruner's default.
- RigL: from jaxpruner's random masks, the same density in every kernel; .3 are replaced every 20 steps, along
  a cosine to 700.

At step t jaxpruner has the sparsity of t + 1 on the cubic schedule; jaxarch's begins one step earlier here.

jaxpruner as of 4 April 2024 (f133ee5) runs on JAX 0.6 and later by the `tree_map` below. Printed: test
accuracies as medians of the seeds with quartiles, how many seeds end with the same mask, the Jaccard index of
the two masks, and how many connections there are.

Measured with JAX 0.10.2 on a CPU, 5 seeds: .923 and .925 (leaf), .920 and .920 (all), .923 and .923 (shares),
.916 and .916 (RigL), jaxpruner first; the same mask 0, 3, 4 and 0 times in float32, and 0, 5, 5 and 0 times
in float64 (JAX_ENABLE_X64=1).
"""

from __future__ import annotations

import argparse
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxarch
from jaxarch import masks, optim


def tree_map(function: Any, tree: Any, *rest: Any) -> Any:
    """`jax.tree_map` as it was: removed from JAX 0.6, and `None` was a prefix of any subtree before."""

    def mapped(leaf: Any, *others: Any) -> Any:
        return None if leaf is None else function(leaf, *others)

    return jax.tree.map(mapped, tree, *rest, is_leaf=lambda leaf: leaf is None)


if not hasattr(jax, "tree_map"):
    jax.tree_map = tree_map

import jaxpruner  # noqa: E402
from jaxpruner import sparsity_distributions  # noqa: E402

STEPS, BATCH, DENSITY, EVERY, BEGIN, END = 1000, 100, 0.1, 20, 100, 700
KERNELS = ("first", "second", "head")

digits = jaxarch.lab.data.load("digits")
X, Y = jnp.asarray(digits.x / 16), jnp.asarray(digits.y)


def start(key):
    def layer(key, inputs, outputs):
        kernel = jax.random.normal(key, (inputs, outputs)) * jnp.sqrt(2 / inputs)
        return {"kernel": kernel, "bias": jnp.zeros(outputs)}

    keys = jax.random.split(key, 3)
    sizes = ((64, 100), (100, 100), (100, 10))
    return {name: layer(k, *size) for name, k, size in zip(KERNELS, keys, sizes, strict=True)}


def outputs_of(params, x):
    for name in KERNELS[:-1]:
        x = jax.nn.relu(x @ params[name]["kernel"] + params[name]["bias"])
    return x @ params["head"]["kernel"] + params["head"]["bias"]


def loss(params, rows):
    return optax.softmax_cross_entropy_with_integer_labels(outputs_of(params, X[rows]), Y[rows]).mean()


def trained(tx, after, params, key):
    """Parameters and state of the optimiser at the end; `after` is what is done behind each step."""

    def step(carry, key):
        params, state = carry
        rows = jax.random.randint(key, (BATCH,), 0, 1200)
        updates, state = tx.update(jax.grad(loss)(params, rows), state, params)
        return (after(optax.apply_updates(params, updates), state), state), None

    def run(params, state):
        return jax.lax.scan(step, (params, state), jax.random.split(key, STEPS))[0]

    return jax.jit(run)(params, tx.init(params))


def theirs(pruner, params, key):
    tx = pruner.wrap_optax(optax.adamw(3e-3))
    begun = pruner.post_gradient_update(params, tx.init(params))
    params, state = trained(tx, pruner.post_gradient_update, begun, key)
    return params, jax.tree.map(lambda leaf: leaf == 1, state.masks)


def ours(params, key, **settings):
    tx = optim.sparse(optax.adamw(3e-3), every=EVERY, until=END + 1, **settings)
    params, state = trained(tx, lambda params, state: params, params, key)
    mask = optim.find_mask(state, like=params)
    optim.check_held(mask, params)
    return params, mask


def shares(weights, gradients):
    """Magnitudes divided by the norm of their kernel, as jaxpruner's are by default."""
    return {path: jnp.abs(leaf) / (jnp.linalg.norm(leaf) + 1e-8) for path, leaf in weights.items()}


def methods():
    """Pairs of functions of initial weights and a key, jaxpruner's and jaxarch's."""
    spread = functools.partial(sparsity_distributions.uniform, sparsity=1 - DENSITY)
    polynomial = jaxpruner.PolynomialSchedule(EVERY, BEGIN, END)
    cubic = optax.polynomial_schedule(
        1.0, DENSITY, power=3, transition_steps=END - BEGIN, transition_begin=BEGIN - 1
    )
    local = jaxpruner.MagnitudePruning(sparsity_distribution_fn=spread, scheduler=polynomial)
    everywhere = functools.partial(
        jaxpruner.GlobalMagnitudePruning, sparsity=1 - DENSITY, scheduler=polynomial
    )
    share = optax.cosine_decay_schedule(0.3, END)
    rigl = jaxpruner.RigL(
        sparsity_distribution_fn=spread,
        scheduler=jaxpruner.PeriodicSchedule(EVERY, EVERY, END),
        drop_fraction_fn=share,
    )

    def rigl_ours(params, key):
        drawn = rigl.wrap_optax(optax.identity()).init(params).masks
        mask = jax.tree.map(lambda leaf: leaf == 1, drawn)
        begun = masks.apply_mask(mask, params)
        return ours(begun, key, mask=mask, replaced=share, regrow="gradients", scope="layer")

    return {
        "leaf": (functools.partial(theirs, local), functools.partial(ours, density=cubic, scope="layer")),
        "all": (
            functools.partial(theirs, everywhere(use_normalization=False)),
            functools.partial(ours, density=cubic),
        ),
        "shares": (
            functools.partial(theirs, everywhere()),
            functools.partial(ours, density=cubic, score=shares),
        ),
        "RigL": (functools.partial(theirs, rigl), rigl_ours),
    }


def quartiles(numbers):
    return "{1:.3f} [{0:.3f}, {2:.3f}]".format(*np.quantile(numbers, (0.25, 0.5, 0.75)))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    seeds = parser.parse_args().seeds
    for name, pair in methods().items():
        accuracies, found = ([], []), ([], [])
        for seed in range(seeds):
            first, second = jax.random.split(jax.random.key(seed))
            for side, method in enumerate(pair):
                params, mask = method(start(first), second)
                accuracies[side].append(float((outputs_of(params, X[1200:]).argmax(-1) == Y[1200:]).mean()))
                found[side].append(mask)
        pairs = list(zip(*found, strict=True))
        same = sum(float(masks.overlap(a, b)) == 1 for a, b in pairs)
        overlap = quartiles([float(masks.overlap(a, b)) for a, b in pairs])
        sizes = {tuple(int(masks.connections(mask)) for mask in both) for both in pairs}
        print(
            f"{name}: jaxpruner {quartiles(accuracies[0])}, jaxarch {quartiles(accuracies[1])}; "
            f"the same mask {same} times of {seeds}, overlap {overlap}; connections {sorted(sizes)}"
        )


if __name__ == "__main__":
    main()
