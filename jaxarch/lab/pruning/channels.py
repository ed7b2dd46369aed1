"""Channels or neurons found by several searches and cut out: accuracy against multiply-adds."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
import pandas as pd
from rich.console import RenderableType

from jaxarch import ResultWarning, plots, select
from jaxarch.io import digest
from jaxarch.lab.charts import Chart
from jaxarch.lab.harness import Context, Experiment, Outcome, Results, finding, pace, paired, tables
from jaxarch.lab.harness.results import failures
from jaxarch.lab.harness.tables import Table
from jaxarch.lab.pruning import cutting, unit_searches
from jaxarch.lab.pruning.parents import in_words
from jaxarch.lab.pruning.reporting import COMPARISONS, MASKS, dead_starts
from jaxarch.lab.pruning.unit_settings import DENSE, LAYERWISE, UNITS, ChannelSettings

MEASURED_STEPS = 10
"""Steps that are timed on one network of each kind, to estimate the total duration."""
LEARNED = ("two-temperature", "AP", "TAS")
"""Methods whose differences to all others are shown."""
MEANING = {
    DENSE: "the whole network, trained",
    "two-temperature": "Algorithm 1 of [D] learns which units to keep, over the initial weights",
    "AP": "architecture pruning of [A]: a mask of units and weights are trained together, under a penalty",
    "TAS": "the widths of layers are learned (Dong and Yang 2019), with the share of all units as the target",
    "magnitude": "units of the largest mean weight of a trained network, over all layers together",
    "magnitude" + LAYERWISE: "as magnitude, with the same share of the units of each layer",
    "random": "random units",
}
"""One line on each method."""


def plan(settings: ChannelSettings) -> list[str]:
    """Describe the trainings to be compiled and run."""
    task = unit_searches.prepare(settings)
    connections = sum(leaf.size for leaf in jax.tree.leaves(select(task.params)))
    sizes = task.units.groups()
    trained = len(np.asarray(task.problem.train).T)
    lines = [
        f"parent: {in_words(settings)}, {connections} connections; {sum(sizes.values())} {settings.units} in "
        f"{len(sizes)} groups; pictures of {task.images.x.shape[1:]}",
        f"trained on {trained} examples and tested on {task.test.shape[1]}",
        f"methods: {', '.join(settings.methods)}; shares {', '.join(f'{s:g}' for s in settings.shares)}; "
        f"{settings.seeds} seeds",
    ]
    lines += [
        f"search: {search}: {runs} trainings of {settings.search_steps} steps of batch {settings.batch_size}"
        for search, runs in _searches(settings).items()
    ]
    return [
        *lines,
        f"then {_networks(settings)} networks trained for {settings.steps} steps, tested whole and cut",
    ]


def _searches(settings: ChannelSettings) -> dict[str, int]:
    """Return the searches that train, and the number of trainings of each."""
    names = dict.fromkeys(method.removesuffix(LAYERWISE) for method in settings.methods)
    shares = dict.fromkeys(("two-temperature", "TAS"), len(settings.shares))
    return {name: settings.seeds * shares.get(name, 1) for name in names if settings.search_steps_of(name)}


def _networks(settings: ChannelSettings) -> int:
    return settings.seeds * (1 + len(settings.methods) * len(settings.shares))


def duration(settings: ChannelSettings) -> list[str]:
    """Estimate the total duration here from a few steps of each kind of training and one cut network."""
    task = unit_searches.prepare(settings)
    one = dataclasses.replace(settings, seeds=1, shares=settings.shares[:1], search_steps=MEASURED_STEPS)
    few = task._replace(settings=one)
    options: dict[str, Any] = {"dead_start": "ignore", "chunk": MEASURED_STEPS}
    total = 0.0
    for search, runs in _searches(settings).items():
        with warnings.catch_warnings():
            # After so few steps no share is reached, so the warning about it means nothing.
            warnings.simplefilter("ignore", ResultWarning)
            found = next(iter(unit_searches.SEARCHES[search](few, options).values()))
        total += float(found.seconds) / MEASURED_STEPS * runs * settings.search_steps
    a_step, a_cut = cutting.timed(few, MEASURED_STEPS)
    networks, devices = _networks(settings), jax.local_device_count()
    total = (total + networks * settings.steps * a_step) / devices + networks * a_cut
    return [pace.told(total, devices, "without compilation of trainings")]


def run(settings: ChannelSettings, context: Context) -> Outcome:
    """Find the units, train the networks that keep only them, and cut these networks."""
    task = unit_searches.prepare(settings)
    measured = cutting.measure(task, context.progress)
    return Outcome(
        measured.table,
        _findings(measured.table, measured.comparisons),
        tables={COMPARISONS: measured.comparisons},
        arrays={MASKS: measured.masks},
        facts={
            "pictures": {"name": task.images.name, "sha256": digest(task.images.x, task.images.y)},
            "notes": measured.notes,
        },
    )


def _findings(table: pd.DataFrame, comparisons: pd.DataFrame) -> list[dict[str, Any]]:
    """Compare the learned methods with all others, and report the accuracy and size of every method."""
    pairs = comparisons[comparisons["first"].isin(LEARNED)].to_dict("records")
    against = [
        finding(
            f"accuracy of {pair['first']} minus {pair['second']}, share {pair['share']:g}", pd.Series(pair)
        )
        for pair in pairs
    ]
    quantities = {"accuracy": "accuracy", "multiply_adds": "multiply-adds"}
    return against + [
        finding(f"{words} of {method}, share {share:g}", rows[column])
        for (share, method), rows in table.groupby(["share", "strategy"], sort=False)
        for column, words in quantities.items()
    ]


def conclusion(results: Results) -> Iterable[str]:
    """Compare the methods at the smallest share of units, and learned units with random ones."""
    settings, table = results.settings, results.table
    share, kind = table["share"].min(), UNITS[settings["model"]]
    runs = {str(name): rows for name, rows in table[table["share"] == share].groupby("strategy", sort=False)}
    medians = {name: rows["accuracy"].median() for name, rows in runs.items()}
    if np.isnan(list(medians.values())).all():
        yield f"With {share:g} of the {kind} kept, all runs met NaN or infinity."
        return
    best = max(medians, key=lambda name: np.nan_to_num(medians[name], nan=-1.0))
    dense = table.loc[table["strategy"] == DENSE, "accuracy"]
    fewer = runs[best]["dense_multiply_adds"] / runs[best]["multiply_adds"]
    yield (
        f"{settings['dataset']}, {in_words(settings)}: with {share:g} of the {kind} kept, {best} has the "
        f"highest median test accuracy, {tables.inline(runs[best]['accuracy'], '.3f')}; the dense network "
        f"has {tables.inline(dense, '.3f')} ({tables.counted([runs[best]['accuracy'], dense])})."
    )
    yield f"Networks of {best} take {tables.median(fewer, '.1f')} times fewer multiply-adds (median)."
    comparisons = results.read(COMPARISONS)
    at_share = comparisons[comparisons["share"] == share]
    said = [
        f"{name} minus random is {paired.in_words(pair, '.3f', 'p_adjusted')}"
        for name in LEARNED
        for pair in paired.against(at_share, name, "random").to_dict("records")
        if np.isfinite(pair["median"])
    ]
    if said:
        yield f"Paired by seed, {'; '.join(said)}."


def report(results: Results) -> list[RenderableType]:
    """Draw the figure and build the tables."""
    settings, table, comparisons = results.settings, results.table, results.read(COMPARISONS)
    title = f"{settings['dataset']}, {in_words(settings)}"
    # The unit keeps the numbers on the axis free of powers of ten.
    unit, of_them = (1e6, "millions") if table["dense_multiply_adds"].max() >= 1e6 else (1e3, "thousands")
    points = {
        method: (_by_share(rows, "multiply_adds") / unit, _by_share(rows, "accuracy"))
        for method, rows in table.groupby("strategy", sort=False)
    }
    label = f"multiply-adds, in {of_them}"
    figure = plots.trade_off(points, label, "test accuracy", title, logarithmic=(True, False))
    results.draw(figure, "channels")
    groups = [(str(name), rows) for name, rows in table.groupby("strategy", sort=False)]
    return [
        _accuracies(table, title),
        *(f"- {name}: {MEANING[name]}" for name, _ in groups),
        _costs(table),
        _budgets(table),
        *(_against(of, method) for method in LEARNED if len(of := paired.against(comparisons, method))),
        _equal(table),
        *results.manifest["notes"],
        *failures(groups),
        *dead_starts(groups),
    ]


def _by_share(rows: pd.DataFrame, column: str) -> np.ndarray:
    by_seed = rows.pivot(index="seed", columns="share", values=column)
    return by_seed.sort_index(axis=1).to_numpy(float)


def _accuracies(table: pd.DataFrame, title: str) -> Table:
    """Tabulate accuracies: methods down, shares across."""
    found = table[table["strategy"] != DENSE]
    shares = sorted(found["share"].unique(), reverse=True)
    rows = [
        (str(method), *(tables.spread(of.loc[of["share"] == share, "accuracy"], ".3f") for share in shares))
        for method, of in found.groupby("strategy", sort=False)
    ]
    dense = tables.spread(table.loc[table["strategy"] == DENSE, "accuracy"], ".3f")
    return tables.table(
        f"{title}: test accuracy, median [quartiles]; dense network: {dense}",
        ("share of units kept", *(f"{share:g}" for share in shares)),
        rows,
    )


def _costs(table: pd.DataFrame) -> Table:
    """Tabulate the costs of the smaller networks."""
    rows = [
        (
            f"{method}, {share:g}",
            *(tables.median(of[column], ",.0f") for column in ("units", "multiply_adds", "parameters")),
            tables.median(of["dense_multiply_adds"] / of["multiply_adds"], ".1f"),
        )
        for (method, share), of in table.groupby(["strategy", "share"], sort=False)
    ]
    columns = ("method, share", "units", "multiply-adds", "parameters", "times fewer multiply-adds")
    return tables.table("costs of the smaller networks: medians over seeds", columns, rows)


def _budgets(table: pd.DataFrame) -> Table:
    """Tabulate the gradient steps and time given to a network of each method."""
    rows = [
        (
            str(method),
            *(f"{of[column].iloc[0]}" for column in ("search_steps", "steps")),
            f"{of['search_steps'].iloc[0] + of['steps'].iloc[0]}",
            tables.median(of["search_seconds"] + of["seconds"], ".1f"),
        )
        for method, of in table.groupby("strategy", sort=False)
    ]
    columns = ("method", "search steps", "retraining steps", "both", "seconds")
    return tables.table("gradient steps and time of one network, on one device", columns, rows)


def _against(pairs: pd.DataFrame, method: str) -> Table:
    """Tabulate a method minus all others, paired by seed."""
    rows = [
        (
            f"{pair['against']}, {pair['share']:g}",
            f"{tables.signed(pair['median'], '.3f')} [{tables.signed(pair['q25'], '.3f')} "
            f"{tables.signed(pair['q75'], '.3f')}]",
            f"{pair['wins']:g} of {pair['runs']}",
            tables.number(pair["p"], ".3f"),
            tables.number(pair["p_adjusted"], ".3f"),
        )
        for pair in pairs.to_dict("records")
    ]
    columns = ("against, share", "median [quartiles]", "seeds better", "p", "adjusted p")
    title = (
        f"accuracy of {method} minus accuracy of others, paired by seed; Wilcoxon p, adjusted at each share"
    )
    return tables.table(title, columns, rows)


def _equal(table: pd.DataFrame) -> str:
    """Report the largest differences of outputs and accuracies due to cutting."""
    apart = (table["accuracy"] - table["shrunk_accuracy"]).abs().max()
    return (
        "cutting the networks changed outputs by at most "
        f"{table['difference'].max():.1e} of the largest, and accuracies by at most {apart:.1e}"
    )


def charts(results: Results) -> list[Chart]:
    """Chart the accuracy of every run against its multiply-adds."""
    settings = results.settings
    labels = {
        "multiply_adds": "multiply-adds",
        "accuracy": "test accuracy",
        "share": "share of units kept",
        "strategy": "method",
    }
    return [
        Chart(
            f"{settings['dataset']}, {in_words(settings)}: test accuracy against multiply-adds",
            results.table,
            "multiply_adds",
            "accuracy",
            "strategy",
            at="share",
            labels=labels,
            tells=("share", "seed"),
            logarithmic=(True, False),
        )
    ]


EXPERIMENT = Experiment(__name__, ChannelSettings, plan, run, report, conclusion, duration, charts)
