"""Edge-popup and biprop: forward pass and gradient by hand, exact sizes, and what a run finds."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import keys, problem, same

import jaxarch
from jaxarch import everything, masks
from jaxarch.search import biprop, dense, edge_popup, random_mask

SEARCHES = {"edge_popup": edge_popup, "biprop": biprop}

THETA = np.float32([[1.0, -2.0], [4.0, 0.5]])
SCORES = np.float32([[0.1, -0.9], [-0.2, 0.7]])
SLOPE = np.float32([[1.0, 10.0], [100.0, 1000.0]])


def linear():
    """A loss whose derivative by the weights is `SLOPE`, whatever they are."""

    def loss(params, state, batch, key):
        return (params["w"] * SLOPE).sum() * batch.mean() + params["bias"].sum(), state

    start = {"w": jnp.asarray(THETA), "bias": jnp.float32([3.0])}
    descent = jaxarch.Descent(optax.sgd(0.1), steps=1)
    return jaxarch.Problem(lambda key: (start, {}), loss, jnp.ones(1), descent)


def at_scores(search, scores=SCORES):
    """A search, and its state at some scores."""
    state = search.init(search.settings, keys()[0], linear(), None)
    return search, state._replace(trainable={"bias": None, "w": jnp.asarray(scores)})


def weights(search, state):
    """What the network computes with."""
    return search.params(search.settings, state)


def gradient(search, state):
    def loss(scores):
        params = weights(search, state._replace(trainable=scores))
        return linear().loss(params, {}, jnp.ones(1), None)[0]

    return jax.grad(loss)(state.trainable)


def test_the_weights_of_the_largest_sizes_of_scores_are_there():
    params = weights(*at_scores(edge_popup(0.5)))
    assert params["w"].tolist() == [[0.0, -2.0], [0.0, 0.5]]


def test_every_score_descends_as_if_its_size_were_the_mask():
    # sign(s) theta SLOPE, of connections that are not there too.
    assert gradient(*at_scores(edge_popup(0.5)))["w"].tolist() == [[1.0, 20.0], [-400.0, 500.0]]


def test_biprop_has_the_signs_times_the_mean_size_of_those_that_are_kept():
    # (2 + .5) / 2 = 1.25
    assert weights(*at_scores(biprop(0.5)))["w"].tolist() == [[0.0, -1.25], [0.0, 1.25]]


def test_the_size_of_biprop_s_weights_is_that_of_the_mask_of_the_moment():
    scores = SCORES * np.float32([[1, 1], [10, 1]])
    assert weights(*at_scores(biprop(0.5), scores))["w"].tolist() == [[0.0, -3.0], [3.0, 0.0]]


def test_biprop_descends_along_the_weights_and_not_along_their_mean_size():
    assert gradient(*at_scores(biprop(0.5)))["w"].tolist() == [[1.0, 20.0], [-400.0, 500.0]]


@pytest.mark.parametrize("name", SEARCHES)
def test_a_leaf_that_keeps_nothing_is_0(name):
    search, state = at_scores(SEARCHES[name](0.1))
    assert not weights(search, state)["w"].any()
    assert not search.network(search.settings, state).params["w"].any()


@pytest.mark.parametrize("name", SEARCHES)
def test_biases_are_neither_masked_nor_trained(name):
    network = SEARCHES[name](0.5, steps=2)(keys()[0], linear())
    assert network.mask["bias"] is None
    assert network.params["bias"].tolist() == [3.0]


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("per_connection", [False, True], ids=["matrix", "matrix and bias"])
def test_scores_begin_within_one_over_the_root_of_a_neuron_s_inputs(name, per_connection):
    where = {"where": everything} if per_connection else {}
    start = {"kernel": jnp.ones((5, 20, 300)), "bias": jnp.ones(300)}
    wide = jaxarch.Problem(
        lambda key: (start, {}), lambda p, s, b, k: (p["kernel"].sum(), s), jnp.ones(1), linear().descent
    )
    search = SEARCHES[name](0.5, **where)
    scores = search.init(search.settings, keys()[0], wide, None).trainable
    # U(-b, b) has the standard deviation b / sqrt(3).
    assert 0.0995 < float(jnp.abs(scores["kernel"]).max()) <= 0.1
    np.testing.assert_allclose(scores["kernel"].std(), 0.1 / np.sqrt(3), rtol=0.01)
    if per_connection:
        assert 0.95 < float(jnp.abs(scores["bias"]).max()) <= 1


def test_signed_constants_are_the_signs_times_kaiming_s_standard_deviation():
    # A neuron has two inputs: sqrt(2 / 2) = 1.
    params = weights(*at_scores(edge_popup(1.0, weights="signed constant")))
    assert params["w"].tolist() == [[1.0, -1.0], [1.0, 1.0]]
    start = {"w": -THETA.reshape(4, 1)}
    search = edge_popup(1.0, weights="signed constant")
    four = jaxarch.Problem(
        lambda key: (start, {}), lambda p, s, b, k: (p["w"].sum(), s), jnp.ones(1), linear().descent
    )
    found = search(keys()[0], four).params["w"]
    np.testing.assert_allclose(found.ravel(), np.sqrt(0.5) * np.float32([-1, 1, -1, -1]), rtol=1e-6)


def test_weights_may_be_a_function():
    def doubled(key, selected):
        return {"bias": None, "w": 2 * selected["w"]}

    assert weights(*at_scores(edge_popup(0.5, weights=doubled)))["w"].tolist() == [[0.0, -4.0], [0.0, 1.0]]


@pytest.mark.long
@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("density", [0.0131, 0.5, 1.0])
def test_a_mask_has_exactly_its_size_and_every_leaf_the_same_share(name, density):
    network = jax.jit(SEARCHES[name](density))(keys()[0], problem().of_run(0))
    counts = [int(leaf.sum()) for leaf in jax.tree.leaves(network.mask)]
    assert sum(counts) == round(density * 2 * 64 * 64)
    assert abs(counts[0] - counts[1]) <= 1


@pytest.mark.long
@pytest.mark.parametrize("name", SEARCHES)
def test_a_traced_density_finds_the_same(name):
    def found(density):
        network = SEARCHES[name](density)(keys()[0], problem().of_run(0))
        return network.mask, network.params

    traced = jax.jit(jax.vmap(found))(jnp.float32([0.25, 0.5]))
    for index, density in enumerate((0.25, 0.5)):
        assert same(jax.tree.map(lambda leaf, i=index: leaf[i], traced), jax.jit(lambda: found(density))())  # noqa: B023


@pytest.mark.long
@pytest.mark.parametrize("name", SEARCHES)
def test_what_is_found_is_what_was_trained(name):
    search = SEARCHES[name](0.3)
    one = problem().of_run(0)
    network = search(keys()[0], one)
    mask = masks.keep(jax.tree.map(jnp.abs, network.info["scores"]), 0.3, scope="layer")
    assert same(network.mask, mask)
    state = search.init(search.settings, jax.random.split(keys()[0], 3)[0], one, None)
    trained = weights(search, state._replace(trainable=network.info["scores"]))
    assert same(network.params, trained)


@pytest.mark.long
def test_it_learns_a_better_mask_than_a_random_one_of_weights_that_do_not_move():
    wide = problem(steps=200, batch_size=None, width=64, runs=4)
    rate = {"optimizer": optax.sgd(1.0, momentum=0.9)}
    learned, _ = jaxarch.over_seeds(edge_popup(0.5, **rate), keys(), wide)
    drawn, _ = jaxarch.over_seeds(random_mask(0.5), keys(), wide)
    losses = [
        jax.vmap(lambda run, p: p.objective(run.params, run.state), in_axes=(0, wide.in_axes()))(found, wide)
        for found in (learned, drawn)
    ]
    assert (losses[0] < losses[1]).all()


@pytest.mark.long
@pytest.mark.parametrize("name", SEARCHES)
def test_after_another_stage_it_searches_the_weights_that_were_found(name):
    one = problem().of_run(0)
    trained = jax.jit(dense(nonnegative=False))(keys()[0], one)
    network = SEARCHES[name](0.5)(keys()[1], one, trained)
    for path, mask in jaxarch.named_leaves(network.mask).items():
        theta, found = np.asarray(trained.params[path]), np.asarray(network.params[path])
        expected = theta if name == "edge_popup" else np.abs(theta[mask]).mean() * np.sign(theta)
        np.testing.assert_allclose(found, np.where(mask, expected, 0), rtol=1e-5)


@pytest.mark.parametrize("name", SEARCHES)
def test_leaves_that_were_masked_before_stay_masked(name):
    before = jaxarch.Network(linear().init(None)[0], {"bias": jnp.array([False]), "w": None}, {})
    search = SEARCHES[name](0.5)
    state = search.init(search.settings, keys()[0], linear(), before)
    assert weights(search, state)["bias"].tolist() == [0.0]
    assert search.network(search.settings, state).mask["bias"].tolist() == [False]


@pytest.mark.parametrize("name", SEARCHES)
def test_it_does_not_forget_connections_that_are_gone(name):
    with pytest.raises(jaxarch.ArgumentError, match="would restore the connections that random mask removed"):
        jaxarch.chain(random_mask(0.5), SEARCHES[name](0.5))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: edge_popup(0.0), r"density: expected a number in \(0, 1\]"),
        (lambda: biprop(1.5), r"density: expected a number in \(0, 1\]"),
        (lambda: edge_popup(weights="ones"), "weights: expected 'initial', 'signed constant' or a function"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(make, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        make()
