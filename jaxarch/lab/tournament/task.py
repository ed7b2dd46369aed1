"""The task of a tournament: examples, rows to train, choose and test on, and the parent's costs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxarch import ArgumentError, Problem, PyTree, cost, named_leaves, select
from jaxarch.lab.data import (
    Dataset,
    Images,
    Text,
    balanced_rows,
    is_text,
    load_examples,
    load_images,
    load_text,
)
from jaxarch.lab.data.balanced_rows import draw
from jaxarch.lab.harness import seed_keys
from jaxarch.lab.pruning.initial_weights import beginning
from jaxarch.lab.pruning.tasks import Change, Moments, classification, moments_of, pooled
from jaxarch.lab.tournament.settings import PictureTrainingSettings, TournamentSettings

STREAMS = {"search": 1, "rows": 2, "pairs": 3, "training": 4, "controls": 5}


Kind = TypeVar("Kind", bound=PictureTrainingSettings)


class PictureTask(NamedTuple, Generic[Kind]):
    """The learning task, ready to train on.

    Attributes:
      settings: settings with all defaults filled in.
      examples: the pictures, the features, or the windows of a text.
      problem: the problem with the first seed's rows.
      train: rows to train on, shape (seeds, n).
      held_out: rows to choose settings on, shape (seeds, m).
      test: rows to test on, the same for all seeds: nothing is trained or chosen on them.
      params: parameters of the parent, as shapes only.
      work: multiply-adds of each masked leaf for one example.
      other_work: multiply-adds of the leaves that are not masked.
    """

    settings: Kind
    examples: Images | Dataset | Text
    problem: Problem
    train: np.ndarray
    held_out: np.ndarray
    test: np.ndarray
    params: PyTree
    work: Mapping[str, float]
    other_work: float

    def learning(self, seeds: np.ndarray) -> Problem:
        """Return the problem of runs with these seeds, which fix their initial weights and batches."""
        return dataclasses.replace(
            self.problem,
            train=jnp.asarray(self.train[seeds]),
            paired=self.keys("pairs")[seeds],
        )

    def keys(self, purpose: str) -> jax.Array:
        """Return one key a seed, different for each purpose."""
        return self.settings.seed_keys(STREAMS[purpose])

    @property
    def connections(self) -> int:
        """Count the connections of the parent."""
        return sum(leaf.size for leaf in jax.tree.leaves(select(self.params)))

    @property
    def images(self) -> Images:
        """Return the examples of a study that loads pictures alone."""
        assert isinstance(self.examples, Images)
        return self.examples

    def form(self) -> str:
        """Describe an example in words."""
        shape = self.examples.x.shape[1:]
        if isinstance(self.examples, Images):
            return f"pictures of {shape}"
        return f"{shape[0]} {'features' if isinstance(self.examples, Dataset) else 'characters'}"

    def chance(self) -> float:
        """Compute the accuracy of always predicting the most frequent class of the test rows."""
        answers = self.examples.y[self.test].ravel()
        return float(np.bincount(answers).max() / len(answers))


Task = PictureTask[TournamentSettings]


def task_of(settings: TournamentSettings) -> Task:
    """Build the task of a tournament, from settings with defaults filled in."""

    def load(name: str) -> Images | Dataset | Text:
        return load_text(name, settings.length) if is_text(name) else load_examples(name)

    task = prepare(settings, load=load)
    return task._replace(problem=beginning(task.problem, settings.initial))


def prepare(
    settings: Kind,
    change: Change | None = None,
    *,
    load: Callable[[str], Images | Dataset | Text] = load_images,
) -> PictureTask[Kind]:
    """Load the examples, draw the rows of all seeds, and build the problem, from settings with defaults.

    Without a published split, a third of the examples, equally many of each class, is for testing. These rows
    do not depend on the key, so that runs of several keys share one task. Of the other rows, each seed holds
    out its own share, equally many of each class. The windows of a text have no classes.

    Args:
      settings: settings with all defaults filled in.
      change: a change of the parent, such as another head.
      load: reads the data set by its name.

    Raises:
      ArgumentError: examples that the parent does not take, or too few of them.
    """
    data = _changed(load(settings.dataset), settings)
    pool, test = _split(data)
    held_out = _held_out(settings, data, pool)
    train = np.stack([np.setdiff1d(pool, rows) for rows in held_out])
    problem = classification(
        settings, settings.model, data, train[0], settings.steps, _moments(data, pool), change
    )
    params, state = jax.eval_shape(problem.init, jax.random.key(0))
    work, other = _work(problem, params, state)
    return PictureTask(
        settings,
        data,
        problem,
        train.astype(np.int32),
        held_out.astype(np.int32),
        test.astype(np.int32),
        params,
        work,
        other,
    )


def _changed(data: Images | Dataset | Text, settings: PictureTrainingSettings) -> Images | Dataset | Text:
    """Average the pixels of pictures over windows.

    Raises:
      ArgumentError: a change of pictures that is asked of other data.
    """
    if isinstance(data, Images):
        return pooled(data, settings.pool)
    for name, used in (("pool", settings.pool != 1), ("augment", settings.augment)):
        if used:
            raise ArgumentError(f"{name}: it changes pictures, and {data.name} has none; leave it out")
    return data


def _held_out(
    settings: PictureTrainingSettings, data: Images | Dataset | Text, pool: np.ndarray
) -> np.ndarray:
    """Draw each seed's rows to hold out, equally many of each class, shape (seeds, m).

    Raises:
      ArgumentError: a share that is none or all of a class.
    """
    windows = isinstance(data, Text)
    fewest = len(pool) if windows else int(np.unique(data.y[pool], return_counts=True)[1].min())
    count = round(settings.held_out * fewest)
    if not 0 < count < fewest:
        what = "windows" if windows else "examples of a class"
        raise ArgumentError(
            f"held_out: {settings.held_out} of the {fewest} {what} is {count}; expected 1 to {fewest - 1}"
        )
    keys = settings.seed_keys(STREAMS["rows"])
    if windows:
        return np.stack([draw(key, pool, count) for key in keys])
    return np.stack([balanced_rows(key, data.y, pool, per_class=count) for key in keys])


def _split(data: Images | Dataset | Text) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows that may be trained on, and those to test on."""
    everything = np.arange(len(data.y))
    if not isinstance(data, Dataset) and data.train < len(data.y):
        return everything[: data.train], everything[data.train :]
    _, counts = np.unique(data.y, return_counts=True)
    if counts.min() < 3:
        raise ArgumentError(
            f"dataset: a class of {data.name} has {counts.min()} examples; expected at least 3, one of which "
            "is for testing"
        )
    (first,) = seed_keys(0, 1, STREAMS["rows"])
    key = jax.random.fold_in(first, 0)
    test = np.sort(balanced_rows(key, data.y, everything, per_class=int(counts.min()) // 3))
    return np.setdiff1d(everything, test), test


def _moments(data: Images | Dataset | Text, pool: np.ndarray) -> Moments | None:
    """Compute moments over the rows that may be trained on, so that test rows do not leak in."""
    if isinstance(data, Text):
        return None
    if isinstance(data, Dataset):
        return moments_of(data.x[pool])
    return data._replace(x=data.x[pool], y=data.y[pool], train=len(pool)).moments()


def _work(problem: Problem, params: PyTree, state: PyTree) -> tuple[dict[str, float], float]:
    """Compute each masked leaf's multiply-adds for one example, and those of all other leaves."""
    masked = named_leaves(select(params))
    row = jax.ShapeDtypeStruct((1,), jnp.int32)
    batch = jax.eval_shape(lambda row: problem.gather(problem.data, problem.per_run, row), row)
    predict = problem.predict
    assert predict is not None
    found = cost(lambda tree, batch: predict(tree, state_of(state), batch), params, batch)
    layers = {name: layer.dense.multiply_adds for name, layer in found.layers.items()}
    work = {}
    for path, leaf in masked.items():
        module = path.rpartition("/")[0] or path
        siblings = [other for other in masked if (other.rpartition("/")[0] or other) == module]
        share = leaf.size / sum(masked[other].size for other in siblings)
        work[path] = share * layers.get(module, 0.0)
    return work, found.total.dense.multiply_adds - sum(work.values())


def state_of(shapes: PyTree) -> PyTree:
    """Return a state of zeros with the right shapes; its values do not matter."""
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
