"""The same share of connections for each output."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxarch
from jaxarch.masks import PerOutput


@pytest.mark.long
@given(
    shape=st.sampled_from([(1,), (4,), (3, 4), (1, 3), (4, 2, 3), (2, 1, 4)]),
    density=st.floats(0.05, 1),
    axes=st.integers(1, 7),
    seed=st.integers(0, 5),
)
@settings(max_examples=30)
def test_each_output_keeps_its_largest(shape, density, axes, seed):
    inputs = tuple(axis for axis in range(len(shape)) if axes >> axis & 1) or (0,)
    scores = np.random.default_rng(seed).integers(0, 9, shape).astype(np.float32)
    count = round(density * scores.size)
    if not count:
        return
    mask = np.asarray(jaxarch.masks.keep({"w": jnp.asarray(scores)}, density, PerOutput(inputs))["w"])
    assert mask.sum() == count
    outputs = [axis for axis in range(len(shape)) if axis not in inputs]
    rows = scores.transpose([*outputs, *inputs]).reshape(-1, np.prod([shape[axis] for axis in inputs]))
    kept = mask.transpose([*outputs, *inputs]).reshape(rows.shape)
    assert kept.sum(1).max() - kept.sum(1).min() <= 1
    for row, of in zip(rows, kept, strict=True):
        assert of.all() or not of.any() or row[of].min() >= row[~of].max()


def test_leaves_have_axes_by_path_and_densities_by_path():
    scores = {"a": jnp.arange(12.0).reshape(3, 4), "b": jnp.arange(12.0).reshape(3, 4), "c": None}
    mask = jaxarch.masks.keep(scores, {"a": 1 / 3, "b": 0.5}, PerOutput({"a": 0, "b": (1,)}))
    assert mask["a"].sum(0).tolist() == [1] * 4 and mask["b"].sum(1).tolist() == [2] * 3
    assert mask["c"] is None


def test_an_earlier_mask_limits_each_output():
    scores, before = {"w": jnp.arange(8.0).reshape(4, 2)}, {"w": jnp.arange(8).reshape(4, 2) < 5}
    mask = jaxarch.masks.keep(scores, 0.5, PerOutput(0), within=before)
    assert mask["w"].tolist() == [[False, True], [True, True], [True, False], [False, False]]


def test_an_earlier_mask_that_leaves_an_output_too_few_is_refused():
    scores, before = {"w": jnp.arange(8.0).reshape(4, 2)}, {"w": jnp.ones((4, 2), bool).at[1:, 0].set(False)}
    with pytest.raises(jaxarch.ArgumentError, match="`within` leaves some outputs too few"):
        jaxarch.masks.keep(scores, 0.5, PerOutput(0), within=before)


def test_it_needs_no_promotion_of_dtypes():
    with jax.numpy_dtype_promotion("strict"):
        mask = jaxarch.masks.keep({"w": jnp.arange(8.0).reshape(4, 2)}, 0.5, PerOutput(0))
    assert mask["w"].tolist() == [[False, False]] * 2 + [[True, True]] * 2


@pytest.mark.parametrize(
    ("scope", "options", "message"),
    [
        (PerOutput(2), {}, r"scope: 'w' of shape \(4, 2\) has no axes"),
        (PerOutput((0, -2)), {}, "name one axis twice"),
        (PerOutput({"v": 0}), {}, "scope: PerOutput has no axes of inputs for 'w'"),
        (PerOutput(0), {"units": "2:4"}, "scope: PerOutput works only for single connections"),
    ],
)
def test_axes_that_do_not_fit_are_refused(scope, options, message):
    density = {} if "units" in options else {"density": 0.5}
    with pytest.raises(jaxarch.ArgumentError, match=message):
        jaxarch.masks.keep({"w": jnp.ones((4, 2))}, scope=scope, **density, **options)


@pytest.mark.parametrize("inputs", ["in", (), 0.5, None, {"w": "in"}])
def test_axes_are_integers(inputs):
    with pytest.raises(jaxarch.ArgumentError, match="inputs: expected an axis"):
        PerOutput(inputs)
