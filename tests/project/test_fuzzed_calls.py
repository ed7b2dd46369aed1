"""Public functions refuse bad values in one line: see `fuzzing.py`, which shows all calls."""

import fuzzing
import numpy as np
import pytest

from jaxarch.errors import ArgumentError

MOST = 40
"""Calls of a function: each of its arguments is tried, and a test takes seconds."""

OF_RESULTS = "it takes what other functions of the library made, such as tables and results"
OF_JAX = "what is computed runs in JAX: odd shapes and texts meet JAX's own errors"
KNOWN = {
    "jaxarch.claims.": OF_RESULTS,
    "jaxarch.plots.": OF_RESULTS,
    "jaxarch.reproduction.": OF_RESULTS,
    "jaxarch.results.": OF_RESULTS,
    "jaxarch.theory.mirror.bregman_divergence": OF_JAX,
    "jaxarch.theory.mirror.inverse_mirror_map": OF_JAX,
    "jaxarch.theory.mirror.mirror_map": OF_JAX,
    "jaxarch.theory.mirror.mirror_update": OF_JAX,
    "jaxarch.theory.mirror.total_divergence": OF_JAX,
    "jaxarch.theory.mirror.vertex_distance": OF_JAX,
    "jaxarch.models.signed_output_loss": "it broadcasts as JAX does, as losses do",
}
"""Beginnings of names of functions of which some calls are raw still, and which."""

HELD = [entry for entry in fuzzing.functions() if not entry.name.startswith(tuple(KNOWN))]


@pytest.mark.long
@pytest.mark.parametrize("entry", HELD, ids=lambda entry: entry.name)
def test_a_bad_argument_is_refused_in_one_line(entry):
    _, found = fuzzing.fuzz(entry, MOST)
    assert not found


def refuse(text):
    raise ArgumentError(text)


def test_an_exception_of_another_library_is_raw_and_a_refusal_is_not():
    assert fuzzing.raw(lambda: np.zeros(3)[5]).startswith("elsewhere: IndexError")
    assert not fuzzing.raw(refuse, "k: expected an integer")
    assert not fuzzing.raw(lambda: None)


@pytest.mark.parametrize("text", ["", "two\nlines", "long" * 200])
def test_a_refusal_of_no_line_several_or_a_long_one_is_raw(text):
    assert fuzzing.raw(refuse, text)


def test_every_known_exception_is_of_a_public_function():
    names = [entry.name for entry in fuzzing.functions()]
    assert all(any(name.startswith(beginning) for name in names) for beginning in KNOWN)
