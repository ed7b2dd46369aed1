"""The trainings of a transfer and their expected duration, measured on this machine before they begin."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np
import pandas as pd

from jaxarch import architecture, select
from jaxarch.lab.harness import pace
from jaxarch.lab.pruning.parents import in_words
from jaxarch.lab.pruning.searches import SEARCHES, problem_of, trainings
from jaxarch.lab.pruning.tasks import Transfer
from jaxarch.lab.pruning.trial import learning, training
from jaxarch.masks import full_mask
from jaxarch.search import dense

MEASURED_RUNS = 16


def plan(methods: Sequence[str], transfer: Transfer) -> list[str]:
    """Describe the trainings to be compiled and run."""
    settings = transfer.settings
    params, _ = jax.eval_shape(transfer.searching.init, jax.random.key(0))
    connections = sum(leaf.size for leaf in jax.tree.leaves(select(params)))
    searched = len(np.asarray(transfer.searching.train))
    lines = [
        f"task: {transfer.task}",
        f"parent: {in_words(settings)}, {connections} connections; pictures of {transfer.old.x.shape[1:]}",
        f"searched on {searched} examples; then trained on {', '.join(map(str, sorted(settings.sizes)))} "
        f"new ones, and tested on {transfer.test.shape[1]}",
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
        f"new task: {runs} runs x {cells} pairs of size and start = {runs * cells} trainings of "
        f"{settings.steps} steps"
    )
    return lines


def duration(methods: Sequence[str], transfer: Transfer) -> list[str]:
    """Estimate the total duration here from a few steps of each kind of training."""
    settings = transfer.settings
    keys = settings.keys("search")
    total = 0.0
    for name, (count, steps) in trainings(methods, transfer).items():
        search = SEARCHES[name](settings, settings.densities) if name == "AP" else dense(nonnegative=False)
        searching = pace.measured(search, keys[:MEASURED_RUNS], problem_of(name, transfer))
        total += searching.seconds(count * settings.seeds * steps)
    runs = (1 + len(methods) * len(settings.sparsities)) * settings.seeds
    few = pd.DataFrame({"seed": np.resize(np.arange(settings.seeds), min(MEASURED_RUNS, runs))})
    params, _ = jax.eval_shape(jax.vmap(transfer.searching.init), keys[few["seed"].to_numpy()])
    trained = pace.measured(
        training(settings.weights[0], transfer),
        keys[few["seed"].to_numpy()],
        learning(few, transfer, max(settings.sizes)),
        architecture(full_mask(select(params))),
    )
    total += trained.seconds(runs * len(settings.sizes) * len(settings.weights) * settings.steps)
    return [pace.told(total, trained.devices, "without compilation and tests")]
