"""Certificates of the networks of [D]: a threshold on the single output makes two classes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import pandas as pd
from jax import Array
from jax.tree_util import Partial
from rich.console import RenderableType

from jaxarch import Network, Problem, PyTree, certify
from jaxarch.certificates import Certificate
from jaxarch.lab.data import Task
from jaxarch.lab.harness import certificate_table, certificates

THRESHOLDS = 128
"""Number of equally spaced thresholds, up to the largest possible output.

The thresholds are fixed before any example is looked at.
"""
FITTED = {"citeseer": "its inputs are principal components of all examples, held-out ones included"}
"""Data sets whose inputs were computed from all examples; the bounds assume that no input was."""


def certify_runs(done: Mapping[str, Any], task: Task, learning: Problem) -> pd.DataFrame:
    """Compute the certificates of all runs on the test rows, by which nothing was chosen."""
    held_out = dataclasses.replace(learning, validation=jnp.asarray(task.test))
    return certificates(done, held_out, {"seed": task.seeds, "flipped": task.flipped}, certified)


def certified(network: Network, problem: Problem) -> Certificate:
    """Certify one run at the threshold with the fewest errors on the training rows."""
    wrong = Partial(is_wrong, _threshold(problem, network.params, network.state))
    return certify(network, problem, wrong=wrong, choices=THRESHOLDS)


def is_wrong(threshold: Array, outputs: Array, y: Array) -> Array:
    """Tell whether each example is on the wrong side of the threshold for its label, shape (n,)."""
    return (outputs > threshold) != (y > 0.5)


@jax.jit
def _threshold(problem: Problem, params: PyTree, state: PyTree) -> Array:
    """Return the first threshold with the fewest errors on the training rows."""
    rows = problem.training_rows()
    _, y = problem.gather(problem.data, problem.per_run, rows)
    outputs = problem.outputs(params, state)
    width = jax.tree.leaves(params)[-1].shape[0]
    thresholds = width * jnp.arange(1, THRESHOLDS + 1) / THRESHOLDS
    errors = jax.vmap(lambda threshold: is_wrong(threshold, outputs, y).sum())(thresholds)
    return thresholds[errors.argmin()]


def certified_table(table: pd.DataFrame, dataset: str, title: str) -> list[RenderableType]:
    """Render the certificates of each strategy, with a warning where their assumptions are violated."""
    shown = certificate_table(table, title)
    if shown and dataset in FITTED:
        shown.append(f"! {dataset}: {FITTED[dataset]}, so the bounds do not hold as stated")
    return shown
