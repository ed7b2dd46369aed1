"""What does it cost to begin: the import, and a second call that says the same as the first?

    python benchmarks/start.py

- Import: a fresh process that imports jaxarch and touches `supervised`, `over_seeds`, `search.snip` and
  `masks`, against one that imports what they stand on, `import jax, flax.nnx, optax`. CPU seconds, in turns,
  after one of each that is not counted (it may write byte code).
- Second call: in one process, a problem, `search.snip(0.1)` and `retrain` are made of fresh objects and run,
  and then made and run again by equal calls. Told are the wall seconds from the problem's making to the
  result, and the programs that each call compiled (JAX's own events).

Measured on a shared x86-64 core, medians of 7: the import takes 1.12 times as long; the first call 10.5 s,
the second .04 s, and it compiles nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

BELOW = "import jax, flax.nnx, optax"
OURS = "import jaxarch; jaxarch.supervised, jaxarch.over_seeds, jaxarch.search.snip, jaxarch.masks"
IMPORT_GOAL, SECOND_GOAL = 1.15, 0.1

TWICE = """
import json, time
import jax, jax.numpy as jnp, optax
from flax import nnx
import jaxarch

compiled = []
jax.monitoring.register_event_duration_secs_listener(lambda name, seconds, **_: compiled.append(name))


class MLP(nnx.Module):
    def __init__(self, rngs):
        self.hidden = nnx.Linear(64, 256, rngs=rngs)
        self.head = nnx.Linear(256, 10, rngs=rngs)

    def __call__(self, x):
        return self.head(nnx.relu(self.hidden(x)))


digits = jaxarch.lab.data.load("digits")
keys = jax.random.split(jax.random.key(0), 10)
for _ in range(3):
    compiled.clear()
    start = time.perf_counter()
    problem = jaxarch.supervised(
        MLP,
        (digits.x / 16, digits.y),
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optax.adam(1e-2),
        steps=1,
        batch_size=100,
    )
    strategy = jaxarch.chain(jaxarch.search.snip(0.1), jaxarch.retrain("warm", nonnegative=False))
    jax.block_until_ready(jaxarch.over_seeds(strategy, keys, problem)[0])
    seconds = time.perf_counter() - start
    programs = sum(name.endswith("backend_compile_duration") for name in compiled)
    print(json.dumps({"seconds": seconds, "programs": programs}), flush=True)
"""


def cpu_seconds(code: str) -> float:
    """Of a fresh Python process that runs some code."""
    # With byte code, as an installed package has it: to compile our sources takes longer than all else.
    written = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    before = os.times()
    subprocess.run([sys.executable, "-c", code], check=True, env=written)
    after = os.times()
    children = after.children_user + after.children_system
    return children - before.children_user - before.children_system


def main() -> None:
    """Measure, and print the figures with the goals."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--json", metavar="FILE", help="all repetitions, for other programs")
    arguments = parser.parse_args()
    cpu_seconds(BELOW), cpu_seconds(OURS)
    imports = [(cpu_seconds(BELOW), cpu_seconds(OURS)) for _ in range(arguments.repetitions)]
    below, ours = np.median(imports, axis=0)
    ratios = [mine / theirs for theirs, mine in imports]
    low, ratio, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    print(f"import: {below:.2f} s for JAX, Flax and optax, {ours:.2f} s with jaxarch; ratio {ratio:.3f}")
    print(f"  [{low:.3f}, {high:.3f}], at most {IMPORT_GOAL} wanted")
    done = subprocess.run([sys.executable, "-c", TWICE], check=True, capture_output=True, text=True)
    calls = [json.loads(line) for line in done.stdout.splitlines()]
    for name, call in zip(("first", "second", "third"), calls, strict=True):
        print(f"{name} call: {call['seconds']:.3f} s, {call['programs']} programs compiled")
    print(f"  at most {SECOND_GOAL} s and none wanted of the second")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({"imports": imports, "calls": calls}) + "\n")


if __name__ == "__main__":
    main()
