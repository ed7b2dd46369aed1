"""What a user may get wrong, a call each: one line that begins with the argument."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxarch
from jaxarch import search
from jaxarch.errors import ArgumentError
from jaxarch.models import spectral_network

LONG = "x" * 10_000
MOST = 400
"""Characters of a message: several lines of a terminal, whatever was handed in."""


def refused(call):
    """What is said of a call, which is refused in one line."""
    with pytest.raises(ArgumentError) as error:
        call()
    text = str(error.value)
    assert text.isprintable(), text
    assert len(text) <= MOST, text
    return text


ECHOED = {
    "start": lambda: jaxarch.retrain(LONG),
    "units": lambda: search.two_temperature(units=LONG),
    "weights": lambda: search.two_temperature(weights=LONG),
    "fraction": lambda: jaxarch.prune(LONG),
    "density": lambda: jaxarch.at_density(LONG),
    "weight": lambda: jaxarch.share_weight(LONG),
    "layers": lambda: search.random_mask(0.5, layers=LONG),
    "form": lambda: search.lottery(form=LONG),
    "penalty": lambda: search.spectral(penalty=LONG),
    "activation": lambda: spectral_network((2, 3, 1), activation=LONG),
    "update": lambda: spectral_network((2, 3, 1), update=LONG),
    "eigenvalues": lambda: spectral_network((2, 3, 1), eigenvalues=LONG),
    "soft": lambda: jaxarch.masks.two_temperature(jnp.ones(500), np.ones(500), 2 * np.ones(500)),
    "where": lambda: jaxarch.select({"w": jnp.ones((2, 2))}, [LONG]),
}


@pytest.mark.parametrize("argument", ECHOED)
def test_no_message_echoes_more_than_a_line_of_what_was_handed_in(argument):
    assert refused(ECHOED[argument]).startswith(f"{argument}: ")


THREE = jnp.ones(3)
ONE_NUMBER = {
    "dense": ("std", lambda: search.dense(std=THREE)),
    "untrained": ("std", lambda: search.untrained(THREE)),
    "two_temperature hard": ("hard", lambda: search.two_temperature(50 * THREE)),
    "two_temperature soft": ("soft", lambda: search.two_temperature(50.0, THREE)),
    "two_temperature mean": ("mean", lambda: search.two_temperature(mean=THREE)),
    "two_temperature std": ("std", lambda: search.two_temperature(std=THREE)),
    "architecture_pruning hard": ("hard", lambda: search.architecture_pruning(0.5, hard=100 * THREE)),
    "architecture_pruning strength": ("strength", lambda: search.architecture_pruning(0.5, strength=THREE)),
    "architecture_pruning std": ("std", lambda: search.architecture_pruning(0.5, std=THREE)),
    "logistic_regression": ("C", lambda: search.logistic_regression(THREE)),
    "recruit": ("tolerance", lambda: jaxarch.recruit(THREE)),
    "retrain": ("std", lambda: jaxarch.retrain(std=THREE)),
    "early stopping": ("least", lambda: jaxarch.EarlyStopping(least=[1.0])),
    "ragged": ("std", lambda: search.dense(std=[[1], [1, 2]])),
}


@pytest.mark.parametrize("case", ONE_NUMBER)
def test_where_one_number_is_meant_an_array_is_refused(case):
    argument, call = ONE_NUMBER[case]
    assert refused(call).startswith(f"{argument}: expected one number, got ")
