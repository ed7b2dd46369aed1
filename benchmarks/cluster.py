"""Parts over a cluster: what it costs, and whether it survives: `python benchmarks/cluster.py cost|kills`.

`cost` makes parts of a second of one core, already compiled, and compares the wall time, start-up
included, with the time that the parts themselves took over the number of workers. `kills` kills workers, and
the process that hands parts to them, at random moments, and compares what is found in the end.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import multiprocessing
import os
import random
import resource
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import psutil

from jaxarch import use_compilation_cache, use_cpu_cores
from jaxarch.lab.harness import Part, Parts, Spread, executor_of

TRIED = 50_000
"""Steps of `walk`, to see how many take a second."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """Of the runs here."""

    parts: int = 100
    steps: int = TRIED
    resume: str = ""


@dataclasses.dataclass(frozen=True)
class Dying:
    """A part whose process ends it so many times, which are counted in a folder that all here see."""

    number: int
    deaths: int = 0
    counted: str = ""


@jax.jit
def walk(x, steps):
    return jax.lax.fori_loop(0, steps, lambda _, x: jnp.cos(x @ x) / 8, x)


def load(steps):
    return steps


def made(steps, dying, found, work):
    """A table with the numbers that the part computed, and the time that it took."""
    if dying.deaths:
        mark = Path(dying.counted, f"{dying.number}-{time.time_ns()}")
        if len(list(mark.parent.glob(f"{dying.number}-*"))) < dying.deaths:
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    wall, cpu = time.perf_counter(), time.process_time()
    start = 0.1 * jax.random.normal(jax.random.key(dying.number), (32, 32))
    for table in found.values():
        start = start + jnp.float32(table["found"].iloc[0])
    value = float(walk(start, steps).sum())
    return pd.DataFrame(
        {
            "found": [value],
            "wall": time.perf_counter() - wall,
            "cpu": time.process_time() - cpu,
            "process": os.getpid(),
        }
    )


def run(parts, settings, executor, cache):
    use_cpu_cores(1)
    use_compilation_cache(cache)
    spread = None if executor is None else Spread(executor)
    tables = Parts(settings).run(parts, settings.steps, partial(load, settings.steps), spread=spread)
    return pd.concat([table for _, table in tables], ignore_index=True), spread


@contextlib.contextmanager
def cluster_of(kind, workers):
    """What `--cluster` is given, and the processes that make parts."""
    if kind == "local":

        def spawned(driver):
            # Another child cleans up after all.
            return [child for child in driver.children() if "spawn_main" in " ".join(child.cmdline())]

        yield f"local:{workers}", spawned
        return
    import dask
    from distributed import LocalCluster

    # It gives up a worker that is not back within 15 seconds, which a busy machine may need.
    patient = {"distributed.deploy.lost-worker-timeout": "1 hour"}
    of = {"threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 50}
    with dask.config.set(patient), LocalCluster(n_workers=workers, **of) as cluster:

        def processes(driver):
            return [psutil.Process(nanny.pid) for nanny in list(cluster.workers.values()) if nanny.pid]

        yield cluster.scheduler_address, processes


def cpu_seconds():
    """Of this process and of those that it started, which have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(of.ru_utime + of.ru_stime for of in used)


def cost(kind, workers, count):
    """The wall time of many parts over what they took themselves."""
    with tempfile.TemporaryDirectory() as cache:
        parts = [Part(f"part {number}", made, Dying(number)) for number in range(count)]
        run(parts[:1], Settings(), None, cache)  # compiled
        tried, _ = run(parts[:1], Settings(), None, cache)
        settings = Settings(steps=round(TRIED / tried["cpu"].iloc[0]))
        begun, before = time.perf_counter(), cpu_seconds()
        with cluster_of(kind, workers) as (cluster, _):
            table, _ = run(parts, settings, executor_of(cluster), cache)
        wall, everything = time.perf_counter() - begun, cpu_seconds() - before
    clock, core = (table[of].sum() / workers for of in ("wall", "cpu"))
    print(
        f"{kind}, {workers} workers, {count} parts of {table['cpu'].median():.2f} s: {wall:.1f} s, where the "
        f"parts took {clock:.1f} s a worker by clock ({wall / clock - 1:+.1%}) and {core:.1f} s of a core; "
        f"all processes together took {everything:.1f} s of a core, {everything / core / workers - 1:+.1%}; "
        f"load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def parts_to_kill(counted, deaths):
    """Three chains of parts, of which one ends its process so often."""
    parts = []
    for number in range(9):
        after = (f"part {number - 3}",) if number >= 3 else ()
        of = Dying(number, deaths if number == 4 else 0, counted)
        parts.append(Part(f"part {number}", made, of, after))
    return parts


def driver(folder, cluster, counted, cache, deaths, steps):
    """One run, in a process of its own, which may be killed."""
    settings = Settings(parts=9, steps=steps, resume=folder)
    table, spread = run(parts_to_kill(counted, deaths), settings, executor_of(cluster), cache)
    table["found"].to_csv(Path(folder, "found"), index=False)
    print("made again", sum(spread.again.values()), flush=True)


def kills(kind, runs, kills_a_run, seed, steps):
    """Kill workers and drivers at random, and compare what is found."""
    draw, context = random.Random(seed), multiprocessing.get_context("spawn")
    ended = equal = killed = drivers = own = 0
    with tempfile.TemporaryDirectory() as place:
        cache = f"{place}/cache"
        whole = Settings(parts=9, steps=steps)
        undisturbed, _ = run(parts_to_kill(place, 0), whole, None, cache)
        for number in range(runs):
            # More often than Dask allows: four deaths are one attempt there.
            deaths = 5 if number % 2 else 0
            folder, counted = f"{place}/{number}", f"{place}/counted-{number}"
            Path(counted).mkdir()
            left, begun, kill_driver = kills_a_run, time.perf_counter(), draw.random() < 0.2
            with cluster_of(kind, 2) as (cluster, processes):
                arguments = (folder, cluster, counted, cache, deaths, steps)
                process = context.Process(target=driver, args=arguments)
                process.start()
                while process.is_alive() or process.exitcode == -signal.SIGKILL:
                    if not process.is_alive():
                        process = context.Process(target=driver, args=arguments)
                        process.start()
                    process.join(draw.uniform(0.2, 5.0) if left else 1.0)
                    if not left or not process.is_alive():
                        continue
                    try:
                        workers = processes(psutil.Process(process.pid))
                        if not workers:
                            continue  # they are starting
                        (process if kill_driver else draw.choice(workers)).kill()
                    except psutil.Error:
                        continue  # it died meanwhile
                    process.join(None if kill_driver else 0)
                    drivers += kill_driver
                    left, killed, kill_driver = left - 1, killed + 1, draw.random() < 0.2
            own += len(list(Path(counted).iterdir()))
            ended += process.exitcode == 0
            if process.exitcode == 0:
                found = pd.read_csv(Path(folder, "found"), engine="python")["found"].to_numpy()
                equal += np.array_equal(found, undisturbed["found"].to_numpy())
            print(
                f"{kind}: {number + 1} of {runs} runs, {killed} kills from outside ({drivers} of the "
                f"driver), {own} of a part's own; {ended} ended, {equal} with the numbers of an undisturbed "
                f"run ({time.perf_counter() - begun:.0f} s)",
                flush=True,
            )
    return equal == runs


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["cost", "kills"])
    parser.add_argument("--kind", choices=["local", "dask"], default="local")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--parts", type=int, default=100)
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--kills", type=int, default=4, help="in each run")
    parser.add_argument("--steps", type=int, default=TRIED, help="of a part that is killed")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.what == "cost":
        cost(options.kind, options.workers, options.parts)
    elif not kills(options.kind, options.runs, options.kills, options.seed, options.steps):
        sys.exit(1)


if __name__ == "__main__":
    # Workers import the parts by the name of this module.
    folder = os.path.dirname(os.path.abspath(__file__))
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])
    import cluster

    cluster.main()
