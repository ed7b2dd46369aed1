"""Late rewinding: back to the weights and the state of an early step, and on from there."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from small import close, keys, problem, same

import jaxarch
from jaxarch import search
from jaxarch.run import _training as training

STEPS, EARLY = 12, 5


def learning():
    return problem(steps=STEPS, width=8)


@pytest.fixture(scope="module")
def one():
    return learning().of_run(0)


@pytest.mark.long
@pytest.mark.parametrize("nonnegative", [False, True])
def test_the_start_is_what_a_training_of_as_many_steps_finds(one, nonnegative):
    late = jax.jit(search.dense(nonnegative=nonnegative, rewind_to=EARLY))(keys()[0], one)
    short = jax.jit(search.dense(nonnegative=nonnegative, steps=EARLY))(keys()[0], one)
    assert close(late[jaxarch.Start].params, short.params, 1e-6)
    assert not close(late[jaxarch.Start].params, late.params, 1e-3)


@pytest.mark.long
def test_what_is_found_is_the_same_wherever_one_may_go_back_to(one):
    late = jax.jit(search.dense(rewind_to=EARLY))(keys()[0], one)
    dense = jax.jit(search.dense())(keys()[0], one)
    assert close((late.params, late.info), (dense.params, dense.info), 1e-6)


@pytest.mark.long
def test_of_a_training_that_stops_before_that_step_the_start_is_what_it_ends_with(one):
    late = search.dense(rewind_to=EARLY)
    carry = training.begin(late, keys()[0], one, None)
    for steps in (0, 3):
        carry, _ = training.advance(late, keys()[0], one, carry, 0, steps, STEPS)
        stopped = training.conclude(late, carry)
        assert same(stopped[jaxarch.Start].params, stopped.params)


class Normed(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(64, 6, rngs=rngs)
        self.norm = nnx.BatchNorm(6, rngs=rngs)
        self.last = nnx.Linear(6, 1, rngs=rngs)

    def __call__(self, x):
        return self.last(nnx.tanh(self.norm(self.first(x))))[..., 0]


def with_batch_norm():
    rows = np.random.default_rng(0).normal(size=(40, 64)).astype(np.float32)
    return jaxarch.supervised(
        Normed, (rows, rows[:, 0]), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=STEPS, batch_size=8
    )


@pytest.fixture(scope="module")
def ticket():
    return jax.jit(search.magnitude_pruning(0.5, fraction=0.5, rewind_to=EARLY))(keys()[0], with_batch_norm())


def short_training():
    # Stages draw from keys by their place: the first training is at 0.
    short = search.dense(nonnegative=False, steps=EARLY)
    return jax.jit(short)(jax.random.fold_in(keys()[0], 0), with_batch_norm())


@pytest.mark.long
def test_a_ticket_has_the_weights_and_the_running_statistics_of_that_step(ticket):
    short = short_training()
    assert close(ticket[jaxarch.Start].params, short.params, 1e-6)
    assert close(ticket[jaxarch.Start].state, short.state, 1e-6)
    assert same(ticket.params, jaxarch.masks.apply_mask(ticket.mask, ticket[jaxarch.Start].params))
    assert same(ticket.state, ticket[jaxarch.Start].state)


@pytest.mark.long
@pytest.mark.parametrize("start", ["rewind", "warm"])
def test_training_it_again_begins_from_the_weights_and_the_state_of_that_step(ticket, start):
    again = jaxarch.retrain(start, nonnegative=False)
    state = training.begin(again, keys()[1], with_batch_norm(), ticket).state
    short = short_training()
    assert close(
        again.params(again.settings, state), jaxarch.masks.apply_mask(ticket.mask, short.params), 1e-6
    )
    assert close(state.model, short.state, 1e-6)


@pytest.mark.long
def test_a_round_trains_from_that_step_for_the_steps_that_are_left(one):
    strategy = search.magnitude_pruning(rounds=1, fraction=0.5, rewind_to=EARLY, choose="last")
    found = jax.jit(strategy)(keys()[0], one)

    @jax.jit
    def by_hand(key):
        stages = [jax.random.fold_in(key, place) for place in range(4)]
        dense = search.dense(nonnegative=False)(stages[0], one)
        early = search.dense(nonnegative=False, steps=EARLY)(stages[0], one)
        mask = jaxarch.prune(0.5)(stages[2], one, dense).mask
        rewound = early.replace(params=jaxarch.masks.apply_mask(mask, early.params), mask=mask)
        rest = jaxarch.retrain("warm", nonnegative=False, steps=STEPS - EARLY)
        return rest(stages[3], one, rewound)

    assert found.info["loss"].shape == (STEPS - EARLY,)
    assert same(found.mask, by_hand(keys()[0]).mask)
    assert close(found.params, by_hand(keys()[0]).params)


def test_the_steps_that_are_left_are_of_the_steps_that_the_search_has_of_its_own(one):
    strategy = search.magnitude_pruning(rounds=1, rewind_to=EARLY, choose="last", steps=EARLY + 2)
    assert jax.eval_shape(strategy, keys()[0], one).info["loss"].shape == (2,)


@pytest.mark.long
def test_after_one_shot_retraining_goes_back_to_that_step_too():
    strategy = jaxarch.chain(
        search.magnitude_pruning(0.5, fraction=None, rewind_to=EARLY),
        jaxarch.retrain("rewind", nonnegative=False, steps=1, optimizer=optax.sgd(0.0)),
    )
    network, _ = jaxarch.over_seeds(strategy, keys(), learning())
    first, _ = jaxarch.over_seeds(search.dense(nonnegative=False, rewind_to=EARLY), keys(), learning())
    early = jax.vmap(jaxarch.masks.apply_mask)(network.mask, first[jaxarch.Start].params)
    assert close(network.params, early, 1e-6)


def test_to_go_back_to_step_0_is_what_is_done_by_default():
    assert search.magnitude_pruning(0.5, rewind_to=0) == search.magnitude_pruning(0.5)
    assert search.magnitude_pruning(0.5, rewind_to=1) != search.magnitude_pruning(0.5)


@pytest.mark.long
def test_a_network_with_weights_alone_to_go_back_to_begins_with_the_problem_s_state(ticket):
    again = jaxarch.retrain("rewind", nonnegative=False)
    weights_alone = ticket.with_records(jaxarch.Start(ticket[jaxarch.Start].params))
    state = training.begin(again, keys()[1], with_batch_norm(), weights_alone).state
    assert same(state.model, with_batch_norm().init(keys()[1])[1])


@pytest.mark.long
def test_a_smaller_network_goes_back_to_the_weights_and_the_state_of_its_own_units():
    learning = with_batch_norm()
    search_ = search.magnitude_pruning(0.5, fraction=0.5, rewind_to=EARLY, units="neurons")
    small = jaxarch.shrink(jax.jit(search_)(keys()[0], learning), learning)
    assert jax.tree.map(jnp.shape, small.network[jaxarch.Start].params) == jax.tree.map(
        jnp.shape, small.network.params
    )
    assert same(small.network[jaxarch.Start].state, small.network.state)


@pytest.mark.parametrize("make", [search.dense, lambda **step: search.magnitude_pruning(0.5, **step)])
@pytest.mark.parametrize("step", [-1, 1.5, True])
def test_steps_that_are_none_are_refused(make, step):
    with pytest.raises(jaxarch.ArgumentError, match="rewind_to: expected an integer of at least 0"):
        make(rewind_to=step)


@pytest.mark.parametrize("make", [search.dense, lambda **step: search.magnitude_pruning(0.5, **step)])
def test_the_last_step_is_too_late(make):
    with pytest.raises(
        jaxarch.ArgumentError, match=f"rewind_to: expected fewer than the {STEPS} steps of .*, got {STEPS}"
    ):
        jaxarch.over_seeds(make(rewind_to=STEPS), keys(), learning())
