"""The user's optimizer sees the user's tree, also in searches that learn scores beside weights."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from long_suite import partly_long
from small import close, same

import jaxarch
from jaxarch import ArgumentError, ResultWarning, search
from jaxarch.run._frozen import frozen

KEY = jax.random.key(0)
X = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
START = {"backbone": {"w": jnp.eye(4) + 0.1, "shift": jnp.ones(4)}, "head": {"w": jnp.ones((4, 2)) / 4}}
LABELS = {"backbone": {"w": "frozen", "shift": "frozen"}, "head": {"w": "trained"}}
KINDS = {"frozen": optax.set_to_zero(), "trained": optax.adam(0.1)}
FREEZING = optax.partition(KINDS, LABELS)
MOVES = {
    "backbone": {"w": np.zeros((4, 4), bool), "shift": np.zeros(4, bool)},
    "head": {"w": np.ones((4, 2), bool)},
}
BESIDE = {
    "movement": search.movement(0.5, where="head/w"),
    "continuous sparsification": search.continuous_sparsification(0.5, where="head/w"),
    "soft threshold": search.soft_threshold(0.5, where="head/w"),
    "hard concrete": search.hard_concrete(0.5, where="head/w"),
    "ProbMask": search.probmask(0.5, where="head/w"),
}


def times(update, moves):
    return update * moves


def where(update, moves):
    return jnp.where(moves, update, 0.0)


def apply(params, x):
    hidden = jnp.tanh(x @ params["backbone"]["w"] + params["backbone"]["shift"][None])
    return hidden @ params["head"]["w"]


def problem_of(optimizer, steps=3):
    return jaxarch.supervised(
        (lambda key: START, apply), (X, X[:, :2]), loss=optax.l2_loss, optimizer=optimizer, steps=steps
    )


def slopes(stepwise, state, trainable):
    return jax.grad(lambda t: jnp.square(apply(stepwise.params(t, state), X)).mean())(trainable)


def looped(stage, optimizer, steps=3):
    """The network that a loop of one's own finds."""
    stepwise = jaxarch.Stepwise(stage, optimizer, steps)
    state = stepwise.init(KEY, START)
    step = jax.jit(lambda state: stepwise.update(slopes(stepwise, state, state.trainable), state))
    for _ in range(steps):
        state = step(state)
    return stepwise.network(state)


@pytest.mark.parametrize("name", partly_long(list(BESIDE), set(BESIDE) - {"movement"}))
def test_what_a_tree_of_labels_freezes_stays_where_scores_are_learned_beside_weights(name):
    network = looped(BESIDE[name], FREEZING)
    assert same(network.params["backbone"], START["backbone"])
    assert not same(network.params["head"], START["head"])


def test_an_optimiser_is_shown_the_tree_of_the_parameters_and_scores_at_their_paths():
    seen = []

    def init(params):
        seen.append(params)

    spy = optax.GradientTransformation(init, lambda updates, state, params=None: (updates, state))
    jaxarch.Stepwise(search.movement(0.5), spy, steps=3).init(KEY, START)
    scores, weights = seen[:2]
    assert same(weights, START)
    assert list(jaxarch.named_leaves(scores)) == ["backbone/w", "head/w"]


@pytest.mark.parametrize(
    "optimizer",
    [
        FREEZING,
        optax.chain(optax.adam(0.1), optax.masked(optax.set_to_zero(), {"backbone": True, "head": False})),
        optax.partition({"frozen": optax.sgd(0.0), "trained": optax.adamw(0.1)}, LABELS),
        optax.MultiSteps(FREEZING, 2),
        optax.partition(KINDS | {"frozen": optax.inject_hyperparams(optax.adam)(learning_rate=0.0)}, LABELS),
        optax.chain(optax.masked(optax.set_to_zero(), {"backbone": True, "head": False}), optax.adam(0.1)),
        optax.chain(optax.adam(0.1), optax.stateless(lambda updates, _: jax.tree.map(times, updates, MOVES))),
        optax.chain(optax.adam(0.1), optax.stateless(lambda updates, _: jax.tree.map(where, updates, MOVES))),
    ],
    ids=["partition", "masked", "rate of 0", "MultiSteps", "injected rate", "moments of 0", "times", "where"],
)
def test_leaves_that_an_optimiser_holds_still_are_read_from_its_program(optimizer):
    assert frozen(optimizer, START) == ["backbone/shift", "backbone/w"]


@pytest.mark.parametrize("rate", [optax.linear_schedule(0.0, 0.1, 10), 0.1])
def test_a_state_that_begins_with_zeros_and_leaves_them_holds_nothing_still(rate):
    assert frozen(optax.inject_hyperparams(optax.adam)(learning_rate=rate), START) == []


def test_an_optimiser_that_begins_with_a_rate_of_0_holds_nothing_still():
    assert frozen(optax.adam(optax.linear_schedule(0.0, 0.1, 10)), START) == []


def test_scores_that_are_held_still_are_warned_of_unless_they_have_an_optimiser_of_their_own():
    with pytest.warns(ResultWarning, match=r"freezes the scores of 'backbone/w', .* `scores_optimizer`"):
        jaxarch.Stepwise(search.movement(0.5), FREEZING, 3).init(KEY, START)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        own = search.movement(0.5, scores_optimizer=optax.sgd(1.0))
        network = looped(own, FREEZING)
    kept = network.mask["backbone"]["w"]
    assert same(network.params["backbone"]["w"], jnp.where(kept, START["backbone"]["w"], 0))


INJECTED = optax.partition(KINDS | {"frozen": optax.inject_hyperparams(optax.sgd)(learning_rate=0.0)}, LABELS)


@pytest.mark.parametrize("optimizer", [FREEZING, INJECTED], ids=["set to zero", "injected rate"])
def test_architecture_pruning_does_not_train_what_the_problem_s_optimiser_freezes(optimizer):
    problem = problem_of(optimizer)
    with pytest.raises(
        ArgumentError, match=r"weights_optimizer: .* would train 'backbone/shift', 'backbone/w'"
    ):
        jax.eval_shape(jaxarch.chain(search.architecture_pruning(0.5)), KEY, problem)
    own = search.architecture_pruning(0.5, weights_optimizer=FREEZING)
    jax.eval_shape(jaxarch.chain(own), KEY, problem)


def test_an_optimiser_whose_labels_are_of_another_tree_is_refused_in_one_line_before_anything_is_trained():
    wrong = optax.partition(KINDS, {"body": "frozen", "head": "trained"})
    for stage in (search.dense(nonnegative=False), search.movement(0.5)):
        with pytest.raises(ArgumentError, match=r"optimizer: it failed on the (parameters|scores)") as error:
            jax.eval_shape(jaxarch.chain(stage), KEY, problem_of(wrong))
        assert "\n" not in str(error.value)


def test_the_optimiser_of_a_later_stage_is_tried_before_an_earlier_one_is_trained():
    trained = []

    def told(updates, state, params=None):
        trained.append(1)
        return updates, state

    spy = optax.GradientTransformation(lambda params: (), told)
    chain = jaxarch.chain(search.dense(nonnegative=False, optimizer=spy), search.movement(0.5))
    with pytest.raises(ArgumentError, match="optimizer: a line search does not work here"):
        chain(KEY, problem_of(optax.lbfgs()))
    assert not trained


@pytest.mark.long
def test_scores_and_weights_descend_as_if_one_optimiser_had_both():
    network = looped(BESIDE["movement"], optax.adam(0.1))
    scores, weights = {"head": {"w": jnp.zeros((4, 2))}}, START
    tx, stage = optax.adam(0.1), BESIDE["movement"]
    stepwise = jaxarch.Stepwise(stage, optax.adam(0.1), 3)
    state = stepwise.init(KEY, START)
    both = {"scores": {"backbone": {"w": None, "shift": None}, **scores}, "weights": weights}
    joint = tx.init(both)

    @jax.jit
    def moved(both, joint, step):
        before = state._replace(training=state.training._replace(trainable=both, step=step))
        updates, joint = tx.update(slopes(stepwise, before, both), joint, both)
        return optax.apply_updates(both, updates), joint

    for step in range(3):
        both, joint = moved(both, joint, step)
    state = state._replace(training=state.training._replace(trainable=both, step=jnp.asarray(3)))
    # Other programs, which may round otherwise.
    assert close(stepwise.network(state).params, network.params, 1e-6)
