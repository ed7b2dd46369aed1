"""Processes that measure, one for each side of a comparison, and what they measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Task = Callable[[], dict[str, Any]]
"""What a worker can be told to do: it answers with measurements."""

NO_TORCH = "no PyTorch here, so no comparison with it: pip install '.[benchmark]'"


def timed(work: Callable[[], object]) -> dict[str, float]:
    """Wall and CPU seconds of some work."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def in_turn(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """CPU seconds of some calls, by name and round; each round has another order."""
    order, found = np.random.default_rng(0), {name: [] for name in calls}  # type: Any, dict[str, list[float]]
    for _ in range(rounds):
        for name in order.permutation([*calls]).tolist():
            start = time.process_time()
            calls[name]()
            found[name].append(time.process_time() - start)
    return found


def serve(make: Callable[[], dict[str, Task]], cores: int) -> None:
    """Be a worker on so many cores: do what each line of the input names, answer with a line of JSON."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    tasks = make()
    for line in sys.stdin:
        print(json.dumps(tasks[line.strip()]()), flush=True)


class Worker:
    """A process that measures one side when it is told to: `script --worker kind --option value ...`.

    It runs on the CPU unless `platform` is another of JAX's, or `None` for the best that there is. It reads
    no compiled programs from disk: its first calls compile.
    """

    def __init__(self, script: str, kind: str, platform: str | None = "cpu", **options: int) -> None:
        command = [sys.executable, script, "--worker", kind]
        for name, value in options.items():
            command += [f"--{name}", str(value)]
        environment = {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "false"}
        if platform is not None:
            environment["JAX_PLATFORMS"] = platform
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def ask(self, task: str) -> dict[str, Any]:
        """Have a task done, and wait for its measurements."""
        assert self.process.stdin is not None and self.process.stdout is not None
        print(task, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"the worker for {task!r} ended with status {self.process.wait()}")
        return json.loads(answer)

    def close(self) -> None:
        """Let the process end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def check_agreement(
    script: str, steps: int, moved: str, tolerance: float, tasks: Sequence[str] = ("compare",)
) -> None:
    """Stop unless both sides do the same steps: `moved` says in words what they move."""
    worker = Worker(script, "agreement")
    for task in tasks:
        found = worker.ask(task)
        print(
            f"after {steps} equal steps, which move the {moved} by up to {found['moved']:.2g}, "
            f"both sides agree to {found['apart']:.1g}"
        )
        if not found["apart"] <= tolerance:
            raise SystemExit(f"the two sides are not equivalent: they must agree to {tolerance}")
    worker.close()


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile."""
    low, median, high = np.percentile(values, (25, 50, 75))
    return float(low), float(median), float(high)
