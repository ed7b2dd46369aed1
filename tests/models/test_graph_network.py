"""Networks over graphs, whose edges are connections that can be masked."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxarch
from jaxarch.models import graph_network, take_nodes

EDGES = np.array([[0, 1, 2, 0, 3], [1, 2, 3, 2, 4]])
X = jax.random.normal(jax.random.key(1), (7, 3))
Y = jnp.array([0, 1, 0, 1, 0, 1, 1])


def drawn(edges=EDGES, **options):
    """A network of two layers over seven nodes, two of them without edges."""
    model = graph_network((3, 4, 2), edges, **options)
    return model, model.init(jax.random.key(0))[0]


def outputs(model, params, x=X, key=None):
    return jax.jit(model.apply)(params, {}, x, key)[0]


def problem(model, optimizer=None):
    return jaxarch.supervised(
        model,
        (X, Y),
        gather=take_nodes,
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optimizer or optax.sgd(0.1),
        steps=3,
        train=np.array([0, 3, 5]),
    )


def test_layers_are_those_of_kipf_and_welling():
    model = graph_network((3, 4, 4, 2), EDGES)
    params = model.init(jax.random.key(0))[0]
    adjacency = np.eye(7)
    adjacency[tuple(EDGES)] = adjacency[tuple(EDGES[::-1])] = 1
    root = np.diag(adjacency.sum(1) ** -0.5)
    passed = root @ adjacency @ root
    hidden = np.maximum(passed @ np.asarray(X) @ np.asarray(params["w1"]), 0)
    hidden = np.maximum(passed @ hidden @ np.asarray(params["w2"]), 0)
    expected = passed @ hidden @ np.asarray(params["w3"])
    np.testing.assert_allclose(outputs(model, params), expected, rtol=1e-5, atol=1e-6)


def test_masked_edges_are_as_if_they_were_not_in_the_graph():
    model, params = drawn()
    kept = np.array([True, False, True, True, False])
    smaller, _ = drawn(EDGES[:, kept])
    masked = jaxarch.masks.apply_mask({"edges": jnp.asarray(kept), "w1": None, "w2": None}, params)
    expected = outputs(smaller, params | {"edges": jnp.ones(3)})
    np.testing.assert_allclose(outputs(model, masked), expected, rtol=1e-6)


def test_other_numbers_of_the_nodes_change_nothing():
    order = np.array([3, 0, 6, 5, 1, 2, 4])
    (model, params), (other, _) = drawn(), drawn(np.argsort(order)[EDGES][::-1])
    np.testing.assert_allclose(outputs(other, params, X[order]), outputs(model, params)[order], rtol=1e-5)


def test_negative_weights_of_edges_leave_every_degree_positive():
    model, params = drawn()
    assert jnp.isfinite(outputs(model, params | {"edges": jnp.full(5, -1.0)})).all()


def test_the_edges_have_a_gradient():
    model, params = drawn(np.append(EDGES, [[5], [6]], axis=1))
    gradient = jax.jit(jax.grad(lambda p: model.apply(p, {}, X, None)[0][0].sum()))(params)["edges"]
    assert (gradient[:5] != 0).all()  # The last of these is in the degree of node 3, two steps from node 0.
    assert gradient[5] == 0


def test_dropout_is_of_training_alone():
    model, params = drawn(dropout=0.5)
    plain, _ = drawn()
    assert jnp.array_equal(outputs(model, params), outputs(plain, params))
    assert not jnp.allclose(outputs(model, params, X, jax.random.key(3)), outputs(plain, params))


def test_a_mean_over_dropout_is_near_the_network_without_it():
    # One linear step follows the hidden layer, so that the mean over masks is exact.
    model, params = drawn(dropout=0.5)
    keys = jax.random.split(jax.random.key(3), 4000)
    mean = jax.jit(lambda: jax.vmap(lambda key: model.apply(params, {}, X, key)[0])(keys).mean(0))()
    np.testing.assert_allclose(mean, outputs(model, params), atol=0.1)


def test_hidden_layers_drop_values_independently():
    model = graph_network((1, 400, 400, 400), [[0], [1]], dropout=0.5)
    params = {"edges": jnp.ones(1), "w1": jnp.ones((1, 400)), "w2": jnp.eye(400), "w3": jnp.eye(400)}
    alone = outputs(model, params, jnp.ones((3, 1)), jax.random.key(3))[2]
    assert set(alone.tolist()) == {0, 4}
    assert 0.15 < float((alone > 0).mean()) < 0.35  # A quarter is kept twice.


@pytest.mark.parametrize(
    ("data", "rows", "message"),
    [
        ((X, Y), [7], r"rows: expected rows of 7 nodes, got .*7"),
        ((X, Y), [-1], r"rows: expected rows of 7 nodes, got .*-1"),
        ((X, Y), [0.0], r"rows: expected integers, shape \(n,\), got float32"),
        ((X, Y[:5]), [0], r"data: expected one leading axis of nodes"),
        (X, [0], r"data: expected a pair"),
    ],
)
def test_nodes_that_are_not_in_the_data_are_refused(data, rows, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        take_nodes(data, None, jnp.array(rows))


def test_rows_select_outputs_and_labels():
    model, params = drawn()
    batch, labels = take_nodes((X, Y), None, jnp.array([5, 1]))
    assert jnp.array_equal(outputs(model, params, batch), outputs(model, params)[jnp.array([5, 1])])
    assert labels.tolist() == [1, 1]


def test_words_that_are_booleans_are_read_as_numbers():
    model, params = drawn()
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        assert jnp.array_equal(outputs(model, params, X > 0), outputs(model, params, (X > 0).astype(float)))


@jax.numpy_dtype_promotion("strict")
def test_degrees_in_bfloat16_count_every_edge():
    star = np.stack([np.zeros(400, int), np.arange(1, 401)])
    model = graph_network((1, 1), star)
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), model.init(jax.random.key(0))[0])
    made = outputs(model, params | {"w1": jnp.full((1, 1), 401, jnp.bfloat16)}, jnp.eye(401, 1))
    assert made.dtype == jnp.bfloat16
    assert float(made[0, 0]) == pytest.approx(1, abs=0.01)  # The hub's share of itself is 1 / 401.


@pytest.mark.long
def test_searches_mask_edges_alone_and_frozen_edges_stay_1():
    frozen = optax.partition(
        {True: optax.sgd(0.1), False: optax.set_to_zero()}, {"edges": False, "w1": True, "w2": True}
    )
    model, _ = drawn()
    search = jaxarch.search.random_mask(0.4, where="edges")
    strategy = jaxarch.chain(search, jaxarch.retrain("cold", nonnegative=False))
    network = strategy(jax.random.key(0), problem(model, frozen))
    assert network.mask["w1"] is None
    assert sorted(network.params["edges"].tolist()) == [0, 0, 0, 1, 1]


def test_learned_edges_change():
    model, _ = drawn()
    network = jaxarch.search.dense(nonnegative=False, where="edges")(jax.random.key(0), problem(model))
    assert (network.params["edges"][:4] != 1).any()


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([[0, 1, 1], [1, 0, 1]], r"edges: 1 are loops and 1 repeat another one; give each undirected edge"),
        ([[0, 1], [1, 0]], r"edges: 0 are loops and 1 repeat another one"),
        ([[0, 1]], r"edges: expected the two nodes of each edge, shape \(2, edges\), got shape \(1, 2\)"),
        (np.zeros((2, 0), int), r"shape \(2, edges\), got shape \(2, 0\)"),
        ([[0.0], [1.0]], r"edges: expected the numbers of nodes, integers from 0 on, got float64"),
        ([[0], [-1]], r"integers from 0 on, got int64 from -1"),
        ([[False], [True]], r"integers from 0 on, got bool"),
    ],
)
def test_edges_of_another_form_are_refused(edges, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        graph_network((3, 2), edges)


def test_the_remedy_for_edges_in_both_directions_and_loops_is_right():
    edges = np.array([[0, 1, 1, 2], [1, 0, 1, 1]])
    edges = np.unique(np.sort(edges, axis=0), axis=1)
    edges = edges[:, edges[0] != edges[1]]
    assert graph_network((3, 2), edges).init(jax.random.key(0))[0]["edges"].shape == (2,)


def test_a_graph_with_fewer_nodes_than_its_edges_name_is_refused():
    model, params = drawn()
    with pytest.raises(jaxarch.ArgumentError, match=r"x: expected features of at least 5 nodes"):
        model.apply(params, {}, X[:4], None)


@pytest.mark.parametrize("rate", [1.0, -0.1, float("nan")])
def test_a_dropout_that_leaves_nothing_is_refused(rate):
    with pytest.raises(jaxarch.ArgumentError, match="dropout"):
        graph_network((3, 2), EDGES, dropout=rate)
