"""What a transfer would train, and how long that would take here: measured, before it begins."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence

import jax
import numpy as np
import pandas as pd

from jaxarch import Report, ResultWarning, architecture, over_seeds, select
from jaxarch.experiments.pruning.searches import SEARCHES, problem_of, trainings
from jaxarch.experiments.pruning.tasks import Transfer
from jaxarch.experiments.pruning.trial import learning, training
from jaxarch.masks import full_mask
from jaxarch.search import dense

MEASURED_STEPS, MEASURED_RUNS = 20, 16


def plan(methods: Sequence[str], transfer: Transfer) -> list[str]:
    """What would be compiled and trained."""
    settings = transfer.settings
    params, _ = jax.eval_shape(transfer.searching.init, jax.random.key(0))
    connections = sum(leaf.size for leaf in jax.tree.leaves(select(params)))
    searched = len(np.asarray(transfer.searching.train))
    lines = [
        f"task: {transfer.task}",
        f"parent: {settings.model}, {connections} connections; pictures of {transfer.old.x.shape[1:]}",
        f"searched on {searched} examples; then trained on {', '.join(map(str, sorted(settings.sizes)))} "
        f"new ones and tested on {transfer.test.shape[1]}",
        f"methods: {', '.join(methods)}; sparsities {', '.join(f'{s:g}' for s in settings.sparsities)}; "
        f"{settings.seeds} seeds",
    ]
    lines += [
        f"search: {name}: {count * settings.seeds} trainings of {steps} steps of batch {settings.batch_size}"
        for name, (count, steps) in trainings(methods, transfer).items()
    ]
    runs = (1 + len(methods) * len(settings.sparsities)) * settings.seeds
    cells = len(settings.sizes) * len(settings.weights)
    lines.append(
        f"new task: {runs} runs x {cells} sizes and starts = {runs * cells} trainings of {settings.steps} "
        "steps"
    )
    return lines


def duration(methods: Sequence[str], transfer: Transfer) -> list[str]:
    """How long all of it would take here, from a few steps of each kind of training."""
    settings = transfer.settings
    keys = settings.keys("search")
    total = 0.0
    for name, (count, steps) in trainings(methods, transfer).items():
        problem = problem_of(name, transfer).descending(steps=MEASURED_STEPS)
        problem = dataclasses.replace(problem, validation=None)
        search = SEARCHES[name](settings, settings.densities) if name == "AP" else dense(nonnegative=False)
        with warnings.catch_warnings():
            # After so few steps no density is reached.
            warnings.simplefilter("ignore", ResultWarning)
            _, report = over_seeds(
                search, keys[:MEASURED_RUNS], problem, dead_start="ignore", chunk=MEASURED_STEPS
            )
        total += seconds_of(report, count * settings.seeds * steps)
    runs = (1 + len(methods) * len(settings.sparsities)) * settings.seeds
    few = pd.DataFrame({"seed": np.resize(np.arange(settings.seeds), min(MEASURED_RUNS, runs))})
    params, _ = jax.eval_shape(jax.vmap(transfer.searching.init), keys[few["seed"].to_numpy()])
    problem = learning(few, transfer, max(settings.sizes)).descending(steps=MEASURED_STEPS)
    _, report = over_seeds(
        training(settings.weights[0], transfer),
        keys[few["seed"].to_numpy()],
        problem,
        network=architecture(full_mask(select(params))),
        dead_start="ignore",
        chunk=MEASURED_STEPS,
    )
    total += seconds_of(report, runs * len(settings.sizes) * len(settings.weights) * settings.steps)
    return [told(total, report.stages[-1].devices, "compilation and tests apart")]


def seconds_of(report: Report, steps: int) -> float:
    """Of so many steps of one run each, all devices busy, from a report on `MEASURED_STEPS` of them."""
    last = report.stages[-1]
    return last.seconds / MEASURED_STEPS * steps / last.devices


def told(seconds: float, devices: int, counted: str) -> str:
    """The line of a dry run that says how long a run takes, and what is counted in it."""
    return f"time: about {in_words(seconds)} on {devices} device{'s' * (devices > 1)}, {counted}"


def in_words(seconds: float) -> str:
    """A time to read."""
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
