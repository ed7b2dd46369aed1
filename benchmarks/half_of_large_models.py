"""How much faster are ResNet-50 and ViT-B/16 at half of their multiply-adds, and are they as fast as by hand?

    pip install '.[torch]'
    python benchmarks/half_of_large_models.py                     # a minute or two on CPU, one core
    python benchmarks/half_of_large_models.py --models resnet50 --rounds 5

The models are torchvision's, with random weights in place of zeros too. `jaxarch.torch.plan(model, x,
budget="50% multiply_adds", round_to=8)` chooses channels or neurons by magnitude. Heads of the transformer
stay whole, since torchvision's code fixes their width. The input is a picture of 224 x 224.

- dense, smaller: the whole model, and `small.function` on `small.tree`, each compiled by JAX.
- by hand: the smaller PyTorch module, whose layers and code have these sizes, translated and compiled by JAX.
- dense and smaller in PyTorch: the two modules.

All sides of a model take turns in one process, each round in another order, on one core. Ratios are of the
same round. Times are CPU times, since other work may share the machine. Speeds are medians over rounds with
quartiles.

Measured on one core of a shared x86-64 machine, 21 rounds: the smaller ResNet-50 is 2.25 [2.22, 2.30] times
as fast as the dense one in JAX and 1.58 [1.47, 1.64] in PyTorch, the smaller ViT-B/16 1.82 [1.77, 1.86] and
1.80 [1.77, 1.89]. The traced programs are .98 [.97, 1.01] and .99 [.97, 1.01] times as fast as by hand.
PyTorch takes 116 ms for the dense ResNet-50 and JAX 258 ms; the transformer takes 279 ms and 299 ms. A run
before, beside other work, had 2.30, 1.61, 1.81 and 1.89.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torchvision
from workers import in_turn, quartiles

import jaxarch.torch

KINDS = {"resnet50": None, "vit_b_16": ["neurons"]}
"""By model, the kinds of units that may go; `None` for all."""


def compiled(function: Callable[..., Any], tree: Any, x: jax.Array) -> Callable[[], Any]:
    """Return a call of a compiled function of arrays."""
    program = jax.jit(function).lower(tree, x).compile()
    return lambda: jax.block_until_ready(program(tree, x))


def in_torch(model: torch.nn.Module, x: torch.Tensor) -> Callable[[], Any]:
    """Return a call of a PyTorch module."""

    @torch.inference_mode()
    def call() -> torch.Tensor:
        return model(x)

    return call


def sides(name: str) -> tuple[dict[str, Callable[[], Any]], float]:
    """Return the calls to time, and the share of the multiply-adds that is left."""
    torch.manual_seed(0)
    model, x = torchvision.models.get_model(name, weights=None).eval(), torch.randn(1, 3, 224, 224)
    for parameter in model.parameters():
        if not parameter.any():  # The head of the transformer, so that its outputs would all be 0.
            torch.nn.init.normal_(parameter, std=0.05)
    plan = jaxarch.torch.plan(model, x, budget="50% multiply_adds", round_to=8, units=KINDS[name])
    small, picture = plan.apply(), jnp.asarray(x.numpy())
    calls = {
        "dense": compiled(*jaxarch.torch.as_function(model), picture),
        "smaller": compiled(small.function, small.tree, picture),
        "by hand": compiled(*jaxarch.torch.as_function(small.model), picture),
        "dense in PyTorch": in_torch(model, x),
        "smaller in PyTorch": in_torch(small.model, x),
    }
    outputs = {side: np.asarray(call()) for side, call in calls.items() if not side.startswith("dense")}
    for side, output in outputs.items():
        apart = np.abs(output - outputs["smaller"]).max() / np.abs(output).max()
        assert apart < 1e-4, (name, side, apart)
    return calls, plan.after.multiply_adds / plan.before.multiply_adds


RATIOS = (("dense", "smaller"), ("by hand", "smaller"), ("dense in PyTorch", "smaller in PyTorch"))
"""A side, and the one whose speed is told in multiples of its speed."""
COLUMNS = """\
| model | multiply-adds | times as fast as | median [quartiles] | its seconds | smaller |
|---|---|---|---|---|---|"""


def main() -> None:
    """Time the models, and print a table of ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", choices=KINDS, default=[*KINDS], help="some models only")
    parser.add_argument("--rounds", type=int, default=21, help="rounds")
    parser.add_argument("--json", type=Path, help="write all times to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = {}
    print(COLUMNS)
    for name in arguments.models:
        calls, share = sides(name)
        rows[name] = found = in_turn(calls, arguments.rounds)
        for one, other in RATIOS:
            ratios = [slow / fast for slow, fast in zip(found[one], found[other], strict=True)]
            low, median, high = quartiles(ratios)
            times = [f"{np.median(found[side]):.3f}" for side in (one, other)]
            cells = [name, f"{share:.1%}", one, f"{median:.2f} [{low:.2f}, {high:.2f}]", *times]
            print(f"| {' | '.join(cells)} |", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
