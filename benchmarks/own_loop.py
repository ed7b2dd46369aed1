"""What do jaxarch's parts cost in a training loop of one's own: masks that are held, learned, and made?

    python benchmarks/own_loop.py                       # some ten minutes, on one core of a CPU
    python benchmarks/own_loop.py --parts held made     # some of the parts only

Held: the steps are one program each, donated, with optax.adamw, on random inputs in 10 classes: MLP
784-300-100-10 in batches of 128, the vision transformer of `jaxarch.models` (6 blocks of width 128) on 32 x
32 x 3 in batches of 16.

- plain: `optax.adamw` alone.
- held: with `optim.hold` around it, on a tenth of the connections.

Learned: `nnx.jit` steps with `nnx.Optimizer` and optax.adam, ResNet-20 in batches of 64 pictures of 32 x 32 x
3, and a GPT of 6 blocks of width 128 in batches of 16 texts of 64 of 256 tokens.

- all: every parameter is trained.
- kernels: those leaves alone that are masked by default.
- masked: their scores alone, in `jaxarch.nnx.Masked`.

Made: a tenth of 2 million normal scores in three leaves, by `masks.keep`, and by `jnp.argsort` of
all of them, ties by place, as one would write it.

Both sides take turns in one process, so that what else the machine does strikes them alike; ratios are of
neighbours in time, medians of 15 with quartiles. Times are CPU times.

Measured on one core of a shared x86-64 machine: held / plain .996 [.945, 1.035] for the MLP and .991 [.958,
1.059] for the vision transformer; masked / kernels 1.043 [1.025, 1.087] for ResNet-20 and 1.043 [.989, 1.064]
for the GPT, where kernels / all is .98 [.91, 1.10] and 1.14 [1.05, 1.23]. Sorting 2 million scores takes 19
times as long as `masks.keep`, which takes 59 ms.
"""

from __future__ import annotations

import argparse
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
from jaxarch import masks, matrices, models, optim, saliency

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


class OwnStep:
    """A step of a model's training by `nnx.Optimizer`, of the variables of a filter."""

    def __init__(self, model: nnx.Module, wrt: Any, loss: Callable[[nnx.Module], jax.Array]) -> None:
        self.model, self.optimizer = model, nnx.Optimizer(model, optax.adam(1e-3), wrt=wrt)

        @nnx.jit
        def step(model: nnx.Module, optimizer: nnx.Optimizer) -> None:
            optimizer.update(model, nnx.grad(loss, argnums=nnx.DiffState(0, wrt))(model))

        self.step = step

    def __call__(self) -> None:
        """One step."""
        self.step(self.model, self.optimizer)
        jax.block_until_ready(nnx.state(self.model))


def pictures_loss(model: nnx.Module) -> jax.Array:
    """Of random pictures in 10 classes."""
    x = jax.random.normal(jax.random.key(0), (64, 32, 32, 3))
    return optax.softmax_cross_entropy_with_integer_labels(model(x), jnp.arange(64) % 10).mean()


def texts_loss(model: nnx.Module) -> jax.Array:
    """Of the next tokens of random texts."""
    tokens = jax.random.randint(jax.random.key(0), (16, 65), 0, 256)
    logits = model(tokens[:, :-1])
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


LEARNERS: dict[str, tuple[Callable[[], nnx.Module], Callable[[nnx.Module], jax.Array]]] = {
    "ResNet-20": (lambda: models.ResNet20(inputs=3, outputs=10, rngs=nnx.Rngs(0)), pictures_loss),
    "GPT": (lambda: models.GPT(6, 128, length=64, vocabulary=256, rngs=nnx.Rngs(0)), texts_loss),
}


def is_masked(path: tuple[Any, ...], variable: Any) -> bool:
    """Whether a parameter is masked by default."""
    return isinstance(variable, nnx.Param) and matrices("/".join(map(str, path)), variable[...])


def held() -> None:
    """Print what a step under a mask takes beside one without."""
    print(f"{'':<34}{'plain':>13}   held / plain, quartiles")
    for name, (make, shape, times) in MODELS.items():
        model = make()
        params = nnx.state(model, nnx.Param)
        mask = masks.keep(saliency.magnitude(params), 0.1)
        params = masks.apply_mask(mask, params)
        plain = step_of(model, shape, optax.adamw(1e-3), params)
        under = step_of(model, shape, optim.hold(mask, optax.adamw(1e-3)), params)
        show(name, *ratios(plain, under, times))


def learned() -> None:
    """Print what a step on scores takes beside one on the weights that they are of, and on all."""
    print(f"{'':<34}{'first':>13}   second / first, quartiles")
    for name, (make, loss) in LEARNERS.items():
        every = OwnStep(make(), nnx.Param, loss)
        kernels = OwnStep(make(), is_masked, loss)
        scores = OwnStep(jaxarch.nnx.Masked(make()), jaxarch.nnx.Score, loss)
        show(f"{name}: all, kernels", *ratios(every, kernels, 1))
        show(f"{name}: kernels, masked", *ratios(kernels, scores, 1))


def made() -> None:
    """Print what a mask of an exact size takes beside one made by sorting."""
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


PARTS: dict[str, Callable[[], None]] = {"held": held, "learned": learned, "made": made}


def main() -> None:
    """Print how long the first of each pair takes, and how many times as long the second."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    for part in parser.parse_args().parts:
        PARTS[part]()


if __name__ == "__main__":
    main()
