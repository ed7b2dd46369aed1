"""Chains of layers, the connections of nodes, and nodes that lie on no path: by hand and against loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small import same

from jaxarch.masks import full_mask
from jaxarch.structure.nodes import connection_mask, dead_nodes, layer_chain


def kernels(**shapes):
    """A mask of all connections; `_` in a name stands for `/`."""
    tree = {}
    for name, shape in shapes.items():
        module, _, number = name.partition("_")
        leaf = {"kernel": jnp.ones(shape, bool), "bias": None}
        if number:
            tree.setdefault(module, {})[number] = leaf
        else:
            tree[module] = leaf
    return tree


def names(tree, layers=None):
    return [layer.name for layer in layer_chain(tree, layers)]


def test_layers_are_taken_in_the_order_of_their_numbers():
    tree = kernels(**{f"layers_{i}": (4, 4) for i in range(12)})
    assert names(tree) == [f"layers/{i}" for i in range(12)]


def test_layers_are_taken_in_the_order_in_which_they_fit():
    assert names(kernels(head=(16, 3), hidden=(8, 16))) == ["hidden", "head"]


def test_a_flatten_may_follow_a_convolution():
    conv, head = layer_chain(kernels(head=(24, 3), conv=(3, 3, 1, 6)))
    assert (conv.positions, head.positions) == (1, 4)
    assert (head.inputs, head.outputs) == (24, 3)


def test_layers_may_be_named_by_module_or_by_kernel_with_what_follows_them():
    tree = kernels(head=(8, 8), hidden=(8, 8))
    chain = layer_chain(tree, (("hidden", "norm"), "head/kernel"))
    assert [layer.path for layer in chain] == ["hidden/kernel", "head/kernel"]
    assert chain[0].norms == ("norm",)
    plain = {"w2": jnp.ones((3, 2), bool), "w1": jnp.ones((2, 3), bool)}
    assert names(plain, ("w1", "w2")) == ["w1", "w2"]


@pytest.mark.parametrize(
    ("tree", "layers", "message"),
    [
        (kernels(head=(2, 2), hidden=(2, 2)), None, "fit in more than one order; name the layers"),
        (kernels(a=(2, 16), b=(16, 2)), None, "fit in more than one order"),
        (kernels(a=(2, 5), b=(4, 2), c=(3, 3)), None, "fit in no order; name the layers"),
        # 64 is 32 times 2, but nothing is flattened after a dense layer.
        (kernels(head=(5, 2), hidden=(64, 7)), None, "fit in no order"),
        (kernels(head=(4, 6), conv=(3, 3, 12, 5)), None, "fit in no order"),
        ({"w": jnp.ones((2, 3), bool)}, None, "'w' has shape .* not known"),
        ({"bias": jnp.ones(3, bool)}, None, "no leaf with inputs and outputs"),
        (kernels(a=(2, 3), b=(3, 2)), ("a", "c"), "no kernel is called 'c'"),
        (kernels(a=(2, 3), b=(3, 2)), ("b", "a", "b"), "each layer once"),
        (kernels(a=(2, 3), b=(4, 2)), ("a", "b"), "'b/kernel' has 4 inputs, which do not fit the 3 outputs"),
        (kernels(a_0=(2, 3), a_1=(3, 2)), ("a",), "'a' has more than one kernel: a/0/kernel, a/1/kernel"),
        (kernels(a=(2, 3)), "a", "expected names in the order"),
        (kernels(a=(2, 3)), (), "expected names in the order"),
        (kernels(a=(2, 3)), 3, "expected names in the order"),
        (kernels(a=(2, 3)), (1,), "expected names"),
        (kernels(a=(2, 3)), ((),), "expected names"),
    ],
)
def test_what_is_no_chain_is_refused(tree, layers, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        layer_chain(tree, layers)


def test_a_connection_is_kept_if_both_its_ends_are():
    mask = kernels(hidden=(2, 3), head=(3, 1))
    left = connection_mask(mask, {"hidden": jnp.array([True, False, True])})
    assert same(left["hidden"]["kernel"], np.array([[1, 0, 1], [1, 0, 1]], bool))
    assert same(left["head"]["kernel"], np.array([[1], [0], [1]], bool))


def test_behind_a_flatten_a_channel_feeds_every_position():
    mask = kernels(conv=(2, 2, 2, 3), head=(6, 1))
    left = connection_mask(mask, {"conv": jnp.array([False, True, True])})
    assert left["conv"]["kernel"].all((0, 1, 2)).tolist() == [False, True, True]
    assert left["head"]["kernel"][:, 0].tolist() == [False, True, True, False, True, True]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ({"hiden": np.ones(3, bool)}, "no hidden nodes are called 'hiden'; did you mean 'hidden'"),
        ({"head": np.ones(2, bool)}, "no hidden nodes are called 'head'"),
        (
            {"hidden": np.ones(2, bool)},
            r"'hidden' has 3 nodes; expected booleans of shape \(3,\), got bool of shape \(2,\)",
        ),
    ],
)
def test_nodes_of_no_hidden_layer_are_refused(nodes, message):
    with pytest.raises(ValueError, match=message):
        connection_mask(kernels(hidden=(2, 3), head=(3, 1)), nodes)


def test_a_node_dies_with_the_last_one_that_it_lived_from():
    # 0 -> 0 -> nothing; 1 -> 1 -> 1 -> out; nothing -> 2 -> out.
    mask = {
        "a": {"kernel": jnp.array([[1, 0, 0], [0, 1, 0]], bool)},
        "b": {"kernel": jnp.array([[1, 0, 0], [0, 1, 0], [0, 0, 1]], bool)},
        "c": {"kernel": jnp.array([[0], [1], [1]], bool)},
    }
    dead = dead_nodes(mask, ("a", "b", "c"))
    assert dead["a"].tolist() == [True, False, True]
    assert dead["b"].tolist() == [True, False, True]
    assert set(dead) == {"a", "b"}


SHAPES = [
    {"a_0": (3, 4), "a_1": (4, 4), "a_2": (4, 2)},
    {"conv_0": (2, 2, 2, 3), "conv_1": (1, 1, 3, 3), "dense_0": (12, 4), "dense_1": (4, 2)},
]


def dead_by_loops(mask, chain):
    """Remove nodes without incoming or outgoing connections until none is left to remove."""
    leaves = [np.asarray(mask[m][n]["kernel"]) for m, n in (layer.name.split("/") for layer in chain)]
    leaves = [leaf.copy() for leaf in leaves]
    dead = [np.zeros(leaf.shape[-1], bool) for leaf in leaves[:-1]]
    while True:
        before = [d.copy() for d in dead]
        for i, gone in enumerate(dead):
            channels = leaves[i].shape[-1]
            for node in range(channels):
                incoming = leaves[i][..., node]
                outgoing = leaves[i + 1][..., node::channels, :]
                if gone[node] or not incoming.any() or not outgoing.any():
                    gone[node] = True
                    incoming[...] = outgoing[...] = False
        if all((a == b).all() for a, b in zip(before, dead, strict=True)):
            return dead


@pytest.mark.long
@given(st.sampled_from(SHAPES), st.integers(0, 2**32 - 1), st.sampled_from([0.05, 0.2, 0.5]))
def test_dead_nodes_are_those_that_are_removed_one_after_the_other(shapes, seed, share):
    generator = np.random.default_rng(seed)
    mask = jax.tree.map(lambda leaf: jnp.asarray(generator.random(leaf.shape) < share), kernels(**shapes))
    dead = dead_nodes(mask)
    assert same(list(dead.values()), dead_by_loops(mask, layer_chain(mask)))
    without = connection_mask(mask, {name: ~gone for name, gone in dead.items()})
    assert same(dead_nodes(without), dead)


def test_masks_of_many_runs_are_mapped():
    masks = jnp.stack([jnp.array([[1, 0]], bool), jnp.array([[0, 1]], bool)])
    tree = {"a": {"kernel": masks}, "b": {"kernel": jnp.ones((2, 2, 3), bool)}}
    assert jax.jit(jax.vmap(dead_nodes))(tree)["a"].tolist() == [[False, True], [True, False]]


def test_all_nodes_keep_all_connections():
    mask = kernels(hidden=(2, 3), head=(3, 1))
    assert same(connection_mask(full_mask(mask), {}), mask)
    assert not any(gone.any() for gone in dead_nodes(mask).values())
