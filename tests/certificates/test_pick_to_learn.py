"""Pick-to-Learn: its network is a function of the rows that it picked, and its bound counts them."""

import dataclasses
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jaxarch
from jaxarch.certificates._pick_to_learn import _Learner, _worst
from jaxarch.theory.generalization import compression_bound

LOSS = optax.softmax_cross_entropy_with_integer_labels
SEARCH = jaxarch.search.dense(nonnegative=False)
KEY = jax.random.key(1)
ROUNDS, EACH = 4, 2


def init(key):
    return {"w": 0.1 * jax.random.normal(key, (3, 2))}


def apply(params, x):
    return x @ params["w"]


@cache
def data(rows=60):
    x = jax.random.normal(jax.random.key(0), (rows, 3))
    return x, (x[:, 0] + 0.2 * x[:, 1] > 0).astype(int)


def problem_of(pair, loss=LOSS, **changes):
    settings = {"optimizer": optax.adam(0.1), "steps": 20, "batch_size": 8} | changes
    return jaxarch.supervised((init, apply), pair, loss=loss, **settings)


def found_by(problem, rounds=ROUNDS, per_round=EACH, **options):
    return jaxarch.pick_to_learn(SEARCH, KEY, problem, rounds=rounds, per_round=per_round, **options)


@cache
def found():
    return found_by(problem_of(data()))


def learner(problem, rows, rounds=ROUNDS, per_round=EACH):
    return _Learner(SEARCH, KEY, problem, None, None, np.asarray(rows), rounds, per_round, len(rows))


@pytest.mark.long
def test_examples_that_are_neither_picked_nor_wrong_choose_nothing():
    whole = found()
    x, y = data()
    outputs = apply(whole.network.params, x)
    needed = np.union1d(whole.rows, np.flatnonzero(outputs.argmax(axis=1) != y))
    rounds = len(whole.rows) // EACH
    assert rounds
    # The same program on fewer rows, and with other numbers in place of the rows that are left out.
    left_out = np.setdiff1d(np.arange(len(x)), needed)
    other = problem_of((x.at[left_out].set(99.0), 1 - y.at[left_out].set(0)))
    other = problem_of((other.data[0], other.data[1].at[needed].set(y[needed])))
    some = np.sort(needed)
    carried = learner(other, some, rounds=ROUNDS)
    carry, taken, picks = carried.begin(), np.zeros(len(some), bool), some[:0]
    for done in range(rounds):
        network = jaxarch.run._training.conclude(SEARCH, carry)
        losses, _ = carried.judge(network.replace(state={}), taken)
        worst = np.asarray(_worst(losses, jnp.asarray(taken), EACH))
        taken[worst] = True
        picks = np.concatenate([picks, some[worst]])
        carry = carried.train(carry, picks, done)
    np.testing.assert_array_equal(picks, whole.rows)
    params = jaxarch.run._training.conclude(SEARCH, carry).params
    np.testing.assert_array_equal(params["w"], whole.network.params["w"])


def test_the_bound_counts_picked_rows_and_errors_and_pays_for_every_round():
    whole = found()
    x, y = data()
    others = np.setdiff1d(np.arange(len(x)), whole.rows)
    wrong = np.asarray(apply(whole.network.params, x).argmax(axis=1) != y)
    assert whole.errors == wrong[others].sum()
    assert whole.choices == ROUNDS + 1
    assert whole.bound == compression_bound(whole.errors, 60, len(whole.rows), 0.05, choices=ROUNDS + 1)
    assert found_by(problem_of(data()), choices=7).choices == 7 * (ROUNDS + 1)


def test_the_best_round_has_the_fewest_picked_and_wrong_rows():
    whole = found()
    assert len(whole.rows) + whole.errors == min(map(sum, whole.rounds))
    assert [round.picked for round in whole.rounds] == list(range(0, EACH * len(whole.rounds), EACH))


@pytest.mark.long
def test_no_round_that_could_be_better_is_left_out():
    *before, last = rounds = found_by(problem_of(data()), rounds=8, per_round=1).rounds
    best = min(map(sum, rounds))
    assert len(before) == 8 or last.picked + 1 >= best
    assert all(round.picked + 1 < best for round in before)


@pytest.mark.long
def test_no_row_is_picked_twice_and_each_is_a_training_row():
    train = jnp.arange(10, 60)
    rows = found_by(problem_of(data(), train=train)).rows
    assert len(np.unique(rows)) == len(rows) > 0
    assert np.isin(rows, train).all()


def test_the_worst_are_the_largest_losses_of_those_not_taken():
    losses = jnp.array([1.0, 5.0, 3.0, 4.0, -jnp.inf])
    taken = jnp.array([False, True, False, False, False])
    np.testing.assert_array_equal(_worst(losses, taken, 2), [3, 2])
    np.testing.assert_array_equal(_worst(losses, taken, 4), [3, 2, 0, 4])


def test_nan_is_the_largest_loss_and_of_equal_ones_the_first_is_taken():
    losses = jnp.array([1.0, 1.0, jnp.nan, 1.0])
    np.testing.assert_array_equal(_worst(losses, jnp.zeros(4, bool), 3), [2, 0, 1])


@pytest.mark.long
def test_a_row_of_nan_is_picked_first_and_what_it_breaks_counts_as_wrong():
    def broken(params, x):
        return apply(params, x) + 0 * jnp.log(50 - x[:, :1])

    x, y = data()
    problem = jaxarch.supervised(
        (init, broken),
        (x.at[17, 0].set(99.0), y),
        loss=LOSS,
        optimizer=optax.adam(0.1),
        steps=20,
        batch_size=8,
    )
    whole = found_by(problem)
    assert len(whole.rows) == 0
    assert whole.rounds[1].errors == 60 - EACH


@pytest.mark.long
def test_a_start_sees_no_row():
    def look(settings, key, problem, network):
        params, state = problem.start(key)
        total = sum(leaf.sum() for leaf in jax.tree.leaves(problem.gather(problem.data, None, jnp.arange(3))))
        return jaxarch.TrainState(jax.tree.map(lambda leaf: leaf + total, params), None, state)

    def network(settings, state):
        return jaxarch.Network(state.trainable, state=state.model)

    peeking = jaxarch.Training("peeking", look, lambda settings, state: state.trainable, network)
    x, y = data()
    begun = []
    for inputs in (x, x + 1):
        told: list = []
        jaxarch.pick_to_learn(
            peeking, KEY, problem_of((inputs, y)), rounds=1, per_round=1, progress=told.append
        )
        begun.append(told[0].network().params["w"])
    np.testing.assert_array_equal(*begun)


@pytest.mark.long
def test_a_mask_that_is_given_is_kept():
    problem = problem_of(data())
    drawn = jaxarch.search.random_mask(0.5)(jax.random.key(3), problem)
    whole = jaxarch.pick_to_learn(
        jaxarch.retrain("cold", nonnegative=False), KEY, problem, rounds=2, per_round=2, network=drawn
    )
    np.testing.assert_array_equal(whole.network.mask["w"], drawn.mask["w"])
    assert not np.asarray(whole.network.params["w"])[~np.asarray(drawn.mask["w"])].any()
    assert "the given network" in str(whole)


def test_every_round_is_told_with_its_network():
    seen = []
    whole = found_by(
        problem_of(data()), progress=lambda told: seen.append((told.step, told.network().of_run(0)))
    )
    assert [step for step, _ in seen] == list(range(len(whole.rounds)))
    best = len(whole.rows) // EACH
    np.testing.assert_array_equal(seen[best][1].params["w"], whole.network.params["w"])


def test_equal_calls_give_equal_results_and_print_what_they_assume():
    again = found_by(problem_of(data()))
    assert str(again) == str(found())
    np.testing.assert_array_equal(again.rows, found().rows)
    assert f"at most {again.bound:.1f}"[:10] in str(again)
    assert "no other setting" in str(again)
    assert "at most 5 settings" in str(found_by(problem_of(data()), choices=5))
    assert "none is a copy" in str(found_by(problem_of(data()), repeats=True))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rounds": 0}, "rounds"),
        ({"rounds": 21, "per_round": 1}, "at most the 20 steps"),
        ({"rounds": 15, "per_round": 4}, "take fewer"),
        ({"per_round": 0}, "per_round"),
        ({"delta": 1.0}, "delta"),
        ({"choices": 0}, "choices"),
        ({"repeats": 1}, "repeats"),
        ({"batch_size": 0}, "batch_size"),
        ({"wrong": 3}, "wrong"),
    ],
)
def test_bad_numbers_are_refused(options, words):
    with pytest.raises(jaxarch.ArgumentError, match=words):
        found_by(problem_of(data()), **options)


def test_searches_that_do_not_train_are_refused():
    for search in (jaxarch.search.random_mask(0.5), jaxarch.search.snip(0.5), None):
        with pytest.raises(jaxarch.ArgumentError, match="search: expected a search that trains"):
            jaxarch.pick_to_learn(search, KEY, problem_of(data()), rounds=2, per_round=2)


def test_a_transform_without_a_network_is_refused():
    with pytest.raises(jaxarch.ArgumentError, match="needs a network"):
        jaxarch.pick_to_learn(jaxarch.retrain("cold"), KEY, problem_of(data()), rounds=2, per_round=2)


def test_problems_whose_rows_cannot_be_picked_are_refused():
    x, y = data()
    own_rows = problem_of(data(), train=jnp.tile(jnp.arange(50), (2, 1)))
    cases = {
        "each run has its own `train`": own_rows,
        "each run has its own `paired`": dataclasses.replace(
            problem_of(data()), paired=jax.random.split(KEY, 2)
        ),
        "give it a batch_size": problem_of(data(), batch_size=None),
        "repeat an input": problem_of((x.at[1].set(x[0]), y)),
        "no `predict`": dataclasses.replace(problem_of(data()), predict=None),
        "labels are not classes": problem_of(
            (x, y.astype(float)), loss=lambda outputs, y: jnp.square(outputs[:, 0] - y)
        ),
        "listed twice": problem_of(data(), train=jnp.zeros(50, int)),
    }
    for words, problem in cases.items():
        with pytest.raises(jaxarch.ArgumentError, match=words):
            found_by(problem, repeats=words == "listed twice")


def test_a_model_whose_outputs_depend_on_the_batch_is_refused_before_training():
    class Mixing(nnx.Module):
        def __init__(self, rngs):
            self.linear = nnx.Linear(3, 2, rngs=rngs)

        def __call__(self, x):
            return self.linear(x - x.mean(axis=0, keepdims=True))

    problem = jaxarch.supervised(
        lambda rngs: Mixing(rngs), data(), loss=LOSS, optimizer=optax.adam(0.1), steps=20, batch_size=8
    )
    with pytest.raises(jaxarch.ArgumentError, match="let `predict` use running averages"):
        found_by(problem, progress=lambda _: pytest.fail("it trained"))


@pytest.mark.long
@pytest.mark.parametrize("sampling", ["independent", "epochs"])
def test_batches_are_of_picked_rows_alone(sampling):
    x, y = data()
    whole = found_by(problem_of(data(), sampling=sampling))
    others = np.setdiff1d(np.arange(60), whole.rows)
    # A training on the picked rows alone ends at the same weights, whatever the others are.
    after = learner(problem_of(data(), sampling=sampling), np.arange(60))
    changed = learner(problem_of((x.at[others].set(7.0), y), sampling=sampling), np.arange(60))
    ended = []
    for one in (after, changed):
        carry = one.begin()
        for done in range(len(whole.rows) // EACH):
            carry = one.train(carry, whole.rows[: EACH * (done + 1)], done)
        ended.append(carry.state.trainable["w"])
    np.testing.assert_array_equal(ended[0], whole.network.params["w"])
    np.testing.assert_array_equal(*ended)


def test_a_training_is_told_the_picked_rows_alone():
    def telling(settings, key, problem, state):
        # Each step adds the largest row, padding included, and 100 times the number of rows that count.
        def update(updates, kept, params):
            return {"w": 0 * updates["w"] + problem.training_rows().max() + 100 * problem.train_size}, kept

        return optax.GradientTransformation(lambda params: (), update)

    search = dataclasses.replace(SEARCH, wrap_optimizer=telling)
    one = dataclasses.replace(learner(problem_of(data()), np.arange(60)), search=search)
    carry = one.begin()
    moved = one.train(carry, np.array([3, 5]), 0).state.trainable["w"] - carry.state.trainable["w"]
    np.testing.assert_allclose(moved, 20 / ROUNDS * (5 + 100 * 2), rtol=1e-5)


@pytest.mark.long
def test_the_rounds_together_take_the_steps_of_the_search():
    one, steps = learner(problem_of(data()), np.arange(60), rounds=3), []
    carry = one.begin()
    for done in range(3):
        carry = one.train(carry, np.arange(EACH * (done + 1)), done)
        steps.append(int(carry.state.step))
    assert steps == [6, 13, 20]


@pytest.mark.long
def test_a_search_may_learn_its_mask_as_it_trains():
    search = jaxarch.search.two_temperature(20.0, 2.0, weights="initial")
    whole = jaxarch.pick_to_learn(search, KEY, problem_of(data()), rounds=3, per_round=2)
    kept = np.asarray(whole.network.mask["w"])
    assert not np.asarray(whole.network.params["w"])[~kept].any()
    assert whole.bound < 1


@pytest.mark.long
def test_the_true_error_is_above_the_bound_in_fewer_runs_than_delta_allows():
    x = jax.random.normal(jax.random.key(5), (40_000, 3))
    y = (x[:, 0] + 0.2 * x[:, 1] > 0).astype(int)
    above = 0
    for run in range(30):
        rows = jnp.arange(50 * run, 50 * run + 50)
        problem = problem_of((x, y), train=rows)
        whole = found_by(problem, rounds=3, per_round=1, delta=0.5)
        above += float((apply(whole.network.params, x).argmax(axis=1) != y).mean()) > whole.bound
    assert above <= 15
