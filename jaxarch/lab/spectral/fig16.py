"""[S] figures 16, 17 and table 1: a spectral head on a convolutional network, compared with a linear head."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import jax
import numpy as np

from jaxarch.lab.harness import Context, Experiment, Outcome, pace
from jaxarch.lab.pruning.parents import in_words
from jaxarch.lab.spectral import heads
from jaxarch.lab.spectral.heads import HeadSettings
from jaxarch.lab.tournament.task import prepare

SUITS_ALL: dict[str, Any] = {
    "model": "cnn",
    "steps": 1000,
    "every": 50,
    "batch_size": 128,
    "rate": 1e-3,
    "seeds": 5,
}
SUITS: dict[str, dict[str, Any]] = {"cifar10": {"steps": 6640, "every": 332, "seeds": 3}}
"""Defaults per data set, used where the user sets nothing; `SUITS_ALL` covers data sets without an entry."""


@dataclasses.dataclass(frozen=True)
class Settings(HeadSettings):
    """Settings of `jaxarch run spectral.fig16`, changed with `--set NAME=VALUE`.

    Values that are empty, 0 or `auto` become the data set's defaults. [S] has `--dataset cifar10` and 300
    epochs (`--set steps=99600`) of a small convolutional network that it does not describe. Here the network
    is `models.CNN` of `widths`, whose head sees the mean of each channel over the picture.

    Attributes:
      heads: heads to train, each with its own parent, from the same initial weights.
      every: steps between two evaluations on the held-out rows; on CIFAR-10 one epoch, by default.
    """

    def complete(self) -> Self:
        """Fill in the data set's defaults."""
        return self.suited(SUITS_ALL | SUITS.get(self.dataset, {}))


def plan(settings: Settings) -> list[str]:
    """Describe the planned trainings."""
    tasks = {head: prepare(settings, settings.change(head)) for head in settings.heads}
    task = next(iter(tasks.values()))
    sizes = {head: sum(leaf.size for leaf in jax.tree.leaves(task.params)) for head, task in tasks.items()}
    return [
        f"pictures of {task.images.x.shape[1:]}; trained on {task.train.shape[1]} examples, "
        f"{task.held_out.shape[1]} held out, tested on {len(task.test)}",
        *(f"{in_words(settings)} with a {head} head: {size} parameters" for head, size in sizes.items()),
        f"trainings: {len(sizes) * settings.seeds} of {settings.steps} steps of batch {settings.batch_size}, "
        f"evaluated every {settings.every} steps",
    ]


def duration(settings: Settings) -> list[str]:
    """Estimate the total duration here from a few steps with each head."""
    paces = []
    for head in settings.heads:
        task = prepare(settings, settings.change(head))
        problem = task.learning(np.arange(settings.seeds))
        paces.append(pace.measured(settings.search(head), task.keys("search"), problem))
    seconds = sum(of.seconds(settings.seeds * settings.steps) for of in paces)
    return [pace.told(seconds, paces[0].devices, "without compilation and evaluations")]


def run(settings: Settings, context: Context) -> Outcome:
    """Train a parent with each head; then remove all hidden neurons, and separately the unneeded ones."""
    done = {}
    for head in settings.heads:
        task = prepare(settings, settings.change(head))
        done[head] = heads.measured(head, task, context)
    return heads.outcome(done, task.images)


EXPERIMENT = Experiment(__name__, Settings, plan, run, heads.report, heads.conclusion, duration)
