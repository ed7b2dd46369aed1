"""Recovery of a teacher's width and depth: spectral networks and rivals, on teachers of known sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from rich.console import RenderableType

from jaxarch import ArgumentError, Strategy, chain, evaluate, over_seeds, plots, recruit
from jaxarch.lab.charts import Chart
from jaxarch.lab.checks import check_count, check_distinct, check_known, check_strength
from jaxarch.lab.harness import Context, Experiment, Outcome, Results, costs, finding, tables
from jaxarch.lab.harness.tables import Table
from jaxarch.lab.pruning.settings import check_share
from jaxarch.lab.spectral import training, wording
from jaxarch.lab.spectral.deep_teacher import DeepTeacherSettings, problem, teachers, truth
from jaxarch.lab.spectral.neurons_left import by_strength, left_by_layer, smallest
from jaxarch.lab.spectral.rivals import RIVALS, Rival
from jaxarch.lab.spectral.teacher import r_squared
from jaxarch.search import spectral, spectral_depth

LAYERS_OUT = "gated spectral, layers taken out"
NAMES = ("spectral", "gated spectral", LAYERS_OUT, "weights, all skips", "weights, no skips", "batch norm")
CHOSEN = "chosen.csv"
COLUMNS = {
    "penalties": wording.PENALTY,
    "teacher": "hidden layers x neurons in each",
    "reached": "runs with a high enough validation R^2 at some strength; neurons left and R^2 are of these",
    "depth found": "runs with as many layers that have a neuron left as the teacher has",
    "seconds per run": "wall time x devices / runs, without compilation",
}


@dataclasses.dataclass(frozen=True)
class Settings(DeepTeacherSettings):
    """Settings of `jaxarch run spectral.recovery`, changed with `--set NAME=VALUE`.

    A teacher of n neurons has n inputs, one or more hidden layers of n, and n outputs. Students have biases,
    and more neurons than their teacher, in as many hidden layers as the deepest teacher.

    Each rival is trained at each strength of its penalty. It loses the neurons that its validation loss can
    spare, and is trained once more without penalty. `gated spectral, layers taken out` first loses layers one
    by one, with a training after each. With B hidden layers it is trained B + 2 times, and the others twice.

    Among the strengths with a good enough validation R^2, the one with the fewest neurons is chosen. Its
    depth is the number of layers with a neuron left, though skip connections may lead past them.

    Attributes:
      neurons: widths of the teachers' hidden layers; each seed has a teacher of every width.
      rivals: the networks to prune, each by its own penalty.
      strengths: strengths of the penalty; every rival is trained at each.
      enough: the R^2 that is good enough.
    """

    neurons: tuple[int, ...] = (5, 20, 50)
    rivals: tuple[str, ...] = NAMES
    strengths: tuple[float, ...] = (1e-4, 5e-4, 2.5e-3)
    enough: float = 0.999
    hidden: tuple[int, ...] = (60, 60, 60)
    epochs: int = 8
    seeds: int = 10

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        self.check_numbers(check_count, "neurons")
        self.check_numbers(check_strength, "strengths")
        self.check_each(check_share, "enough")
        check_known("rivals", self.rivals, RIVALS | {LAYERS_OUT: None})
        check_distinct("rivals", self.rivals)
        if max(self.neurons) > min(self.hidden):
            raise ArgumentError(
                f"hidden: expected at least {max(self.neurons)} neurons a layer, as the widest teacher has, "
                f"got {min(self.hidden)}"
            )

    def rival(self, name: str) -> Rival:
        """Return a rival by name."""
        return (
            RIVALS[name] if name in RIVALS else RIVALS["gated spectral"]._replace(strategy=self._layers_out)
        )

    def _layers_out(self, strength: Any, tolerance: float, batch_size: int | None = None) -> Strategy:
        depth = spectral_depth(len(self.hidden), strength)
        return chain(depth, recruit(tolerance, batch_size=batch_size), spectral(0.0))


def plan(settings: Settings) -> list[str]:
    """Describe the trainings to be compiled and run."""
    runs = settings.seeds * len(settings.depths) * len(settings.strengths)
    trainings = sum(len(settings.hidden) + 2 if name == LAYERS_OUT else 2 for name in settings.rivals)
    return [
        f"data: {settings.examples} points of [-1, 1]^n to train on, {settings.held_out} to validate on, "
        f"{settings.held_out} to test on",
        f"teachers: {settings.seeds} of each of {', '.join(map(str, settings.depths))} layers, each of "
        f"n = {', '.join(map(str, settings.neurons))} neurons",
        f"students: hidden layers of {', '.join(map(str, settings.hidden))}; {'; '.join(settings.rivals)}",
        f"trainings: {trainings} for each n, of {settings.steps(settings.epochs)} steps of batch "
        f"{settings.batch_size} x {runs} runs; strengths "
        f"{', '.join(f'{strength:g}' for strength in settings.strengths)}",
    ]


def run(settings: Settings, context: Context) -> Outcome:
    """Train every rival at every strength on every teacher, and choose the smallest that is good enough."""
    measured: list[pd.DataFrame] = []
    spent: dict[str, Any] = {}
    for neurons in settings.neurons:
        every = [teachers(settings, depth, neurons, neurons) for depth in settings.depths]
        of_depths = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *every)
        for name in settings.rivals:
            table, cost = _measured(settings, context, name, neurons, of_depths)
            measured.append(table)
            spent |= cost
    table = pd.concat(measured, ignore_index=True)
    chosen = chosen_of(table, settings.enough)
    return Outcome(table, _findings(chosen), costs=spent, tables={CHOSEN: chosen})


def _measured(
    settings: Settings, context: Context, name: str, neurons: int, of_depths: dict[str, jax.Array]
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Train one rival at all strengths, on all teachers of a width, and measure it: one row a run."""
    cells = pd.MultiIndex.from_product(
        [settings.strengths, settings.depths, range(settings.seeds)], names=["strength", "depth", "seed"]
    ).to_frame(index=False)
    times = len(settings.strengths)
    rival, widths = settings.rival(name), (neurons, *settings.hidden, neurons)
    per_run = jax.tree.map(lambda leaf: jnp.concatenate([leaf] * times), of_depths)
    task = problem(settings, rival.network(widths, bias=True), per_run, neurons, settings.epochs)
    title = f"{name}, {neurons} neurons"
    network, report = over_seeds(
        lambda strength: rival.strategy(strength, settings.tolerance),
        jnp.tile(settings.seed_keys(), times * len(settings.depths)),
        task,
        jnp.asarray(cells["strength"], jnp.float32),
        name=title,
        labels=[
            f"strength {row.strength:g}, {row.depth} layers, seed {row.seed}" for row in cells.itertuples()
        ],
        chunk=training.CHUNK,
        dead_start="ignore",
        **context.options,
    )
    strategy, left = rival.strategy(0.0, settings.tolerance), left_by_layer(network)
    whole = np.asarray(network.info.failed_at) < 0
    found: dict[str, np.ndarray] = {"neurons": left.sum(axis=1), "layers": (left > 0).sum(axis=1)}
    for which, rows in settings.rows().items():
        if which != "train":
            found[f"{which}_r2"] = r_squared(evaluate(strategy, network, task, rows), truth(task, rows))
    table = cells.assign(
        width=neurons,
        rival=name,
        **{quantity: np.where(whole, values, np.nan) for quantity, values in found.items()},
        seconds=report.seconds,
        failed_at=np.asarray(network.info.failed_at),
    )
    return table, {title: costs({title: (network, report)})}


def chosen_of(table: pd.DataFrame, enough: float) -> pd.DataFrame:
    """Choose, for each rival and teacher, the run with the fewest neurons among the good enough ones.

    Validation rows decide which runs are good enough.

    If no run is good enough, all numbers are NaN.
    """
    rows = []
    for (width, depth, rival, seed), runs in table.groupby(["width", "depth", "rival", "seed"], sort=False):
        run = smallest(runs, runs["validation_r2"] >= enough, "validation_r2")
        of = {
            name: np.nan if run is None else run[name]
            for name in ("strength", "neurons", "layers", "test_r2")
        }
        rows.append({"width": width, "depth": depth, "rival": rival, "seed": seed, **of})
    return pd.DataFrame(rows)


def _teachers(width: int, depth: int) -> str:
    return f"{depth} hidden layer{'s' * (depth > 1)} of {width}"


def _findings(chosen: pd.DataFrame) -> list[dict[str, Any]]:
    """Report what each rival leaves of its student, and how often the teacher's depth is found."""
    found = []
    for (width, depth, rival), runs in chosen.groupby(["width", "depth", "rival"], sort=False):
        of = f"{rival}, teachers of {_teachers(width, depth)}"
        found.append(finding(f"share of seeds that are good enough: {of}", runs["neurons"].notna().mean()))
        if runs["neurons"].notna().any():
            found.append(finding(f"hidden neurons left: {of}", runs["neurons"]))
            found.append(
                finding(f"share of seeds whose depth is found: {of}", (runs["layers"] == depth).mean())
            )
            found.append(finding(f"test R^2: {of}", runs["test_r2"]))
    return found


def conclusion(results: Results) -> Iterable[str]:
    """Compare the width and depth that the rivals leave with those of the teachers."""
    settings, chosen = results.settings, results.read(CHOSEN)
    chosen = chosen.assign(
        times=chosen["neurons"] / (chosen["width"] * chosen["depth"]),
        deep=chosen["layers"] == chosen["depth"],
    )
    runs = {str(name): of for name, of in chosen.groupby("rival", sort=False)}
    said = "; ".join(
        f"{tables.inline(of['times'], '.2f')} for {name} ({of['times'].notna().sum()} of {len(of)} runs)"
        for name, of in runs.items()
    )
    yield (
        f"The smallest students with a validation R^2 of at least {settings['enough']:g} have this multiple "
        f"of the teacher's hidden neurons, median [quartiles] over teachers: {said}."
    )
    depths = "; ".join(f"{of['deep'].sum()} of {len(of)} for {name}" for name, of in runs.items())
    yield (
        f"They have the teacher's number of hidden layers ({', '.join(map(str, settings['depths']))}) in "
        f"{depths}."
    )


def report(results: Results) -> list[RenderableType]:
    """Draw the error against the neurons left, and build the tables."""
    settings, table, chosen = results.settings, results.table, results.read(CHOSEN)
    panels: dict[str, Mapping[str, tuple[np.ndarray, np.ndarray]]] = {}
    truths = {}
    for (width, depth), runs in table.groupby(["width", "depth"], sort=False):
        panel = _teachers(width, depth)
        truths[panel] = width * depth
        panels[panel] = {
            str(name): (by_strength(of, "neurons"), 1 - by_strength(of, "test_r2"))
            for name, of in runs.groupby("rival", sort=False)
        }
    figure = plots.trade_offs(
        panels,
        f"hidden neurons left of {sum(settings['hidden'])}",
        "1 - $R^2$ on the test rows",
        logarithmic=(False, True),
        columns=len(settings["depths"]),
        marked={"teacher": truths},
    )
    results.draw(figure, "recovery")
    seconds = table.groupby(["width", "rival"])["seconds"].median()
    made = [
        _table(width, runs, seconds[width], settings["enough"]) for width, runs in chosen.groupby("width")
    ]
    first, *others = made
    return [
        first,
        *wording.explain(table["rival"], COLUMNS),
        *others,
        *results.remarks(table.groupby("rival")),
    ]


def _table(width: int, chosen: pd.DataFrame, seconds: pd.Series, enough: float) -> Table:
    """Tabulate the teachers of one width."""
    rows = []
    for (depth, rival), runs in chosen.groupby(["depth", "rival"], sort=False):
        there = runs[runs["neurons"].notna()]
        found = (
            (
                tables.spread(there["neurons"], ".0f"),
                f"{(there['layers'] == depth).sum()} of {len(runs)}",
                tables.median(there["test_r2"], ".5f"),
            )
            if len(there)
            else ("-",) * 3
        )
        rows.append(
            (f"{depth} x {width}", rival, f"{len(there)} of {len(runs)}", *found, f"{seconds[rival]:.1f}")
        )
    title = (
        f"teachers of {width} neurons a layer: fewest neurons with a validation R^2 of {enough:g}, after "
        "training once more"
    )
    columns = ("teacher", "rival", "reached", "neurons left", "depth found", "test R^2", "seconds per run")
    return tables.table(title, columns, rows)


def charts(results: Results) -> list[Chart]:
    """Chart the neurons left of each chosen student against its teacher's neurons."""
    chosen = results.read(CHOSEN)
    chosen = chosen.assign(teacher=chosen["width"] * chosen["depth"])
    labels = {"teacher": "hidden neurons of the teacher", "neurons": "hidden neurons left"}
    return [
        Chart(
            "neurons left against neurons of the teacher",
            chosen,
            "teacher",
            "neurons",
            "rival",
            at="teacher",
            labels=labels,
            tells=("width", "depth", "layers", "strength", "test_r2", "seed"),
            logarithmic=(True, True),
        )
    ]


EXPERIMENT = Experiment(__name__, Settings, plan, run, report, conclusion, charts=charts)
