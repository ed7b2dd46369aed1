"""Masks of an exact size: how connections are spread over leaves, ties, tracing and sharding."""

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import NamedSharding, PartitionSpec

import jaxarch
from jaxarch.masks import connections, erk_densities, keep, top_k

SCORES = {
    "wide": jax.random.normal(jax.random.key(0), (30, 20)),
    "bias": None,
    "small": jax.random.normal(jax.random.key(1), (7, 3)),
}
SHAPES = {"small": (7, 3), "wide": (30, 20)}
SIZE = 621


def counts(mask):
    return {path: int(leaf.sum()) for path, leaf in jaxarch.named_leaves(mask).items()}


@pytest.mark.parametrize("scope", ["global", "layer", "erk"])
@pytest.mark.parametrize("density", [1.0, 0.5, 0.013, 0.002])
def test_a_mask_has_exactly_its_size_however_it_is_spread(scope, density):
    assert int(connections(keep(SCORES, density, scope))) == round(density * SIZE)


def test_all_keeps_the_largest_scores_wherever_they_are():
    mask = keep(SCORES, 0.2)
    kept = np.concatenate([np.asarray(SCORES[path])[np.asarray(mask[path])] for path in SHAPES])
    cut = np.concatenate([np.asarray(SCORES[path])[~np.asarray(mask[path])] for path in SHAPES])
    assert kept.min() > cut.max()


def test_leaf_keeps_one_density_in_every_leaf():
    assert counts(keep(SCORES, 1 / 3, "layer")) == {"small": 7, "wide": 200}


def test_erk_keeps_the_densities_of_the_formula():
    for path, density in erk_densities(SHAPES, 0.1).items():
        assert abs(counts(keep(SCORES, 0.1, "erk"))[path] - density * math.prod(SHAPES[path])) < 1


def test_erk_fills_the_leaf_that_has_the_fewest_connections_for_its_sizes_traced_or_not():
    # 100 x 10 has 1000 connections and a sum of 110, 3 x 3 x 8 x 16 has 1152 and 30: the first is full.
    shapes = {"conv": (3, 3, 8, 16), "dense": (100, 10)}
    filled = [(0.9 * 2152 - 1000) / 1152, 1.0]
    np.testing.assert_allclose(list(erk_densities(shapes, 0.9).values()), filled, rtol=1e-12)
    traced = jax.jit(lambda density: erk_densities(shapes, density))(0.9)
    np.testing.assert_allclose([traced[path] for path in shapes], filled, rtol=1e-5)


def test_erk_of_density_1_keeps_all_of_the_smallest_leaves():
    assert erk_densities({"number": (1,), "row": (1, 1)}, 1.0) == {"number": 1.0, "row": 1.0}


def test_densities_by_path_are_each_leaf_s_own():
    assert counts(keep(SCORES, {"wide": 0.1, "small": 1.0})) == {"small": 21, "wide": 60}


def by_filling(shapes, density):
    """ERK's densities as they are written down: leaves that would have too many are filled, and so on."""
    sizes = {path: math.prod(shape) for path, shape in shapes.items()}
    full = set()
    while True:
        left = density * sum(sizes.values()) - sum(sizes[path] for path in full)
        unit = left / max(sum(sum(shapes[path]) for path in shapes if path not in full), 1)
        over = {p for p in shapes if p not in full and unit * sum(shapes[p]) > sizes[p]}
        if not over:
            return {p: 1.0 if p in full else unit * sum(shapes[p]) / sizes[p] for p in shapes}
        full |= over


@pytest.mark.long
@given(
    st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=4).map(tuple), min_size=1, max_size=6),
    st.floats(1e-3, 1),
)
def test_erk_is_what_filling_one_leaf_after_another_comes_to_traced_or_not(shapes, density):
    named = {str(index): shape for index, shape in enumerate(shapes)}
    filled = list(by_filling(named, density).values())
    np.testing.assert_allclose(list(erk_densities(named, density).values()), filled, rtol=1e-9)
    traced = jax.jit(lambda d: erk_densities(named, d))(density)
    np.testing.assert_allclose([traced[path] for path in named], filled, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scope", ["global", "layer", "erk"])
def test_the_size_may_be_traced(scope):
    traced = jax.jit(keep, static_argnames="scope")
    for density in (0.1, 0.37, 1.0):
        mask, expected = traced(SCORES, density, scope=scope), keep(SCORES, density, scope)
        assert all(map(np.array_equal, jax.tree.leaves(mask), jax.tree.leaves(expected)))


def test_sizes_are_one_vmap():
    many = jax.vmap(lambda density: keep(SCORES, density))(jnp.asarray([0.1, 0.5]))
    assert many["wide"].shape == (2, 30, 20)
    assert jax.vmap(connections)(many).tolist() == [62, 310]


def test_ties_go_to_the_first_and_nan_comes_last():
    scores = {"a": jnp.array([0.0, jnp.nan, -0.0, -jnp.inf, 0.0])}
    assert keep(scores, 0.4)["a"].astype(int).tolist() == [1, 0, 1, 0, 0]
    assert keep(scores, 0.8)["a"].astype(int).tolist() == [1, 0, 1, 1, 1]


@pytest.mark.parametrize("axis_type", ["Auto", "Explicit"])
def test_arrays_that_are_split_stay_so(axis_type):
    mesh = jax.make_mesh((2,), ("x",), axis_types=(getattr(jax.sharding.AxisType, axis_type),))
    sharding = NamedSharding(mesh, PartitionSpec("x"))
    split = {"w": jax.device_put(SCORES["wide"], sharding)}
    mask = jax.jit(lambda scores: keep(scores, 0.1))(split)
    assert mask["w"].sharding.is_equivalent_to(sharding, 2)
    assert np.array_equal(mask["w"], keep({"w": SCORES["wide"]}, 0.1)["w"])


def test_no_device_holds_an_array_of_global_size():
    mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = 64
    scores = jax.device_put(jnp.ones((rows, 32)), NamedSharding(mesh, PartitionSpec("x")))
    compiled = jax.jit(lambda s: top_k([s], 100)).lower(scores).compile().as_text()
    for gathered in ("sort(", f"[{rows},32]", f"[{rows * 32}]"):
        assert gathered not in compiled
    # What devices exchange is a count from each.
    sent = re.findall(r"= \w+\[([\d,]*)\]\S* (?:all-gather|all-to-all|collective-permute)\(", compiled)
    assert sent
    assert all(math.prod(map(int, shape.split(","))) <= 2 for shape in sent)


BAD = {
    "density: expected a number in (0, 1], 1 - sparsity; got 0": lambda: keep(SCORES, 0.0),
    "density: expected a number in (0, 1], 1 - sparsity; got 1.5": lambda: keep(SCORES, 1.5),
    "density: expected a number in (0, 1], 1 - sparsity; got '.1'": lambda: keep(SCORES, ".1"),
    "density: expected one number": lambda: keep(SCORES, [0.1, 0.2]),
    "density: no leaf 'wid'; did you mean 'wide'": lambda: keep(SCORES, {"wid": 0.1}),
    "density: expected a value for each leaf, got none for 'small'": lambda: keep(SCORES, {"wide": 0.1}),
    "density of 'wide': expected a number in (0, 1]": lambda: keep(SCORES, {"wide": 2.0, "small": 0.1}),
    "scope: each leaf already has its own density": lambda: keep(
        SCORES, {"wide": 1.0, "small": 0.1}, "layer"
    ),
    "scope: expected 'global', 'layer' or 'erk', got 'leaf'": lambda: keep(SCORES, 0.1, "leaf"),
    "scores: no leaf is masked": lambda: keep({"a": None}, 0.1),
    "density: expected a number in (0, 1], 1 - sparsity; got 2": lambda: erk_densities(SHAPES, 2),
    "shapes: expected shapes by path, got": lambda: erk_densities([(4, 4)], 0.1),
    "shapes: expected at least one": lambda: erk_densities({}, 0.1),
    "shapes: expected integers as the shape of 'a', got 4": lambda: erk_densities({"a": 4}, 0.1),
    "shapes: expected integers as the shape of 'b', got (4, 2.5)": lambda: erk_densities(
        {"b": (4, 2.5)}, 0.1
    ),
}


@pytest.mark.parametrize("message", BAD)
def test_sizes_that_cannot_be_are_refused_in_one_line(message):
    with pytest.raises(jaxarch.ArgumentError) as error:
        BAD[message]()
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)
