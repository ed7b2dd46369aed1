"""Certified errors of networks that are trained on the few examples they serve worst (Pick-to-Learn)."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Literal, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from rich.console import RenderableType
from scipy.special import gammaln

from jaxarch import (
    ArgumentError,
    Network,
    Problem,
    Progress,
    Training,
    chain,
    models,
    over_seeds,
    pick_to_learn,
    plots,
    retrain,
    search,
)
from jaxarch.io import Checkpoints, digest
from jaxarch.lab.charts import Chart
from jaxarch.lab.checks import check_count, check_positive
from jaxarch.lab.data import load_images
from jaxarch.lab.harness import (
    Context,
    Experiment,
    Outcome,
    Parts,
    Results,
    TrainingSettings,
    check_room,
    finding,
    paired,
    tables,
)
from jaxarch.lab.harness.settings import devices
from jaxarch.lab.harness.tables import Table
from jaxarch.lab.pruning.parents import parent_of
from jaxarch.lab.pruning.settings import check_share
from jaxarch.lab.pruning.tasks import pooled
from jaxarch.theory.generalization import binomial_upper, compression_bound

PICKED, HELD_OUT, AFTER = "picked rows", "held-out rows", "half, then picked rows"
HALF = 0.5
"""Share of the training examples that a network is trained on before rows are picked of the others."""
ROUNDS, COMPARISONS = "rounds.csv", "comparisons.csv"
SUITS_ALL: dict[str, Any] = {
    "pool": 1,
    "widths": (100,),
    "per_round": 2,
    "steps": 3000,
    "per_round_after": 1,
    "steps_after": 600,
}
SUITS: dict[str, dict[str, Any]] = {
    "mnist": {
        "pool": 2,
        "widths": (200,),
        "per_round": 40,
        "steps": 6000,
        "per_round_after": 10,
        "steps_after": 3000,
    }
}
"""Defaults per data set, used where the user sets nothing; `SUITS_ALL` covers data sets without an entry."""
MEASURED = {
    "trained_on": ("picked, or trained on", ".0f"),
    "errors": ("errors", ".0f"),
    "bound": ("certified", ".4f"),
    "classical": ("classical", ".4f"),
    "measured": ("measured", ".4f"),
}
"""Columns of the table that is shown: name in words, and number format."""
STREAMS = {"split": 0, "runs": 1, "masks": 2, "rows": 3}


@dataclasses.dataclass(frozen=True)
class Settings(TrainingSettings):
    """Settings of `jaxarch run theory.compression`, changed with `--set NAME=VALUE`.

    Values that are empty, 0 or `auto` become the data set's defaults.

    Attributes:
      dataset: pictures: a name of `jaxarch data`, or an npz file with x and y.
      model: the network: an mlp, or a cnn with batch norm.
      widths: hidden neurons of each layer, or channels of each stage.
      pool: side of the windows whose means become the pixels; 1 leaves pictures as they are.
      densities: shares of the connections of a random mask, within which the weights are trained.
      rounds: rounds of picking.
      per_round: examples that a round picks, of all training examples.
      per_round_after: examples that a round picks of one half, for a network trained on the other half.
      shares: shares of the training examples to train on, where the others are held out.
      steps: gradient steps of a training, over all rounds.
      steps_after: gradient steps of all rounds after a training on half.
      rate: learning rate of Adam.
      rate_after: learning rate of Adam in the rounds after a training on half.
      tested: the share of the examples on which errors are measured, if no split is published.
      delta: each bound is wrong with this probability at most.
      choices: number of settings and seeds that each bound pays for.
    """

    dataset: str = "digits"
    model: Literal["mlp", "cnn"] = "mlp"
    widths: tuple[int, ...] = ()
    pool: int = 0
    densities: tuple[float, ...] = (1.0, 0.1)
    rounds: int = 60
    per_round: int = 0
    per_round_after: int = 0
    shares: tuple[float, ...] = (0.5, 0.8)
    steps: int = 0
    steps_after: int = 0
    batch_size: int = 50
    rate: float = 2e-3
    rate_after: float = 1e-5
    tested: float = 0.25
    delta: float = 0.05
    choices: int = 100

    def complete(self) -> Self:
        """Fill in the data set's defaults."""
        return self.suited(SUITS_ALL | SUITS.get(self.dataset, {}))

    def which_parts(self) -> tuple[str, ...]:
        """Name the settings that select parts."""
        return ("densities", "shares")

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        check_room(self.seeds, self.rounds)
        self.check_each(check_count, "widths", "pool", "rounds", "steps", "steps_after", "choices")
        self.check_each(check_count, "per_round", "per_round_after")
        self.check_numbers(check_positive, "densities")
        self.check_numbers(check_share, "shares")
        self.check_each(check_share, "tested", "delta")
        self.check_each(check_positive, "rate", "rate_after")
        if max(self.densities) > 1:
            raise ArgumentError(f"densities: expected shares in (0, 1], got {self.densities}")


class Task(NamedTuple):
    """Pictures, and the network that learns them.

    Attributes:
      settings: settings with all defaults filled in.
      problem: the problem; errors are measured on its `validation` rows, which choose nothing.
      pictures: a digest of the data.
    """

    settings: Settings
    problem: Problem
    pictures: str


def prepare(settings: Settings) -> Task:
    """Load the pictures and build the problem, from settings with defaults filled in."""
    images = pooled(load_images(settings.dataset), settings.pool)
    rows = np.asarray(jax.random.permutation(settings.seed_keys(STREAMS["split"])[0], len(images.y)))
    if images.train < len(images.y):
        train, test = rows[rows < images.train], rows[rows >= images.train]
    else:
        train, test = np.split(rows, [round((1 - settings.tested) * len(rows))])
    problem = models.supervised(
        parent_of(settings.model, settings.widths, 1.0, images),
        # The largest pixel is 16 or 255, as the data set's form has it, so no row scales the inputs.
        (images.x.astype(np.float32) / images.x.max(), images.y),
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optax.adam(settings.rate),
        steps=settings.steps,
        batch_size=settings.batch_size,
        train=train,
        validation=test,
    )
    return Task(settings, problem, digest(images.x, images.y))


def plan(settings: Settings) -> list[str]:
    """Describe the trainings."""
    task = prepare(settings)
    examples, tested = len(task.problem.training_rows()), len(np.asarray(task.problem.validation))
    return [
        f"data: {settings.dataset}, {examples:,} examples to train on and to certify by, {tested:,} to "
        f"measure errors on",
        f"trainings at each density: {settings.rounds} rounds that pick {settings.per_round} examples; "
        f"{settings.rounds} that pick {settings.per_round_after}, after a training on half; and "
        f"{len(settings.shares)} on a share of the examples; {settings.seeds} seeds, {settings.steps:,} "
        f"steps of batch {settings.batch_size}",
    ]


def run(settings: Settings, context: Context) -> Outcome:
    """Train and certify; the trainings of a density and kind are a part."""
    task = prepare(settings)
    parts = Parts(settings, experiment=context.experiment, pictures=task.pictures)
    made, paths = [], []
    for kept in settings.densities:
        for name in (PICKED, AFTER):
            path = parts.table(f"{name} {kept:g}", partial(_picked, task, context, kept, name))
            paths.append(path)
            made.append(path.loc[path["best"]].drop(columns="best"))
        for share in settings.shares:
            label = f"{HELD_OUT} {share:g} {kept:g}"
            made.append(parts.table(label, partial(_held_out, task, context, kept, share)))
    table = pd.concat(made, ignore_index=True)
    compared = _comparisons(table)
    files = {ROUNDS: pd.concat(paths, ignore_index=True), COMPARISONS: compared}
    facts = {"pictures": {"sha256": task.pictures}}
    return Outcome(table, _findings(table, compared), tables=files, facts=facts)


def _training() -> Training:
    """Return the training of fresh weights in a mask, drawn so that signals keep their size."""
    return retrain("cold", nonnegative=False, weights="density-aware")


def _further(settings: Settings) -> Training:
    """Return the further training of a network, at a smaller learning rate."""
    optimizer = optax.adam(settings.rate_after)
    return retrain("warm", nonnegative=False, steps=settings.steps_after, optimizer=optimizer)


def _picked(task: Task, context: Context, kept: float, name: str, point: Checkpoints | None) -> pd.DataFrame:
    """Run Pick-to-Learn for each seed: a row a round."""
    settings, problem = task.settings, task.problem
    keys, masks = settings.seed_keys(STREAMS["runs"]), settings.seed_keys(STREAMS["masks"])
    training, per_round, others = _training(), settings.per_round, None
    if name == AFTER:
        network, others = _trained(task, context, kept, HALF, point)
        per_round = settings.per_round_after
        training = _further(settings)
    made = []
    for seed in range(settings.seeds):
        measured: list[float] = []

        def after_round(progress: Progress, measured: list[float] = measured, seed: int = seed) -> None:
            measured.append(_error(problem, progress.network().of_run(0), problem.validation))
            if context.progress is not None:
                words = f"{name}, density {kept:g}, seed {seed}"
                context.progress(dataclasses.replace(progress, name=words))

        if others is None:
            begun, rows = search.random_mask(kept)(masks[seed], problem), problem.train
        else:
            begun, rows = network.of_run(seed), jnp.asarray(others[seed])
        found = pick_to_learn(
            training,
            keys[seed],
            dataclasses.replace(problem, train=rows),
            rounds=settings.rounds,
            per_round=per_round,
            network=begun,
            delta=settings.delta,
            choices=settings.choices,
            progress=after_round,
        )
        counts = pd.DataFrame(found.rounds).rename(columns={"picked": "trained_on"})
        best = counts["trained_on"] == len(found.rows)
        # Errors of the best round are counted in batches too, and may be more.
        counts.loc[best, "errors"] = found.errors
        bounds = [
            _bounds(settings, found.examples, found.choices, *row) for row in counts.to_numpy().tolist()
        ]
        about = {"strategy": name, "density": kept, "share": np.nan, "seed": seed}
        counts = counts.assign(measured=measured, best=best, examples=found.examples - counts["trained_on"])
        made.append(counts.assign(**about, **pd.DataFrame(bounds, columns=["bound", "classical"])))
    return pd.concat(made, ignore_index=True)


def _bounds(settings: Settings, examples: int, choices: int, picked: int, errors: int) -> tuple[float, float]:
    """Return the bound on a network that picked rows determine, and the classical one."""
    bound = compression_bound(errors, examples, picked, settings.delta, choices=choices)
    subsets = gammaln(examples + 1) - gammaln(picked + 1) - gammaln(examples - picked + 1)
    paid = (float(subsets) + math.log(choices)) * (1 + 1e-9)
    return bound, binomial_upper(errors, examples - picked, settings.delta, length=paid)


def _trained(
    task: Task,
    context: Context,
    kept: float,
    share: float,
    point: Checkpoints | None,
    *further: Training,
) -> tuple[Network, np.ndarray]:
    """Train all seeds on a share of the examples; return the networks, and the other rows of each seed."""
    settings, rows = task.settings, np.asarray(task.problem.training_rows())
    drawn = [jax.random.permutation(key, len(rows)) for key in settings.seed_keys(STREAMS["rows"])]
    train, others = np.split(rows[np.asarray(drawn)], [round(share * len(rows))], axis=1)
    problem = dataclasses.replace(task.problem, train=jnp.asarray(train), validation=None)
    strategy = chain(search.random_mask(kept), _training(), *further)
    options: dict[str, Any] = {"progress": context.progress, "dead_start": "ignore", "devices": devices()}
    name = f"{share:g} of the rows, density {kept:g}"
    keys = settings.seed_keys(STREAMS["runs"])
    network, _ = over_seeds(strategy, keys, problem, name=name, checkpoint=point, **options)
    return network, others


def _held_out(
    task: Task, context: Context, kept: float, share: float, point: Checkpoints | None
) -> pd.DataFrame:
    """Train on a share of the examples, and certify by the others: a row a seed.

    The training has as many steps, at the same learning rates, as one on half with picked rows after it.
    """
    settings, made = task.settings, []
    network, others = _trained(task, context, kept, share, point, _further(settings))
    count = others.shape[1]
    for seed in range(settings.seeds):
        one = network.of_run(seed)
        errors = round(_error(task.problem, one, others[seed]) * count)
        row = {
            "trained_on": len(task.problem.training_rows()) - count,
            "examples": count,
            "errors": errors,
            "bound": binomial_upper(errors, count, settings.delta, length=math.log(settings.choices)),
            "measured": _error(task.problem, one, task.problem.validation),
        }
        made.append({"strategy": HELD_OUT, "density": kept, "share": share, "seed": seed} | row)
    return pd.DataFrame(made)


def _error(problem: Problem, network: Network, rows: Any) -> float:
    """Compute the share of some rows that a network gets wrong; NaN among its outputs is wrong."""
    return float(_wrong(problem, network, jnp.asarray(rows)).mean(dtype=np.float64))


def _wrong(problem: Problem, network: Network, rows: jax.Array) -> np.ndarray:
    outputs, labels = _outputs(problem, network, rows)
    return np.asarray((outputs.argmax(axis=1) != labels) | jnp.isnan(outputs).any(axis=1))


@jax.jit
def _outputs(problem: Problem, network: Network, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
    outputs = problem.outputs(network.params, network.state, rows)
    return outputs, problem.gather(problem.data, problem.per_run, rows)[1]


def _groups(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    for (name, kept, share), rows in table.groupby(
        ["strategy", "density", "share"], sort=False, dropna=False
    ):
        trained = "" if np.isnan(share) else f", {share:g} trained on"
        yield f"{name}{trained}, density {kept:g}", rows


def _comparisons(table: pd.DataFrame) -> pd.DataFrame:
    """Compare the bounds and errors of picked rows with those of each share, seed by seed."""
    rows = []
    by_seed = table.set_index("seed")
    for kept in table["density"].unique():
        here = by_seed[by_seed["density"] == kept]
        for name, share in itertools.product((PICKED, AFTER), here["share"].dropna().unique()):
            picked, other = here[here["strategy"] == name], here[here["share"] == share]
            for quantity in ("bound", "measured"):
                row = paired.difference(picked[quantity], other[quantity])
                rows.append({"strategy": name, "density": kept, "share": share, "quantity": quantity, **row})
    return paired.adjusted(pd.DataFrame(rows), ["quantity"])


def _findings(table: pd.DataFrame, compared: pd.DataFrame) -> list[dict[str, Any]]:
    """Report certified and measured errors, picked examples, and paired differences."""
    found = []
    for name, rows in _groups(table):
        found.append(finding(f"certified error, {name}", rows["bound"]))
        found.append(finding(f"measured error, {name}", rows["measured"]))
        found.append(finding(f"examples trained on, {name}", rows["trained_on"]))
    for _, row in compared.iterrows():
        words = {"bound": "certified", "measured": "measured"}[row["quantity"]]
        found.append(
            finding(
                f"{words} error of {row['strategy']} minus that of {row['share']:g} trained on, "
                f"density {row['density']:g}",
                row,
            )
        )
    return found


def conclusion(results: Results) -> Iterable[str]:
    """Compare certificates by picked rows with certificates by held-out rows."""
    settings, table, compared = results.settings, results.table, results.read(COMPARISONS)
    where = f"{settings['dataset']}, {settings['model']}"
    groups = list(_groups(table))
    told = "; ".join(
        f"{tables.inline(rows['bound'], '.4f')} for {name} (measured on test examples: "
        f"{tables.inline(rows['measured'], '.4f')})"
        for name, rows in groups
    )
    yield f"{where}: certified errors are {told} ({tables.counted(rows['bound'] for _, rows in groups)})."
    held_out = table[table["strategy"] == HELD_OUT].groupby(["density", "share"])["bound"].median()
    minus = []
    for _, row in compared[compared["quantity"] == "bound"].iterrows():
        if row["share"] == held_out[row["density"]].idxmin():
            words = paired.in_words(row, ".4f", "p_adjusted")
            minus.append(f"{row['strategy']}, density {row['density']:g}: {words}")
    yield f"Minus the lower bound by held-out rows, seed by seed: {'; '.join(minus)}."
    above = int((table["measured"] > table["bound"]).sum())
    yield (
        f"The measured error is above the certified one in {above} of {len(table)} runs; each certificate "
        f"holds with probability {1 - settings['delta']:g}."
    )


def report(results: Results) -> list[RenderableType]:
    """Draw bounds and errors against the number of picked rows, and build the table."""
    settings, rounds = results.settings, results.read(ROUNDS)
    title = f"{settings['dataset']}, {settings['model']}"
    results.draw(plots.sweep({"error": _panels(rounds)}, "picked examples", title, ["error"]), "rounds")
    return [_table(results.table, title, settings["delta"]), *_explained()]


def _panels(rounds: pd.DataFrame) -> dict[str, dict[str, tuple[np.ndarray, np.ndarray]]]:
    """Return bound and errors by density, at the rounds that all seeds computed."""
    rounds = rounds.assign(others=rounds["errors"] / rounds["examples"])
    words = {"bound": "certified", "others": "on the other rows", "measured": "on test examples"}
    panels = {}
    for (name, kept), rows in rounds.groupby(["strategy", "density"], sort=False):
        wide = {
            said: rows.pivot(index="seed", columns="trained_on", values=column).dropna(axis=1)
            for column, said in words.items()
        }
        panels[f"{name}, density {kept:g}"] = {
            said: (of.columns.to_numpy(), of.to_numpy()) for said, of in wide.items()
        }
    return panels


def _explained() -> list[str]:
    """Explain the rows and columns of the table."""
    return [
        f"- {PICKED}: each round picks the examples of largest loss, and trains on all that were picked; the "
        "round of fewest picked and wrong examples",
        f"- {AFTER}: the same for a network that was trained on half of the examples; picked of the others",
        f"- {HELD_OUT}: trained on a share of the examples, drawn at random, and certified by the others; as "
        "many steps as half, then picked rows",
        "- errors: of the examples that were not trained on",
        "- certified: bound on the error on new examples, from training examples alone",
        "- classical: the bound that pays for the choice of the picked examples among all subsets",
        "- measured: error on test examples, which chose nothing",
    ]


def _table(table: pd.DataFrame, title: str, delta: float) -> Table:
    rows = [
        (name, *(tables.spread(of[column], form) for column, (_, form) in MEASURED.items()))
        for name, of in _groups(table)
    ]
    columns = ("certified by", *(words for words, _ in MEASURED.values()))
    return tables.table(f"{title}: error, median [quartiles]; delta {delta:g}", columns, rows)


def charts(results: Results) -> list[Chart]:
    """Chart the certified error of every run against its measured error."""
    settings = results.settings
    return [
        Chart(
            f"{settings['dataset']}, {settings['model']}: certified against measured error",
            results.table,
            "measured",
            "bound",
            "strategy",
            labels={"measured": "error on test examples", "bound": "certified error", "strategy": "by"},
            tells=("seed", "density", "trained_on"),
            logarithmic=(True, True),
        )
    ]


EXPERIMENT = Experiment(__name__, Settings, plan, run, report, conclusion, charts=charts)
