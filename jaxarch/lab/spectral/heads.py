"""Linear and spectral heads on pictures or features: settings, training, pruning, measurements, figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array
from rich.console import RenderableType

from jaxarch import (
    ArgumentError,
    Network,
    NeuronMask,
    Problem,
    PyTree,
    SpectralMLP,
    Training,
    chain,
    evaluate,
    map_selected,
    named_leaves,
    needed_memory,
    over_seeds,
    plots,
    recruit,
)
from jaxarch.io import digest
from jaxarch.lab.checks import check_count, check_distinct, check_known, check_positive, check_strength
from jaxarch.lab.data import Images
from jaxarch.lab.harness import Context, Outcome, Results, costs, finding, paired, tables
from jaxarch.lab.pruning.parents import in_words
from jaxarch.lab.spectral import wording
from jaxarch.lab.tournament.settings import PictureTrainingSettings
from jaxarch.lab.tournament.task import PictureTask
from jaxarch.search import dense, spectral
from jaxarch.spectral import hidden_eigenvalues, with_neurons

MODELS = ("cnn", "resnet18", "resnet20", "vgg11", "vgg16")
"""Parents that end in one dense head."""
LINEAR = "linear"
HEADS: dict[str, dict[str, Any] | None] = {
    LINEAR: None,
    "spectral": {"form": "eigendecomposition"},
    "gated spectral": {"form": "gated"},
}
"""Options of `SpectralMLP`, by head; None keeps the parent's own head."""
CURVES, EIGENVALUES = "curves.csv", "eigenvalues.npz"
WITHOUT = "without hidden neurons"
COLUMNS = {
    "accuracy": "on test rows, with all hidden neurons of the head",
    "neurons left": f"hidden neurons; {wording.LEFT}",
    "MB": "memory of a training run beside the pictures, as the compiler counts it",
    "seconds": wording.SECONDS,
}
ROWS_TOGETHER = 500
"""Batch size where nothing is trained: in evaluations and removals of neurons."""


@dataclasses.dataclass(frozen=True)
class HeadSettings(PictureTrainingSettings):
    """Settings shared by experiments that compare heads.

    Attributes:
      model: a convolutional parent whose head is replaced: a cnn of `widths`, ResNet-18, ResNet-20, VGG11 or
        VGG16.
      heads: heads to train.
      hidden: neurons of the hidden layer of a spectral head.
      strength: strength of the L1 penalty on the hidden eigenvalues of a spectral head.
      tolerance: neurons are removed as long as the loss on the held-out rows grows by at most this share of
        itself.
      steps: gradient steps of a training.
      every: steps between two evaluations on the held-out rows.
    """

    heads: tuple[str, ...] = tuple(HEADS)
    hidden: int = 526
    strength: float = 1e-4
    tolerance: float = 0.05
    every: int = 0

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        if self.model not in MODELS:
            raise ArgumentError(
                f"model: expected one of {', '.join(MODELS)}, whose head can be replaced; got {self.model!r}"
            )
        check_known("heads", self.heads, HEADS)
        check_distinct("heads", self.heads)
        self.check_each(check_count, "hidden", "every")
        check_strength("strength", self.strength)
        check_positive("tolerance", self.tolerance)
        if self.every > self.steps:
            raise ArgumentError(
                f"every: expected at most {self.steps}, the steps of a training, got {self.every}"
            )

    def change(self, head: str) -> Callable[[Any, Any], Any] | None:
        """Return the function that gives a parent this head; `None` for the parent's own head."""
        options = HEADS[head]
        if options is None:
            return None

        def change(model: Any, rngs: Any) -> Any:
            widths = (model.head.in_features, self.hidden, model.head.out_features)
            model.head = SpectralMLP(widths, bias=True, rngs=rngs, **options)
            return model

        return change

    def search(self, head: str) -> Training:
        """Return the training of a parent with this head."""
        return dense(nonnegative=False) if head == LINEAR else spectral(self.strength)


Kind = TypeVar("Kind", bound=HeadSettings)


class Measured(NamedTuple):
    """Measurements of a head: the parts of the outcome."""

    table: pd.DataFrame
    curves: pd.DataFrame
    eigenvalues: dict[str, np.ndarray]
    costs: dict[str, Any]


def without_hidden(state: PyTree, params: PyTree) -> PyTree:
    """Return the state with all hidden neurons of spectral networks removed, for one run or many."""
    none = map_selected(lambda values: jnp.zeros(values.shape, bool), hidden_eigenvalues(params))
    return with_neurons(state, none)


def learning(task: PictureTask[Kind], head: str) -> Problem:
    """Build the problem of all seeds, validated on the held-out rows with and without hidden neurons."""
    problem = task.learning(np.arange(task.settings.seeds))
    predict = problem.predict
    assert predict is not None

    def metrics(params: PyTree, state: PyTree, batch: PyTree) -> dict[str, Array]:
        def accuracy(state: PyTree) -> Array:
            return jnp.mean(predict(params, state, batch).argmax(-1) == batch[1])

        if head == LINEAR:
            return {"accuracy": accuracy(state)}
        return {"accuracy": accuracy(state), WITHOUT: accuracy(without_hidden(state, params))}

    return dataclasses.replace(problem, validation=jnp.asarray(task.held_out), metrics=metrics)


def measured(head: str, task: PictureTask[Kind], context: Context) -> Measured:
    """Train one head from every seed, and measure the result.

    Memory counts what a training run takes beside the pictures: parameters, optimizer state, activations and
    gradients of a batch. The compiler counts it; the value is NaN where it does not.
    """
    settings = task.settings
    search, problem = settings.search(head), learning(task, head)
    needed = needed_memory(search, task.keys("search"), problem, chunk=settings.every)
    network, report = over_seeds(
        search,
        task.keys("search"),
        problem,
        name=head,
        chunk=settings.every,
        dead_start="ignore",
        **context.options,
    )
    failed_at = np.asarray(network.info.failed_at)

    def accuracy(network: Network) -> np.ndarray:
        outputs = evaluate(search, network, problem, task.test, batch_size=ROWS_TOGETHER)
        right = (outputs.argmax(-1) == task.images.y[task.test]).mean(axis=-1)
        return np.where(failed_at < 0, right, np.nan)

    found: dict[str, Any] = {
        "head": head,
        "seed": np.arange(settings.seeds),
        "accuracy": accuracy(network),
        "parameters": sum(leaf[0].size for leaf in jax.tree.leaves(network.params)),
        "megabytes": next((memory.fresh / 1e6 for memory in needed.values()), np.nan),
        "seconds": report.seconds,
        "failed_at": failed_at,
    }
    eigenvalues: dict[str, np.ndarray] = {}
    if head != LINEAR:
        bare = network.replace(state=without_hidden(network.state, network.params))
        # Bisection takes a few passes over the held-out rows, instead of one for each of many neurons.
        few = chain(recruit(settings.tolerance, removals="bisection", batch_size=ROWS_TOGETHER))
        recruited, _ = over_seeds(few, task.keys("controls"), problem, network=network, dead_start="ignore")
        left = np.where(failed_at < 0, np.asarray(recruited[NeuronMask].count(), float), np.nan)
        found |= {
            "accuracy_without": accuracy(bare),
            "neurons": left,
            "recruited_accuracy": accuracy(recruited),
        }
        values = named_leaves(network.params["head"]["eigenvalues"])
        eigenvalues = {layer: np.asarray(leaf) for layer, leaf in values.items()}
        sizes = np.abs(eigenvalues["L2"]) / np.median(np.abs(eigenvalues["L3"]), axis=-1, keepdims=True)
        for name, of_runs in (("largest", sizes.max(axis=-1)), ("significant", (sizes > 0.01).mean(axis=-1))):
            found[name] = np.where(failed_at < 0, of_runs, np.nan)
    looks = report.stages[-1].validation
    steps = np.minimum(settings.every * (1 + np.arange(len(looks["accuracy"]))), settings.steps)
    curves = pd.DataFrame(
        {
            "head": head,
            "epoch": np.repeat(steps * settings.batch_size / task.train.shape[1], settings.seeds),
            "seed": np.tile(np.arange(settings.seeds), len(steps)),
            **{name: np.ravel(looks[name]) for name in ("accuracy", WITHOUT) if name in looks},
        }
    )
    return Measured(pd.DataFrame(found), curves, eigenvalues, costs({head: (network, report)}))


def outcome(done: Mapping[str, Measured], images: Images, **facts: Any) -> Outcome:
    """Combine the results of all heads into an outcome, with facts about the pictures and other facts."""
    table = pd.concat([head.table for head in done.values()], ignore_index=True)
    return Outcome(
        table,
        _findings(table),
        costs={name: head.costs for name, head in done.items()},
        tables={CURVES: pd.concat([head.curves for head in done.values()], ignore_index=True)},
        arrays={EIGENVALUES: {name: head.eigenvalues for name, head in done.items() if head.eigenvalues}},
        facts={"pictures": {"name": images.name, "sha256": digest(images.x, images.y)}} | facts,
    )


def _findings(table: pd.DataFrame) -> list[dict[str, Any]]:
    quantities = {
        "accuracy": "test accuracy: {} head",
        "accuracy_without": "test accuracy: {} head, without its hidden neurons",
        "neurons": "hidden neurons of a {} head that are left",
        "recruited_accuracy": "test accuracy: {} head, with the neurons that are left",
        "largest": "largest hidden eigenvalue over the median one of the outputs: {} head",
        "significant": "share of hidden eigenvalues above a hundredth of that median: {} head",
    }
    found, linear = [], table.loc[table["head"] == LINEAR].set_index("seed")
    for head, runs in table.groupby("head", sort=False):
        found += [
            finding(words.format(head), runs[column])
            for column, words in quantities.items()
            if column in runs and (head != LINEAR or column == "accuracy")
        ]
        if head != LINEAR and len(linear):
            of = runs.set_index("seed")
            of_cost = {
                "seconds": "seconds of a training",
                "megabytes": "memory of a training, by the compiler's count",
            }
            found += [
                finding(f"test accuracy: {head} head minus linear one", of["accuracy"] - linear["accuracy"]),
                *(
                    finding(f"{words}: {head} head over linear one", of[column] / linear[column])
                    for column, words in of_cost.items()
                ),
            ]
    return found


def conclusion(results: Results, where: str = "") -> Iterable[str]:
    """Compare spectral heads with the linear one, and with themselves without their hidden neurons.

    `where` names the pictures and the parent; by default, those in the settings.
    """
    settings, table = results.settings, results.table
    where = where or f"{settings['dataset']}, {in_words(settings)}"
    runs = {str(head): of.set_index("seed") for head, of in table.groupby("head", sort=False)}

    def told(values: Mapping[str, pd.Series], form: str) -> str:
        return "; ".join(f"{tables.inline(of, form)} ({head})" for head, of in values.items())

    accuracy = {head: of["accuracy"] for head, of in runs.items()}
    yield (
        f"{where}: test accuracy by head is {told(accuracy, '.4f')} ({tables.counted(accuracy.values())})."
    )
    new = [head for head in runs if head != LINEAR]
    if LINEAR in runs and new:
        pairs = {head: paired.difference(accuracy[head], accuracy[LINEAR]) for head in new}
        said = "; ".join(f"{paired.in_words(pair, '.4f')} ({head})" for head, pair in pairs.items())
        yield f"Paired by seed, the difference to the linear head is {said}."
    if new:
        left = {head: runs[head]["neurons"] for head in new}
        without = {head: runs[head]["accuracy_without"] for head in new}
        yield (
            f"The hidden neurons left of {settings['hidden']} are {told(left, '.0f')}; without any, accuracy "
            f"is {told(without, '.4f')}."
        )


def report(results: Results) -> list[RenderableType]:
    """Draw accuracy over the epochs and the eigenvalues, and build the table."""
    settings, table, curves = results.settings, results.table, results.read(CURVES)
    title = f"{settings['dataset']}, {in_words(settings)}"
    lines: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for head, runs in curves.groupby("head", sort=False):
        for column, name in (("accuracy", str(head)), (WITHOUT, f"{head}, {WITHOUT}")):
            if column in runs and runs[column].notna().any():
                accuracy = runs.pivot(index="seed", columns="epoch", values=column)
                epochs = np.tile(accuracy.columns.to_numpy(float), (len(accuracy), 1))
                lines[name] = (epochs, accuracy.to_numpy(float))
    results.draw(plots.trade_off(lines, "epochs", "accuracy on held-out rows", title), "accuracy")
    spectral_heads = [str(head) for head in table["head"].unique() if head != LINEAR]
    if spectral_heads:
        arrays = results.arrays(EIGENVALUES)
        panels = {
            head: {
                name: np.abs(arrays[f"{head}/{layer}"][0])
                for layer, name in (("L2", "hidden layer"), ("L3", "outputs"))
            }
            for head in spectral_heads
        }
        figure = plots.magnitudes(panels, "|eigenvalue|", f"{title}: eigenvalues of the head, first seed")
        results.draw(figure, "eigenvalues")
    return [
        _table(table, title),
        *wording.explain(table["head"], COLUMNS),
        *results.remarks(table.groupby("head", sort=False)),
    ]


def _table(table: pd.DataFrame, title: str) -> RenderableType:
    """Build the columns of [S] table 1, with what remains of the head."""
    rows = []
    columns = ("accuracy", "accuracy_without", "neurons", "recruited_accuracy")
    for head, runs in table.groupby("head", sort=False):
        numbers = [
            tables.spread(runs[column], ".0f" if column == "neurons" else ".4f")
            if column in runs and runs[column].notna().any()
            else ""
            for column in columns
        ]
        costs_of = (("parameters", ",.0f"), ("megabytes", ".2f"), ("seconds", ".1f"))
        told = (tables.median(runs[name], form) if name in runs else "" for name, form in costs_of)
        rows.append((str(head), *numbers, *told))
    names = (
        "head",
        "accuracy",
        WITHOUT,
        "neurons left",
        "accuracy with them",
        "parameters",
        "MB",
        "seconds",
    )
    return tables.table(f"{title}: test accuracy, median [quartiles]", names, rows)
