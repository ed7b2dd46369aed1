"""A tournament from settings to tables: every method in turn, each a part that is kept."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from jaxarch import ArgumentError, named_leaves, select
from jaxarch.io import digest
from jaxarch.lab.data import Text
from jaxarch.lab.harness import Context, Experiment, Outcome, Part, Parts, Work, finding, pace
from jaxarch.lab.harness.at_worker import check_same
from jaxarch.lab.pruning.parents import in_words
from jaxarch.lab.tournament import report as reports
from jaxarch.lab.tournament.controls import AS_FOUND, controlled
from jaxarch.lab.tournament.entrants import DENSE, ENTRANTS, RANDOM, At, Entrant, Phase
from jaxarch.lab.tournament.matches import Played, entered, layers_of, play, play_own, table_of
from jaxarch.lab.tournament.own import FAMILY, Own, digest_of, read_own
from jaxarch.lab.tournament.settings import TournamentSettings
from jaxarch.lab.tournament.task import Task, task_of
from jaxarch.lab.tournament.tuning import SEEDS, defaults, tuned
from jaxarch.metrics import paired_differences, runs_needed
from jaxarch.search import dense

RANDOM_ONES = [name for name, entrant in ENTRANTS.items() if entrant.family == RANDOM]
"""Methods with random masks, with which findings compare all others."""
PROGRAM_SECONDS = 4.0
"""Approximate seconds for compiling the search of a small parent; a larger parent's training is measured."""


def plan(settings: TournamentSettings) -> list[str]:
    """Describe the trainings to be compiled and run."""
    task = task_of(settings)
    own = _checked(task)
    runs = settings.seeds * len(settings.densities)
    lines = [
        f"parent: {in_words(settings)}, {task.connections} connections; {task.form()}",
        f"trained on {task.train.shape[1]} examples, {task.held_out.shape[1]} held out, tested on "
        f"{len(task.test)}",
        f"densities {', '.join(f'{density:g}' for density in settings.densities)}; {settings.seeds} seeds; "
        f"phases of {settings.steps} steps of batch {settings.batch_size}; budget {settings.budget}",
    ]
    lines += [
        f"{name}: {_evaluations(ENTRANTS[name], task) / runs:,.0f} gradient evaluations per network, "
        f"{runs} networks"
        for name in settings.methods
    ]
    lines += [f"{one.name}, from {settings.own}: {runs} networks" for one in own]
    if settings.tune:
        lines.append(f"before that, {settings.tune} trials of each method's settings, {SEEDS} seeds each")
    if settings.controls:
        lines.append(f"controls: {', '.join((AS_FOUND, *settings.controls))}: {runs} networks of each method")
    return lines


def _evaluations(entrant: Entrant, task: Task) -> float:
    """Count the gradient evaluations of all networks of a method; a shared search counts for each network."""
    settings = task.settings
    at = At.of(settings)
    by_density = [entrant.phases(at, density) for density in settings.densities]
    return settings.seeds * sum(phase.evaluations for phases in by_density for phase in phases)


def _computed(entrant: Entrant, task: Task) -> float:
    """Count the gradient evaluations computed here: a search that finds several architectures runs once."""
    settings = task.settings
    at = At.of(settings)
    by_density = [entrant.phases(at, density) for density in settings.densities]
    before = [sum(phase.evaluations for phase in phases[:-1]) for phases in by_density]
    searching = max(before) if entrant.nested else sum(before)
    return settings.seeds * (searching + sum(phases[-1].evaluations for phases in by_density))


def duration(settings: TournamentSettings) -> list[str]:
    """Estimate the total duration here, coarsely, from a few steps of the parent."""
    task = task_of(settings)
    seeds = np.tile(np.arange(settings.seeds), len(settings.densities))
    whole = pace.measured(dense(nonnegative=False), task.keys("search")[seeds], task.learning(seeds))
    runs = settings.seeds * len(settings.densities)
    evaluations = sum(_computed(ENTRANTS[name], task) for name in settings.methods)
    evaluations += len(read_own(settings.own)) * runs * 2 * settings.steps
    tuning = evaluations * settings.tune * min(SEEDS, settings.seeds) / settings.seeds
    controls = len(settings.methods) * runs * settings.steps * (len(settings.controls) + 1)
    extra = tuning + (controls if settings.controls else 0)
    compiling = (len(settings.methods) + 1) * max(PROGRAM_SECONDS, whole.compile_seconds)
    dense_ones = settings.seeds * At.of(settings).whole
    seconds = whole.seconds(evaluations + dense_ones) + compiling
    lines = [pace.told(seconds, whole.devices, "compilation included")]
    if extra:
        seconds = whole.seconds(extra) + compiling
        lines.append(f"trials and controls take about {pace.in_words(seconds)} more")
    return lines


def run(settings: TournamentSettings, context: Context) -> Outcome:
    """Run every method, then the controls, and compare."""
    task = task_of(settings)
    own = _checked(task)
    pictures, file = digest(task.examples.x, task.examples.y), digest_of(settings.own)
    parts = Parts(settings, experiment=context.experiment, pictures=pictures)
    game = Game(task, {mine.name: mine for mine in own})
    load = partial(_load, settings, pictures, *_text_of(settings.own))
    options: dict[str, Any] = {"progress": context.progress, "spread": context.spread}
    tables, layers, tried, controls = [], [], [], []
    numbers: dict[str, float] = {}
    for part, found in parts.run(_parts(game, file), game, load, **options):
        name = part.settings
        if part.function is _trials:
            tried.append(found.assign(strategy=name))
            numbers = _chosen(found)
        elif part.function is _plays:
            entrant, of = entered(name, task)
            numbers = numbers if settings.tune else defaults(entrant, of)
            tables.append(table_of(name, entrant, found, of).assign(**numbers))
            if name != DENSE:
                layers.append(layers_of(name, entrant.family, found, task))
        elif part.function is _plays_own:
            tables.append(_own_table(game.own[name], found, task))
            layers.append(layers_of(game.own[name].name, FAMILY, found, task))
        else:
            controls.append(found)
    written = {reports.LAYERS: layers, reports.TRIALS: tried, reports.CONTROLS: controls}
    by_name = {name: pd.concat(made, ignore_index=True) for name, made in written.items() if made}
    outcome = statistics(settings, pd.concat(tables, ignore_index=True), by_name)
    about = {
        "pictures": {"name": task.examples.name, "sha256": pictures},
        "chance": task.chance(),
    } | ({"own file": file} if settings.own else {})
    return dataclasses.replace(outcome, facts={**about, **outcome.facts})


def statistics(
    settings: TournamentSettings, runs: pd.DataFrame, tables: Mapping[str, pd.DataFrame]
) -> Outcome:
    """Compute the methods' ranks and the differences of all pairs, from one row a run."""
    compared = _compared(runs)
    ranking = reports.ranking_of(runs)
    controls = tables.get(reports.CONTROLS)
    return Outcome(
        runs,
        [*_findings(runs, ranking), *_against_random(compared), *_of_controls(controls)],
        tables={reports.COMPARISONS: compared, reports.RANKS: ranking.table, **tables},
        facts={"friedman": {"chi_square": _or_none(ranking.chi_square), "p": ranking.p}},
    )


class Game(NamedTuple):
    """Data that the parts of a tournament load.

    Attributes:
      task: the task of the tournament.
      own: the user's own methods, by name.
    """

    task: Task
    own: Mapping[str, Own]


def _text_of(own: str) -> tuple[str, bytes]:
    """Read the name and content of a file of methods, for processes that may not see the file."""
    return (Path(own).name, Path(own).read_bytes()) if own else ("", b"")


def _load(settings: TournamentSettings, pictures: str, name: str, text: bytes) -> Game:
    """Load the same data in another process.

    Raises:
      ArgumentError: the pictures loaded here differ.
    """
    task = task_of(settings)
    check_same(settings.dataset, digest(task.examples.x, task.examples.y), pictures)
    if not name:
        return Game(task, {})
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, name)
        file.write_bytes(text)
        return Game(task, {mine.name: mine for mine in read_own(str(file))})


def _parts(game: Game, file: str) -> list[Part]:
    """List each method's trials, search and controls; the user's own are named with their file's digest."""
    settings, parts = game.task.settings, []
    for name in (DENSE, *settings.methods):
        trials = (f"{name} trials",) if settings.tune else ()
        parts += [Part(trial, _trials, name) for trial in trials]
        parts.append(Part(name, _plays, name, trials, like=_like(entered(name, game.task)[1])))
        if settings.controls and name != DENSE:
            parts.append(Part(f"{name} controls", _controls, name, (name, *trials)))
    for name in game.own:
        # A method of a changed file is another part, so that results of the old file are not reused.
        played = f"own {name} {file[:8]}"
        parts.append(Part(played, _plays_own, name, like=_like(game.task)))
        if settings.controls:
            parts.append(Part(f"{played} controls", _controls_own, name, (played,)))
    return parts


def _chosen(trials: pd.DataFrame) -> dict[str, float]:
    """Return the settings of the best trial."""
    return trials.loc[trials["chosen"], ["rate", "own"]].iloc[0].to_dict()


def _numbers(name: str, task: Task, found: Mapping[str, Any]) -> dict[str, float]:
    return _chosen(found[f"{name} trials"]) if task.settings.tune else defaults(entered(name, task)[0], task)


def _options(name: str, task: Task, work: Work) -> dict[str, Any]:
    return {
        "name": name,
        "progress": work.progress,
        "checkpoint": work.checkpoint,
        "dead_start": "ignore",
        **task.settings.width(),
    }


def _trials(game: Game, name: str, found: Mapping[str, Any], work: Work) -> pd.DataFrame:
    entrant, task = entered(name, game.task)
    return tuned(entrant, task, _options(f"{name}, trials", task, work))


def _plays(game: Game, name: str, found: Mapping[str, Any], work: Work) -> Played:
    entrant, task = entered(name, game.task)
    seeds = np.arange(task.settings.seeds)
    numbers = _numbers(name, task, found)
    values = {number: np.full(len(seeds), value) for number, value in numbers.items()}
    return _kept(play(entrant, task, seeds, values, _options(name, task, work)), task)


def _plays_own(game: Game, name: str, found: Mapping[str, Any], work: Work) -> Played:
    own, task = game.own[name], game.task
    seeds = np.arange(task.settings.seeds)
    return _kept(play_own(own, task, seeds, _options(own.name, task, work)), task)


def _controls(game: Game, name: str, found: Mapping[str, Any], work: Work) -> pd.DataFrame:
    task = game.task
    rate = _numbers(name, task, found)["rate"]
    return controlled(name, found[name], task, rate, _options(name, task, work))


def _controls_own(game: Game, name: str, found: Mapping[str, Any], work: Work) -> pd.DataFrame:
    task = game.task
    (played,) = found.values()
    return controlled(name, played, task, task.settings.rate, _options(name, task, work))


def _kept(played: Played, task: Task) -> Played:
    """Drop the masks unless controls need them."""
    return played if task.settings.controls else played._replace(mask=None)


def _like(task: Task) -> Played:
    """Return the shapes of a method's results."""
    settings = task.settings
    runs = settings.seeds * len(settings.densities)
    masked = select(task.params)
    numbers = jax.ShapeDtypeStruct((runs,), jnp.float32)
    mask = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((runs, *leaf.shape), bool), masked)
    wide = np.zeros(runs)
    return _kept(
        Played(
            mask=mask,
            accuracy=wide,
            validation=wide,
            loss=wide,
            density=wide,
            layers=dict.fromkeys(named_leaves(masked), numbers),
            failed_at=np.zeros(runs, np.int32),
            seconds=wide,
            compile_seconds=np.float64(0),
            cross_entropy=wide if isinstance(task.examples, Text) else None,
        ),
        task,
    )


def _own_table(own: Own, played: Played, task: Task) -> pd.DataFrame:
    """Build the table of one of the user's own methods."""

    def phases(at: At, density: float) -> list[Phase]:
        return own.phases(own.strategy(density, task), task)

    entrant = Entrant(FAMILY, lambda at: own.function(at.density), None, phases)
    rate = {"rate": task.settings.rate, "own": 0.0}
    return table_of(own.name, entrant, played, task).assign(**rate)


def _checked(task: Task) -> list[Own]:
    """Return the user's own methods, if all can take part and there are two methods or more.

    Raises:
      ArgumentError: a method that cannot take part, or a single method; a density of no connections.
    """
    for density in task.settings.densities:
        if not round(density * task.connections):
            raise ArgumentError(
                f"densities: {density} of {task.connections} connections leaves none; give a larger density"
            )
    own = read_own(task.settings.own)
    if len(own) + len(task.settings.methods) < 2:
        raise ArgumentError("methods: expected at least two to rank; add another, such as random ERK")
    for mine in own:
        for density in task.settings.densities:
            mine.strategy(density, task)
    return own


def _or_none(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _compared(table: pd.DataFrame) -> pd.DataFrame:
    """Compare all pairs of methods at every density, paired by seed, with the number of seeds needed."""
    cells = []
    for density, rows in table[table["strategy"] != DENSE].groupby("density", sort=False):
        by_seed = rows.pivot(index="seed", columns="strategy", values="accuracy")
        # Random ones come first in pairs, whatever the order of the methods: findings expect them there.
        names = sorted(rows["strategy"].unique(), key=lambda name: name not in RANDOM_ONES)
        values = {name: by_seed[name].to_numpy() for name in names}
        pairs = paired_differences(values)
        needed = [
            runs_needed(values[first] - values[second]) if runs >= 2 else -1
            for first, second, runs in pairs[["first", "second", "runs"]].itertuples(index=False)
        ]
        cells.append(pairs.assign(runs_needed=needed, density=density))
    return pd.concat(cells, ignore_index=True)


def _findings(table: pd.DataFrame, ranking: Any) -> list[dict[str, Any]]:
    """Report the accuracies of all methods, and their mean ranks."""
    accuracies = [
        finding(f"accuracy of {name}, density {density:g}", rows["accuracy"])
        for (name, density), rows in table.groupby(["strategy", "density"], sort=False)
        if rows["accuracy"].notna().any()
    ]
    ranks = [
        finding(f"mean rank of {row.strategy} among {len(ranking.table)}", [row.rank])
        for row in ranking.table.itertuples()
    ]
    return [*accuracies, *ranks]


def _against_random(compared: pd.DataFrame) -> list[dict[str, Any]]:
    """Report each kind of random masks minus all other methods, at each density."""
    pairs = compared[compared["first"].isin(RANDOM_ONES) & ~compared["second"].isin(RANDOM_ONES)]
    return [
        finding(
            f"accuracy of {pair['first']} minus {pair['second']}, density {pair['density']:g}",
            pd.Series(pair),
        )
        for pair in pairs.to_dict("records")
    ]


def _of_controls(controls: pd.DataFrame | None) -> list[dict[str, Any]]:
    """Report every control minus the masks as found, if there are controls."""
    found: list[dict[str, Any]] = []
    if controls is None:
        return found
    for (name, density), of in controls.groupby(["strategy", "density"], sort=False):
        by_seed = of.pivot(index="seed", columns="control", values="accuracy")
        for other in of["control"].unique():
            if other != AS_FOUND:
                values = {which: by_seed[which].to_numpy() for which in (other, AS_FOUND)}
                (pair,) = paired_differences(values).to_dict("records")
                words = f"accuracy of {name} {other} minus as found, density {density:g}"
                found.append(finding(words, pd.Series(pair)))
    return found


EXPERIMENT = Experiment(
    "jaxarch.lab.tournament",
    TournamentSettings,
    plan,
    run,
    reports.report,
    reports.conclusion,
    duration,
    reports.charts,
    statistics,
    run_tables=(reports.LAYERS, reports.CONTROLS),
    spreads=True,
)
