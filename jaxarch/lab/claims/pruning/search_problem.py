"""The joint search of architectures and weights, and the nested one ([A] eq. (1), (2)).

min_{A, theta} L(A, theta) = min_A min_theta L(A, theta)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from jaxarch.lab.claims.checks.core import Claim
from jaxarch.lab.claims.checks.exact import Exact


def loss_tables() -> Iterator[dict[str, Any]]:
    """Losses of 2 to 6 architectures (rows) and 2 to 6 weights, whole numbers; and of other data."""
    random = np.random.default_rng(0)
    for _ in range(1000):
        shape = random.integers(2, 7, 2)
        yield {"losses": random.integers(0, 100, shape), "other": random.integers(0, 100, shape)}


def nested_search_is_joint(losses: np.ndarray, other: np.ndarray) -> bool:
    """`min_A L(A, argmin_theta L(A, theta)) = min_A min_theta L(A, theta)`."""
    chosen = losses.argmin(axis=1)
    return bool(losses[np.arange(len(losses)), chosen].min() == losses.min())


def _judged_on_other_data(losses: np.ndarray, other: np.ndarray) -> bool:
    chosen = losses.argmin(axis=1)
    return bool(other[np.arange(len(losses)), chosen].min() == losses.min())


JOINT = Claim(
    id="A.eq-2",
    source="[A] eq. (1), (2)",
    statement="the nested problem (1) and the joint problem (2) have the same minimum",
    latex=r"\min_A L\big(A, \arg\min_\theta L(A, \theta, \mathcal{D}), \mathcal{D}\big) = "
    r"\min_A \min_\theta L(A, \theta, \mathcal{D})",
    verdict="holds",
    assumptions="the same data in both losses of (1), the same architectures, minima that exist",
    remark="(2) is called an approximation of (1): over the same architectures it is the same problem. It "
    "would be another one if architectures were judged on data that the weights have not seen.",
    checks=(Exact(nested_search_is_joint, loss_tables, {"judged on other data": _judged_on_other_data}),),
)

CLAIMS = (JOINT,)
