"""Test of the theory of the two-temperature step: exact mirror step, prescribed rates, soft/hard."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from jaxarch import Problem, over_seeds
from jaxarch.lab.data import Dataset
from jaxarch.lab.harness import Context, Experiment, Outcome, costs
from jaxarch.lab.theory import convex, gaps
from jaxarch.lab.theory.averaging import STEPS, Search
from jaxarch.lab.theory.cases import prepare
from jaxarch.lab.theory.gradients import certified_bounds, first_run
from jaxarch.lab.theory.problems import NETWORK, ON_DATA, PROBLEMS
from jaxarch.lab.theory.rates import CERTIFIED, MEASURED, cells_of
from jaxarch.lab.theory.ratio_report import LOSSES, conclusion, findings, report
from jaxarch.lab.theory.settings import Settings

QUANTITIES = (
    *("loss", "last", "average", "density", "auc"),
    *("bound", "gap", "last_gap", "gap_over_bound"),
)


def plan(settings: Settings) -> list[str]:
    """Describe the trainings to be compiled and run."""
    data, task, _ = prepare(settings)
    rates = len(settings.grid()) + 3
    lines = [
        f"problems: {', '.join(settings.problems)}; {settings.seeds} seeds",
        f"soft/hard: {', '.join(f'{ratio:g}' for ratio in settings.ratios)}; hard {settings.hard:g}",
        f"learning rates: {settings.learning_rate:g} at every ratio; scaled, times "
        f"{', '.join(f'{multiple:g}' for multiple in settings.grid())}; prescribed below soft/hard 1, with "
        "the measured and with the certified G",
        f"trainings: {len(STEPS)} for each problem, one program each ({'; '.join(STEPS)}): {settings.steps} "
        f"steps x up to {len(settings.ratios) * rates * settings.seeds} runs; one more to measure G",
    ]
    if data is not None and task is not None:
        examples, features = data.x.shape
        lines.insert(0, f"data: {data.name}, {examples} x {features}; task {task.name}")
    return lines


def run(settings: Settings, context: Context) -> Outcome:
    """Train every problem with both steps at all ratios and learning rates, and measure F."""
    options = context.options
    data, task, cases = prepare(settings)
    keys = settings.seed_keys()
    measured, histories, spent, gradients, excess = [], {}, {}, {}, {}
    for name, case in cases.items():
        # G is measured at the ratio for which the learning rate is meant.
        soft = settings.reference * settings.hard
        start, largest = first_run(case, keys, settings.hard, soft, settings.learning_rate)
        gradients[name] = {MEASURED: largest, CERTIFIED: certified_bounds(case.problem)}
        cells = cells_of(settings, start, gradients[name])
        wide = _repeated(case.problem, len(cells) // settings.seeds)
        best = None if name == NETWORK else convex.least(case.problem)
        if best is not None:
            excess[name] = best.excess
        for step in STEPS:
            network, cost = over_seeds(
                Search(step, case.mean, case.std),
                keys[cells["seed"].to_numpy()],
                wide,
                {of: jnp.asarray(cells[of], jnp.float32) for of in ("hard", "soft", "rate")},
                name=f"{name}, {step}",
                labels=[
                    f"{row.rate_rule} x {row.multiple:g}, soft/hard {row.ratio:g}, seed {row.seed}"
                    for row in cells.itertuples()
                ],
                dead_start="ignore",
                **options,
            )
            rows = cells.assign(problem=name, step=step, **gaps.objectives(wide, network))
            if best is not None:
                rows["bound"] = gaps.bounds(
                    settings, cells, start, best.masks, gradients[name][CERTIFIED], step
                )
                rows = rows.assign(
                    **gaps.above_least(rows, wide, network, best.values, gradients[name][CERTIFIED])
                )
            elif data is not None and task is not None:
                rows["auc"] = gaps.test_auc(cells, wide, network, data, task)
            measured.append(rows.assign(seconds=cost.seconds, failed_at=np.asarray(network.info.failed_at)))
            histories[f"{name}/{step}"] = np.asarray(network.info["loss"])
            spent[f"{name}, {step}"] = costs({step: (network, cost)})
    table = pd.concat(measured, ignore_index=True)
    quantities = [name for name in QUANTITIES if name in table]
    table[quantities] = table[quantities].where(table["failed_at"] < 0)
    return Outcome(
        table,
        findings(table, gradients, _words(settings, data)),
        data,
        spent,
        arrays={LOSSES: histories},
        facts={"gradients": gradients, "least_within": excess},
    )


def _repeated(problem: Problem, times: int) -> Problem:
    """Repeat the problem of all seeds `times` times."""
    per_run = jax.tree.map(lambda leaf: jnp.concatenate([leaf] * times), problem.per_run)
    return dataclasses.replace(problem, train=jnp.tile(problem.train, (times, 1)), per_run=per_run)


def _words(settings: Settings, data: Dataset | None) -> dict[str, str]:
    """Describe the values of each problem in words, for findings."""
    groups = (",".join(map(str, group)) for group in (settings.positive, settings.negative))
    on = "" if data is None else ", {} {{{}}} v {{{}}}".format(data.name, *groups)
    return {name: words + (on if name in ON_DATA else "") for name, words in PROBLEMS.items()}


EXPERIMENT = Experiment(__name__, Settings, plan, run, report, conclusion)
