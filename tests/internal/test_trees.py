"""Path names and selection, whatever the tree is made of."""

import jax
import jax.numpy as jnp
import pytest
from flax import nnx
from small import same

from jaxarch import ArgumentError, everything, map_selected, merge, named_leaves, select
from jaxarch._internal.trees import check_floating, placed, unselected


class TwoLayers(nnx.Module):
    def __init__(self, rngs):
        self.layers = nnx.List([nnx.Linear(2, 3, rngs=rngs), nnx.Linear(3, 1, rngs=rngs)])


def test_nnx_paths_are_named_like_those_of_a_plain_dict():
    params = nnx.state(TwoLayers(nnx.Rngs(0)), nnx.Param)
    assert set(named_leaves(params)) == {
        "layers/0/bias",
        "layers/0/kernel",
        "layers/1/bias",
        "layers/1/kernel",
    }


def test_a_dict_entry_called_value_keeps_its_name():
    assert set(named_leaves({"value": jnp.ones(1), "head": {"value": jnp.ones(1)}})) == {
        "value",
        "head/value",
    }


@pytest.mark.parametrize(
    "tree",
    [{"b": [1, (2, 3)], "a": None}, nnx.state(TwoLayers(nnx.Rngs(0)), nnx.Param)],
    ids=["containers", "NNX"],
)
def test_leaves_by_path_are_placed_in_the_structure_that_they_come_from(tree):
    again = placed(named_leaves(tree), tree)
    assert jax.tree.structure(again) == jax.tree.structure(tree)
    assert same(again, tree)


def test_where_no_leaf_has_the_path_there_is_none():
    assert placed({"a/0": 5}, {"a": [1, 2], "b": 3}) == {"a": [5, None], "b": None}


def test_leaves_of_one_path_cannot_be_told_apart_and_are_refused():
    with pytest.raises(ArgumentError, match="like: two leaves have the same path"):
        placed({"a/b": 1}, {"a/b": 2, "a": {"b": 3}})


@pytest.mark.parametrize("make", [lambda leaf: {"w": leaf}, lambda leaf: [leaf], lambda leaf: (leaf, leaf)])
def test_selection_keeps_the_structure(make):
    tree = {"in": make(jnp.ones((2, 2))), "bias": jnp.ones(2)}
    chosen = select(tree)
    assert chosen["bias"] is None
    assert type(chosen["in"]) is type(tree["in"])


def test_selection_by_patterns_and_by_predicate():
    tree = {"a": {"kernel": jnp.ones(2), "bias": jnp.ones(1)}, "b": {"kernel": jnp.ones(3)}}
    assert set(named_leaves(select(tree, "*/kernel"))) == {"a/kernel", "b/kernel"}
    assert set(named_leaves(select(tree, ["a/*"]))) == {"a/kernel", "a/bias"}
    assert set(named_leaves(select(tree, lambda path, leaf: leaf.size > 2))) == {"b/kernel"}
    assert set(named_leaves(select(tree, everything))) == set(named_leaves(tree))


def test_a_pattern_that_matches_nothing_names_the_leaves_that_there_are():
    with pytest.raises(ValueError, match=r"where: no leaf is selected by 'kernl'; the leaves are: a/kernel"):
        select({"a": {"kernel": jnp.ones((2, 2))}}, "kernl")


def test_merging_puts_selected_leaves_back():
    tree = {"w": jnp.ones((2, 2)), "b": jnp.ones(2)}
    doubled = merge(map_selected(lambda leaf: 2 * leaf, select(tree)), tree)
    assert float(doubled["w"].sum()) == 8
    assert float(doubled["b"].sum()) == 2


def test_selected_and_unselected_leaves_make_up_the_tree():
    tree = {"w": jnp.ones((2, 2)), "b": jnp.ones(2)}
    selection = select(tree)
    rest = unselected(selection, tree)
    assert set(named_leaves(selection)) == {"w"}
    assert set(named_leaves(rest)) == {"b"}
    merged = merge(selection, rest)
    assert all(merged[name] is leaf for name, leaf in tree.items())


def test_selection_works_on_an_nnx_state():
    params = nnx.state(TwoLayers(nnx.Rngs(0)), nnx.Param)
    doubled = merge(map_selected(lambda leaf: 2 * leaf, select(params)), params)
    assert isinstance(doubled, nnx.State)
    before, after = named_leaves(params), named_leaves(doubled)
    assert jnp.array_equal(after["layers/0/kernel"], 2 * before["layers/0/kernel"])
    assert jnp.array_equal(after["layers/0/bias"], before["layers/0/bias"])


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"w": jnp.ones(2), "n": jnp.arange(2)}, "params: leaf 'n' has dtype int32"),
        ({"w": 1.0}, "params: leaf 'w' has no dtype"),
        ({}, "params: expected a pytree with at least one array"),
    ],
)
def test_parameters_that_are_not_floating_point_are_refused_by_path(tree, message):
    with pytest.raises(ValueError, match=message):
        check_floating("params", tree)
