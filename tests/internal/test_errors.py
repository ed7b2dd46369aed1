"""Errors and the checks of what users hand in: one line, whatever it was."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxarch
from jaxarch import ArgumentError, float64
from jaxarch._internal.errors import (
    LONGEST_LIST,
    check_broadcast,
    check_count,
    check_finite,
    check_flag,
    check_positive,
    check_strength,
    did_you_mean,
    items,
    one_line,
    shown,
)


@pytest.mark.parametrize("value", [1, 2.5, np.float32(1), jnp.ones(3), jnp.ones(2, jnp.bfloat16), [1, 2.0]])
@pytest.mark.parametrize("check", [check_finite, check_positive, check_strength])
def test_numbers_pass(check, value):
    check("rate", value)


@pytest.mark.parametrize(
    "value", [np.nan, np.inf, -np.inf, 1e39, 10**400, "1", None, 1j, True, [1, "x"], [[1], [1, 2]], object()]
)
@pytest.mark.parametrize("check", [check_finite, check_positive, check_strength])
def test_what_is_no_finite_real_number_is_refused_by_name_in_one_line(check, value):
    with pytest.raises(ArgumentError, match=r"^rate: expected .*, got ") as error:
        check("rate", value)
    assert len(str(error.value)) < 200
    assert len(str(error.value).splitlines()) == 1


def test_signs_are_told_apart():
    check_finite("mean", -1)
    check_strength("strength", 0)
    for check, value in ((check_strength, -1), (check_positive, 0), (check_positive, [1, -1])):
        with pytest.raises(ArgumentError):
            check("number", value)


@pytest.mark.parametrize("value", [1e39, 1e-50])
def test_a_number_that_only_float64_holds_passes_where_jax_keeps_float64(value):
    with pytest.raises(
        ArgumentError,
        match=f"rate: expected a positive number that float32 can hold, got {re.escape(str(value))}",
    ):
        check_positive("rate", value)
    with float64():
        check_positive("rate", value)


def test_traced_numbers_pass():
    def traced(x):
        check_finite("x", x), check_positive("x", x), check_strength("x", x)
        return x

    assert jax.jit(traced)(-1.0) == -1


@pytest.mark.parametrize("value", [True, False, np.True_])
def test_switches_pass(value):
    check_flag("factor", value)


@pytest.mark.parametrize("value", ["x", "False", 1, 0, None])
def test_what_is_no_switch_is_refused(value):
    with pytest.raises(ArgumentError, match=f"^factor: expected True or False, got {value!r}$"):
        check_flag("factor", value)


@pytest.mark.parametrize("value", [2**31, 10**30, 10**4000, 1.0, "3", True, -1])
def test_what_cannot_be_counted_in_32_bits_is_no_size(value):
    check_count("steps", 2**31 - 1)
    with pytest.raises(
        ArgumentError, match=r"^steps: expected an integer of at (least 1|most 2147483647), got "
    ) as error:
        check_count("steps", value)
    assert len(str(error.value)) < 200


def test_the_tail_of_an_error_is_bounded_too():
    assert len(one_line(ValueError("x\n" * 1000))) == 200


@pytest.mark.parametrize("least", [np.nan, np.inf, -1.0, "much", 1e39])
def test_an_improvement_is_a_finite_number_of_at_least_0(least):
    with pytest.raises(ArgumentError, match=r"^least: expected a finite number of at least 0"):
        jaxarch.EarlyStopping(least=least)


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


@pytest.mark.parametrize("name", ["none like it", None, ["a"]])
def test_a_long_list_of_known_names_is_cut_between_two_and_says_how_many_there_are(name):
    known = [f"number {i}" for i in range(1000)]
    text = did_you_mean(name, known).removeprefix("known: ")
    *first, last = text.split(", ")
    assert first == known[: len(first)]
    assert last == "... (1000 in all)"
    assert len(text) <= LONGEST_LIST + len(last) + 2


@pytest.mark.parametrize("values", ["ab", b"ab", 3, None, ["a", 1], jax.random.key(0)])
def test_what_is_no_list_of_a_kind_is_refused(values):
    assert items("names", (name for name in "ab"), str, "names") == ["a", "b"]
    with pytest.raises(ArgumentError, match=r"^names: expected (a list of )?names, got "):
        items("names", values, str, "names")


def test_shapes_broadcast_as_jax_is_set_to():
    check_broadcast(x=np.ones((2, 3)), y=np.ones((1, 3)), z=1.0)
    for other in (np.ones(3), np.ones((3, 3))):
        with pytest.raises(ArgumentError, match=r"^y: expected shapes that broadcast, got x \(2, 3\), y \(3"):
            check_broadcast(x=np.ones((2, 3)), y=other)
    with jax.numpy_rank_promotion("allow"):
        check_broadcast(x=np.ones((2, 3)), y=np.ones(3))
