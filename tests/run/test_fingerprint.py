"""What a strategy says, told apart and recognised in another process."""

import functools
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxarch import Descent
from jaxarch.run._fingerprint import fingerprint
from jaxarch.search import dense, spectral, two_temperature

SAYING = """
import jax, jax.numpy as jnp, optax
from jaxarch import Descent
from jaxarch.run._fingerprint import fingerprint
from jaxarch.search import dense, spectral, two_temperature

print(fingerprint((
    two_temperature(50, 5, where=("a", "b"), weights="initial"),
    spectral(0.1, penalty="l2"),
    dense(optimizer=optax.chain(optax.clip(1.0), optax.adam(optax.cosine_decay_schedule(0.1, 100)))),
    Descent(optax.inject_hyperparams(optax.sgd)(0.1), 3, 4),
    {"set": frozenset("abcdef"), "array": jnp.arange(3.0), "key": jax.random.key(0), "function": jnp.tanh},
)))
"""


def said(seed):
    environment = os.environ | {"PYTHONHASHSEED": seed}
    done = subprocess.run(
        [sys.executable, "-c", SAYING], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.long
def test_it_is_the_same_in_every_process():
    assert said("1") == said("2")


def test_a_schedule_says_the_same_before_and_after_it_was_called():
    schedule = optax.cosine_decay_schedule(0.1, 100)
    before = fingerprint(schedule)
    schedule(3)
    assert fingerprint(schedule) == before
    assert fingerprint(optax.cosine_decay_schedule(0.1, 200)) != before


def captures(value):
    return lambda: value


def defaults(value):
    return functools.partial(lambda x, y: x, y=value)


@pytest.mark.parametrize(
    ("make", "values"),
    [
        (lambda value: value, (1, 1.0, True, "1", b"1", None, np.float32(1), 2, -0.0, 0.0, np.nan)),
        (lambda value: value, ((1, 2), [1, 2], (1, (2,)), {1: 2}, {1, 2}, ("1, 2",), ("12",), ("1", "2"))),
        (lambda value: jnp.asarray(value), ([1, 2], [2, 1], [[1, 2]], [1.0, 2.0])),
        (jax.random.key, (0, 1)),
        (captures, (1, 2, (1,), captures(1))),
        (defaults, (1, 2)),
        (two_temperature, (50, 40)),
        (lambda mean: two_temperature(mean=mean), (-10, 3)),
        (lambda where: two_temperature(where=where), ("a", "b", ("a", "b"))),
        (spectral, (0.1, 0.0)),
        (lambda penalty: spectral(0.1, penalty=penalty), ("l1", "l2", "squared l2")),
        (lambda rate: dense(optimizer=optax.sgd(rate)), (0.1, 5.0)),
        (lambda steps: dense(steps=steps), (3, 4)),
        (lambda rate: Descent(optax.adam(optax.cosine_decay_schedule(rate, 100)), 3), (0.1, 0.2)),
        (lambda rate: optax.inject_hyperparams(optax.sgd)(rate), (0.1, 0.2)),
        (lambda make: make(0.1), (optax.sgd, optax.adam, optax.rmsprop)),
    ],
)
def test_what_says_something_else_is_told_apart_and_what_is_made_anew_is_recognised(make, values):
    first, again = ([fingerprint(make(value)) for value in values] for _ in range(2))
    assert len(set(first)) == len(values)
    assert first == again


def test_a_function_is_known_by_its_name_and_what_it_has_captured_not_by_what_it_does():
    def one():
        def function(x):
            return x

        return function

    def other():
        def function(x):
            return -x

        function.__qualname__ = one().__qualname__
        return function

    assert fingerprint(one()) == fingerprint(other())


def test_a_function_that_refers_to_itself_has_one():
    def recursive():
        return recursive

    assert fingerprint(recursive) == fingerprint(recursive)
