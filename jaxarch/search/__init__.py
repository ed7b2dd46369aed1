"""Searches: pure functions `(key, problem) -> Found`, one file each."""

from jaxarch.search.logistic_regression import logistic_regression
from jaxarch.search.random import random
from jaxarch.search.real import real
from jaxarch.search.spectral import spectral
from jaxarch.search.two_temperature import two_temperature

__all__ = ["logistic_regression", "random", "real", "spectral", "two_temperature"]
