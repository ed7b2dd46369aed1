"""What errors say: one line, whatever was handed in."""

from pathlib import Path

import numpy as np
import pytest

from jaxarch.errors import did_you_mean, shown


class Broken:
    def __repr__(self):
        raise RuntimeError


class Loud:
    def __repr__(self):
        return "two\nlines\x07"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("digits", "'digits'"),
        (0.5, "0.5"),
        (Path("some folder/mine.npz"), "some folder/mine.npz"),
        (Path("a\nb\x1b[31m"), r"a\nb\x1b[31m"),
        ("a\nb\x1b[31m", r"'a\nb\x1b[31m'"),
        ("\udc80", r"'\udc80'"),
        (Loud(), r"two lines\x07"),
    ],
)
def test_a_value_is_shown_as_it_is_on_one_line(value, text):
    assert shown(value) == text


def test_a_value_that_cannot_be_shown_is_called_by_its_type():
    assert shown(Broken()).startswith("<Broken")
    assert shown(10**5000) == "<int>"


@pytest.mark.parametrize(
    "value",
    ["x" * 10**6, b"x" * 10**6, Path("x" * 10**6), np.ones((50, 50)), [[1] * 10**6] * 10**3, 10**4000],
)
@pytest.mark.parametrize("limit", [20, 80])
def test_a_long_value_is_cut_in_its_middle_to_the_limit(value, limit):
    text = shown(value, limit)
    assert len(text) == limit
    assert "..." in text
    assert text.isprintable()


def test_the_end_of_a_known_name_is_nearest_to_it():
    known = ["disentangling.fig4", "disentangling.fig5", "pruning.fig1", "fig"]
    assert did_you_mean("fig4", known) == "did you mean 'disentangling.fig4'?"
    assert did_you_mean("pruning.fig2", known) == "did you mean 'pruning.fig1'?"
