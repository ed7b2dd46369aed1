"""Test of [S] section 4: the rank rises gradually if hidden eigenvalues start at 0, and less so otherwise.

The statement holds under two conditions. From the perceptron start, the median of `gradualness` is at least
1/2. It is also greater there than from each other start, paired by seed, at p < .05.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar, Literal

import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from rich.console import RenderableType

from jaxarch import (
    ArgumentError,
    Model,
    Problem,
    direct_network,
    evaluate,
    over_seeds,
    own_descent,
    plots,
    spectral_network,
)
from jaxarch.lab.charts import Chart
from jaxarch.lab.checks import check_count, check_distinct, check_known, check_positive, check_widths
from jaxarch.lab.harness import Context, Experiment, Outcome, Results, costs, finding, paired, tables
from jaxarch.lab.pruning.settings import check_share
from jaxarch.lab.spectral import singular_values, teacher, training, wording

READOUT = "readout.npz"
PERCEPTRON = "perceptron"
STARTS: dict[str, Callable[[Sequence[int]], Model]] = {
    PERCEPTRON: spectral_network,
    "random eigenvalues": partial(spectral_network, eigenvalues="random"),
    "weights, all skips": direct_network,
    "weights, no skips": partial(direct_network, skips=False),
}
OPTIMIZERS = {"adam": optax.adam, "sgd": optax.sgd}
DRAWN = 5
"""Number of singular values in a figure."""
LEAST = 0.5
"""Least median gradualness at which the statement of [S] holds."""
COLUMNS = {
    "ratio": "largest over smallest factor of a teacher's hidden neurons; at 1 they count alike, as in [S]",
    "gradualness": "1 - first / last step at which a singular value of the outputs' non-linear part has half "
    "its final size; 0 if all rise together",
    "without the largest": "gradualness without the largest singular value",
    "of paths": "gradualness of the linear map through the hidden layers",
    "rank": "singular values that count at the end",
    "R^2 at half the rank": "validation R^2 once half of these count",
}


@dataclasses.dataclass(frozen=True)
class Settings(teacher.TeacherSettings):
    """Settings of `jaxarch run spectral.rank`, changed with `--set NAME=VALUE`.

    Attributes:
      starts: the networks to train, each from its own start and without penalty.
      ratios: ratios of the largest to the smallest factor of a teacher's hidden neurons. The factors fall
        geometrically; at 1 the teacher is the one of [S], whose neurons count alike.
      hidden: neurons of each hidden layer of a student.
      epochs: passes over the training points.
      optimizer: `adam` or `sgd`.
      learning_rate: learning rate of the optimizer.
      held_out: points for measurements during the training, and as many more for testing.
      looks: maximal number of steps at which ranks are measured; their logarithms are evenly spaced.
      share: singular values above this share of the largest one at the end count for the rank.
      enough: R^2 on the validation rows at which effective ranks are compared.
    """

    # The tolerance is unused, because no neuron is removed.
    tolerance: ClassVar[float] = 0.05  # type: ignore[misc]

    starts: tuple[str, ...] = tuple(STARTS)
    ratios: tuple[float, ...] = (1.0, 10.0)
    seeds: int = 10
    hidden: tuple[int, ...] = (100,)
    epochs: int = 50
    optimizer: Literal["adam", "sgd"] = "adam"
    looks: int = 60
    share: float = 0.01
    enough: float = 0.9
    examples: int = 20_000
    held_out: int = 1000
    batch_size: int = 200

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        check_count("epochs", self.epochs)
        check_count("looks", self.looks, least=2)
        check_widths(self.widths())
        check_known("starts", self.starts, STARTS)
        check_distinct("starts", self.starts)
        self.check_numbers(check_positive, "ratios")
        self.check_each(check_share, "share", "enough")
        if not self.hidden:
            raise ArgumentError("hidden: expected at least one layer")

    def widths(self) -> tuple[int, ...]:
        """Return the widths of every student."""
        return (self.features, *self.hidden, self.features)

    def looked(self) -> np.ndarray:
        """Return the steps after which ranks are measured, including the last one."""
        steps = self.steps(self.epochs)
        return np.unique(np.geomspace(1, steps, self.looks).round().astype(int))


def prepare(settings: Settings, start: str, ratio: float) -> Problem:
    """Build the problem of all seeds; column k of a teacher's W^(2) is scaled, with mean square factor 1."""
    problem = teacher.problem(settings, STARTS[start](settings.widths()), settings.epochs)
    factors = np.geomspace(1, 1 / ratio, settings.features)
    scales = jnp.asarray(factors / np.sqrt(np.square(factors).mean()), jnp.float32)
    second = problem.per_run["second"] * scales[None, None, :]
    return dataclasses.replace(problem, per_run={**problem.per_run, "second": second})


def plan(settings: Settings) -> list[str]:
    """Describe the trainings to be compiled and run."""
    prepare(settings, settings.starts[0], settings.ratios[0])
    widths, starts = "-".join(map(str, settings.widths())), "; ".join(settings.starts)
    return [
        f"data: {settings.examples} points of [-1, 1]^{settings.features} to train on, "
        f"{settings.held_out} to measure on, {settings.held_out} to test on",
        f"teachers: {settings.seeds}, {settings.features} hidden neurons with factors from 1 to 1/r, r = "
        + ", ".join(f"{ratio:g}" for ratio in settings.ratios),
        f"trainings: {len(settings.starts) * len(settings.ratios)}, of {widths} from each of {starts}: "
        f"{settings.steps(settings.epochs)} steps of {settings.optimizer}, batch {settings.batch_size} x "
        f"{settings.seeds} runs, measured {len(settings.looked())} times",
    ]


def run(settings: Settings, context: Context) -> Outcome:
    """Train from every start on every teacher, and measure the snapshots along the way."""
    steps = settings.looked()
    optimizer = OPTIMIZERS[settings.optimizer](settings.learning_rate)
    plain = singular_values.with_snapshots(tuple(steps.tolist()), own_descent({"optimizer": optimizer}))
    rows, tested, readout, spent = [], settings.rows()["test"], {}, {}
    for ratio in settings.ratios:
        for start in settings.starts:
            name, problem = f"ratio {ratio:g}, {start}", prepare(settings, start, ratio)
            network, report = over_seeds(
                plain,
                settings.seed_keys(),
                problem,
                name=name,
                labels=[f"seed {seed}" for seed in range(settings.seeds)],
                chunk=training.CHUNK,
                dead_start="ignore",
                **context.options,
            )
            seen = readout[name] = singular_values.along(problem, network.info[singular_values.SNAPSHOTS])
            bent, r2 = seen["non-linear part"], seen["r2"]
            rank, failed = singular_values.ranks(bent, settings.share), np.asarray(network.info.failed_at)
            measured = {
                "gradualness": singular_values.gradualness(steps, bent, settings.share),
                "later_gradualness": singular_values.gradualness(steps, bent[..., 1:], settings.share),
                "paths_gradualness": singular_values.gradualness(steps, seen["paths"], settings.share),
                "rank": rank[:, -1],
                "half_rank_r2": singular_values.when(2 * rank >= rank[:, -1:], r2),
                "enough_rank": singular_values.when(
                    r2 >= settings.enough, singular_values.effective_ranks(bent)
                ),
                "r2": teacher.r_squared(
                    evaluate(plain, network, problem, tested), teacher.truth(problem, tested)
                ),
            }
            frame = pd.DataFrame(measured).astype(float).where(pd.Series(failed < 0), axis=0)
            told = {"ratio": ratio, "start": start, "seed": range(settings.seeds)}
            rows.append(frame.assign(**told, seconds=report.seconds, failed_at=failed))
            spent[name] = costs({name: (network, report)})
    table = pd.concat(rows, ignore_index=True)
    arrays = {READOUT: readout | {"steps": steps}}
    return Outcome(table, _findings(settings, table), costs=spent, arrays=arrays)


def _words(settings: Settings) -> dict[str, str]:
    above = f"above {100 * settings.share:g}%"
    return {
        "gradualness": f"gradualness of the non-linear part, {above}",
        "later_gradualness": f"gradualness of the non-linear part but its largest singular value, {above}",
        "paths_gradualness": f"gradualness of the paths through the hidden layers, {above}",
        "rank": f"rank of the non-linear part at the end, {above}",
        "half_rank_r2": f"validation R^2 where the rank is first half of that at the end, {above}",
        "enough_rank": f"effective rank where validation R^2 is first {settings.enough:g}",
        "r2": "test R^2 at the end",
    }


def _findings(settings: Settings, table: pd.DataFrame) -> list[dict[str, Any]]:
    """Report every start, and the perceptron start minus each other one, paired by seed."""
    found, compared, words = [], [], _words(settings)
    for ratio, of_ratio in table.groupby("ratio", sort=False):
        runs = {str(start): of for start, of in of_ratio.groupby("start", sort=False)}
        where = f"ratio {ratio:g}" + ", SGD" * (settings.optimizer == "sgd")
        for column, what in words.items():
            found += [finding(f"{what}: {start}, {where}", of[column]) for start, of in runs.items()]
            compared += [
                finding(f"{what}: {PERCEPTRON} minus {other}, {where}", pd.Series(pair))
                for other, pair in _paired(of_ratio, column).items()
            ]
    return found + compared


def _paired(of_ratio: pd.DataFrame, column: str) -> dict[str, dict[str, Any]]:
    """Compare the perceptron start minus each other one, paired by seed; empty if it was not run."""
    runs = {str(start): of.set_index("seed")[column] for start, of in of_ratio.groupby("start", sort=False)}
    first = runs.pop(PERCEPTRON, None)
    return {} if first is None else {start: paired.difference(first, of) for start, of in runs.items()}


def conclusion(results: Results) -> Iterable[str]:
    """Compare the gradualness from hidden eigenvalues of 0 with the closest other start."""
    ratios = {float(ratio): of for ratio, of in results.table.groupby("ratio", sort=False)}
    shown = {f"ratio {ratio:g}": ratios[ratio] for ratio in (next(iter(ratios)), list(ratios)[-1])}
    first = PERCEPTRON if PERCEPTRON in results.settings["starts"] else results.settings["starts"][0]
    rises = {where: of.loc[of["start"] == first, "gradualness"] for where, of in shown.items()}
    said = " and ".join(f"{tables.inline(values, '.3f')} at {where}" for where, values in rises.items())
    zero = " (hidden eigenvalues of 0)" * (first == PERCEPTRON)
    yield (
        f"From the start {first}{zero}, the gradualness of the rank's rise (0: all directions at once, near "
        f"1: one after another) is {said} ({tables.counted(rises.values())})."
    )
    compared = {where: _paired(of, "gradualness") for where, of in shown.items()}
    differences, holds = [], []
    for where, pairs in compared.items():
        whole = {start: pair for start, pair in pairs.items() if pair["runs"]}
        if whole:
            start = min(whole, key=lambda start: whole[start]["median"])
            differences.append(f"{paired.in_words(whole[start], '.3f')} ({start}) at {where}")
        if (met := _met(rises[where].median(), pairs)) is not None:
            holds.append(f"{'holds' if met else 'does not hold'} at {where}")
    if differences:
        yield f"Paired by seed, its least difference to another start is {' and '.join(differences)}."
    if holds:
        yield (
            f"That it rises gradually from 0 (a median of at least {LEAST:g}, and greater than from every "
            f"other start at p < {paired.LEVEL:g}) {' and '.join(holds)}."
        )


def _met(median: float, pairs: dict[str, dict[str, Any]]) -> bool | None:
    """Return whether the module's rule is met; None if there are too few pairs for so small a p."""
    if not pairs or not all(paired.decidable(pair["runs"]) for pair in pairs.values()):
        return None
    least = all(pair["median"] > 0 and pair["p"] < paired.LEVEL for pair in pairs.values())
    return bool(median >= LEAST and least)


def report(results: Results) -> list[RenderableType]:
    """Draw ranks and singular values along the training, and build the table."""
    settings, table, arrays = results.settings, results.table, results.arrays(READOUT)
    steps, starts, bent = arrays["steps"], settings["starts"], "non-linear part"
    quantities = {
        "rank": (bent, lambda values: singular_values.ranks(values, settings["share"])),
        "effective rank": (bent, singular_values.effective_ranks),
        "$R^2$, if above 0": ("r2", lambda values: np.maximum(values, 0)),
    }
    places = np.unique(np.linspace(0, settings["features"] - 1, DRAWN).round().astype(int))
    risen: dict[str, dict[str, dict[str, Any]]] = {quantity: {} for quantity in quantities}
    shares: dict[str, dict[str, dict[str, Any]]] = {}
    for ratio in settings["ratios"]:
        seen = {
            start: {of: arrays[f"ratio {ratio:g}, {start}/{of}"] for of in (bent, "r2")} for start in starts
        }
        for quantity, (of, measure) in quantities.items():
            lines = {start: (steps, measure(found[of])) for start, found in seen.items()}
            risen[quantity][f"teacher's ratio {ratio:g}"] = lines
        shares[f"share of the last value, ratio {ratio:g}"] = {
            start: {
                f"singular value {k + 1}": (steps, singular_values.of_last(found[bent])[..., k])
                for k in places
            }
            for start, found in seen.items()
        }
    half = dict.fromkeys(shares, 0.5)
    for name, rows, title, marked in (
        ("rank", risen, f"{bent} of the outputs", None),
        ("singular_values", shares, f"singular values of the {bent}", half),
    ):
        results.draw(plots.sweep(rows, "step", title, marked=marked, logarithmic_setting=True), name)
    columns = {
        "gradualness": ("gradualness", ".3f"),
        "later_gradualness": ("without the largest", ".3f"),
        "paths_gradualness": ("of paths", ".3f"),
        "rank": ("rank", ".0f"),
        "half_rank_r2": ("R^2 at half the rank", ".3f"),
        "enough_rank": ("effective rank", ".1f"),
        "r2": ("test R^2", ".5f"),
    }
    cells = [
        (f"{ratio:g}, {start}", *(tables.spread(of[name], form) for name, (_, form) in columns.items()))
        for (ratio, start), of in table.groupby(["ratio", "start"], sort=False)
    ]
    headings = ("ratio, start", *(heading for heading, _ in columns.values()))
    title = f"how gradually ranks rise; effective rank where R^2 is first {settings['enough']:g}"
    return [
        tables.table(f"{title}; median [quartiles]", headings, cells),
        *wording.explain(starts, COLUMNS),
        *results.remarks(table.groupby(["ratio", "start"], sort=False)),
    ]


def charts(results: Results) -> list[Chart]:
    """Chart the effective rank of every run at one R^2 against the gradualness of its rank."""
    enough = results.settings["enough"]
    labels = {"enough_rank": f"effective rank where R^2 is first {enough:g}"}
    title = "effective rank against gradualness"
    tells = ("ratio", "seed", "r2")
    return [Chart(title, results.table, "gradualness", "enough_rank", "start", "ratio", labels, tells)]


EXPERIMENT = Experiment(__name__, Settings, plan, run, report, conclusion, charts=charts)
