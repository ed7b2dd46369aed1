"""Certificates that would be false are refused, and the certificate says why."""

import dataclasses
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxarch
from jaxarch.certificates._repeated import input_digests

D, ROWS = 4, 60
LOSS = optax.softmax_cross_entropy_with_integer_labels
KEEP = {"w": jnp.array([[True], [True], [False], [False]])}
FREE = jaxarch.Network(jax.tree.map(jnp.float32, KEEP), KEEP, {})


def logits(params, x):
    return jnp.concatenate([jnp.zeros((len(x), 1)), x @ params["w"]], axis=1)


def problem_of(x, y, apply=logits, **others):
    return jaxarch.supervised(
        (lambda key: {"w": jax.random.normal(key, (D, 1))}, apply),
        (x, y),
        loss=LOSS,
        optimizer=optax.adam(0.1),
        steps=3,
        **{"train": jnp.arange(ROWS), "validation": jnp.arange(ROWS, 2 * ROWS)} | others,
    )


@cache
def examples():
    x = np.random.default_rng(0).normal(size=(2 * ROWS, D)).astype(np.float32)
    return x, (x[:, 0] > 0).astype(np.int32)


@cache
def problem():
    return problem_of(*examples())


def certify(network=FREE, of=None, **options):
    return jaxarch.certify(network, problem() if of is None else of, flips=0, **options)


def copied(pairs, labels=None):
    """The problem with some rows made copies of others."""
    x, y = (part.copy() for part in examples())
    for to, source in pairs:
        x[to] = x[source]
        y[to] = y[source] if labels is None else labels
    return dataclasses.replace(problem(), data=(jnp.asarray(x), jnp.asarray(y)))


@pytest.mark.long
def test_examples_that_are_all_different_have_both_bounds():
    found = certify()
    assert found.training is not None
    assert found.held_out is not None


@pytest.mark.parametrize("labels", [None, 0, 1])
def test_a_single_copy_of_a_training_input_among_validation_rows_is_found_whatever_its_label(labels):
    found = certify(of=copied([(70, 3)], labels))
    assert found.training is not None
    assert found.held_out is None
    assert "1 of 60 validation rows have the input of a training row" in found.why_not_held_out


def test_copies_with_numbers_of_their_own_are_copies_where_the_model_does_not_read_these():
    x, y = examples()
    x = {"x": np.concatenate([x[:ROWS], x[:ROWS]]), "id": np.arange(2 * ROWS)}
    found = certify(of=problem_of(x, y, lambda params, x: logits(params, x["x"])))
    assert "60 of 60 validation rows have the input of a training row" in found.why_not_held_out


def test_a_single_validation_row_that_is_a_training_row_is_found():
    rows = jnp.arange(ROWS - 1, 2 * ROWS)
    found = certify(of=dataclasses.replace(problem(), validation=rows))
    assert "some validation rows are also training rows" in found.why_not_held_out


def test_copies_among_training_rows_or_among_validation_rows_are_not_counted_as_examples():
    found = certify(of=copied([(4, 3), (5, 3), (71, 70)]))
    assert "2 of 60 training rows repeat an input" in found.why_not
    assert "1 of 60 validation rows repeat an input" in found.why_not_held_out


def test_equal_inputs_that_were_drawn_independently_count_if_it_is_said_and_are_assumed_to_be():
    found = certify(of=copied([(4, 3), (70, 3)]), repeats=True)
    assert found.training is not None
    assert found.held_out is not None
    assert any("equal inputs were drawn independently" in line for line in found.assumptions)
    twice = dataclasses.replace(problem(), train=jnp.zeros(2, int))
    assert "twice" in certify(of=twice, repeats=True).why_not


@pytest.mark.parametrize(
    ("x", "alike"),
    [
        (np.array([[0.0, np.nan], [-0.0, np.nan], [1, 0]], np.float16), [0, 0, 1]),
        (np.array([[1, 2], [2, 1], [1, 2]], np.uint8), [0, 1, 0]),
        ({"a": np.array([1, 1, 1]), "b": np.array([[0.5], [0.5], [0.25]], jnp.bfloat16)}, [0, 0, 1]),
        (jax.random.split(jax.random.key(0), 2)[jnp.array([0, 1, 1])], [0, 1, 1]),
    ],
    ids=["float16", "integers", "tree", "keys"],
)
def test_digests_are_equal_exactly_where_inputs_are(x, alike, monkeypatch):
    monkeypatch.setattr("jaxarch.certificates._repeated.BLOCK", 1)
    of = dataclasses.replace(problem(), data=(x, np.zeros(3, int)))
    found = input_digests(of, np.arange(3))
    assert [found.index(digest) for digest in found] == [alike.index(group) for group in alike]


def test_weights_that_the_search_did_not_begin_with_are_refused():
    begun = problem().init(jax.random.key(0))[0]
    trained = jax.tree.map(lambda w: 3 * w, begun)
    network = jaxarch.Network(
        jaxarch.masks.apply_mask(KEEP, trained), KEEP, {}, records=(jaxarch.Start(begun),)
    )
    assert "'w' differs from network[Start]" in certify(network, weights=trained).why_not


def test_weights_that_are_0_wherever_the_mask_is_were_taken_after_it_was_chosen():
    network = dataclasses.replace(FREE, params={"w": 2 * FREE.params["w"]})
    assert "0 wherever the mask is" in certify(network, weights=network.params).why_not
    before = {"w": jnp.full((D, 1), 2.0)}
    assert certify(network, weights=before).training is not None


def test_weights_that_were_trained_before_they_are_gone_back_to_are_refused():
    network = jaxarch.search.dense(nonnegative=False, rewind_to=2)(jax.random.key(0), problem())
    ticket = network.replace(params=network[jaxarch.Start].params)
    assert "trained for 2 steps" in certify(ticket, weights=network[jaxarch.Start].params).why_not


@pytest.mark.long
def test_a_network_that_does_not_keep_the_weights_it_began_with_is_said_not_to():
    strategy = jaxarch.chain(jaxarch.search.snip(0.5), jaxarch.retrain(nonnegative=False))
    network = strategy(jax.random.key(0), problem())
    assert "no `Start`" in certify(network).why_not


def normalised(params, x):
    return logits(params, (x - x.mean(axis=0, keepdims=True)) / x.std(axis=0, keepdims=True))


def test_outputs_that_depend_on_the_batch_are_refused():
    found = certify(of=problem_of(*examples(), apply=normalised))
    assert found.training is found.held_out is None
    assert "as with batch statistics" in found.why_not
    assert "as with batch statistics" in found.why_not_held_out


def test_outputs_that_depend_on_the_batch_and_hardly_move_errors_are_refused():
    def centred(params, x):
        outputs = logits(params, x)
        return outputs - 0.1 * outputs.mean(axis=0, keepdims=True)

    assert "outputs of a batch differ by up to" in certify(of=problem_of(*examples(), apply=centred)).why_not


def test_errors_that_depend_on_the_batch_are_refused():
    def below_the_median(outputs, y):
        return (outputs[:, 1] > jnp.median(outputs[:, 1])) != (y > 0)

    assert "only in a batch or only alone" in certify(wrong=below_the_median).why_not


def test_a_model_that_does_not_take_one_example_is_refused():
    def in_pairs(params, state, batch):
        return logits(params, batch[0].reshape(-1, 2, D).reshape(-1, D))

    found = certify(of=dataclasses.replace(problem(), predict=in_pairs))
    assert "the model fails on a single example" in found.why_not


@pytest.mark.long
@pytest.mark.parametrize(
    "wrong", [None, lambda outputs, y: (outputs[:, 1] > 0) & (y == 0)], ids=["classes", "own"]
)
def test_an_output_that_is_no_number_is_an_error(wrong):
    def broken(params, x):
        return jnp.where(x[:, 1:2] > 0, jnp.nan, logits(params, x))

    x, y = examples()
    rows = {"train": jnp.flatnonzero(x[:, 1] <= 0), "validation": jnp.flatnonzero(x[:, 1] > 0)}
    of = problem_of(x, y * 0, apply=broken, **rows)
    assert certify(of=of, wrong=wrong).held_out.rate == 1


def test_a_label_that_is_no_number_is_an_error():
    x, _ = examples()
    of = dataclasses.replace(
        problem(), data=(x, jnp.full(len(x), jnp.nan)), loss=lambda *_: (jnp.zeros(()), {})
    )
    assert certify(of=of, wrong=lambda outputs, y: outputs[:, 1] * y < 0).held_out.rate == 1


def test_a_validation_set_without_rows_has_no_bound():
    found = certify(of=dataclasses.replace(problem(), validation=jnp.arange(0)))
    assert found.training is not None
    assert (found.held_out, found.why_not_held_out) == (None, "none: there are no rows")


@pytest.mark.parametrize("rows", [jnp.arange(-3, 9), jnp.arange(100, 130), jnp.ones(3, bool)])
@pytest.mark.parametrize("name", ["train", "validation"])
def test_rows_that_are_none_of_the_data_are_refused(name, rows):
    with pytest.raises(jaxarch.ArgumentError, match=f"^{name}: "):
        certify(of=dataclasses.replace(problem(), **{name: rows}))


def test_of_a_stream_it_is_assumed_that_no_validation_example_was_in_it():
    x, y = examples()
    streamed = problem_of(x, y, stream=[(x[:ROWS], y[:ROWS])])
    assert "that no validation example was in the stream" in certify(of=streamed).assumptions
    assert "that no validation example was in the stream" not in certify().assumptions
