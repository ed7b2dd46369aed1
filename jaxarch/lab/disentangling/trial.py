"""A trial of [D] section 5: two groups of classes to tell apart, a split for every seed, network (11)."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxarch import ArgumentError, Problem, supervised
from jaxarch.lab.checks import check_memory, shown
from jaxarch.lab.data import Dataset, Task, take_task_rows, two_groups
from jaxarch.lab.disentangling.settings import TaskSettings
from jaxarch.lab.harness import FLOAT_BYTES
from jaxarch.models import signed_output_loss, tanh_network

Groups = tuple[Sequence[int], Sequence[int]]


def split(
    settings: TaskSettings,
    data: Dataset,
    groups: Groups,
    train_per_class: int,
    orientations: Sequence[bool] = (False, True),
) -> Task:
    """Split the examples of two groups of classes, for every seed and orientation."""
    return two_groups(
        jax.random.key(settings.key),
        data,
        *groups,
        train_per_class=train_per_class,
        test_per_class=settings.test_per_class,
        seeds=settings.seeds,
        orientations=orientations,
    )


def read_groups(text: str) -> Groups:
    """Read a task's two groups of classes from a text such as `1+2+3v4+5+6`."""
    if not re.fullmatch(r"\d+(\+\d+)*v\d+(\+\d+)*", text):
        raise ArgumentError(f"tasks: expected groups of classes such as 1+2+3v4+5+6, got {shown(text)}")
    first, second = (tuple(int(label) for label in group.split("+")) for group in text.split("v"))
    return first, second


def problem(settings: TaskSettings, data: Dataset, task: Task) -> Problem:
    """Build the problem of network (11) and loss (12) of [D] on a task, each run with its own split."""
    features = data.x.shape[1]
    check_memory(
        "depth", FLOAT_BYTES * settings.depth * features**2, f"one network of {settings.depth} layers"
    )
    return supervised(
        tanh_network((features,) * (settings.depth + 1)),
        (data.x, data.y),
        loss=signed_output_loss,
        optimizer=optax.sgd(settings.learning_rate),
        steps=settings.steps,
        batch_size=settings.batch_size,
        train=task.train,
        per_run={"targets": task.targets},
        gather=take_task_rows,
    )


def move(learning: Problem, task: Task, rows: int) -> Problem:
    """Move the problem to another task, padding its training rows to `rows`; nothing recompiles."""
    count = task.train.shape[1]
    repeated = np.arange(rows) % count
    return dataclasses.replace(
        learning,
        train=jnp.asarray(task.train[:, repeated]),
        train_size=jnp.asarray(count, jnp.int32),
        per_run={"targets": jnp.asarray(task.targets)},
    )


def orientation(flipped: bool) -> str:
    """Say in words which group is y = 1."""
    return "y = 1: second group" if flipped else "y = 1: first group"


def labels(task: Task) -> list[str]:
    """Return the labels of the runs in reports."""
    return [
        f"{task.name}, seed {seed}, {orientation(flip)}"
        for seed, flip in zip(task.seeds, task.flipped, strict=True)
    ]


def versus(task: str, flipped: bool) -> str:
    """Describe a task in words, the group that is y = 1 first, as in `{4,5,6} v {1,2,3}`."""
    first, second = task.split(" v ")
    return f"{{{second}}} v {{{first}}}" if flipped else f"{{{first}}} v {{{second}}}"
