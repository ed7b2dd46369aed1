"""The checks of what users hand in: what passes, and one line for what does not."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxarch
from jaxarch.errors import (
    ArgumentError,
    check_count,
    check_finite,
    check_flag,
    check_positive,
    check_strength,
    one_line,
    shown,
)
from jaxarch.running.devices import float64


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


def test_what_is_shown_is_one_line_of_bounded_length_without_control_characters():
    assert shown("a\nb\x1b[0m\u2028") == r"'a\nb\x1b[0m\u2028'"
    assert shown("x" * 1000, 10) == "'xxxxxx..."
    assert shown(np.zeros((3, 3))).isprintable()

    class Odd:
        def __repr__(self):
            raise RuntimeError

    assert shown(Odd()) == "<Odd>"


def test_the_tail_of_an_error_is_bounded_too():
    assert len(one_line(ValueError("x\n" * 1000))) == 200


@pytest.mark.parametrize("least", [np.nan, np.inf, -1.0, "much", 1e39])
def test_an_improvement_is_a_finite_number_of_at_least_0(least):
    with pytest.raises(ArgumentError, match=r"^least: expected a finite number of at least 0"):
        jaxarch.EarlyStopping(least=least)
