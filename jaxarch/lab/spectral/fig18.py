"""[S] figure 18 and table 2, a stand-in: heads on a frozen backbone that is trained here."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from rich.console import RenderableType

from jaxarch import ArgumentError, Network, Problem, PyTree, evaluate, models, over_seeds, supervised
from jaxarch.lab.checks import check_count
from jaxarch.lab.data import Images
from jaxarch.lab.harness import Context, Experiment, Outcome, Results, finding
from jaxarch.lab.pruning.parents import in_words, parent_of
from jaxarch.lab.spectral import heads
from jaxarch.lab.spectral.headless import Head, headless
from jaxarch.lab.spectral.heads import ROWS_TOGETHER, HeadSettings
from jaxarch.lab.tournament.task import PictureTask, prepare
from jaxarch.search import dense

STAND_IN = (
    "a stand-in for CIFAR-100 and a pretrained EfficientNetV2-S: other pictures, and a small backbone that "
    "is trained here and then frozen"
)
SUITS_ALL: dict[str, Any] = {
    "model": "cnn",
    "widths": (16, 32, 64),
    "backbone_steps": 500,
    "steps": 100,
    "every": 10,
    "batch_size": 128,
    "rate": 1e-3,
    "seeds": 5,
}
SUITS: dict[str, dict[str, Any]] = {
    "tiny_imagenet32": {"backbone": "cifar10", "backbone_steps": 1328, "steps": 332, "every": 33, "seeds": 3}
}
"""Defaults per data set, used where the user sets nothing; `SUITS_ALL` covers data sets without an entry."""


@dataclasses.dataclass(frozen=True)
class Settings(HeadSettings):
    """Settings of `jaxarch run spectral.fig18`, changed with `--set NAME=VALUE`.

    Values that are empty, 0 or `auto` become the data set's defaults. [S] fine-tunes an EfficientNetV2-S,
    pretrained on ImageNet, for one pass over CIFAR-100. Here a parent is trained on the pictures of
    `backbone`, and its head is removed. Heads are then trained on its features of the pictures of `dataset`.
    All heads share the same frozen backbone.

    Attributes:
      backbone: the pictures to train the backbone on, of the same size; by default the same pictures.
      backbone_steps: gradient steps of the backbone's training.
    """

    backbone: str = ""
    backbone_steps: int = 0

    def complete(self) -> Self:
        """Fill in the data set's defaults."""
        settings = self.suited(SUITS_ALL | SUITS.get(self.dataset, {}))
        return dataclasses.replace(settings, backbone=settings.backbone or settings.dataset)

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        self.check_each(check_count, "backbone_steps")

    def of_backbone(self) -> Self:
        """Return the settings of the backbone's training."""
        return dataclasses.replace(self, dataset=self.backbone, steps=self.backbone_steps, every=1)


class Backbone(NamedTuple):
    """Trained backbones of all seeds.

    Attributes:
      accuracy: accuracy on the test rows of its own pictures, shape (seeds,).
      features: features of all pictures of the heads' data set, shape (seeds, pictures, features).
    """

    accuracy: np.ndarray
    features: np.ndarray


def plan(settings: Settings) -> list[str]:
    """Describe the planned trainings."""
    base, task = prepare(settings.of_backbone()), prepare(settings)
    _check_alike(base, task)
    return [
        STAND_IN,
        f"backbone: {in_words(settings)}, trained on {base.train.shape[1]} pictures of {settings.backbone} "
        f"of {base.images.x.shape[1:]}, {settings.backbone_steps} steps",
        f"heads: {', '.join(settings.heads)}, trained on {task.train.shape[1]} pictures of "
        f"{settings.dataset}, {len(np.unique(task.images.y))} classes, {task.held_out.shape[1]} held out, "
        f"tested on {len(task.test)}",
        f"trainings: {settings.seeds} of backbones, and {len(settings.heads) * settings.seeds} of heads "
        f"for {settings.steps} steps of batch {settings.batch_size}",
    ]


def _check_alike(base: PictureTask[Settings], task: PictureTask[Settings]) -> None:
    """Raise unless the backbone's pictures and the heads' pictures have the same shape."""
    own, new = base.images.x.shape[1:], task.images.x.shape[1:]
    if own != new:
        raise ArgumentError(
            f"backbone: its pictures have shape {own}, but those of {task.settings.dataset} have {new}"
        )


def run(settings: Settings, context: Context) -> Outcome:
    """Train the backbone, and then every head on its features."""
    base, task = prepare(settings.of_backbone()), prepare(settings)
    _check_alike(base, task)
    backbone = trained(base, task.images, context)
    done = {}
    for head in settings.heads:
        problem = on_features(head, task, backbone.features)
        params, _ = jax.eval_shape(problem.init, jax.random.key(0))
        done[head] = heads.measured(head, task._replace(problem=problem, params=params), context)
    found = heads.outcome(done, task.images, backbone=settings.backbone, stand_in=STAND_IN)
    own = finding(f"test accuracy of the backbone on {settings.backbone}", backbone.accuracy)
    return dataclasses.replace(found, findings=[own, *found.findings])


def trained(base: PictureTask[Settings], images: Images, context: Context) -> Backbone:
    """Train a backbone for every seed, and compute its features of the pictures."""
    settings, whole = base.settings, dense(nonnegative=False)
    problem = base.learning(np.arange(settings.seeds))
    network, _ = over_seeds(
        whole,
        base.keys("search"),
        problem,
        name="backbone",
        dead_start="ignore",
        **context.options,
    )
    outputs = evaluate(whole, network, problem, base.test, batch_size=ROWS_TOGETHER)
    accuracy = (outputs.argmax(-1) == base.images.y[base.test]).mean(axis=-1)
    return Backbone(accuracy, features_of(base, network, images))


def features_of(base: PictureTask[Settings], network: Network, images: Images) -> np.ndarray:
    """Compute the head's inputs for each picture, shape (seeds, pictures, features)."""
    settings, gather = base.settings, base.problem.gather
    parent = parent_of(settings.model, settings.widths, settings.width_factor, base.images)
    example, _ = gather(base.problem.data, None, jnp.arange(1))
    model = models.as_model(lambda rngs: headless(parent(rngs)), example)
    x, no_classes = jnp.asarray(images.x), jnp.zeros(len(images.x), jnp.int32)

    @jax.jit
    def of_rows(params: PyTree, state: PyTree, rows: Array) -> Array:
        pictures, _ = gather((x, no_classes), None, rows)
        return model.apply(params, state, pictures, None)[0]

    found = []
    for seed in range(settings.seeds):
        run = network.of_run(seed)
        params = {name: of for name, of in run.params.items() if name != "head"}
        batches = np.array_split(np.arange(len(x)), -(-len(x) // ROWS_TOGETHER))
        found.append(np.concatenate([np.asarray(of_rows(params, run.state, rows)) for rows in batches]))
    return np.stack(found)


def on_features(head: str, task: PictureTask[Settings], features: np.ndarray) -> Problem:
    """Build the problem of classifying pictures from features; each seed has its own features."""
    settings, y = task.settings, task.images.y
    change = settings.change(head)

    def model(rngs: Any) -> Any:
        made = Head(features.shape[-1], len(np.unique(y)), rngs)
        return made if change is None else change(made, rngs)

    return supervised(
        model,
        (features[0], y),  # The features are the runs', taken in the gather.
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optax.adam(settings.rate),
        steps=settings.steps,
        batch_size=settings.batch_size,
        train=task.train[0],
        per_run=features,
        gather=take_features,
    )


def take_features(data: PyTree, own: Array, rows: Array) -> PyTree:
    """Take rows of a run's features, with their classes."""
    return own[rows], data[1][rows]


def conclusion(results: Results) -> Iterable[str]:
    """Compare the heads on the features of the frozen backbone."""
    settings = results.settings
    backbone = f"a frozen {in_words(settings)} trained on {results.manifest['backbone']}"
    return heads.conclusion(results, f"{settings['dataset']}, heads on {backbone}")


def report(results: Results) -> list[RenderableType]:
    """Return the table and figures of the heads, with a note about the stand-in."""
    return [*heads.report(results), f"! {STAND_IN}: backbone trained on {results.manifest['backbone']}"]


EXPERIMENT = Experiment(__name__, Settings, plan, run, report, conclusion)
