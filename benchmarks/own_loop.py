"""What do jaxarch's parts cost in a training loop of one's own: holding a mask, and making one?

    python benchmarks/own_loop.py                       # some three minutes, on one core of a CPU

The steps are one program each, donated, with optax.adamw, on random inputs in 10 classes: MLP 784-300-100-10
in batches of 128, the vision transformer of `jaxarch.models` (6 blocks of width 128) on 32 x 32 x 3 in
batches of 16.

- plain: `optax.adamw` alone.
- held: with `optim.hold(mask)` behind it, on a tenth of the connections.

Making a mask: a tenth of 2 million normal scores in three leaves, by `masks.keep`, and by `jnp.argsort` of
all of them, ties by place, as one would write it.

Both sides take turns in one process, so that what else the machine does strikes them alike; ratios are of
neighbours in time, medians of 15 with quartiles. Times are CPU times.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
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
from jaxarch import masks, models, optim, saliency

REPETITIONS = 15
MODELS: dict[str, tuple[Callable[[], nnx.Module], tuple[int, ...], int]] = {
    "MLP": (lambda: models.MLP((784, 300, 100, 10), rngs=nnx.Rngs(0)), (128, 784), 40),
    "vision transformer": (
        lambda: models.VisionTransformer(6, 128, inputs=3, outputs=10, rngs=nnx.Rngs(0)),
        (16, 32, 32, 3),
        4,
    ),
}


def step_of(model: nnx.Module, shape: tuple[int, ...], tx: Any, params: Any) -> Callable[[], None]:
    """One step after another of a model's training, each a program."""
    graph, _, rest = nnx.split(model, nnx.Param, ...)
    x = jax.random.normal(jax.random.key(0), shape)
    y = jnp.arange(shape[0]) % 10

    def loss(params: Any) -> jax.Array:
        outputs = nnx.merge(graph, params, rest)(x)
        return optax.softmax_cross_entropy_with_integer_labels(outputs, y).mean()

    def step(carry: Any) -> Any:
        params, state = carry
        updates, state = tx.update(jax.grad(loss)(params), state, params)
        return optax.apply_updates(params, updates), state

    program = jax.jit(step, donate_argnums=0)
    own = jax.tree.map(jnp.copy, params)
    carry = [(own, tx.init(own))]

    def run() -> None:
        carry[0] = program(carry[0])
        jax.block_until_ready(carry[0])

    return run


def ratios(
    first: Callable[[], Any], second: Callable[[], Any], times: int
) -> tuple[list[float], list[float]]:
    """Milliseconds of the first, and how many times as long the second takes, in turns."""
    first(), second()
    seconds = []
    for _ in range(REPETITIONS):
        pair = []
        for run in (first, second):
            start = time.process_time()
            for _ in range(times):
                run()
            pair.append((time.process_time() - start) / times)
        seconds.append(pair)
    return [1e3 * one for one, _ in seconds], [two / one for one, two in seconds]


def by_sorting(scores: list[jax.Array], count: int) -> list[jax.Array]:
    """The mask of the largest scores, by their order."""
    flat = jnp.concatenate([leaf.reshape(-1) for leaf in scores])
    order = jnp.argsort(-flat, stable=True)
    mask = jnp.zeros(flat.shape, bool).at[order[:count]].set(True)
    borders = np.cumsum([leaf.size for leaf in scores])[:-1]
    parts = jnp.split(mask, borders)
    return [part.reshape(leaf.shape) for part, leaf in zip(parts, scores, strict=True)]


def show(name: str, milliseconds: list[float], found: list[float]) -> None:
    """One line: the median time, and the ratio with its quartiles."""
    low, median, high = quartiles(found)
    print(
        f"{name:<34}{np.median(milliseconds):10.2f} ms   x {median:.3f}   [{low:.3f}, {high:.3f}]", flush=True
    )


def main() -> None:
    """Print how long the first of each pair takes, and how many times as long the second."""
    print(f"{'':<34}{'plain':>13}   held / plain, quartiles")
    for name, (make, shape, times) in MODELS.items():
        model = make()
        params = nnx.state(model, nnx.Param)
        mask = masks.keep(saliency.magnitude(params), 0.1)
        params = masks.apply_mask(mask, params)
        plain = step_of(model, shape, optax.adamw(1e-3), params)
        held = step_of(model, shape, optax.chain(optax.adamw(1e-3), optim.hold(mask)), params)
        show(name, *ratios(plain, held, times))
    shapes = ((1000, 1000), (800, 1000), (200, 1000))
    keys = jax.random.split(jax.random.key(0), len(shapes))
    scores = [jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True)]
    count = sum(leaf.size for leaf in scores) // 10
    kept = jax.jit(lambda scores: masks.keep(scores, 0.1))
    ordered = jax.jit(lambda scores: by_sorting(scores, count))
    assert jaxarch.overlap(kept(scores), ordered(scores)) == 1
    print(f"{'':<34}{'keep':>13}   sorting / keep, quartiles")
    show(
        "a mask of 2 million scores",
        *ratios(
            lambda: jax.block_until_ready(kept(scores)), lambda: jax.block_until_ready(ordered(scores)), 1
        ),
    )


if __name__ == "__main__":
    main()
