"""The strategies of [D] section 5 by name: each a search and what finishes it."""

from __future__ import annotations

from typing import Any

from jax.typing import ArrayLike

from jaxarch.finish import retrain, threshold
from jaxarch.search.logistic_regression import logistic_regression
from jaxarch.search.random import random
from jaxarch.search.real import real
from jaxarch.search.two_temperature import two_temperature
from jaxarch.strategy import chain


def disentangling_strategies(
    hard: ArrayLike = 50.0, soft: ArrayLike = 5.0, std: ArrayLike = 0.2
) -> dict[str, Any]:
    """By the names of [D], with two reference points: a strategy of your own is one more line.

    Args:
      hard: inverse temperature of the forward pass of `bin`.
      soft: inverse temperature of its gradient.
      std: standard deviation of u at the start of weights `w = u^2`.
    """
    real_ = real(std=std)
    bin_ = two_temperature(hard, soft)
    random_ = random()
    return {
        "real": real_,
        "real->bin": chain(real_, threshold()),
        "bin": bin_,
        "bin->real warm": chain(bin_, retrain("warm")),
        "bin->real cold": chain(bin_, retrain("cold", std=std)),
        "random": random_,
        "random->bin": chain(random_, threshold()),
        "unconstrained real": real(nonnegative=False),
        "logistic regression": logistic_regression(),
    }
