"""Epochs: every example once in each, in an order of its own, and nothing kept between steps."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from small import Interrupted, interrupt_at, keys, problem, same

import jaxarch
from jaxarch._internal.epochs import epoch_rows

KEY = jax.random.key(0)
rows_of = jax.jit(epoch_rows, static_argnums=2)


def stream(key, steps, batch_size, examples):
    return np.concatenate([rows_of(key, step, batch_size, examples) for step in range(steps)])


@pytest.mark.long
@given(examples=st.integers(1, 60), batch_size=st.sampled_from([1, 7, 20]))
def test_every_example_comes_once_an_epoch_whatever_the_batches(examples, batch_size):
    epochs = stream(KEY, 2 * examples // batch_size + 1, batch_size, examples)
    for start in range(0, len(epochs) - examples + 1, examples):
        assert sorted(epochs[start : start + examples]) == list(range(examples))


@pytest.mark.long
def test_the_stream_does_not_depend_on_the_size_of_its_batches():
    np.testing.assert_array_equal(stream(KEY, 12, 5, 17), stream(KEY, 5, 12, 17))


def permutations(examples, count, epochs=1):
    draw = jax.jit(jax.vmap(lambda key: epoch_rows(key, 0, epochs * examples, examples)))
    return np.asarray(draw(jax.random.split(KEY, count)))


@pytest.mark.long
def test_every_order_is_as_likely_as_any_other():
    counts = np.unique(permutations(5, 60_000), axis=0, return_counts=True)[1]
    assert len(counts) == 120
    assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.long
def test_the_next_epoch_has_an_order_that_knows_nothing_of_the_one_before():
    orders = permutations(60, 4000, epochs=2)
    fixed = (orders[:, :60] == orders[:, 60:]).sum(axis=1)
    expected = 4000 * stats.poisson.pmf(np.arange(4), 1)
    counts = np.bincount(fixed, minlength=4)[:4]
    assert stats.chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > 1e-3


@pytest.mark.long
def test_steps_beyond_products_of_32_bits_are_where_they_should_be():
    # n B, the largest product that is taken, is just below 2^32.
    examples, batch_size, step = 40_000, 100_000, 2_999_999
    place = step * batch_size
    rows = rows_of(KEY, step, batch_size, examples)
    begins = -place % examples
    assert sorted(np.asarray(rows[begins : begins + examples])) == list(range(examples))
    assert begins > 0
    assert place > 2**32


def epochs_of(learning, steps):
    """What each of the first run's steps is trained on."""
    one = learning.of_run(0)
    return np.concatenate([np.asarray(one.batch(KEY, step)[0]) for step in range(steps)])


@pytest.mark.long
def test_a_problem_in_epochs_trains_on_every_row_once_an_epoch():
    learning = problem(batch_size=24).descending(sampling="epochs")
    rows = learning.train.shape[1]
    assert rows % 24 == 0
    seen = epochs_of(learning, rows // 24)
    expected = np.asarray(learning.data[0][learning.train[0]])
    np.testing.assert_array_equal(np.sort(seen, axis=0), np.sort(expected, axis=0))
    independent = epochs_of(problem(batch_size=24), rows // 24)
    assert not np.array_equal(np.sort(independent, axis=0), np.sort(expected, axis=0))


@pytest.mark.long
def test_padding_is_in_no_epoch():
    learning = problem(batch_size=10).descending(sampling="epochs")
    padded = dataclasses.replace(learning, train_size=jnp.asarray(30)).of_run(0)
    seen = np.concatenate([np.asarray(padded.batch(KEY, step)[0]) for step in range(3)])
    expected = np.asarray(learning.data[0][learning.train[0][:30]])
    np.testing.assert_array_equal(np.sort(seen, axis=0), np.sort(expected, axis=0))


@pytest.mark.long
def test_runs_in_epochs_go_on_from_a_checkpoint_to_the_same_bits(tmp_path):
    learning = problem(steps=12).descending(sampling="epochs")
    search = jaxarch.search.dense()
    whole, _ = jaxarch.over_seeds(search, keys(), learning)

    def fit(learning, progress=None):
        checkpoint = jaxarch.Checkpoints(tmp_path)
        return jaxarch.over_seeds(search, keys(), learning, chunk=3, checkpoint=checkpoint, progress=progress)

    with pytest.raises(Interrupted):
        fit(learning, interrupt_at(6))
    with pytest.raises(jaxarch.ArgumentError, match="another strategy, problem, descent"):
        fit(problem(steps=12))
    assert same(fit(learning)[0].params, whole.params)


def test_an_unknown_word_and_streams_beyond_32_bits_are_refused():
    with pytest.raises(jaxarch.ArgumentError, match="sampling: expected 'independent' or 'epochs'"):
        problem().descending(sampling="shuffled")
    with pytest.raises(jaxarch.ArgumentError, match=r"sampling: 'epochs' needs a product of .*, got 1000 \*"):
        jaxarch.supervised(
            lambda rngs: jaxarch.models.MLP((1, 2), rngs=rngs),
            (jnp.ones((1000, 1)), jnp.zeros(1000, int)),
            loss=optax.softmax_cross_entropy_with_integer_labels,
            optimizer=optax.sgd(0.1),
            steps=1,
            batch_size=5_000_000,
            sampling="epochs",
        )
