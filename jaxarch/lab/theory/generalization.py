"""Tightness of certified errors on new examples, for masks over signs and weight-free masks."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from jax import Array
from rich.console import RenderableType

from jaxarch import (
    ArgumentError,
    Network,
    Problem,
    PyTree,
    Start,
    certify,
    models,
    over_seeds,
    plots,
    search,
)
from jaxarch.certificates import Certificate
from jaxarch.io import Checkpoints, digest
from jaxarch.lab.charts import Chart
from jaxarch.lab.checks import check_count, check_positive, check_strength
from jaxarch.lab.data import Images, load_images
from jaxarch.lab.harness import (
    Context,
    Experiment,
    Outcome,
    Parts,
    Results,
    TrainingSettings,
    certificates,
    check_room,
    finding,
    tables,
)
from jaxarch.lab.harness.results import failures
from jaxarch.lab.harness.settings import devices
from jaxarch.lab.harness.tables import Table
from jaxarch.lab.pruning.settings import check_share
from jaxarch.lab.pruning.tasks import pooled
from jaxarch.lab.theory.oriented import oriented
from jaxarch.lab.theory.scattering import scattered
from jaxarch.lab.theory.sign_networks import (
    Readout,
    Scaled,
    SignNetwork,
    convolutional,
    multilayer,
    readout,
)
from jaxarch.masks import check_temperatures
from jaxarch.theory.generalization import relaxed_length

PIXELS, ORIENTED, SCATTERED = "pixels", "oriented", "scattered"
FEATURES: dict[str, str] = {"mnist": ORIENTED, "cifar10": SCATTERED}
READOUT = "readout"
SUITS_FEATURES: dict[str, dict[str, Any]] = {
    PIXELS: {"pool": 1, "start": 0.2, "widths": (16,)},
    ORIENTED: {"pool": 4, "start": 0.03, "widths": (24,)},
    SCATTERED: {"model": READOUT, "pool": 1, "start": 0.02, "hardest": 1e5, "batch_size": 500},
}
SUITS: dict[tuple[str, str], dict[str, Any]] = {
    ("mnist", PIXELS): {"pool": 2, "widths": (16, 32)},
    ("cifar10", ORIENTED): {"start": 0.05, "widths": (128,)},
}
NEURONS = (100,)
"""Defaults per data set and features, used where the user sets nothing; data sets without an entry have those
of the features, and pixels. `NEURONS` are the widths of an mlp."""
HARDENED = 0.8
"""Share of the steps after which the hard temperature has reached its last value."""
SURPRISE = 0.001
"""Prior probability that a connection differs from the mask found on half of the rows."""
SPREAD = 0.5
"""Standard deviation of the initial scores of the search that shortens descriptions."""
WEIGHT_FREE = "weight-free"
SHORT, HALF = "short description", "short description, prior from half"
"""Names of the search that shortens descriptions, alone and with a prior from half of the rows."""
MEASURED = {
    "kept": ("kept", ".0f"),
    "description": ("nats", ".0f"),
    "training_errors": ("training error", ".4f"),
    "training_bound": ("certified", ".4f"),
    "held_out_errors": ("measured", ".4f"),
    "held_out_bound": ("bound by held-out rows", ".4f"),
}
"""Columns of the table that is shown: name in words, and number format."""
ROWS = 5000
"""Number of examples that are evaluated at a time."""


@dataclasses.dataclass(frozen=True)
class Settings(TrainingSettings):
    """Settings of `jaxarch run theory.generalization`, changed with `--set NAME=VALUE`.

    Values that are empty, 0 or `auto` become the data set's defaults.

    Attributes:
      dataset: pictures: a name of `jaxarch data`, or an npz file with x and y.
      model: the parent, without biases: convolutional or an mlp, with random signs; or a readout, which is
        linear and has each connection with both signs.
      widths: channels of each convolution, or hidden neurons of each layer; a readout has none.
      factors: factors of these widths, one parent each.
      features: inputs of the parent: `pixels`; or a fixed measurement, `oriented` edges and bars for a
        convolutional parent or an mlp, or `scattered` energies and colours for a readout.
      pool: side of the windows in which pixels are averaged, or of which edges and bars are the largest; 1
        leaves pixels as they are, and is the only one for `scattered`.
      densities: shares of the connections that edge-popup and two-temperature keep; none leaves both out.
      strengths: factors of a mask's description length, in the loss of the search that shortens it.
      half_strength: this factor where half of the rows find a prior, whose own length costs nothing.
      start: the share of the connections with which the search that shortens descriptions begins. Outputs are
        as large as at this share, so a smaller one is closer to counting errors.
      hard: the inverse temperature of two-temperature's masks in the loss.
      soft: the inverse temperature of the masks that two-temperature's gradient passes through.
      softest: the soft inverse temperature of the search that shortens descriptions.
      hardest: the hard inverse temperature with which this search ends; it begins at 1. Where the last masks
        are not nearly 0 or 1, reading off undoes a part of what was learned.
      batch_size: examples per gradient step.
      steps: gradient steps.
      rate: learning rate of Adam in two-temperature's searches; it falls to 0 by a cosine.
      rate_at_density: learning rate of Adam in edge-popup.
      held_out: the share of the examples on which errors are measured, if no split is published.
      delta: each bound is wrong with this probability at most.
      choices: number of networks (seeds, settings, earlier trials) that each bound pays for.
    """

    dataset: str = "digits"
    model: Literal["auto", "convolutional", "mlp", "readout"] = "auto"
    widths: tuple[int, ...] = ()
    factors: tuple[float, ...] = (1.0,)
    features: Literal["auto", "pixels", "oriented", "scattered"] = "auto"
    pool: int = 0
    densities: tuple[float, ...] = (0.2, 0.05)
    strengths: tuple[float, ...] = (1.0, 3.0)
    half_strength: float = 0.1
    start: float = 0.0
    hard: float = 50.0
    soft: float = 5.0
    softest: float = 0.1
    hardest: float = 0.0
    batch_size: int = 0
    steps: int = 3000
    rate: float = 0.1
    rate_at_density: float = 0.001
    held_out: float = 0.0
    delta: float = 0.05
    choices: int = 10_000

    def complete(self) -> Self:
        """Fill in the data set's defaults."""
        # An mlp or a convolutional parent that the user asks for does not see scattered features.
        parents = {READOUT: SCATTERED, "auto": FEATURES.get(self.dataset, PIXELS)}
        features = parents.get(self.model, ORIENTED if self.dataset in FEATURES else PIXELS)
        settings = self.suited({"held_out": 0.25, "features": features})
        if settings.model == "mlp":
            settings = settings.suited({"widths": NEURONS})
        suits = SUITS_FEATURES[settings.features] | SUITS.get((self.dataset, settings.features), {})
        return settings.suited({"model": "convolutional", "hardest": 1000.0, "batch_size": 100} | suits)

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        check_room(self.seeds, self.steps)
        self._check_readout()
        self.check_each(check_count, "widths", "pool", "steps", "choices")
        self.check_numbers(check_positive, "factors")
        if self.densities:
            self.check_numbers(check_share, "densities")
        self.check_numbers(check_strength, "strengths")
        self.check_each(check_strength, "half_strength")
        self.check_each(check_share, "start", "held_out", "delta")
        self.check_each(check_positive, "rate", "rate_at_density", "hard", "soft", "softest", "hardest")
        check_temperatures(self.hard, self.soft)
        if self.softest > 1:
            raise ArgumentError(
                f"softest: expected at most 1, where its hard temperature begins, got {self.softest}"
            )
        if self.hardest < 1:
            raise ArgumentError(f"hardest: expected at least 1, where it begins, got {self.hardest}")

    def _check_readout(self) -> None:
        if (self.model == READOUT) != (self.features == SCATTERED):
            raise ArgumentError(
                f"model: expected {READOUT} for features={SCATTERED} and for no other, got {self.model} for "
                f"{self.features}"
            )
        if self.model == READOUT and (self.widths, self.factors, self.pool) != ((), (1.0,), 1):
            raise ArgumentError(
                f"widths, factors and pool: a {READOUT} has none; leave out {self.widths}, {self.factors}, "
                f"{self.pool}"
            )


@dataclasses.dataclass(frozen=True)
class Priced:
    """Penalty of a mask's description in the loss: `strength length / n`."""

    strength: float
    examples: int
    prior: PyTree = None

    def __call__(self, mask: PyTree) -> Array:
        """Compute the penalty of a mask of numbers in [0, 1]."""
        return self.strength * relaxed_length(mask, self.prior) / self.examples


@dataclasses.dataclass(frozen=True)
class WithPrior:
    """Builds the search of one run from its prior."""

    settings: Settings
    strength: float
    examples: int

    def __call__(self, sweep: Mapping[str, PyTree]) -> Any:
        """Return the search of one run."""
        return shortest(self.settings, self.strength, self.examples, sweep["prior"])


class Task(NamedTuple):
    """Pictures and the networks that learn them.

    Attributes:
      settings: settings with all defaults filled in.
      networks: networks by factor of the widths.
      problems: problems by factor of the widths; nothing is chosen by their `validation` rows.
      halves: two halves of the training rows.
      pictures: a digest of the data.
    """

    settings: Settings
    networks: Mapping[float, SignNetwork | Readout]
    problems: Mapping[float, Problem]
    halves: tuple[np.ndarray, np.ndarray]
    pictures: str


def prepare(settings: Settings) -> Task:
    """Load the pictures and build the problems, from settings with defaults filled in."""
    images = load_images(settings.dataset)
    return _task(settings, images, *_features(images, settings))


def _task(settings: Settings, images: Images, x: np.ndarray, kinds: Mapping[str, int]) -> Task:
    """Build the problems from measured pictures."""
    rows = np.asarray(jax.random.permutation(settings.seed_keys(stream=0)[0], len(images.y)))
    if images.train < len(images.y):
        train, test = rows[rows < images.train], rows[rows >= images.train]
    else:
        train, test = np.split(rows, [round((1 - settings.held_out) * len(rows))])
    outputs = len(np.unique(images.y))
    networks, problems = {}, {}
    for factor in settings.factors:
        widths = [max(round(factor * width), 1) for width in settings.widths]
        network: SignNetwork | Readout
        if settings.model == READOUT:
            network = readout(kinds, outputs)
        else:
            make = convolutional if settings.model == "convolutional" else multilayer
            network = make(x.shape[1:], widths, outputs)
        networks[factor] = network
        problems[factor] = models.supervised(
            (network.init, network.apply),
            (x, images.y),
            loss=optax.softmax_cross_entropy_with_integer_labels,
            optimizer=optax.adam(settings.rate),
            steps=settings.steps,
            batch_size=settings.batch_size,
            train=train,
            validation=test,
        )
    first, second = np.array_split(train, 2)
    return Task(settings, networks, problems, (first, second), digest(images.x, images.y))


def _features(images: Images, settings: Settings) -> tuple[np.ndarray, dict[str, int]]:
    """Return the inputs of the parents; for scattered features also how many there are of each kind."""
    if settings.features == SCATTERED:
        return scattered(images.x)
    if settings.features == ORIENTED:
        return oriented(images.x, settings.pool), {}
    pixels = pooled(images, settings.pool).x
    # Any scale of the pixels will do: without biases, it does not change a network's classes.
    return pixels.astype(np.float32) / (pixels.max() or 1), {}


def searches(settings: Settings, examples: int) -> Iterator[tuple[str, float, Any]]:
    """Yield each search with its name and its requested density or strength."""
    slower, falling = optax.adam(settings.rate_at_density), _falling(settings)
    for density in settings.densities:
        weights = Scaled(density)
        yield "edge-popup", density, search.edge_popup(density, weights=weights, optimizer=slower)
        yield (
            "two-temperature",
            density,
            search.two_temperature(
                settings.hard, settings.soft, weights=weights, density=density, optimizer=falling
            ),
        )
        yield (
            WEIGHT_FREE,
            density,
            search.two_temperature(settings.hard, settings.soft, density=density, optimizer=falling),
        )
    for strength in settings.strengths:
        yield SHORT, strength, shortest(settings, strength, examples)


def shortest(settings: Settings, strength: float, examples: int, prior: PyTree = None) -> Any:
    """Return the search for a mask with a short description: a growing temperature, and a price a nat."""
    hardened = max(round(HARDENED * settings.steps), 1)
    return search.two_temperature(
        optax.exponential_decay(1.0, hardened, settings.hardest, end_value=settings.hardest),
        settings.softest,
        weights=Scaled(settings.start),
        mean=_logit(settings.start),
        std=SPREAD,
        penalty=Priced(strength, examples, prior),
        optimizer=_falling(settings),
    )


def _falling(settings: Settings) -> optax.GradientTransformation:
    return optax.adam(optax.cosine_decay_schedule(settings.rate, settings.steps))


def _logit(share: float) -> float:
    return math.log(share / (1 - share)) if share < 1 else math.inf


def plan(settings: Settings) -> list[str]:
    """Describe the planned searches."""
    images = load_images(settings.dataset)
    # One picture stands for all: to measure each takes a minute, and a plan needs their shape alone.
    x, kinds = _features(images._replace(x=images.x[:1]), settings)
    task = _task(settings, images, np.broadcast_to(x, (len(images.y), *x.shape[1:])), kinds)
    chosen = list(searches(settings, 1))
    problem = next(iter(task.problems.values()))
    lines = [
        f"{settings.model}{_of_widths(settings, factor)}: "
        f"{sum(math.prod(shape) for _, shape in network.shapes):,} connections of "
        f"{'both' if settings.model == READOUT else 'random'} signs"
        for factor, network in task.networks.items()
    ]
    halves = len(settings.strengths)
    return [
        f"data: {settings.dataset}, {len(problem.training_rows()):,} examples to search with, "
        f"{len(np.asarray(problem.validation)):,} to measure errors on",
        *lines,
        f"searches: {len(chosen)} for each parent, and {halves} on half of the rows; {settings.seeds} seeds, "
        f"{settings.steps:,} steps of batch {settings.batch_size}",
    ]


def _of_widths(settings: Settings, factor: float) -> str:
    return f" of {', '.join(map(str, settings.widths))} x {factor:g}" if settings.widths else ""


def run(settings: Settings, context: Context) -> Outcome:
    """Search, and certify every mask; each search of a parent is a part."""
    task = prepare(settings)
    parts = Parts(settings, experiment=context.experiment, pictures=task.pictures)
    made = []
    for factor, problem in task.problems.items():
        examples = len(problem.training_rows())
        for name, asked, chosen in searches(settings, examples):
            label = f"{name} {asked:g}, width {factor:g}"
            made.append(parts.table(label, partial(_of_search, task, context, factor, name, asked, chosen)))
    table = pd.concat(made, ignore_index=True)
    return Outcome(table, _findings(table), facts={"pictures": {"sha256": task.pictures}})


def _of_search(
    task: Task,
    context: Context,
    factor: float,
    name: str,
    asked: float,
    chosen: Any,
    point: Checkpoints | None,
) -> pd.DataFrame:
    """Certify the masks of all seeds; short descriptions also with a prior from half of the rows."""
    settings, problem = task.settings, task.problems[factor]
    keys = settings.seed_keys()
    options: dict[str, Any] = {"progress": context.progress, "dead_start": "ignore", "devices": devices()}
    network, _ = over_seeds(chosen, keys, problem, name=f"{name} {asked:g}", checkpoint=point, **options)
    made = [_certified(name, network, problem, settings)]
    if name == SHORT:
        first, second = task.halves
        before = shortest(settings, settings.half_strength, len(first))
        on_first = dataclasses.replace(problem, train=first)
        half, _ = over_seeds(before, keys, on_first, name=f"half the rows {asked:g}", **options)
        prior = jax.tree.map(lambda kept: jnp.where(kept, 1 - SURPRISE, SURPRISE), half.mask)
        after = WithPrior(settings, asked, len(problem.training_rows()))
        network, _ = over_seeds(after, keys, problem, {"prior": prior}, name=f"{HALF} {asked:g}", **options)
        network = network.replace(info=network.info | {"prior": prior})
        on_second = dataclasses.replace(problem, train=second)
        made.append(_certified(HALF, network, on_second, settings))
    return pd.concat(made, ignore_index=True).assign(asked=asked, width=factor)


def _certified(name: str, network: Network, problem: Problem, settings: Settings) -> pd.DataFrame:
    """Build one row a seed; a failed seed has its failing step and nothing else."""
    seeds = np.arange(settings.seeds)
    done = {name: (network, None)}
    found = certificates(done, problem, {"seed": seeds}, partial(certified, settings))
    every = pd.DataFrame({"strategy": name, "seed": seeds, "failed_at": np.asarray(network.info.failed_at)})
    return every.merge(found, how="left").reindex(columns=dict.fromkeys([*every, *found, *MEASURED]))


def certified(settings: Settings, network: Network, problem: Problem) -> Certificate:
    """Certify one run, with the prior in its info if there is one."""
    start = network.get(Start)
    return certify(
        network,
        problem,
        weights=start and start.params,
        flips=0,
        delta=settings.delta,
        choices=settings.choices,
        prior=network.info.get("prior"),
        batch_size=min(ROWS, len(problem.training_rows())),
    )


def _groups(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    widths = table["width"].nunique() > 1
    for (name, asked, width), rows in table.groupby(["strategy", "asked", "width"], sort=False):
        yield f"{name} {asked:g}" + (f", width x {width:g}" if widths else ""), rows


def _findings(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Report certified errors, measured errors and connections kept."""
    found = []
    for name, rows in _groups(table):
        found.append(finding(f"certified error of {name}", rows["training_bound"]))
        found.append(finding(f"measured error of {name}", rows["held_out_errors"]))
        found.append(finding(f"connections kept by {name}", rows["kept"]))
    return found


def conclusion(results: Results) -> Iterable[str]:
    """Compare certified with measured errors, of the lowest certificates and over all runs."""
    settings, table = results.settings, results.table
    whole = table[table["training_bound"].notna()]
    where = f"{settings['dataset']}, {settings['model']}"
    if whole.empty:
        yield f"{where}: no run has a certificate."
        return
    signs, ones = (list(_groups(whole[whole["strategy"].isin([WEIGHT_FREE]) == of])) for of in (False, True))
    kinds = {"masks over signs": signs, "networks whose weights are all 1": ones}
    said = [(words, *_lowest(groups)) for words, groups in kinds.items() if groups]
    listed = "; ".join(
        f"{tables.inline(runs['training_bound'], '.3f')} for {words} ({name}; measured on held-out rows: "
        f"{tables.inline(runs['held_out_errors'], '.3f')})"
        for words, name, runs in said
    )
    how = tables.counted(runs["training_bound"] for _, _, runs in said)
    yield f"{where}: the lowest certified errors are {listed} ({how})."
    above = (whole["held_out_errors"] > whole["training_bound"]).sum()
    # A run whose measured error is 0 has no finite ratio, which `inline` leaves out.
    factor = whole["training_bound"] / whole["held_out_errors"]
    yield (
        f"Over all searches a certified error is {tables.inline(factor, '.1f')} times the measured one. The "
        f"measured error is above the certified one in {above} of {len(whole)} runs; each certificate holds "
        f"with probability {1 - settings['delta']:g}."
    )


def _lowest(groups: list[tuple[str, pd.DataFrame]]) -> tuple[str, pd.DataFrame]:
    """Return the group of the lowest median certified error."""
    return min(groups, key=lambda group: group[1]["training_bound"].median())


def report(results: Results) -> list[RenderableType]:
    """Draw certified against measured errors, and build the table."""
    settings, table = results.settings, results.table
    title = f"{settings['dataset']}, {settings['model']}"
    points = {}
    for name, rows in table.groupby("strategy", sort=False):
        measured, bound = (
            rows.pivot_table(index="seed", columns=["width", "asked"], values=column, sort=False).to_numpy()
            for column in ("held_out_errors", "training_bound")
        )
        points[str(name)] = (measured, bound)
    labels = ("error on held-out rows", "certified error")
    figure = plots.trade_off(points, *labels, title, logarithmic=(True, True))
    results.draw(figure, "certified")
    groups = list(_groups(table))
    return [_table(groups, title, settings["delta"]), *_explained(table), *failures(groups)]


def _explained(table: pd.DataFrame) -> list[str]:
    """Explain the searches and the columns of the table."""
    meaning = {
        "edge-popup": "V. Ramanujan et al., 2020, keeps this density of connections",
        "two-temperature": "Algorithm 1 of [D], over signs, keeps this density",
        WEIGHT_FREE: "Algorithm 1 of [D] keeps this density, and all weights are 1",
        SHORT: "two-temperature, with this factor of the mask's description length in its loss",
        HALF: "the same, with a prior around the mask found on half of the rows; certified by the other half",
    }
    return [
        *(f"- {name}: {meaning[name]}" for name in table["strategy"].unique()),
        "- kept: connections of the mask",
        "- nats: length of the mask's description; the bound grows with it",
        "- certified: bound on the error on new examples, from training rows and the description's length",
        f"- measured, {MEASURED['held_out_bound'][0]}: error on rows that the search has not seen; its bound",
    ]


def _table(groups: list[tuple[str, pd.DataFrame]], title: str, delta: float) -> Table:
    rows = [
        (name, *(tables.spread(of[of_what], form) for of_what, (_, form) in MEASURED.items()))
        for name, of in groups
    ]
    columns = ("search", *(words for words, _ in MEASURED.values()))
    return tables.table(f"{title}: error, median [quartiles]; delta {delta:g}", columns, rows)


def charts(results: Results) -> list[Chart]:
    """Chart the certified error of every run against its measured error."""
    settings = results.settings
    labels = {
        "held_out_errors": "error on held-out rows",
        "training_bound": "certified error",
        "strategy": "search",
    }
    return [
        Chart(
            f"{settings['dataset']}, {settings['model']}: certified against measured error",
            results.table,
            "held_out_errors",
            "training_bound",
            "strategy",
            labels=labels,
            tells=("seed", "width", "kept"),
            logarithmic=(True, True),
        )
    ]


EXPERIMENT = Experiment(__name__, Settings, plan, run, report, conclusion, charts=charts)
