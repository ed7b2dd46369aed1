"""Searches: pure functions `(key, problem) -> Network`, one file each."""

from jaxarch.search.agnostic import agnostic
from jaxarch.search.architecture_pruning import architecture_pruning
from jaxarch.search.dense import dense
from jaxarch.search.group_lasso import group_lasso
from jaxarch.search.logistic_regression import logistic_regression
from jaxarch.search.lottery import lottery
from jaxarch.search.magnitude_pruning import magnitude_pruning
from jaxarch.search.random_mask import erk_densities, random_mask
from jaxarch.search.random_search import random_search
from jaxarch.search.snip import snip
from jaxarch.search.spectral import spectral
from jaxarch.search.two_temperature import two_temperature
from jaxarch.search.untrained import untrained

__all__ = [
    "agnostic",
    "architecture_pruning",
    "erk_densities",
    "group_lasso",
    "logistic_regression",
    "lottery",
    "magnitude_pruning",
    "untrained",
    "random_mask",
    "random_search",
    "dense",
    "snip",
    "spectral",
    "two_temperature",
]
