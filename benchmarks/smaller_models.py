"""How much faster is a model from which units were cut, and as fast as one that was written that small?

    python benchmarks/smaller_models.py                              # a minute or two, on CPU, one core
    python benchmarks/smaller_models.py --models GPT --rounds 5      # some of the models only

Outputs are computed in evaluation mode, of random parameters and inputs: ResNet-20 in batches of 64 and
ResNet-18 of 16 pictures of 32 x 32 x 3, and a GPT of 6 blocks of width 192 with 6 heads in batches of 8 texts
of 128 of 65 tokens. Half of these units go, drawn at random: the channels between the two convolutions of
each block; all channels of a residual network, those of its streams as well; the heads and the hidden neurons
of the GPT.

- dense: the model with all of its units.
- masked: the same with the mask of these units applied to its arrays, which keep their sizes.
- smaller: `groups.smaller(kept)` on the arrays that `groups.cut` leaves.
- as it is: the model's own code on these arrays, where it reads its sizes from them.
- by hand: the model's own code with layers that were made at the small sizes, on these arrays.

Each side is one program of its arrays and the inputs, compiled before. That masked, smaller, as it is and by
hand compute the same is asserted first. All sides of a model take turns in one process, each round in another
order, so that what else the machine does strikes them alike; ratios are of the same round. Times are CPU
times. Throughputs and ratios are medians over rounds with quartiles.

Measured on one core of a shared x86-64 machine beside other work, medians of 31 rounds and quartiles: smaller
is 1.49 [1.47, 1.53] times as fast as dense for the channels in the blocks of ResNet-20 and 2.16 [2.08, 2.19]
for all, 1.93 [1.90, 1.99] and 3.97 [3.91, 4.09] for ResNet-18, and 1.91 [1.89, 1.94] for the GPT; masked is
as fast as dense. Smaller is .98 to 1.01 times as fast as by hand. As it is, a program that is that by hand to
the letter, is .98 to 1.00 times as fast: so near can this be told.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
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
import workers
from flax import nnx
from workers import quartiles

import jaxarch
from jaxarch import masks, models
from jaxarch._internal.trees import placed
from jaxarch.structure import axis_groups

DENSE, MASKED, SMALLER, AS_IT_IS, BY_HAND = "dense", "masked", "smaller", "as it is", "by hand"
TOLERANCE = 1e-4
"""Of the largest output: how far apart the sides may be, which round differently."""

Function = Callable[[Any, jax.Array], jax.Array]
"""Outputs of leaves and inputs."""

Sides = dict[str, tuple[Function, Any]]
"""By name: a program, and the leaves that it is run on."""

Figures = dict[str, list[float]]
"""By side: one value a round."""


def narrow_inside(network: nnx.Module) -> nnx.Module:
    """A residual network with half as many channels between the two convolutions of each block."""
    rngs = nnx.Rngs(0)
    convolution = partial(nnx.Conv, kernel_size=(3, 3), padding=1, use_bias=False, rngs=rngs)
    for block in network.encoder:
        before, after = block.convolutions[0].in_features, block.convolutions[1].out_features
        block.convolutions[0] = convolution(before, after // 2, strides=block.stride)
        block.convolutions[1] = convolution(after // 2, after)
        block.norms[0] = nnx.BatchNorm(after // 2, rngs=rngs)
    return network


def narrow_blocks(network: nnx.Module) -> nnx.Module:
    """A transformer with half of the heads and of the hidden neurons in each block."""
    rngs = nnx.Rngs(0)
    for block in network.encoder:
        attention, hidden = block.attention, block.layers[0].out_features // 2
        features, heads = attention.in_features, attention.num_heads // 2
        values = heads * attention.head_dim
        block.attention = nnx.MultiHeadAttention(heads, features, values, features, decode=False, rngs=rngs)
        block.layers[0] = nnx.Linear(features, hidden, rngs=rngs)
        block.layers[1] = nnx.Linear(hidden, features, rngs=rngs)
    return network


def pictures(batch: int) -> jax.Array:
    """Random ones of 32 x 32 x 3."""
    return jnp.asarray(np.random.default_rng(1).normal(size=(batch, 32, 32, 3)), jnp.float32)


def texts(batch: int) -> jax.Array:
    """Random ones of 128 of 65 tokens."""
    return jnp.asarray(np.random.default_rng(1).integers(65, size=(batch, 128)), jnp.int32)


def resnet20(width: float = 1.0) -> nnx.Module:
    return models.ResNet20(width, inputs=3, outputs=10, rngs=nnx.Rngs(0))


def resnet18(width: float = 1.0) -> nnx.Module:
    return models.ResNet18(width, inputs=3, outputs=10, rngs=nnx.Rngs(0))


def gpt() -> nnx.Module:
    return models.GPT(6, 192, heads=6, length=128, vocabulary=65, rngs=nnx.Rngs(0))


@dataclasses.dataclass(frozen=True)
class Case:
    """A model, and half of which of its units go.

    Attributes:
      model: its name.
      what: the units, in words.
      make: the model.
      by_hand: the model with half of them.
      ends: how the names of their groups end; all groups end with "".
      inputs: by how many there are in a batch.
      batch: that number.
      as_it_is: whether the model's code reads the sizes of these units from its arrays.
      count: what is counted, "images" or "tokens".
    """

    model: str
    what: str
    make: Callable[[], nnx.Module]
    by_hand: Callable[[], nnx.Module]
    ends: tuple[str, ...]
    inputs: Callable[[int], jax.Array]
    batch: int
    as_it_is: bool
    count: str = "images"


INSIDE, HEADS, NEURONS = "convolutions/0/kernel[3]", "attention/key/bias[0]", "layers/0/bias[0]"
CASES = (
    Case(
        model="ResNet-20",
        what="channels in blocks",
        make=resnet20,
        by_hand=lambda: narrow_inside(resnet20()),
        ends=(INSIDE,),
        inputs=pictures,
        batch=64,
        as_it_is=True,
    ),
    Case(
        model="ResNet-20",
        what="all channels",
        make=resnet20,
        by_hand=lambda: resnet20(width=0.5),
        ends=("",),
        inputs=pictures,
        batch=64,
        as_it_is=False,  # how many zeros pad a shortcut is written down
    ),
    Case(
        model="ResNet-18",
        what="channels in blocks",
        make=resnet18,
        by_hand=lambda: narrow_inside(resnet18()),
        ends=(INSIDE,),
        inputs=pictures,
        batch=16,
        as_it_is=True,
    ),
    Case(
        model="ResNet-18",
        what="all channels",
        make=resnet18,
        by_hand=lambda: resnet18(width=0.5),
        ends=("",),
        inputs=pictures,
        batch=16,
        as_it_is=True,
    ),
    Case(
        model="GPT",
        what="heads and neurons",
        make=gpt,
        by_hand=lambda: narrow_blocks(gpt()),
        ends=(HEADS, NEURONS),
        inputs=texts,
        batch=8,
        as_it_is=False,  # the heads of an attention are written down
        count="tokens",
    ),
)
MODELS = tuple(dict.fromkeys(case.model for case in CASES))


def split(make: Callable[[], nnx.Module]) -> tuple[Function, Any]:
    """A model at evaluation as a function of its parameters and running averages, and their shapes."""
    model = nnx.eval_shape(make)
    model.eval()
    graph, leaves, rest = nnx.split(model, (nnx.Param, nnx.BatchStat), ...)
    return lambda leaves, x: nnx.merge(graph, leaves, rest, copy=True)(x), leaves


def drawn(shapes: Any, random: np.random.Generator) -> Any:
    """Kernels that keep the size of what they are multiplied with, all else between 1/2 and 3/2."""

    def draw(path: str, leaf: jax.ShapeDtypeStruct) -> jax.Array:
        if jaxarch.matrices(path, leaf):
            numbers = random.normal(0, np.prod(leaf.shape[:-1]) ** -0.5, leaf.shape)
        else:
            numbers = random.uniform(0.5, 1.5, leaf.shape)
        return jnp.asarray(numbers, leaf.dtype)

    named = jaxarch.named_leaves(shapes)
    return placed({path: draw(path, leaf) for path, leaf in named.items()}, shapes)


def shapes_of(leaves: Any) -> dict[str, tuple[int, ...]]:
    """By path."""
    return {path: leaf.shape for path, leaf in jaxarch.named_leaves(leaves).items()}


def half(size: int, random: np.random.Generator) -> np.ndarray:
    """Booleans, half of them true."""
    return random.permutation(size) < size // 2


def sides(case: Case) -> Sides:
    """The programs that are compared, each with its leaves; they compute the same but for the dense one."""
    function, shapes = split(case.make)
    random = np.random.default_rng(0)
    leaves, x = drawn(shapes, random), case.inputs(case.batch)
    groups = axis_groups(function, leaves, x)
    kept = {name: half(of.size, random) for name, of in groups.groups.items() if name.endswith(case.ends)}
    small = groups.cut(leaves, kept)
    by_hand, own = split(case.by_hand)
    assert shapes_of(own) == shapes_of(small), "the sizes by hand are others"

    found: Sides = {
        DENSE: (function, leaves),
        MASKED: (function, masks.apply_mask(placed(groups.mask(kept), leaves), leaves)),
        SMALLER: (groups.smaller(kept), small),
        BY_HAND: (by_hand, small),
    }
    if case.as_it_is:
        found[AS_IT_IS] = function, small
    return {name: (jax.jit(program), given) for name, (program, given) in found.items()}


def check(case: Case, programs: Sides) -> None:
    """Stop unless what was cut computes what the model by hand does, and what the masked one does."""
    x = case.inputs(case.batch)
    outputs = {name: np.asarray(program(leaves, x)) for name, (program, leaves) in programs.items()}
    expected = outputs[BY_HAND]
    assert np.isfinite(expected).all() and expected.std() > 0
    for name in outputs.keys() - {DENSE, BY_HAND}:
        apart = np.abs(outputs[name] - expected).max() / np.abs(expected).max()
        assert apart <= TOLERANCE, f"{case.model}, {case.what}: {name} and by hand are {apart:.1g} apart"


def in_turn(case: Case, programs: Sides, rounds: int) -> Figures:
    """Images or tokens a second of every side, in rounds."""
    x = case.inputs(case.batch)
    units = x.size if case.count == "tokens" else len(x)
    calls = {
        name: partial(lambda program, leaves: jax.block_until_ready(program(leaves, x)), *side)
        for name, side in programs.items()
    }
    return {name: [units / each for each in times] for name, times in workers.in_turn(calls, rounds).items()}


def against(figures: Figures, side: str, other: str) -> str:
    """Median and quartiles of how many times as fast a side is, by round."""
    low, median, high = quartiles(np.divide(figures[side], figures[other]).tolist())
    return f"{median:.3f} [{low:.3f}, {high:.3f}]"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS, help="some of them only")
    parser.add_argument("--rounds", type=int, default=15, help="repetitions of each measurement")
    parser.add_argument("--json", type=Path, help="a file for all measurements")
    return parser.parse_args()


def main() -> None:
    """Print the throughput of every side, and how many times that of the dense model and of that by hand."""
    chosen = arguments()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    measured = {}
    print(f"{'half of':<32}{'side':<10}{'a second':>28}{'x dense':>24}{'x by hand':>24}")
    for case in (case for case in CASES if case.model in chosen.models):
        programs = sides(case)
        check(case, programs)
        figures = in_turn(case, programs, chosen.rounds)
        title = f"{case.model}, {case.what}"
        measured[title] = figures
        for side in (side for side in (DENSE, MASKED, SMALLER, AS_IT_IS, BY_HAND) if side in figures):
            low, median, high = quartiles(figures[side])
            speed = f"{median:.0f} [{low:.0f}, {high:.0f}] {case.count}"
            ratios = "".join(f"{against(figures, side, other):>24}" for other in (DENSE, BY_HAND))
            print(f"{title:<32}{side:<10}{speed:>28}{ratios}", flush=True)
            title = ""
    if chosen.json:
        chosen.json.write_text(json.dumps(measured, indent=2) + "\n")


if __name__ == "__main__":
    main()
