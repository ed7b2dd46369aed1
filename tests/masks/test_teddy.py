"""TEDDY's scores of edges are functions of degrees."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxarch
from jaxarch.saliency import teddy


def ones(edges):
    return {"edges": jnp.ones(np.shape(edges)[1]), "w1": jnp.ones((2, 2))}


def test_scores_of_a_star_with_a_tail_are_those_by_hand():
    edges = np.array([[0, 0, 0, 3], [1, 2, 3, 4]])
    # Degrees: 3, 1, 1, 2, 1. Shares g/d of the nodes: (2 + 1/sqrt 2)/9; 1/sqrt 3; (1/sqrt 3 + 1)/4; 1/sqrt 2.
    hub, leaf, middle, end = (2 + 0.5**0.5) / 9, 3**-0.5, (3**-0.5 + 1) / 4, 0.5**0.5
    expected = [hub * leaf, hub * leaf, hub * middle, middle * end]
    np.testing.assert_allclose(jax.jit(lambda p: teddy(p, edges)["edges"])(ones(edges)), expected, rtol=1e-6)


def test_a_lone_pair_is_kept_before_all_others_and_hubs_that_meet_lose_their_edge_first():
    edges = np.array([[0, 0, 0, 1, 1, 6], [1, 2, 3, 4, 5, 7]])
    scores = teddy(ones(edges), edges)["edges"]
    assert int(scores.argmin()) == 0
    assert int(scores.argmax()) == 5
    assert scores[5] == 1


def test_other_numbers_of_nodes_and_directions_change_no_score():
    edges = np.array([[0, 0, 0, 3, 4], [1, 2, 3, 4, 1]])
    other = np.array([900, 3, 40, 7, 12])[edges][::-1]
    expected = teddy(ones(edges), edges)["edges"]
    np.testing.assert_allclose(teddy(ones(edges), other)["edges"], expected, rtol=1e-6)


@pytest.mark.long
def test_removed_edges_are_not_in_the_degrees_and_have_score_0():
    edges = np.array([[0, 0, 0, 3, 1], [1, 2, 3, 4, 2]])
    left = np.array([True, False, True, True, True])
    scores = teddy({"edges": jnp.array([0.5, 0.0, -2.0, 1.0, 1.0])}, edges)["edges"]
    assert scores[1] == 0
    np.testing.assert_allclose(scores[left], teddy(ones(edges[:, left]), edges[:, left])["edges"], rtol=1e-6)


def test_the_mask_has_exactly_the_density_that_is_asked_for():
    edges = np.stack(np.triu_indices(9, 2))
    scores = teddy(ones(edges), edges)
    kept = [int(jaxarch.masks.keep(scores, d)["edges"].sum()) for d in (0.25, 0.5, 1.0)]
    assert kept == [7, 14, 28]


def test_other_leaves_have_no_score():
    edges = np.array([[0, 1], [1, 2]])
    assert teddy(ones(edges), edges)["w1"] is None


def test_edges_in_bfloat16_are_scored_in_float32():
    edges = np.array([[0, 1], [1, 2]])
    assert teddy({"edges": jnp.ones(2, jnp.bfloat16)}, edges)["edges"].dtype == jnp.float32


@pytest.mark.parametrize(
    ("params", "where", "message"),
    [
        (
            {"edges": jnp.ones(3)},
            "edges",
            r"expected one leaf of shape \(2,\), .* got \(3,\) for 'edges'",
        ),
        (
            {"edges": jnp.ones(2), "more": jnp.ones(2)},
            "*",
            r"where: expected the one leaf of edges, got 'edges, m",
        ),
        ({"edges": jnp.ones(2, int)}, "edges", r"only floating-point leaves can be masked"),
        ({"w1": jnp.ones(2)}, "edges", r"no leaf is selected by 'edges'"),
    ],
)
def test_parameters_without_one_leaf_of_edges_are_refused(params, where, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        teddy(params, np.array([[0, 1], [1, 2]]), where)


def test_traced_edges_are_refused():
    edges = jnp.array([[0, 1], [1, 2]])
    with pytest.raises(jaxarch.ArgumentError, match="edges: expected concrete numbers"):
        jax.jit(lambda edges: teddy(ones(edges), edges))(edges)
