"""The compiled programs of a fit: each compiles once per training, mesh and shapes of the arrays."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch._internal.errors import ArgumentError, shown
from jaxarch._internal.trees import PyTree
from jaxarch.run import _training as single
from jaxarch.run._devices import mapped, over_runs
from jaxarch.run._network import Network
from jaxarch.run._options import EarlyStopping
from jaxarch.run._problem import Problem
from jaxarch.run._runs_mesh import RunsMesh
from jaxarch.run._training import Carry, Training, TrainState

Make = Callable[[PyTree], Training]
"""A function from one run's settings to its training; hashable, with one structure for all settings."""


class Stopwatch:
    """Wall time, with compilation kept apart from running."""

    def __init__(self) -> None:
        self.compiling = 0.0
        self.running = 0.0

    def compile(self, program: Any, *args: Any) -> Any:
        """Return a program compiled for these arguments; JAX reuses those that it has compiled already.

        Under `jax.disable_jit` it is not compiled.
        """
        if is_jit_disabled():
            # Static arguments come first, and a compiled program is called without them.
            return lambda *dynamic: program(*args[: len(args) - len(dynamic)], *dynamic)
        with self.tracing():
            return program.lower(*args).compile()

    @contextlib.contextmanager
    def tracing(self) -> Iterator[None]:
        """Count a block as compilation."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.compiling += time.perf_counter() - start

    def run(self, executable: Callable[..., Any], *args: Any) -> Any:
        """Call a compiled program, and wait for its result."""
        start = time.perf_counter()
        result = jax.block_until_ready(executable(*args))
        self.running += time.perf_counter() - start
        return result


def is_jit_disabled() -> bool:
    """Return whether `jax.disable_jit` is on, under which nothing can be compiled ahead."""
    return bool(jax.config.jax_disable_jit)  # type: ignore[attr-defined]


class Best(NamedTuple):
    """Early stopping's memory of one run: its best chunk end so far, and how many chunks ago it was."""

    value: Array
    state: TrainState
    waited: Array
    stopped: Array


@partial(jax.jit, static_argnums=(0, 1))
def begin(
    make: Make,
    mesh: RunsMesh | None,
    keys: Array,
    settings: PyTree,
    problem: Problem,
    network: Network | None,
) -> Carry:
    """Return every run's carry before its first step."""

    def one(key: Array, settings: PyTree, problem: Problem, network: Network | None) -> Carry:
        return single.begin(make(settings), key, problem, network)

    return over_runs(one, mesh, (0, 0, problem.in_axes(), 0))(keys, settings, problem, network)


# The carry is donated: XLA reuses its buffers, and the old carry must not be read afterwards.
@partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=(6,))
def advance(
    make: Make,
    mesh: RunsMesh | None,
    size: int,
    keys: Array,
    settings: PyTree,
    problem: Problem,
    carry: Carry,
    start: Array,
    stop: Array,
) -> tuple[Carry, Array]:
    """Run a chunk: the steps from `start` to `stop`, at most `size` of them."""

    def one(
        key: Array, settings: PyTree, problem: Problem, carry: Carry, start: Array, stop: Array
    ) -> tuple[Carry, Array]:
        # Like `single.advance`, without its frame in the traceback of a loss that raises.
        chunk = single.chunk(make(settings), key, problem, carry, start, size)
        return jax.lax.fori_loop(*single.span(start, stop), *chunk)

    args = (keys, settings, problem, carry, start, stop)
    return mapped(one, mesh, (0, 0, problem.in_axes(), 0, None, None), args)(*args)


@partial(jax.jit, static_argnums=(0,), donate_argnums=(4,))
def step(
    make: Make, keys: Array, settings: PyTree, problem: Problem, carry: Carry, index: Array
) -> tuple[Carry, Array]:
    """Take one step of one run, neither mapped nor inside a loop."""

    def one(
        key: Array, settings: PyTree, problem: Problem, carry: Carry, index: Array
    ) -> tuple[Carry, Array]:
        return single.step(make(settings), key, problem, carry, index)

    return over_runs(one, None, (0, 0, problem.in_axes(), 0, None))(keys, settings, problem, carry, index)


# `best` is donated, the carry is not: training continues from it.
@partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=(6,))
def chunk_end(
    make: Make,
    mesh: RunsMesh | None,
    stopping: EarlyStopping | None,
    settings: PyTree,
    problem: Problem,
    carry: Carry,
    best: Best | None,
) -> tuple[dict[str, Array], Best | None]:
    """Compute metrics of the current networks between two chunks, and early stopping's judgment.

    The metrics may include the gap.
    """

    def one(
        settings: PyTree, problem: Problem, carry: Carry, best: Best | None
    ) -> tuple[dict[str, Array], Best | None]:
        training = make(settings)
        # Early stopping keeps this state, so its best weights are those that were judged.
        carry = carry._replace(state=single.to_evaluate(carry))
        metrics: dict[str, Array] = {}
        if problem.validation is not None:
            metrics |= _of_validation(training, problem, carry)
        by_gap = stopping is not None and stopping.metric == "gap"
        if by_gap and training.gap is not None and "gap" not in metrics:
            metrics["gap"] = training.gap(training.settings, carry.state, problem)
        for name, value in metrics.items():
            if jnp.shape(value) != ():
                raise ArgumentError(
                    f"metrics: expected scalars, but {shown(name)} has shape {jnp.shape(value)}"
                )
        metrics = {name: jnp.asarray(value, jnp.float32) for name, value in metrics.items()}
        if stopping is None or best is None:
            return metrics, best
        return metrics, _judge(stopping, metrics, carry, best)

    return over_runs(one, mesh, (0, problem.in_axes(), 0, 0))(settings, problem, carry, best)


def _of_validation(training: Training, problem: Problem, carry: Carry) -> dict[str, Array]:
    assert problem.validation is not None
    network = training.network(training.settings, carry.state)
    metrics = {"loss": problem.objective(network.params, network.state, problem.validation)}
    if problem.metrics is not None:
        batch = problem.gather(problem.data, problem.per_run, problem.validation)
        metrics |= problem.metrics(network.params, network.state, batch)
    return metrics


def _judge(stopping: EarlyStopping, metrics: dict[str, Array], carry: Carry, best: Best) -> Best:
    if stopping.metric not in metrics:
        raise ArgumentError(
            f"early_stopping: no metric {shown(stopping.metric)}; known: {', '.join(metrics) or 'none'}"
        )
    sign = 1 if stopping.mode == "min" else -1
    value = sign * metrics[stopping.metric]
    # NaN compares as false: it is never an improvement.
    # Without `until`, only a metric of -inf counts as reached: nothing can improve on it.
    reached = value <= (-jnp.inf if stopping.until is None else sign * stopping.until)
    better = ~best.stopped & ((value < best.value - stopping.least) | reached)
    waited = jnp.where(better, 0, best.waited + 1)
    value, state = jax.tree.map(
        lambda new, old: jnp.where(better, new, old), (value, carry.state), (best.value, best.state)
    )
    return Best(value, state, waited, best.stopped | reached | (waited >= stopping.patience))


@partial(jax.jit, static_argnums=(0, 1))
def conclude(make: Make, mesh: RunsMesh | None, settings: PyTree, carry: Carry) -> Network:
    """Return the network of every run."""

    def one(settings: PyTree, carry: Carry) -> Network:
        return single.conclude(make(settings), carry)

    return over_runs(one, mesh, (0, 0))(settings, carry)


def is_slow_in_loops(jaxpr: Any, *, backend: str | None = None) -> bool:
    """Return whether XLA runs a computation much slower inside a loop or `vmap` than alone, run by run.

    Convolutions on CPU are such a case. Three of them on 64 pictures of 32 x 32 take 0.07 s a step alone,
    1.1 s inside a loop (measured on 2 cores).
    """
    return (backend or jax.default_backend()) == "cpu" and _contains(jaxpr, "conv_general_dilated")


@partial(jax.jit, static_argnums=(0,))
def traced_step(make: Make, keys: Array, settings: PyTree, problem: Problem, network: Network | None) -> Any:
    """Take the first step of the first run; this is only traced, for inspection."""

    def one(key: Array, settings: PyTree, problem: Problem, network: Network | None) -> Any:
        training = make(settings)
        carry = single.begin(training, key, problem, network)
        return single.step(training, key, problem, carry, jnp.zeros((), jnp.int32))

    return over_runs(one, None, (0, 0, problem.in_axes(), 0))(keys, settings, problem, network)


def _contains(jaxpr: Any, primitive: str) -> bool:
    """Return whether a primitive occurs in a jaxpr or in one that it calls."""

    def is_jaxpr(leaf: object) -> bool:
        return hasattr(leaf, "eqns") or hasattr(leaf, "jaxpr")

    for equation in jaxpr.eqns:
        if equation.primitive.name == primitive:
            return True
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=is_jaxpr):
            if is_jaxpr(inner) and _contains(getattr(inner, "jaxpr", inner), primitive):
                return True
    return False
