"""The opposite of an architecture: as many connections in each leaf, of those that it lacks."""

import jax
import jax.numpy as jnp
import pytest

from jaxarch.transforms._invert import opposite


def inverted_masks(mask, runs=20):
    return jax.vmap(lambda key: opposite(key, mask))(jax.random.split(jax.random.key(0), runs))


@pytest.mark.long
def test_the_opposite_of_a_sparse_leaf_has_none_of_its_connections():
    mask = {"a": jnp.arange(40).reshape(5, 8) < 13, "b": None}
    drawn = inverted_masks(mask)["a"]
    assert (drawn.sum((1, 2)) == 13).all()
    assert not (drawn & mask["a"][None]).any()
    assert (drawn.any(0) == ~mask["a"]).all()  # each of the others is drawn now and then


@pytest.mark.long
def test_the_opposite_of_a_dense_leaf_has_all_that_it_lacks():
    mask = {"a": jnp.arange(40).reshape(5, 8) < 31}
    drawn = inverted_masks(mask)["a"]
    assert (drawn.sum((1, 2)) == 31).all()
    assert (drawn | mask["a"][None]).all()
    assert (drawn.sum(0)[mask["a"]] < 20).all()


@pytest.mark.long
def test_the_opposite_of_a_whole_leaf_is_itself_and_of_an_empty_one_nothing():
    mask = {"a": jnp.ones((3, 4), bool), "b": jnp.zeros((3, 4), bool)}
    drawn = inverted_masks(mask)
    assert drawn["a"].all()
    assert not drawn["b"].any()
