"""Which criterion and which scope choose better channels, at the same multiply-adds?

    python benchmarks/smaller_to_a_budget.py                      # on CPU, one core
    python benchmarks/smaller_to_a_budget.py --seeds 1 --tune 20  # a first look

A residual network of 2 stages of 2 blocks, with 16 and 32 channels, learns the digits of scikit-learn: 1200
rows for training, 597 for the test. Each seed has its own initial parameters and batches. Then
`jaxarch.nnx.plan` chooses the channels to keep, by every criterion and scope, for 50% and for 25% of the
multiply-adds. The smaller networks of a seed are fine-tuned on the same batches, so that they can be compared
in pairs.

- magnitude: the mean of |theta| over the connections of a channel, the default of `plan`.
- taylor: the mean of |theta g|, with the gradient g of the loss on the training rows, in evaluation mode.
- fisher: the mean of |theta g - theta^2 h / 2|, with the Fisher diagonal h on the same rows.
- scale: the mean of |scale| over the batch norms of a channel.
- random: uniform numbers, one per channel.

Training is by Adam at learning rate 3e-3, fine-tuning at 1e-3, both with cosine decay, in batches of 100.
Accuracies are on the test rows, with the running averages of batch norm: right after the cut, and after
fine-tuning. Entries are medians over seeds with quartiles, in percent.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
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
import optax
from flax import nnx
from workers import quartiles

import jaxarch
from jaxarch import models, saliency

BUDGETS = ("50% multiply_adds", "25% multiply_adds")
SCOPES = ("relative", "global", "isomorphic", "layer", "knapsack")
CRITERIA = ("magnitude", "taylor", "fisher", "scale", "random")
BY_SCOPE = (*itertools.product(("magnitude", "taylor"), SCOPES),)
"""Pairs of criterion and scope in the first table."""
BY_CRITERION = (*itertools.product(CRITERIA, ("relative", "global")),)
"""Pairs of criterion and scope in the second table."""
TRAINING, BATCH = 1200, 100

Rows = tuple[jax.Array, jax.Array]
"""Images and labels."""
Found = dict[tuple[str, str, str], dict[str, Any]]
"""By criterion, scope and budget: the share of multiply-adds, and accuracies after the cut and after tuning."""


def digits() -> tuple[Rows, Rows]:
    """Return the training rows and the test rows."""
    data = jaxarch.lab.data.load("digits")
    order = jax.random.permutation(jax.random.key(0), len(data.y))
    x, y = jnp.reshape(data.x, (-1, 8, 8, 1))[order] / 16, jnp.asarray(data.y)[order]
    return (x[:TRAINING], y[:TRAINING]), (x[TRAINING:], y[TRAINING:])


def cross_entropy(outputs: jax.Array, labels: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(outputs, labels).mean()


@partial(jax.jit, static_argnames=("graph", "steps", "rate"))
def train(
    graph: Any, state: Any, key: jax.Array, rows: Rows, test: Rows, steps: int, rate: float
) -> tuple[Any, jax.Array, jax.Array]:
    """Return the trained state, and the test accuracy before and after.

    One program does all three, since every smaller network has its own shapes and compiles again.
    """
    optimizer = optax.adam(optax.cosine_decay_schedule(rate, steps))

    def accuracy(state: Any) -> jax.Array:
        model = nnx.merge(graph, state, copy=True)
        model.eval()
        return (model(test[0]).argmax(-1) == test[1]).mean()

    def step(carry: Any, key: jax.Array) -> tuple[Any, None]:
        (params, rest), moments = carry
        chosen = jax.random.choice(key, TRAINING, (BATCH,), replace=False)

        def loss(params: Any) -> tuple[jax.Array, Any]:
            model = nnx.merge(graph, params, rest, copy=True)
            value = cross_entropy(model(rows[0][chosen]), rows[1][chosen])
            return value, nnx.state(model, nnx.Not(nnx.Param))

        gradients, updated = jax.grad(loss, has_aux=True)(params)
        updates, moments = optimizer.update(gradients, moments, params)
        return ((optax.apply_updates(params, updates), updated), moments), None

    parts = nnx.split_state(state, nnx.Param, ...)
    start = parts, optimizer.init(parts[0])
    (trained, _), _ = jax.lax.scan(step, start, jax.random.split(key, steps))
    trained = nnx.merge_state(*trained)
    return trained, accuracy(state), accuracy(trained)


def trained(model: nnx.Module, *arguments: Any) -> tuple[nnx.Module, float, float]:
    """Train a module; see `train`. The result is in evaluation mode."""
    model.train()
    graph, state = nnx.split(model)
    state, before, after = train(graph, state, *arguments)
    model = nnx.merge(graph, state)
    model.eval()
    return model, 100 * float(before), 100 * float(after)


def scores_of(model: nnx.Module, rows: Rows, seed: int) -> dict[str, Any]:
    """Return the scores by each criterion."""
    function, tree = jaxarch.nnx.as_function(model)

    def loss(tree: Any, rows: Rows) -> jax.Array:
        return cross_entropy(function(tree, rows[0]), rows[1])

    gradients, squares = jax.jit(partial(saliency.fisher_diagonal, loss))(tree, rows)
    groups = jaxarch.structure.axis_groups(function, tree, rows[0][:1]).groups
    uniform = np.random.default_rng(seed).uniform
    return {
        "magnitude": None,
        "taylor": saliency.snip(tree, gradients),
        "fisher": saliency.taylor(tree, gradients, squares),
        "scale": saliency.magnitude(tree, where="*/scale"),
        "random": {name: uniform(size=group.size) for name, group in groups.items()},
    }


def of_seed(seed: int, steps: int, tune: int) -> tuple[float, Found]:
    """Return the accuracy of a dense network, and what comes of all smaller ones."""
    rows, test = digits()
    key, tuning = jax.random.split(jax.random.key(seed))
    model = models.ResNet((16, 32), 2, inputs=1, outputs=10, rngs=nnx.Rngs(seed))
    model, _, dense = trained(model, key, rows, test, steps, 3e-3)
    scores, found = scores_of(model, rows, seed), {}
    pairs = dict.fromkeys((*BY_SCOPE, *BY_CRITERION))
    for (criterion, scope), budget in itertools.product(pairs, BUDGETS):
        plan = jaxarch.nnx.plan(model, rows[0][:1], budget=budget, scores=scores[criterion], scope=scope)
        _, cut, tuned = trained(plan.apply().model, tuning, rows, test, tune, 1e-3)
        share = plan.after.multiply_adds / plan.before.multiply_adds
        sizes = {name: int(kept.sum()) for name, kept in plan.kept.items()}
        found[criterion, scope, budget] = {"share": share, "cut": cut, "tuned": tuned, "sizes": sizes}
    return dense, found


def spread(values: list[float]) -> str:
    low, median, high = quartiles(values)
    return f"{median:.1f} [{low:.1f}, {high:.1f}]"


def table(pairs: tuple[tuple[str, str], ...], results: list[Found]) -> str:
    """Return the accuracies of pairs of criterion and scope as a markdown table."""
    heads = [f"{budget}, {when}" for budget in BUDGETS for when in ("tuned", "cut")]
    lines = [f"| criterion | scope | {' | '.join(heads)} |", "|" + "---|" * (2 + len(heads))]
    for pair in pairs:
        of_pair: Callable[[str, str], list[float]] = lambda budget, when, pair=pair: [
            found[*pair, budget][when] for found in results
        ]
        entries = [spread(of_pair(budget, when)) for budget in BUDGETS for when in ("tuned", "cut")]
        lines.append(f"| {' | '.join([*pair, *entries])} |")
    return "\n".join(lines)


def main() -> None:
    """Print the accuracies by scope and by criterion."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5, help="number of dense networks")
    parser.add_argument("--steps", type=int, default=300, help="training steps of a dense network")
    parser.add_argument("--tune", type=int, default=100, help="training steps of a smaller network")
    parser.add_argument("--json", type=Path, help="a file for all results")
    chosen = parser.parse_args()
    all_dense, results = [], []
    for seed in range(chosen.seeds):
        start = time.perf_counter()
        dense, found = of_seed(seed, chosen.steps, chosen.tune)
        all_dense.append(dense)
        results.append(found)
        print(f"seed {seed}: {time.perf_counter() - start:.0f} s, dense {dense:.1f}%", file=sys.stderr)
    shares = [each["share"] for found in results for each in found.values()]
    print(f"{chosen.seeds} seeds, {chosen.steps} steps of training, {chosen.tune} of fine-tuning.")
    print(f"Dense: {spread(all_dense)}% accuracy.\n")
    print(table(BY_SCOPE, results), table(BY_CRITERION, results), sep="\n\n")
    if chosen.json:
        named = [{" / ".join(name): each for name, each in found.items()} for found in results]
        chosen.json.write_text(json.dumps({"dense": all_dense, "found": named}, indent=2) + "\n")


if __name__ == "__main__":
    main()
