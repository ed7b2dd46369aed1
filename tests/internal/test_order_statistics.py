"""The k-th largest by counting against a sort."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small import in_float64

from jaxarch._internal.order_statistics import count_dtype, largest, percentile

# Few values, so that many are tied; 1e-40 is subnormal, and 0 to XLA.
VALUES = [0.0, -0.0, 1e-40, -1e-40, 1.0, -1.0, 0.5, 3e38, -3e38, np.inf, -np.inf, np.nan]
ARRAYS = st.one_of(
    st.lists(st.sampled_from(VALUES), min_size=25, max_size=25),
    st.lists(st.floats(-2, 2, width=32), min_size=25, max_size=25),
).map(lambda values: np.array(values, np.float32))


def pieces(values):
    return [jnp.asarray(values[:12]).reshape(3, 4), jnp.asarray(values[12]), jnp.asarray(values[13:])]


def flat(arrays):
    return np.concatenate([np.ravel(array) for array in arrays])


def by_sorting(values, k):
    pooled = jnp.asarray(values)
    # JAX sorts NaN last, and -NaN is one.
    order = jnp.argsort(-pooled, stable=True)
    return jnp.zeros(pooled.shape, bool).at[order].set(jnp.arange(pooled.size) < k)


@given(values=ARRAYS, k=st.integers(0, 25))
def test_the_k_largest_are_those_of_a_stable_sort(values, k):
    np.testing.assert_array_equal(flat(largest(pieces(values), jnp.asarray(k))), by_sorting(values, k))


@pytest.mark.parametrize("k", [0, 1, 300, 5000, 9999, 10_000])
@pytest.mark.parametrize(
    "spread", ["normal", "lognormal", "cauchy", "rounded", "one far", "geometric", "ends"]
)
def test_the_k_largest_of_many_are_those_of_a_sort_however_they_are_spread(spread, k):
    drawn = np.asarray(jax.random.normal(jax.random.key(0), (10_000,)))
    values = {
        "normal": drawn,
        "lognormal": np.exp(9 * drawn),
        "cauchy": drawn / drawn[::-1],
        "rounded": np.round(drawn, 1),
        "one far": np.where(np.arange(10_000) == 7, 3e38, drawn),
        "geometric": np.exp2(-np.arange(10_000) / 100),
        "ends": np.where(drawn > 0, np.inf, np.nan),
    }[spread].astype(np.float32)
    np.testing.assert_array_equal(largest([jnp.asarray(values)], jnp.asarray(k))[0], by_sorting(values, k))


@given(values=ARRAYS, percentiles=st.lists(st.floats(0, 100, width=32), min_size=6, max_size=6))
def test_percentiles_are_those_of_a_sort(values, percentiles):
    expected = jnp.percentile(jnp.asarray(values), jnp.asarray(percentiles, jnp.float32))
    found = percentile(pieces(values), jnp.asarray(percentiles, jnp.float32))
    # The last digit of `low (1 - share) + high share` is the compiler's.
    np.testing.assert_array_max_ulp(found, expected, maxulp=2)


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_every_floating_point_dtype_is_ordered(dtype):
    with in_float64(dtype == "float64"):
        values = jax.random.normal(jax.random.key(0), (50,), dtype)
        kept = largest([values], jnp.asarray(20))[0]
        assert values[kept].min() > values[~kept].max()
        median = percentile([values], jnp.asarray([50.0]))
        assert median.dtype == dtype
        np.testing.assert_allclose(median, np.median(np.asarray(values, float)), rtol=2e-2)


def test_doubles_are_told_apart_beyond_the_digits_of_float32():
    with in_float64(True):
        values = jnp.asarray([1.0, 1.0 + 1e-12, 1.0 - 1e-12])
        assert largest([values], jnp.asarray(1))[0].tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("values", "largest_two"),
    [
        (np.array([2**24, -(2**31), 2**24 + 1], np.int32), [True, False, True]),
        (np.array([2**24, 2**24 + 1, 2**24 + 2], np.int32), [False, True, True]),
        (np.array([2**31, 2**31 - 1, 2**32 - 1], np.uint32), [True, False, True]),
        (np.array([-128, 127, 0], np.int8), [False, True, True]),
        (np.array([True, False, True]), [True, False, True]),
    ],
    ids=lambda values: str(getattr(values, "dtype", "")),
)
def test_integers_are_ordered_as_they_are(values, largest_two):
    assert largest([jnp.asarray(values)], jnp.asarray(2))[0].tolist() == largest_two


def test_long_integers_are_ordered_as_they_are():
    with jax.enable_x64(True):
        signed = jnp.asarray([2**53, 2**53 + 1, -(2**63)])
        assert largest([signed], jnp.asarray(1))[0].tolist() == [False, True, False]
        unsigned = jnp.asarray(np.array([2**63, 2**64 - 1, 1], np.uint64))
        assert largest([unsigned], jnp.asarray(1))[0].tolist() == [False, True, False]


@pytest.mark.parametrize("dtypes", [("int32", "float32"), ("uint32", "bfloat16"), ("int32", "uint32")])
def test_dtypes_without_an_exact_common_order_are_refused(dtypes):
    arrays = [jnp.zeros(3, dtype) for dtype in dtypes]
    with pytest.raises(ValueError, match=r"^scores: u?int32 cannot be compared exactly as "):
        largest(arrays, jnp.asarray(2))


def test_short_integers_are_ordered_among_floating_point_numbers():
    arrays = [jnp.asarray([3, -1], jnp.int16), jnp.asarray([2.5, 3.5])]
    assert flat(largest(arrays, jnp.asarray(2))).tolist() == [True, False, False, True]


def test_a_traced_percentile_out_of_range_gives_nan():
    found = jax.jit(percentile)([jnp.arange(4.0)], jnp.asarray([150.0, -10.0, 50.0, jnp.nan]))
    np.testing.assert_array_equal(found, [np.nan, np.nan, 1.5, np.nan])


def test_many_ks_are_one_vmap():
    values = jnp.asarray([0.0, 1.0, 1.0, 1.0, 2.0])
    kept = jax.vmap(lambda k: largest([values], k)[0])(jnp.arange(6))
    assert kept.sum(1).tolist() == [0, 1, 2, 3, 4, 5]


def test_counts_get_a_dtype_that_holds_them():
    assert count_dtype(2**31 - 1) == jnp.int32
    assert count_dtype(2**31) == jnp.uint32
    with in_float64(True):
        assert count_dtype(2**33) == jnp.int64
