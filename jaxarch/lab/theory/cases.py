"""The problems on which the theory is tested: the network of [D], and convex problems."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import optax

from jaxarch import Descent, Problem
from jaxarch.lab.data import Dataset, Task
from jaxarch.lab.disentangling import trial
from jaxarch.lab.theory import convex
from jaxarch.lab.theory.problems import NETWORK, ON_DATA
from jaxarch.lab.theory.settings import Settings

STARTS = {NETWORK: (-10.0, 5.0)}
"""Mean and standard deviation of the initial scores, in units of 1/hard; otherwise 0, a mask of 1/2."""


class Case(NamedTuple):
    """A problem for all seeds, and its initial scores: mean and standard deviation in units of 1/hard."""

    problem: Problem
    mean: float
    std: float


def prepare(settings: Settings) -> tuple[Dataset | None, Task | None, dict[str, Case]]:
    """Build data and task, where any problem needs them, and the problems."""
    keys = settings.seed_keys()
    descent = Descent(optax.sgd(settings.learning_rate), settings.steps, settings.batch_size)
    size = (settings.dimension, settings.examples)
    makers: dict[str, Callable[[], Problem]] = {
        "linear": partial(convex.linear, keys, *size, descent=descent),
        "quadratic": partial(convex.quadratic, keys, *size, descent=descent),
    }
    data = task = None
    if set(ON_DATA) & set(settings.problems):
        data = settings.data()
        groups = (settings.positive, settings.negative)
        task = trial.split(settings, data, groups, settings.train_per_class, orientations=(False,))
        makers[NETWORK] = partial(trial.problem, settings, data, task)
        makers["logistic"] = partial(convex.logistic, data, task, keys, settings.weight_std, descent=descent)
    cases = {name: Case(makers[name](), *STARTS.get(name, (0.0, 0.0))) for name in settings.problems}
    return data, task, cases
