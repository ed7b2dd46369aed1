"""Fisher scores as a search: by hand, of single examples, with statistics from a warm-up, and exact sizes."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import keys, problem

import jaxarch
from jaxarch import masks, saliency
from jaxarch.search import fisher

WEIGHTS = np.float32([[1.0, -2.0, 0.5]])
FACTORS = np.float32([[1.0, 0.0, 2.0], [3.0, 1.0, -2.0]])
KEY = jax.random.key(0)


def lines(batch_size, dtype=jnp.float32):
    """The loss of an example a is `a . w`: of the two, g is (2, 1/2, 0) and the mean of g^2 (5, 1/2, 4)."""

    def loss(params, state, batch, key):
        assert key is None  # that is, evaluation
        return (batch @ params["w"][0].astype(jnp.float32)).mean(), state

    descent = jaxarch.Descent(optax.sgd(0.1), steps=1, batch_size=batch_size, sampling="epochs")
    return jaxarch.Problem(lambda key: ({"w": jnp.asarray(WEIGHTS, dtype)}, {}), loss, FACTORS, descent)


@pytest.mark.long
@pytest.mark.parametrize("batch_size", [1, 2])
@pytest.mark.parametrize(
    ("first_order", "expected", "kept"), [(True, [0.5, 2.0, 0.5], 1), (False, [2.5, 1.0, 0.5], 0)]
)
def test_gradients_are_squared_one_by_one_however_the_examples_are_batched(
    batch_size, first_order, expected, kept
):
    # |1 * 2 - 5 / 2|, |-2 / 2 - 4 / 2 / 2| and |0 - 4 / 4 / 2|. By squares of the mean, the last would be 0.
    search = fisher(1 / 3, batches=2 // batch_size, first_order=first_order)
    network = jax.jit(search)(KEY, lines(batch_size))
    np.testing.assert_allclose(network.info["saliency"]["w"], [expected], rtol=1e-6)
    assert network.mask["w"].tolist() == [[index == kept for index in range(3)]]


def test_squares_of_half_precision_are_summed_in_float32():
    network = jax.jit(fisher(1 / 3, first_order=False))(KEY, lines(2, jnp.bfloat16))
    assert network.params["w"].dtype == jnp.bfloat16
    assert network.info["saliency"]["w"].dtype == jnp.float32


def centred():
    """Running means, of which training keeps a half; the loss is `w (x - mean)`."""

    def loss(params, state, batch, key):
        mean = state["mean"] if key is None else batch.mean()
        after = state if key is None else {"mean": (state["mean"] + mean) / 2}
        return (params["w"][0, 0] * (batch - mean)).mean(), after

    descent = jaxarch.Descent(optax.sgd(0.1), steps=1)
    start = {"w": jnp.full((1, 1), 2.0)}
    return jaxarch.Problem(
        lambda key: (start, {"mean": jnp.zeros(())}), loss, np.float32([4.0, 8.0]), descent
    )


@pytest.mark.parametrize(("warm_up", "mean"), [(0, 0.0), (1, 3.0), (2, 4.5)])
def test_a_warm_up_moves_the_running_statistics_that_the_scores_are_made_with(warm_up, mean):
    # The batches' mean is 6. Of the statistics of a batch of one example, all scores would be 0.
    network = jax.jit(fisher(1.0, warm_up=warm_up, first_order=False))(KEY, centred())
    assert network.state["mean"] == mean
    squares = ((4 - mean) ** 2 + (8 - mean) ** 2) / 2
    np.testing.assert_allclose(network.info["saliency"]["w"], 2.0**2 * squares / 2, rtol=1e-6)


def test_a_model_without_a_state_skips_the_warm_up():
    # The loss refuses a key, which training has.
    assert int(masks.connections(jax.jit(fisher(2 / 3, warm_up=5))(KEY, lines(2)).mask)) == 2


@pytest.mark.long
@pytest.mark.parametrize("density", [0.013, 0.5])
def test_a_mask_has_exactly_its_size(density):
    network = jax.jit(fisher(density))(keys()[0], problem().of_run(0))
    size = sum(leaf.size for leaf in jax.tree.leaves(network.mask))
    assert int(masks.connections(network.mask)) == round(density * size)


@pytest.mark.long
def test_a_loop_of_one_s_own_over_batches_has_the_scores_of_the_search():
    network = jax.jit(fisher(0.5, batches=2))(KEY, lines(1))

    def loss(params, batch):
        return (batch @ params["w"][0]).mean()

    terms = [saliency.fisher_diagonal(loss, {"w": WEIGHTS}, FACTORS[i : i + 1]) for i in range(2)]
    mean = jax.tree.map(lambda *leaves: sum(leaves) / 2, *terms)
    np.testing.assert_allclose(
        saliency.taylor({"w": jnp.asarray(WEIGHTS)}, *mean)["w"], network.info["saliency"]["w"], rtol=1e-6
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"densities": 0.0}, r"densities: expected a number in \(0, 1\]"),
        ({"batches": 0}, "batches: expected an integer of at least 1"),
        ({"warm_up": -1}, "warm_up: expected an integer of at least 0"),
        ({"first_order": 2}, "first_order: expected"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(options, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        fisher(**{"densities": 0.5} | options)


@pytest.mark.parametrize("batch", [np.zeros((0, 3)), np.float32(1), (np.zeros((2, 3)), np.zeros(3)), {}])
def test_a_batch_without_a_common_axis_of_examples_is_refused(batch):
    with pytest.raises(jaxarch.ArgumentError, match="batch: expected arrays with one leading axis"):
        saliency.fisher_diagonal(lambda params, batch: params["w"].sum(), {"w": jnp.ones((1, 1))}, batch)
