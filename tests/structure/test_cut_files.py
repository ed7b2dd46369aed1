"""A cut goes to a file, and comes back with the smaller model."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jaxarch
from jaxarch import ArgumentError
from jaxarch.structure import axis_groups, load_cut, plan, save_cut

X = jnp.linspace(-1, 1, 8).reshape(2, 4)


def model(params, x):
    return jnp.tanh(jnp.tanh(x @ params["in"]) @ params["middle"]) @ params["out"]


@pytest.fixture(scope="module")
def params():
    shapes = {"in": (4, 6), "middle": (6, 8), "out": (8, 2)}
    keys = jax.random.split(jax.random.key(0), len(shapes))
    return {name: jax.random.normal(key, shapes[name]) for name, key in zip(shapes, keys, strict=True)}


@pytest.fixture(scope="module")
def planned(params):
    return plan(model, params, X, budget="50% multiply_adds")


@pytest.mark.long
def test_another_process_rebuilds_the_model_from_two_files_and_shapes(params, planned, tmp_path):
    small = planned.apply()
    save_cut(tmp_path / "small.json", small)
    jaxarch.save_tree(tmp_path / "small.npz", small.tree)

    shapes = jax.eval_shape(lambda: params)
    kept = load_cut(tmp_path / "small.json")
    groups = axis_groups(model, shapes, X)
    like = jax.eval_shape(lambda tree: groups.cut(tree, kept), shapes)
    tree = jaxarch.load_tree(tmp_path / "small.npz", like)
    assert np.array_equal(groups.smaller(kept)(tree, X), small.function(small.tree, X))


def test_the_file_is_json_that_names_units_and_axes(planned, tmp_path):
    save_cut(tmp_path / "cut.json", planned)
    groups = json.loads((tmp_path / "cut.json").read_text())["groups"]
    for name, units in planned.kept.items():
        assert groups[name]["kept"] == np.flatnonzero(units).tolist()
        assert groups[name]["size"] == units.size
        assert ["middle", 0] in groups[name]["axes"] or ["middle", 1] in groups[name]["axes"]


def test_a_plan_of_given_units_is_the_plan_that_chose_them(params, planned):
    again = plan(model, params, X, kept=planned.kept)
    assert again.after == planned.after
    assert all(np.array_equal(units, planned.kept[name]) for name, units in again.kept.items())
    assert np.array_equal(again.apply().tree["middle"], planned.apply().tree["middle"])


def test_groups_without_units_in_the_argument_stay_whole(params, planned):
    name, other = planned.kept
    again = plan(model, params, X, kept={name: planned.kept[name]})
    assert again.kept[other].all() and not again.kept[name].all()
    assert "left whole" in str(again)


def test_units_of_ones_own_make_a_smaller_module():
    module = nnx.Sequential(nnx.Linear(4, 6, rngs=nnx.Rngs(0)), nnx.relu, nnx.Linear(6, 2, rngs=nnx.Rngs(1)))
    groups = axis_groups(*jaxarch.nnx.as_function(module), X)
    (name,) = groups.groups
    small = jaxarch.nnx.plan(module, X, kept={name: np.arange(6) % 2 == 0}).apply().model
    assert small.layers[0].out_features == 3
    assert np.array_equal(small.layers[0].kernel[...], module.layers[0].kernel[:, ::2])


def test_other_options_beside_units_are_refused(params, planned):
    for more in ({"budget": "50% parameters"}, {"scope": "global"}, {"scores": params}, {"round_to": 2}):
        with pytest.raises(ArgumentError, match="leave out"):
            plan(model, params, X, kept=planned.kept, **more)
    with pytest.raises(ArgumentError, match="expected one"):
        plan(model, params, X)
    with pytest.raises(ArgumentError, match="group"):
        plan(model, params, X, kept={"other[0]": np.ones(3, bool)})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"format": "jaxarch cut", "version": 2, "groups": {}}',
        '{"format": "jaxarch cut", "version": 1, "groups": {"a": {"size": 2, "kept": [2]}}}',
        '{"format": "jaxarch cut", "version": 1, "groups": {"a": {"size": 2, "kept": []}}}',
        '{"format": "jaxarch cut", "version": 1, "groups": {"a": {"size": 2, "kept": [-1]}}}',
        '{"format": "jaxarch cut", "version": 1, "groups": {"a": {"kept": [0]}}}',
        '{"format": "jaxarch cut", "version": 1, "groups": {"a": {"size": 2, "kept": [true, false]}}}',
        '{"format": "jaxarch cut", "version": 1, "groups": {"a": {"size": 3, "kept": [1, 0]}}}',
        '{"format": "jaxarch cut", "version": 1, "groups": {"a": {"size": 1000000000000, "kept": [0]}}}',
        "[" * 100_000,
    ],
)
def test_other_files_are_refused(text, tmp_path):
    (tmp_path / "cut.json").write_text(text)
    with pytest.raises(ArgumentError, match="was not written by save_cut"):
        load_cut(tmp_path / "cut.json")


def test_only_cuts_are_saved(params, tmp_path):
    with pytest.raises(ArgumentError, match="cut: expected"):
        save_cut(tmp_path / "cut.json", params)


def test_a_folder_is_no_file(planned, tmp_path):
    with pytest.raises(ArgumentError, match="cannot be written"):
        save_cut(tmp_path, planned)


def test_a_plan_keeps_its_units_when_the_array_changes(params, planned):
    kept = {name: units.copy() for name, units in planned.kept.items()}
    again = plan(model, params, X, kept=kept)
    for units in kept.values():
        units[:] = True
    assert again.apply().tree["middle"].shape == planned.apply().tree["middle"].shape
