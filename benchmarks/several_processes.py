"""What do several processes cost beside one, and what would a sweep cost on many hosts?

The same call of `over_seeds`, 16 networks of 64-100-10 on handwritten digits, is made by one process with so
many devices and by so many processes with one device each, which take turns. Counted are the wall seconds of
the first call, which compiles, and of later ones, which do not. Then what all processes tell one another is
timed, and from these constants follows what a sweep costs by the formula of docs/many_devices.md. At last the
formula is held against what 1 to 8 virtual devices in 1 to 4 processes take: of time, with as many cores as
there are, and of memory, as the compiler counts it.

    python benchmarks/several_processes.py                 # some ten minutes, on two cores
    python benchmarks/several_processes.py --json found.json
    python benchmarks/several_processes.py --table found.json    # only the table, from constants in a file
    python benchmarks/several_processes.py --check found.json    # only the formula against what is measured

The answer is in docs/many_devices.md.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RUNS, STEPS, CHUNK = 16, 2000, 100
BORDER_BYTES = 10
"""Loss, first failure, whether it runs, whether a checkpoint is due: of each run at each chunk's end."""
SMALL = 2**14


def sweep(
    runs: int,
    devices: int,
    processes: int,
    constants: dict[str, float],
    chunk: int = CHUNK,
    cores: int | None = None,
) -> dict[str, float]:
    """What a step of a sweep costs: seconds, bytes of memory, bytes over the network to each process.

    With fewer cores than devices, which are virtual then, a core has the steps of several in turn.
    """
    per_device = math.ceil(runs / devices)
    in_turn = 1 if cores is None else math.ceil(devices / cores)
    told = 0.0 if processes == 1 else max(BORDER_BYTES * runs, SMALL * processes)
    spoken = 0.0 if processes == 1 else constants["latency"] + told / constants["rate"]
    return {
        "seconds a step": in_turn * (constants["overhead"] + per_device * constants["step"]) + spoken / chunk,
        "memory a device": per_device * constants["run_bytes"],
        "memory a host": runs * constants["result_bytes"],
        "network bytes a step": told / chunk,
        "seconds for the results": 0.0
        if processes == 1
        else runs * constants["result_bytes"] / constants["rate"],
    }


def table(constants: dict[str, float]) -> str:
    """The cost of sweeps of 10^3 to 10^6 runs on 1 to 1,000 devices, eight a process, as Markdown."""
    lines = ["| runs | devices | s a step | memory a device | memory a host | network a step | results |"]
    lines.append("|--:|--:|--:|--:|--:|--:|--:|")
    for runs in (10**3, 10**4, 10**5, 10**6):
        for devices in (1, 8, 64, 1000):
            cost = sweep(runs, devices, math.ceil(devices / 8), constants)
            lines.append(
                f"| {runs:,} | {devices:,} | {cost['seconds a step']:.2g} | "
                f"{_bytes(cost['memory a device'])} | {_bytes(cost['memory a host'])} | "
                f"{_bytes(cost['network bytes a step'])} | "
                f"{cost['seconds for the results']:.2g} s |"
            )
    return "\n".join(lines)


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def serve(port: int, processes: int, index: int, cores: int) -> None:
    """Be one of the processes: make a call for each line of the input, of so many runs."""
    import jax
    import numpy as np
    import optax

    import jaxarch
    from jaxarch._internal.cpu_cores import available_cores, keep_to_cores
    from jaxarch.run._processes import Team

    jaxarch.use_cpu_cores(cores)
    if processes > 1:
        # As `jaxarch run --processes` starts them.
        keep_to_cores(max(available_cores() // processes, 1), index)
        jax.distributed.initialize(f"127.0.0.1:{port}", processes, index)
    digits = jaxarch.lab.data.load("digits")
    problem = jaxarch.supervised(
        lambda rngs: jaxarch.models.MLP((64, 100, 10), rngs=rngs),
        (digits.x / 16, digits.y),
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optax.adam(1e-2),
        steps=STEPS,
        batch_size=50,
    )
    search = jaxarch.search.two_temperature(weights="initial", mean=2.0, std=1.0)
    team = Team.of("all hosts")
    for line in sys.stdin:
        task, number = line.split()
        start, cpu = time.perf_counter(), time.process_time()
        said: dict[str, Any] = {}
        if task == "tell":
            team.exchange("told", bytes(int(number)))
        else:
            keys, told = jax.random.split(jax.random.key(0), int(number)), Beginning()
            network, _ = jaxarch.over_seeds(
                search, keys, problem, devices="all hosts", chunk=CHUNK, progress=told
            )
            jax.block_until_ready(network.params)
            size = sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(network))
            data = digits.x.size * 4 + digits.y.size * 4
            memory = told.memory.arguments + told.memory.temporaries - data
            said = {"result_bytes": size / len(keys), "memory": memory}
        wall = time.perf_counter() - start
        print(json.dumps({"wall": wall, "cpu": time.process_time() - cpu} | said), flush=True)


class Beginning:
    """Is told what a training takes on each device, and nothing else."""

    memory: Any = None

    def __call__(self, border: Any) -> None:
        """Go on."""

    def begins(self, plan: Any) -> None:
        """Note what it takes."""
        self.memory = plan.memory


class Program:
    """So many processes that make the same calls."""

    def __init__(self, processes: int, devices: int) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "false"}
        self.processes = [
            subprocess.Popen(
                [sys.executable, __file__, "--serve", *map(str, (port, processes, index, devices))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env=environment,
            )
            for index in range(processes)
        ]

    def ask(self, task: str, number: int) -> dict[str, float]:
        """Have all make a call: the longest wall time, the CPU time of all together."""
        for process in self.processes:
            assert process.stdin is not None
            print(task, number, file=process.stdin, flush=True)
        answers = []
        for process in self.processes:
            assert process.stdout is not None
            line = process.stdout.readline()
            while line and not line.startswith("{"):
                line = process.stdout.readline()
            if not line:
                raise RuntimeError("a process has ended")
            answers.append(json.loads(line))
        longest = max(answers, key=lambda answer: answer["wall"])
        return longest | {"cpu": sum(answer["cpu"] for answer in answers)}

    def close(self) -> None:
        """Let them end."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self.processes:
            process.wait()


def compared(processes: int, repeats: int) -> dict[str, Any]:
    """So many processes of one device, beside one process with so many devices, in turn."""
    sides = {"one process": Program(1, processes), f"{processes} processes": Program(processes, 1)}
    # Started and connected, before anything is timed.
    for side in sides.values():
        side.ask("tell", 1)
    first = {name: side.ask("run", RUNS) for name, side in sides.items()}
    later: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, side in sides.items():
            later[name].append(side.ask("run", RUNS))
    told = {}
    together = sides[f"{processes} processes"]
    for size in (1, 2**20, 2**24):
        together.ask("tell", size)
        told[size] = statistics.median(together.ask("tell", size)["wall"] for _ in range(repeats))
    for side in sides.values():
        side.close()
    ratios = [theirs["wall"] / mine["wall"] for mine, theirs in zip(*later.values(), strict=True)]
    one, many = later.values()
    cpu = [theirs["cpu"] / mine["cpu"] for mine, theirs in zip(one, many, strict=True)]
    firsts = list(first.values())
    return {
        "processes": processes,
        "first call": firsts[1]["wall"] / firsts[0]["wall"],
        "later calls": statistics.median(ratios),
        "all later calls": sorted(ratios),
        "cpu of later calls": statistics.median(cpu),
        "seconds": {name: statistics.median(each["wall"] for each in of) for name, of in later.items()},
        "told": told,
    }


def constants(repeats: int, told: dict[int, float], processes: int) -> dict[str, float]:
    """What the formula needs: a step of a run, what a step costs besides, latency and rate, bytes.

    Steps are counted in CPU seconds, which say the same on a machine that others use.
    """
    program, few, many = Program(1, 1), 2, 16
    seconds: dict[int, list[float]] = {few: [], many: []}
    memory = {runs: program.ask("run", runs)["memory"] for runs in seconds}
    for _ in range(repeats):
        for runs, of in seconds.items():
            answer = program.ask("run", runs)
            of.append(answer["cpu"] / STEPS)
    program.close()
    short, long = statistics.median(seconds[few]), statistics.median(seconds[many])
    step = (long - short) / (many - few)
    largest, smallest = max(told), min(told)
    return {
        "step": step,
        "overhead": max(short - few * step, 0.0),
        "latency": told[smallest],
        "rate": processes * (largest - smallest) / (told[largest] - told[smallest]),
        "result_bytes": answer["result_bytes"],
        "run_bytes": (memory[many] - memory[few]) / (many - few),
    }


def checked(constants: dict[str, float], repeats: int) -> str:
    """What the formula says beside what is measured, as Markdown."""
    cores = len(os.sched_getaffinity(0))
    titles: tuple[str, ...] = (
        "runs",
        "devices",
        "processes",
        "ms a step by the formula",
        "measured",
        "ratio",
    )
    titles += ("memory a device by the formula", "counted")
    lines = [f"| {' | '.join(titles)} |", "|--:" * len(titles) + "|"]
    for devices, processes in ((1, 1), (2, 1), (4, 1), (8, 1), (2, 2), (4, 2), (8, 2), (4, 4)):
        program = Program(processes, devices // processes)
        for runs in (16, 64):
            expected = sweep(runs, devices, processes, constants, cores=cores)
            program.ask("run", runs)
            answers = [program.ask("run", runs) for _ in range(repeats)]
            measured = statistics.median(answer["wall"] for answer in answers) / STEPS
            lines.append(
                f"| {runs} | {devices} | {processes} | {1e3 * expected['seconds a step']:.3g} | "
                f"{1e3 * measured:.3g} | {measured / expected['seconds a step']:.2f} | "
                f"{_bytes(expected['memory a device'])} | {_bytes(answers[-1]['memory'])} |"
            )
            print(lines[-1], flush=True)
        program.close()
    return "\n".join(lines)


def main() -> None:
    """Compare, measure the constants, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--processes", type=int, nargs="*", default=[2, 4])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--check", type=Path)
    parser.add_argument("--serve", type=int, nargs=4, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve:
        serve(*chosen.serve)
        return
    if chosen.table:
        print(table(json.loads(chosen.table.read_text())["constants"]))
        return
    if chosen.check:
        print(checked(json.loads(chosen.check.read_text())["constants"], chosen.repeats))
        return
    found: dict[str, Any] = {"compared": []}
    for count in chosen.processes:
        found["compared"].append(compared(count, chosen.repeats))
        print(found["compared"][-1], flush=True)
    last = found["compared"][0]
    found["constants"] = constants(chosen.repeats, last["told"], last["processes"])
    path = chosen.json or Path(tempfile.mkdtemp()) / "several_processes.json"
    path.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found["constants"]))
    print(table(found["constants"]))
    print(checked(found["constants"], chosen.repeats))


if __name__ == "__main__":
    main()
