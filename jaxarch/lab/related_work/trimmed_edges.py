"""Edges of a graph trimmed by degree, at random and by learned scores: how well a graph network trains."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
import optax
import pandas as pd
from jax import Array
from rich.console import RenderableType

from jaxarch import (
    ArgumentError,
    Network,
    Problem,
    at_density,
    chain,
    evaluate,
    over_seeds,
    plots,
    retrain,
    saliency,
    search,
    supervised,
)
from jaxarch.io import digest
from jaxarch.lab.charts import Chart
from jaxarch.lab.checks import check_count, check_distinct, check_known, check_positive, check_strength
from jaxarch.lab.data import citation_graph
from jaxarch.lab.harness import (
    Context,
    Experiment,
    Outcome,
    Part,
    Parts,
    PartSettings,
    Results,
    TrainingSettings,
    Work,
    check_room,
    finding,
    paired,
    tables,
)
from jaxarch.lab.harness.tables import Table
from jaxarch.masks import apply_mask, check_density, connections, full_mask, keep
from jaxarch.models import graph_network, take_nodes

EDGES, COMPARISONS = "edges", "comparisons.csv"
WORDS = 3703
SHARES = ("test_nodes_without_edges", "edges_within_a_class")
WHOLE, RANDOM, TEDDY = "whole graph", "random", "TEDDY"
MEANING = {
    WHOLE: "all edges",
    TEDDY: "edges of the largest scores by degree (H. Seo, J. Yun and E. Yang, 2024)",
    "reversed TEDDY": "edges of the smallest of these scores, as a control",
    RANDOM: "every set of edges is equally likely",
    "learned weights": "edges of the largest weights, after they were trained with the network",
    "SNIP": "edges whose removal would change the loss most, at the initial weights",
}


@dataclasses.dataclass(frozen=True)
class TrimmedEdgesSettings(PartSettings, TrainingSettings):
    """Settings of `jaxarch run related_work.trimmed_edges`, changed with `--set NAME=VALUE`.

    Attributes:
      methods: methods that choose edges; empty for all of them. The whole graph is always beside them.
      densities: shares of the edges that are kept.
      hidden: width of the hidden layer.
      dropout: the share of hidden values that a step drops.
      steps: gradient steps of each training, on all labelled nodes at once.
      rate: learning rate of Adam.
      decay: factor of the weights that is added to their gradient (L2).
      seeds: number of independent runs.
    """

    # A step takes all labelled nodes.
    batch_size: ClassVar[int] = 120  # type: ignore[misc]

    methods: tuple[str, ...] = ()
    densities: tuple[float, ...] = (0.9, 0.7, 0.5, 0.3, 0.1)
    hidden: int = 16
    dropout: float = 0.0
    steps: int = 100
    rate: float = 0.01
    decay: float = 5e-4
    seeds: int = 10

    def complete(self) -> TrimmedEdgesSettings:
        """Fill in all methods if none is named."""
        return dataclasses.replace(self, methods=self.methods or tuple(METHODS))

    def which_parts(self) -> tuple[str, ...]:
        """Return the setting that selects the parts."""
        return ("methods",)

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        self.check_each(check_count, "hidden", "steps")
        self.check_each(check_positive, "rate")
        self.check_each(check_strength, "decay", "dropout")
        if self.dropout >= 1:
            raise ArgumentError(f"dropout: expected a share in [0, 1), got {self.dropout}")
        self.check_numbers(check_density, "densities")
        check_room(self.seeds, WORDS * self.hidden)
        check_known("methods", self.methods, METHODS)
        check_distinct("methods", self.methods)


class Task(NamedTuple):
    """The graph, ready to train on.

    Attributes:
      settings: settings with all defaults filled in.
      edges: the edges in random order.
      problem: nodes with classes to train on; edges are held at their weight of 1.
      free: the optimizer that trains edges, too.
      validation: the nodes to choose settings by.
      test: the nodes to test on.
      labels: the classes of all nodes.
    """

    settings: TrimmedEdgesSettings
    edges: np.ndarray
    problem: Problem
    free: optax.GradientTransformation
    validation: np.ndarray
    test: np.ndarray
    labels: np.ndarray


def prepare(settings: TrimmedEdgesSettings) -> Task:
    """Load the graph and build the problem, from settings with defaults filled in."""
    graph = citation_graph()
    # Of equal scores the first are kept. In the order of nodes these would be edges of the labelled nodes.
    order = jax.random.permutation(jax.random.fold_in(jax.random.key(settings.key), 2), graph.edges.shape[1])
    edges = graph.edges[:, np.asarray(order)]
    # As T. Kipf and M. Welling do; every paper has words.
    features = graph.x / graph.x.sum(axis=1, keepdims=True)
    widths = (features.shape[1], settings.hidden, int(graph.y.max()) + 1)
    free = optax.chain(optax.add_decayed_weights(settings.decay), optax.adam(settings.rate))
    problem = supervised(
        graph_network(widths, edges, dropout=settings.dropout),
        (features, graph.y),
        gather=take_nodes,
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optax.partition({True: free, False: optax.set_to_zero()}, _trained),
        steps=settings.steps,
        train=graph.train,
    )
    return Task(settings, edges, problem, free, graph.validation, graph.test, graph.y)


def _trained(params: Mapping[str, Any]) -> dict[str, bool]:
    return {name: name != EDGES for name in params}


class Method(NamedTuple):
    """A method that chooses edges.

    Attributes:
      first: the strategy that all densities begin with; `None` for none.
      then: `density -> stage`, the stage that leaves so many edges.
    """

    first: Any
    then: Callable[[float], Any]


def _by_degree(sign: int, task: Task) -> Method:
    def then(density: float) -> Callable[[Array, Problem], Network]:
        def trim(key: Array, problem: Problem) -> Network:
            params, state = problem.start(key)
            scores = saliency.teddy(params, task.edges)
            mask = keep(jax.tree.map(lambda score: sign * score, scores), density)
            return Network(apply_mask(mask, params), mask, state)

        return trim

    return Method(None, then)


METHODS: Mapping[str, Callable[[Task], Method]] = {
    TEDDY: partial(_by_degree, 1),
    "reversed TEDDY": partial(_by_degree, -1),
    RANDOM: lambda task: Method(search.random_mask(task.settings.densities, where=EDGES), at_density),
    "learned weights": lambda task: Method(
        search.magnitude_pruning(task.settings.densities, fraction=None, where=EDGES, optimizer=task.free),
        at_density,
    ),
    "SNIP": lambda task: Method(search.snip(task.settings.densities, where=EDGES), at_density),
}


def plan(settings: TrimmedEdgesSettings) -> list[str]:
    """Describe the planned trainings."""
    task = prepare(settings)
    assert task.problem.train is not None
    trainings = 1 + len(settings.methods) * len(settings.densities)
    return [
        f"graph: Citeseer, {len(task.labels)} nodes and {task.edges.shape[1]} edges; trained on "
        f"{len(task.problem.train)} nodes, tested on {len(task.test)}; a hidden layer of {settings.hidden}",
        f"methods: {', '.join(settings.methods)}; densities {', '.join(map(str, settings.densities))}",
        f"{trainings} trainings from fresh weights, each of {settings.steps} steps and {settings.seeds} "
        "seeds, besides those that choose edges",
    ]


def run(settings: TrimmedEdgesSettings, context: Context) -> Outcome:
    """Choose edges by every method and at every density, and train the network on what is left."""
    task = prepare(settings)
    parts = Parts(settings, experiment=context.experiment)
    listed = [Part(name, _measured, name) for name in (WHOLE, *settings.methods)]
    load = partial(prepare, settings)
    made = parts.run(listed, task, load, progress=context.progress, spread=context.spread)
    runs = pd.concat([rows for _, rows in made], ignore_index=True)
    compared = _compared(runs)
    facts = {"graph": {"name": "citeseer", "sha256": digest(task.edges)}}
    return Outcome(runs, _findings(runs, compared), tables={COMPARISONS: compared}, facts=facts)


def _measured(task: Task, name: str, found: Mapping[str, Any], work: Work) -> pd.DataFrame:
    """Train the network on what a method leaves: one row a density and seed."""
    settings, keys = task.settings, task.settings.seed_keys()
    options: dict[str, Any] = {
        "checkpoint": work.checkpoint,
        "progress": work.progress,
        "dead_start": "ignore",
    }
    options |= settings.width()
    if name == WHOLE:
        return _trained_on(task, name, 1.0, _all_edges, None, options)
    first, then = METHODS[name](task)
    network = None
    if first is not None:
        network, _ = over_seeds(first, keys, task.problem, name=f"{name}, search", **options)
    rows = [_trained_on(task, name, of, then(of), network, options) for of in settings.densities]
    return pd.concat(rows, ignore_index=True)


def _all_edges(key: Array, problem: Problem) -> Network:
    params, state = problem.start(key)
    return Network(params, full_mask(dict.fromkeys(params) | {EDGES: params[EDGES]}), state)


def _trained_on(
    task: Task, name: str, density: float, stage: Any, network: Network | None, options: Mapping[str, Any]
) -> pd.DataFrame:
    """Choose edges by a stage and train from fresh weights, which are the same for all stages of a seed."""
    settings, keys = task.settings, task.settings.seed_keys()
    strategy = chain(stage, retrain("cold", nonnegative=False))
    title = f"{name}, density {density:g}"
    trained, _ = over_seeds(strategy, keys, task.problem, network=network, name=title, **options)
    rows = np.concatenate([task.validation, task.test])
    right = evaluate(strategy, trained, task.problem, rows).argmax(-1) == task.labels[rows]
    chosen, tested = np.split(right, [len(task.validation)], axis=1)
    kept = np.asarray(trained.mask[EDGES])
    degrees = [np.bincount(task.edges[:, of].ravel(), minlength=len(task.labels)) for of in kept]
    return pd.DataFrame(
        {
            "strategy": name,
            "density": density,
            "seed": np.arange(settings.seeds),
            "accuracy": tested.mean(axis=1),
            "validation_accuracy": chosen.mean(axis=1),
            "edges": np.asarray(jax.vmap(connections)(trained.mask)),
            "test_nodes_without_edges": [(of[task.test] == 0).mean() for of in degrees],
            "edges_within_a_class": [np.equal(*task.labels[task.edges[:, of]]).mean() for of in kept],
        }
    )


def _accuracies(runs: pd.DataFrame, name: str, density: float) -> pd.Series:
    of = runs[(runs["strategy"] == name) & (runs["density"] == density)]
    return of["accuracy"].set_axis(of["seed"])


def _compared(runs: pd.DataFrame) -> pd.DataFrame:
    """Compare accuracies seed by seed; p is adjusted over all methods and densities of a reference."""
    rows = []
    trimmed = runs[runs["strategy"] != WHOLE]
    for name, density in trimmed[["strategy", "density"]].drop_duplicates().itertuples(index=False):
        for against, at in ((WHOLE, 1.0), (RANDOM, density)):
            other = _accuracies(runs, against, at)
            if len(other) and name != against:
                row = paired.difference(_accuracies(runs, name, density), other)
                rows.append({"strategy": name, "density": density, "against": against, **row})
    return paired.adjusted(pd.DataFrame(rows), ["against"])


def _findings(runs: pd.DataFrame, compared: pd.DataFrame) -> list[dict[str, Any]]:
    """Report accuracies, and their differences."""
    reached = [
        finding(f"test accuracy of {name}, density {density:g}", of["accuracy"])
        for (name, density), of in runs.groupby(["strategy", "density"], sort=False)
    ]
    return reached + [
        finding(f"test accuracy of {row['strategy']} minus {row['against']}, density {row['density']:g}", row)
        for _, row in compared.iterrows()
    ]


def conclusion(results: Results) -> Iterable[str]:
    """Tell whether trimming by degree beats random trimming, and reaches the whole graph."""
    settings, table, compared = results.settings, results.table, results.read(COMPARISONS)
    whole = table[table["strategy"] == WHOLE]
    yield (
        f"Citeseer, {int(whole['edges'].iloc[0]):,} edges, a hidden layer of {settings['hidden']}: the whole "
        f"graph has a test accuracy of {tables.inline(whole['accuracy'], '.3f')} "
        f"({tables.counted([whole['accuracy']])})."
    )
    for against, words in ((RANDOM, "edges kept at random"), (WHOLE, "the whole graph")):
        pairs = compared[(compared["strategy"] == TEDDY) & (compared["against"] == against)]
        if len(pairs):
            tests = int((compared["against"] == against).sum())
            yield f"Edges trimmed by degree are {verdict(pairs, tests)} {words}: {_medians(pairs)}."


def verdict(pairs: pd.DataFrame, tests: int) -> str:
    """Put into words at which densities a method is better, and at which it is worse, by the adjusted p.

    Args:
      pairs: one row a density.
      tests: the number of tests that p is adjusted over.
    """
    if not paired.decidable(pairs["runs"].max(), tests):
        return f"not told apart, with n = {pairs['runs'].max():.0f}, from"
    small = pairs[pairs["p_adjusted"] < paired.LEVEL]
    said = [
        f"{word} at density {', '.join(f'{density:g}' for density in of['density'])}"
        for word, of in (("better", small[small["median"] > 0]), ("worse", small[small["median"] < 0]))
        if len(of)
    ]
    test = f"(p < {paired.LEVEL:g}, adjusted over methods and densities)"
    if not said:
        return f"neither better nor worse at any density {test} than"
    return f"{' and '.join(said)} {test} than"


def _medians(pairs: pd.DataFrame) -> str:
    return ", ".join(
        f"{row['median']:+.3f} [{row['q25']:+.3f}, {row['q75']:+.3f}] at {row['density']:g}"
        for _, row in pairs.iterrows()
    )


def report(results: Results) -> list[RenderableType]:
    """Draw accuracy against density, and build the tables."""
    table, settings = results.table, results.settings
    title = f"citeseer, graph network of {settings['hidden']} hidden units"
    points = {
        str(name): tuple(
            rows.pivot(index="seed", columns="density", values=column).to_numpy(float)
            for column in ("density", "accuracy")
        )
        for name, rows in table.groupby("strategy", sort=False)
    }
    results.draw(plots.trade_off(points, "density of edges", "test accuracy", title), "accuracy")
    return [
        _table(table, results.read(COMPARISONS), title),
        *(f"- {name}: {meaning}" for name, meaning in MEANING.items() if name in points),
        "- without edges: share of the test nodes; within a class: share of the kept edges",
    ]


def _table(table: pd.DataFrame, compared: pd.DataFrame, title: str) -> Table:
    """Build the table, one row a method and density."""
    rows = []
    for (name, density), of in table.groupby(["strategy", "density"], sort=False):
        pairs = compared[(compared["strategy"] == name) & (compared["density"] == density)]
        differences = []
        for against in (RANDOM, WHOLE):
            pair = pairs[pairs["against"] == against]
            told = "-" if pair.empty else tables.signed(pair["median"].iloc[0], ".3f")
            p = "-" if pair.empty else tables.number(pair["p_adjusted"].iloc[0], ".2g")
            differences += [told, p]
        shares = (
            tables.median(of[column], ".2f")
            for column in ("test_nodes_without_edges", "edges_within_a_class")
        )
        rows.append((f"{name}, {density:g}", tables.spread(of["accuracy"], ".3f"), *differences, *shares))
    columns = ("edges, density", "accuracy", "minus random", "p", "minus whole", "p", "without edges")
    return tables.table(
        f"{title}: test accuracy, median [quartiles], and paired differences with adjusted p",
        (*columns, "within a class"),
        rows,
    )


def charts(results: Results) -> list[Chart]:
    """Chart every run's accuracy against the density of edges."""
    labels = {"accuracy": "test accuracy", "strategy": "edges", "density": "density of edges"}
    return [
        Chart(
            "citeseer: test accuracy against density of edges",
            results.table,
            "density",
            "accuracy",
            "strategy",
            at="density",
            labels=labels,
            tells=("seed", *SHARES),
        )
    ]


EXPERIMENT = Experiment(
    __name__,
    TrimmedEdgesSettings,
    plan,
    run,
    report,
    conclusion,
    charts=charts,
    spreads=True,
)
