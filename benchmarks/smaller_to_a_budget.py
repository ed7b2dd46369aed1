"""Which criterion and which scope choose better channels, at the same multiply-adds?

    python benchmarks/smaller_to_a_budget.py                      # ten minutes on CPU, one core
    python benchmarks/smaller_to_a_budget.py --seeds 1 --tune 20  # a first look

A residual network of 2 stages of 2 blocks, with 16 and 32 channels, learns the digits of scikit-learn: 1200
rows for training, 597 for the test. Each seed has its own initial parameters and batches. Then
`jaxarch.nnx.plan` chooses the channels to keep, by every criterion and scope, for 50% and for 25% of the
multiply-adds. The smaller networks of a seed are fine-tuned on the same batches, so that they can be compared
in pairs.

- magnitude: |theta|, the default of `plan`.
- taylor: |theta g|, with the gradient g of the loss on the training rows, in evaluation mode.
- fisher: |theta g - theta^2 h / 2|, with the Fisher diagonal h on the same rows.
- curvature: theta^2 h / 2, as if the gradient were 0 (optimal brain damage).
- scale: |scale| of the batch norms.
- random: uniform numbers, one per channel.
- magnitude, mean and taylor, mean: the mean over the connections of a channel where `global` has the sum.

Training is by Adam at learning rate 3e-3, fine-tuning at 1e-3, both with cosine decay, in batches of 100.
Accuracies are on the test rows, with the running averages of batch norm: right after the cut, and after
fine-tuning. Entries are medians over seeds with quartiles, in percent.

The channels that go are held at 0 instead of cut, and the script checks that both networks compute the same.
So all networks have the same shapes, and one compiled program trains them. Smaller ones would compile for ten
seconds each, to train for one.

Measured with 5 seeds, dense networks at 98.8 [98.8, 99.0]. Fine-tuned at 50% of the multiply-adds, nearly all
choices reach 97.5 to 98.2, random ones too (97.8). Magnitude with `global` or `knapsack` falls behind (95.6),
since it leaves one channel inside each early block. At 25%, random channels reach 91.6 [89.9, 93.0],
magnitude no more (91.6 [86.9, 92.3], `relative`), taylor 93.8 [91.8, 94.3] with `relative` and
94.1 [92.8, 94.6] with `knapsack`, and scale 95.6 [95.1, 96.6] with `global`. Between `relative`,
`isomorphic` and `layer`, 5 seeds show no clear difference. Means compared as `global` cut late layers to one
or two channels, and end near 20.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
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
from jaxarch.masks import apply_mask
from jaxarch.structure import Plan

BUDGETS = {"50% multiply_adds": 0.5, "25% multiply_adds": 0.25}
SCOPES = ("relative", "global", "isomorphic", "layer", "knapsack")
CRITERIA = ("magnitude", "taylor", "fisher", "curvature", "scale", "random")
MEANS = ("magnitude, mean", "taylor, mean")
BY_SCOPE = (*itertools.product(("magnitude", "taylor"), SCOPES),)
"""Pairs of criterion and scope in the first table."""
BY_CRITERION = (
    *itertools.product(CRITERIA, ("relative", "global")),
    *itertools.product(MEANS, ("global",)),
)
"""Pairs of criterion and scope in the second table."""
TRAINING, BATCH = 1200, 100
ADAM = optax.scale_by_adam()

Rows = tuple[jax.Array, jax.Array]
"""Images and labels."""
Found = dict[tuple[str, str, str], dict[str, Any]]
"""By criterion, scope and budget: the accuracies after the cut and after fine-tuning, and the sizes."""


def digits() -> tuple[Rows, Rows]:
    """Return the training rows and the test rows."""
    data = jaxarch.lab.data.load("digits")
    order = jax.random.permutation(jax.random.key(0), len(data.y))
    x, y = jnp.reshape(data.x, (-1, 8, 8, 1))[order] / 16, jnp.asarray(data.y)[order]
    return (x[:TRAINING], y[:TRAINING]), (x[TRAINING:], y[TRAINING:])


def cross_entropy(outputs: jax.Array, labels: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(outputs, labels).mean()


@partial(jax.jit, static_argnums=0)
def outputs(graph: Any, state: Any, x: jax.Array) -> jax.Array:
    """Return the outputs of a network in evaluation mode."""
    model = nnx.merge(graph, state, copy=True)
    model.eval()
    return model(x)


def accuracy(graph: Any, state: Any, rows: Rows) -> float:
    """Return the accuracy of a network in evaluation mode, in percent."""
    return 100 * float((outputs(graph, state, rows[0]).argmax(-1) == rows[1]).mean())


@partial(jax.jit, static_argnums=0)
def step(graph: Any, state: Any, moments: Any, mask: Any, rate: Any, rows: Rows) -> tuple[Any, Any]:
    """Take a step of training, and set what is masked to 0 again."""
    params, rest = nnx.split_state(state, nnx.Param, ...)

    def loss(params: Any) -> tuple[jax.Array, Any]:
        model = nnx.merge(graph, params, rest, copy=True)
        return cross_entropy(model(rows[0]), rows[1]), nnx.state(model, nnx.Not(nnx.Param))

    gradients, rest = jax.grad(loss, has_aux=True)(params)
    updates, moments = ADAM.update(gradients, moments, params)
    params = optax.apply_updates(params, jax.tree.map(lambda change: -rate * change, updates))
    return apply_mask(mask, nnx.merge_state(params, rest)), moments


def train(graph: Any, state: Any, mask: Any, seed: int, rows: Rows, steps: int, rate: float) -> Any:
    """Return the state after some steps of Adam, with cosine decay of the learning rate.

    The loop is not a `lax.scan`: on CPU, convolutions inside XLA's loops are ten to twenty times as slow.
    """
    moments = ADAM.init(nnx.filter_state(state, nnx.Param))
    schedule, random = optax.cosine_decay_schedule(rate, steps), np.random.default_rng(seed)
    for count in range(steps):
        chosen = random.choice(TRAINING, BATCH, replace=False)
        batch = rows[0][chosen], rows[1][chosen]
        state, moments = step(graph, state, moments, mask, schedule(count), batch)
    return state


def scores_of(model: nnx.Module, rows: Rows, seed: int) -> dict[str, Any]:
    """Return the scores by each criterion."""
    function, tree = jaxarch.nnx.as_function(model)

    def loss(tree: Any, rows: Rows) -> jax.Array:
        return cross_entropy(function(tree, rows[0]), rows[1])

    gradients, squares = jax.jit(partial(saliency.fisher_diagonal, loss))(tree, rows)
    groups = jaxarch.structure.axis_groups(function, tree, rows[0][:1]).groups
    uniform = np.random.default_rng(seed).uniform
    zeros = jax.tree.map(jnp.zeros_like, gradients)
    scores = {
        "magnitude": saliency.magnitude(tree),
        "taylor": saliency.snip(tree, gradients),
        "fisher": saliency.taylor(tree, gradients, squares),
        "curvature": saliency.taylor(tree, zeros, squares),
        "scale": saliency.magnitude(tree, where="*/scale"),
        "random": {name: uniform(size=group.size) for name, group in groups.items()},
    }
    for name in ("magnitude", "taylor"):
        # Given by group name, the means of the scope `relative` are compared as they are.
        plan = jaxarch.nnx.plan(model, rows[0][:1], budget="50% multiply_adds", scores=scores[name])
        scores[f"{name}, mean"] = plan.scores
    return scores


def of_seed(seed: int, steps: int, tune: int) -> tuple[float, Found]:
    """Return the accuracy of a dense network, and what comes of all smaller ones."""
    rows, test = digits()
    model = models.ResNet((16, 32), 2, inputs=1, outputs=10, rngs=nnx.Rngs(seed))
    graph, state = nnx.split(model)
    everything = jax.tree.map(lambda leaf: jnp.ones(leaf.shape, bool), state)
    state = train(graph, state, everything, seed, rows, steps, 3e-3)
    nnx.update(model, state)
    model.eval()
    scores, found, known = scores_of(model, rows, seed), {}, {}
    for (criterion, scope), budget in itertools.product(dict.fromkeys((*BY_SCOPE, *BY_CRITERION)), BUDGETS):
        plan = jaxarch.nnx.plan(model, rows[0][:1], budget=budget, scores=scores[criterion], scope=scope)
        # Criteria that choose the same channels share one fine-tuning.
        chosen = np.concatenate([*plan.kept.values()]).tobytes()
        if chosen not in known:
            masked = apply_mask(plan.mask, state)
            tuned = train(graph, masked, plan.mask, seed + 1000, rows, tune, 1e-3)
            if not known:
                check(plan, graph, tuned, test[0])
            known[chosen] = {
                "cut": accuracy(graph, masked, test),
                "tuned": accuracy(graph, tuned, test),
                "used": plan.after.multiply_adds / plan.before.multiply_adds / BUDGETS[budget],
                "kept": {name: int(kept.sum()) for name, kept in plan.kept.items()},
            }
        found[criterion, scope, budget] = known[chosen]
    return accuracy(graph, state, test), found


def check(plan: Plan, graph: Any, tuned: Any, x: jax.Array) -> None:
    """Assert that the smaller network computes what the masked one does, after fine-tuning too."""
    small = nnx.clone(plan.apply().model)
    nnx.update(small, plan.cut(tuned))
    np.testing.assert_allclose(small(x), outputs(graph, tuned, x), rtol=1e-3, atol=1e-3)


def spread(values: list[float]) -> str:
    low, median, high = quartiles(values)
    return f"{median:.1f} [{low:.1f}, {high:.1f}]"


def table(pairs: tuple[tuple[str, str], ...], results: list[Found]) -> str:
    """Return the accuracies of pairs of criterion and scope as a markdown table."""
    columns = [*itertools.product(BUDGETS, ("tuned", "cut"))]
    heads = ["criterion", "scope", *(f"{budget}, {when}" for budget, when in columns)]
    rows = [
        [*pair, *(spread([found[*pair, budget][when] for found in results]) for budget, when in columns)]
        for pair in pairs
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in [heads, ["---"] * len(heads), *rows])


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
        print(
            f"seed {seed}: {time.perf_counter() - start:.0f} s, dense {dense:.1f}%",
            file=sys.stderr,
            flush=True,
        )
        if chosen.json:
            named = [{" / ".join(name): each for name, each in found.items()} for found in results]
            chosen.json.write_text(json.dumps({"dense": all_dense, "found": named}, indent=2) + "\n")
    used = [each["used"] for found in results for each in found.values()]
    print(f"{chosen.seeds} seeds, {chosen.steps} steps of training, {chosen.tune} of fine-tuning.")
    print(f"Accuracy of the dense networks: {spread(all_dense)}.")
    print(f"Multiply-adds that the plans use: {min(used):.1%} to {max(used):.1%} of the budget.\n")
    print(table(BY_SCOPE, results), table(BY_CRITERION, results), sep="\n\n")


if __name__ == "__main__":
    main()
