"""Logistic regression by scikit-learn: a reference point that is not a network."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch._internal.errors import ArgumentError, check_count, check_one_positive, from_extra, shown
from jaxarch._internal.trees import PyTree
from jaxarch.run._methods import method
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.run._stage import HostSearch


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of scikit-learn's solver."""

    C: float
    max_iter: int


@method("[D] section 5", parent="binary")
def logistic_regression(C: float = 1000.0, max_iter: int = 1000) -> HostSearch:
    """Fit binary logistic regression on the training rows of each run.

    It is for problems whose batches are `(x, y)`, x of shape (n, features) and y in {0, 1}. On inputs of unit
    norm the default penalty of scikit-learn (C = 1) is strong; 1000 all but removes it.

    Args:
      C: inverse strength of the squared penalty, positive.
      max_iter: iterations of the solver.

    Returns:
      A search on the host. Its params are `coef` (runs, features) and `intercept` (runs,); it has no mask.
      When run, it raises an `ArgumentError` for labels other than 0 and 1, and for x and y that are not one
      array each.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> x, y = jnp.array([[0.0], [1.0], [2.0], [3.0]]), jnp.array([0, 0, 1, 1])
      >>> problem = jaxarch.supervised(
      ...     jaxarch.tanh_network((1, 1)), (x, y), loss=jaxarch.models.signed_output_loss,
      ...     optimizer=optax.sgd(0.1), steps=1,
      ... )
      >>> search = jaxarch.search.logistic_regression()
      >>> network, _ = jaxarch.over_seeds(search, jax.random.split(jax.random.key(0), 1), problem)
      >>> print(jaxarch.evaluate(search, network, problem, jnp.arange(4)) > 0)
      [[False False  True  True]]
    """
    check_one_positive("C", C)
    check_count("max_iter", max_iter)
    return HostSearch("logistic regression", _fitted, _predict, Settings(C, max_iter))


def _fitted(settings: Settings, keys: Array, problem: Problem) -> Network:
    with from_extra("lab", "logistic_regression: a fit"):
        from sklearn.linear_model import LogisticRegression

    coefs, intercepts = [], []
    for run in range(keys.shape[0]):
        one = problem.of_run(run) if problem.runs else problem
        rows = one.training_rows()[: one.train_size]
        x, y = _arrays(jax.device_get(one.gather(one.data, one.per_run, rows)))
        if set(np.unique(y).tolist()) != {0, 1}:
            raise ArgumentError(
                f"y: expected the labels 0 and 1, both present, got {np.unique(y).tolist()[:5]}"
            )
        fitted = LogisticRegression(C=settings.C, max_iter=settings.max_iter).fit(x, y)
        coefs.append(fitted.coef_[0])
        intercepts.append(fitted.intercept_[0])
    params = {"coef": np.stack(coefs), "intercept": np.stack(intercepts)}
    return Network({name: values.astype(np.float32) for name, values in params.items()}, state={})


def _arrays(batch: PyTree) -> tuple[np.ndarray, np.ndarray]:
    """Return features of shape (n, features) and labels of shape (n,)."""
    parts = batch if isinstance(batch, (tuple, list)) else (batch,)
    if len(parts) != 2 or not all(isinstance(part, np.ndarray) for part in parts) or parts[1].ndim != 1:
        raise ArgumentError(
            "problem: logistic regression needs x and y to be one array each, y of shape (n,); got shapes "
            f"{shown(jax.tree.map(np.shape, batch))}"
        )
    x, y = parts
    return x.reshape(len(x), -1), y


def _predict(params: PyTree, state: PyTree, batch: PyTree) -> Array:
    x = batch[0].reshape(batch[0].shape[0], -1)
    return jnp.dot(x, params["coef"]) + params["intercept"]
