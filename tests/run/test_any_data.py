"""Problems on data of any structure: dicts and tuples of arrays, lengths, weights of examples, no labels."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from small import same

import jaxarch
from jaxarch import search

KEYS = jax.random.split(jax.random.key(0), 2)
TOKENS = jax.random.randint(jax.random.key(1), (30, 6), 0, 5)
LENGTHS = 1 + jnp.arange(30) % 6
LABELS = (TOKENS[:, 0] > 2).astype(int)


class Sequences(nnx.Module):
    """An LSTM over sequences of different lengths, whose last output is classified."""

    def __init__(self, rngs):
        self.embedding = nnx.Embed(5, 8, rngs=rngs)
        self.rnn = nnx.RNN(nnx.LSTMCell(8, 8, rngs=rngs))
        self.head = nnx.Linear(8, 2, rngs=rngs)

    def __call__(self, x):
        outputs = self.rnn(self.embedding(x["tokens"]), seq_lengths=x["lengths"])
        last = jnp.take_along_axis(outputs, x["lengths"][:, None, None] - 1, axis=1)[:, 0]
        return self.head(last)


def cross_entropy(outputs, labels):
    return optax.softmax_cross_entropy_with_integer_labels(outputs, labels)


def learning(model, data, loss, steps=15, **settings):
    return jaxarch.supervised(
        model, data, loss=loss, optimizer=optax.adam(1e-2), steps=steps, batch_size=10, **settings
    )


def perceptron(*widths):
    return lambda rngs: jaxarch.models.MLP(widths, rngs=rngs)


@pytest.mark.long
def test_inputs_may_be_a_dict_of_tokens_and_lengths():
    made = learning(Sequences, ({"tokens": TOKENS, "lengths": LENGTHS}, LABELS), cross_entropy)
    network, _ = jaxarch.over_seeds(search.two_temperature(weights="initial", mean=5.0), KEYS, made)
    assert np.isfinite(network.info["loss"]).all()
    assert network.info["loss"][:, -1].mean() < network.info["loss"][:, 0].mean()
    assert "embedding/embedding" in jaxarch.named_leaves(network.mask)


@pytest.mark.long
def test_labels_may_come_with_weights_of_examples():
    x = jax.random.normal(jax.random.key(2), (30, 4))

    def weighted(outputs, y):
        return y["weight"] * cross_entropy(outputs, y["label"])

    ones = {"label": LABELS, "weight": jnp.ones(30)}
    plain = learning(perceptron(4, 2), (x, LABELS), cross_entropy)
    found = [
        jax.jit(search.dense(nonnegative=False))(KEYS[0], made).params
        for made in (plain, learning(perceptron(4, 2), (x, ones), weighted))
    ]
    np.testing.assert_allclose(*(leaf["layers"][0]["kernel"][...] for leaf in found), rtol=1e-6)

    half = {"label": LABELS, "weight": (jnp.arange(30) < 15).astype(float)}
    made = learning(perceptron(4, 2), (x, half), weighted)
    params, state = made.init(KEYS[0])
    first = plain.objective(params, state, jnp.arange(15))
    assert made.objective(params, state) == pytest.approx(float(first) / 2, rel=1e-6)


@pytest.mark.long
def test_there_may_be_nothing_to_compare_with():
    x = jax.random.normal(jax.random.key(3), (30, 4))
    made = learning(perceptron(4, 3), (x, None), lambda outputs, nothing: jnp.square(outputs).sum(-1))
    found = jax.jit(search.dense(nonnegative=False))(KEYS[0], made)
    assert found.info["loss"][-1] < found.info["loss"][0]


@pytest.mark.parametrize("y", [None, {"label": LABELS, "weight": jnp.ones(30)}], ids=["none", "dict"])
def test_pictures_may_have_any_labels_or_none(y):
    pixels = np.arange(30, dtype=np.uint8).repeat(4).reshape(30, 2, 2, 1)
    taken = jaxarch.io.take_images([0.5], [0.25])((pixels, y), None, jnp.array([3, 29]))
    np.testing.assert_allclose(taken[0][:, 0, 0, 0], (np.array([3, 29]) / 255 - 0.5) / 0.25, rtol=1e-6)
    assert same(taken[1], jax.tree.map(lambda leaf: leaf[jnp.array([3, 29])], y))


def test_inputs_of_a_task_may_be_a_dict():
    data = {"tokens": TOKENS, "lengths": LENGTHS}, LABELS
    x, y = jaxarch.lab.data.take_task_rows(data, {"targets": jnp.array([5.0, 7.0])}, jnp.array([4, 9]))
    assert same(x, {"tokens": TOKENS[np.array([4, 9])], "lengths": LENGTHS[np.array([4, 9])]})
    assert y.tolist() == [5 + 2 * label for label in LABELS[np.array([4, 9])].tolist()]


def test_lists_are_arrays():
    x = [[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
    made = learning(perceptron(2, 2), (x, [0, 1, 1]), cross_entropy)
    assert same(made.data, (jnp.asarray(x), jnp.asarray([0, 1, 1])))


REFUSED = {
    "data: x/b has rows of different lengths": lambda: (
        {"a": jnp.ones((2, 2)), "b": [[1.0], [1.0, 2.0]]},
        jnp.zeros(2, int),
    ),
    r"data: expected x of shape \(n, ...\) .*'b': \(3, 1\)": lambda: (
        {"a": jnp.ones((2, 2)), "b": jnp.ones((3, 1))},
        jnp.zeros(2, int),
    ),
    "data: y/name must be numbers": lambda: (jnp.ones((2, 2)), {"name": np.array(["a", "b"])}),
    r"data: expected x of shape \(n, ...\)": lambda: (None, jnp.zeros(2, int)),
    "model: it does not take inputs of shape": lambda: ({"a": jnp.ones((2, 2))}, jnp.zeros(2, int)),
}


@pytest.mark.parametrize("message", REFUSED)
def test_data_that_do_not_fit_are_refused_in_one_line(message):
    with pytest.raises(jaxarch.ArgumentError, match=message) as caught:
        learning(perceptron(2, 2), REFUSED[message](), cross_entropy)
    assert "\n" not in str(caught.value)
