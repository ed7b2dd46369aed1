"""Public functions refuse bad values in one line: see `fuzzing.py`, which shows all calls."""

import fuzzing
import numpy as np
import pytest

from jaxarch import ArgumentError

MOST = 40
"""Calls of a function: each of its arguments is tried, and a test takes seconds."""

HELD = fuzzing.functions()


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
