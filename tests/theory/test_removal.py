"""Bounds of removals: proven over boxes, close, and true of the model that is cut."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxarch
from jaxarch.structure import axis_groups
from jaxarch.theory.relaxation import linear_bounds
from jaxarch.theory.removal import certified_units, removal_bounds

SIZES = (2, 6, 5, 2)
BOX = -jnp.ones(2) / 2, jnp.ones(2) / 2


def weights(seed, sizes=SIZES):
    draw = np.random.default_rng(seed).normal
    made = {}
    for layer, (rows, columns) in enumerate(itertools.pairwise(sizes)):
        made[f"w{layer}"] = jnp.float32(draw(0, 1 / np.sqrt(rows), (rows, columns)))
        made[f"b{layer}"] = jnp.float32(draw(0, 0.3, columns))
    return made


def network(activation, params, x):
    for layer in range(3):
        x = x @ params[f"w{layer}"]
        x = x + jnp.broadcast_to(params[f"b{layer}"], x.shape)
        x = activation(x) if layer < 2 else x
    return x


relu = functools.partial(network, jax.nn.relu)


@functools.cache
def compiled(activation):
    return jax.jit(jax.vmap(removal_bounds(functools.partial(network, activation)), (None, 0, None, None)))


def all_kept(params):
    return jax.tree.map(lambda leaf: jnp.ones(leaf.shape, bool), params)


def in_double(params, x, activation, mask):
    """The change of the outputs in float64, on many inputs."""
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), params)
        there = jaxarch.masks.apply_mask(mask, wide)
        return np.asarray(network(activation, there, x) - network(activation, wide, x))


@pytest.mark.long
@pytest.mark.parametrize("activation", [jax.nn.relu, jnp.tanh])
def test_no_input_of_the_box_changes_its_outputs_by_more(activation):
    params, rng = weights(0), np.random.default_rng(1)
    masks = jax.tree.map(lambda leaf: jnp.asarray(rng.random((4, *leaf.shape)) < 0.8), params)
    least, largest = map(np.asarray, compiled(activation)(params, masks, *BOX))
    corners = [[-0.5, -0.5], [-0.5, 0.5], [0.5, -0.5], [0.5, 0.5]]
    x = np.concatenate([rng.uniform(-0.5, 0.5, (2000, 2)), corners])
    for run in range(4):
        mask = {path: leaf[run] for path, leaf in masks.items()}
        change = in_double(params, x, activation, mask)
        assert (change >= least[run]).all()
        assert (change <= largest[run]).all()
        assert np.isfinite(largest[run]).all()


@pytest.mark.long
def test_what_is_removed_without_a_trace_has_bounds_of_0_and_little_has_close_ones():
    """Bounds of the difference itself relax every neuron twice, and stay as wide as the outputs."""
    params = weights(0)
    mask = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), all_kept(params))
    mask["w1"] = mask["w1"].at[1, 3, 2].set(False)
    least, largest = compiled(jax.nn.relu)(params, mask, *BOX)
    np.testing.assert_allclose(jnp.stack([least[0], largest[0]]), 0, atol=1e-30)
    pruned = params | {"w1": params["w1"].at[3, 2].set(0)}
    low, high = jax.jit(linear_bounds(lambda x: relu(pruned, x) - relu(params, x)))(*BOX)
    assert (4 * (largest[1] - least[1]) < high - low).all()


def test_of_a_linear_function_the_bounds_are_the_range():
    params = {"w": jnp.array([3.0, -2.0]), "scale": jnp.array(2.0)}
    mask = {"w": jnp.array([False, True]), "scale": None}
    found = removal_bounds(lambda params, x: params["scale"] * params["w"] @ x)(params, mask, *BOX)
    np.testing.assert_allclose(found, [-3, 3], rtol=1e-5)


def test_outputs_keep_their_structure_and_those_that_do_not_vary_change_by_nothing():
    found = removal_bounds(lambda params, x: {"a": params["w"] * x, "b": jnp.ones(3)})(
        {"w": jnp.array(2.0)}, {"w": jnp.array(False)}, jnp.array(0.0), jnp.array(1.0)
    )
    np.testing.assert_allclose([of["a"] for of in found], [-2, 0], atol=1e-5)
    np.testing.assert_allclose([of["b"] for of in found], 0, atol=1e-30)


def test_where_the_function_may_jump_nothing_is_proven():
    def fun(params, x):
        return jnp.where(params["w"] * x > 0.5, 1.0, 0.0)

    found = removal_bounds(fun)(
        {"w": jnp.array(1.0)}, {"w": jnp.array(False)}, jnp.array(0.0), jnp.array(1.0)
    )
    assert [float(end) for end in found] == [-jnp.inf, jnp.inf]


@pytest.mark.parametrize(
    ("mask", "box", "message"),
    [
        ({"w": jnp.ones(2)}, BOX, "mask: expected booleans, got float32 at 'w'"),
        ({"v": jnp.ones(2, bool)}, BOX, "mask: the model has no parameter 'v'"),
        ({"w": jnp.ones(3, bool)}, BOX, "mask"),
        (
            {"w": jnp.ones(2, bool)},
            (jnp.array([0, 0]), jnp.array([1, 1])),
            "lower: expected float32 or float64",
        ),
        ({"w": jnp.ones(2, bool)}, BOX[::-1], "upper: expected values of at least lower"),
    ],
)
def test_what_has_no_bounds_is_refused_by_name(mask, box, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        removal_bounds(lambda params, x: params["w"] @ x)({"w": jnp.ones(2)}, mask, *box)


def halves(*boxes):
    """The box of inputs between -1 and 1, cut in two along the first axis, as models take them: (1, 2)."""
    lower, upper = (jnp.array(ends, jnp.float32)[:, None] for ends in zip(*boxes, strict=True))
    return lower, upper


HALVES = halves(([-1, -1], [0, 1]), ([0, -1], [1, 1]))


@pytest.fixture(scope="module")
def model():
    """A network one of whose neurons is never active between -1 and 1, and one of which hardly matters."""
    params = weights(3, (2, 5, 4, 1))
    params["b0"] = params["b0"].at[2].set(-9.0)
    params["w1"] = params["w1"].at[4].multiply(1e-3)
    return params, axis_groups(relu, params, jnp.ones((1, 2)))


@pytest.fixture(scope="module")
def found(model):
    params, groups = model
    return {tolerance: certified_units(groups, params, *HALVES, tolerance) for tolerance in (0.0, 1e-6, 0.3)}


@pytest.mark.long
def test_a_neuron_that_a_region_never_uses_goes_for_nothing(model, found):
    params, groups = model
    assert groups.needed(params)["b0[0]"].all()
    unused = found[1e-6]
    assert unused.kept["b0[0]"].tolist() == [True, True, False, True, True]
    for name, alone in unused.alone.items():
        assert (unused.kept[name] == (alone > 1e-20)).all()
    assert unused.bound < 1e-20


@pytest.mark.long
def test_the_model_that_is_cut_changes_by_no_more_than_the_bound(model, found):
    params, groups = model
    several = found[0.3]
    assert several.removed >= 3
    assert several.bound <= 0.3
    x = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (4000, 2)), jnp.float32)
    cut = groups.smaller(several.kept)(groups.cut(params, several.kept), x)
    change = jnp.abs(cut - relu(params, x)).max()
    assert several.bound / 3 < change <= several.bound + 1e-6


@pytest.mark.long
def test_a_unit_alone_has_the_bound_of_its_mask(model, found):
    params, _ = model
    mask = all_kept(params)
    mask["w1"] = mask["w1"].at[1].set(False)
    bounds = jax.vmap(removal_bounds(relu), (None, None, 0, 0))(params, mask, *HALVES)
    assert found[0.3].alone["b0[0]"][1] == pytest.approx(float(jnp.abs(jnp.stack(bounds)).max()), rel=1e-5)


@pytest.mark.long
def test_every_group_keeps_a_unit_whatever_is_accepted(model):
    params, groups = model
    kept = certified_units(groups, params, *HALVES, 1e9, units=["b1[0]"]).kept
    assert kept["b1[0]"].sum() == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"groups": None}, "groups: expected the result of structure.axis_groups"),
        ({"tolerance": -1.0}, "tolerance: expected"),
        ({"units": ["heads"]}, "units: the model has no heads; it has neurons"),
    ],
)
def test_units_that_cannot_be_certified_are_refused_by_name(model, changes, message):
    params, groups = model
    given = {"groups": groups, "tolerance": 0.1, "units": ()} | changes
    with pytest.raises(jaxarch.ArgumentError, match=message):
        certified_units(given["groups"], params, *HALVES, given["tolerance"], units=given["units"])


@pytest.mark.long
def test_units_that_more_than_products_read_are_refused():
    def both(params, x):
        hidden = jax.nn.relu(x @ params["in"])
        return hidden @ params["out"] + (hidden * params["gate"][None]).sum(-1, keepdims=True)

    params = {"in": jnp.ones((2, 3)), "out": jnp.ones((3, 1)), "gate": jnp.ones(3)}
    groups = axis_groups(both, params, jnp.ones((1, 2)))
    with pytest.raises(jaxarch.ArgumentError, match="units: something else than products with leaves reads"):
        certified_units(groups, params, *HALVES, 1e9, units=["gate[0]"])
    with pytest.raises(jaxarch.ArgumentError, match="units: the model has no neurons, channels or heads"):
        certified_units(groups, params, *HALVES, 1e9)


@pytest.mark.long
def test_a_channel_goes_with_all_that_a_flatten_makes_of_it():
    def pictures(params, x):
        x = jax.lax.conv_general_dilated(
            x, params["conv"], (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x + jnp.broadcast_to(params["bias"], x.shape))
        return x.reshape(len(x), -1) @ params["head"]

    draw = np.random.default_rng(0).normal
    params = {
        "conv": jnp.float32(draw(0, 0.5, (3, 3, 1, 2))),
        "bias": jnp.array([0.1, -9.0]),
        "head": jnp.float32(draw(0, 0.5, (8, 1))),
    }
    x = jnp.ones((1, 1, 4, 4, 1))
    groups = axis_groups(pictures, params, x[0])
    found = certified_units(groups, params, x - 0.1, x + 0.1, 1e-6)
    assert found.kept["bias[0]"].tolist() == [True, False]
    smaller = groups.cut(params, found.kept)
    assert smaller["head"].shape == (4, 1)
    np.testing.assert_allclose(groups.smaller(found.kept)(smaller, x[0]), pictures(params, x[0]), rtol=1e-6)


def test_a_box_of_double_precision_bounds_a_network_of_single_precision():
    params, mask = {"w": jnp.float32([3.0, -2.0])}, {"w": jnp.array([False, True])}
    with jax.enable_x64(True):
        box = jnp.full(2, -0.5, jnp.float64), jnp.full(2, 0.5, jnp.float64)
        found = removal_bounds(lambda params, x: jnp.sum(params["w"].astype(x.dtype) * x))(params, mask, *box)
    np.testing.assert_allclose(found, [-1.5, 1.5], rtol=1e-6)


def test_outputs_without_entries_change_by_nothing():
    def model(params, x):
        return {"y": x @ params["in"] @ params["out"], "none": jnp.zeros((0,))}

    params = {"in": jnp.ones((2, 2)), "out": jnp.ones((2, 1))}
    groups = axis_groups(model, params, jnp.ones((1, 2)))
    assert certified_units(groups, params, *HALVES, 1e9).bound == pytest.approx(2, rel=1e-4)
