"""Transformable architecture search: widths of layers, drawn by learned probabilities, and what they cost."""

import dataclasses
import itertools
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from small import close, same

import jaxarch
from jaxarch import ArgumentError
from jaxarch.search import _transformable as tas

KEY = jax.random.key(0)
X = jax.random.normal(jax.random.key(1), (80, 4))
Y = jnp.sin(X[:, :1]) + X[:, 1:2] * X[:, 2:3]


class Residual(nnx.Module):
    """A stream of 6 channels that a square kernel reads and writes, and a branch of 10 with batch norm."""

    def __init__(self, rngs):
        self.stem = nnx.Linear(4, 6, rngs=rngs)
        self.square = nnx.Linear(6, 6, rngs=rngs)
        self.up = nnx.Linear(6, 10, rngs=rngs)
        self.norm = nnx.BatchNorm(10, rngs=rngs)
        self.down = nnx.Linear(10, 6, rngs=rngs)
        self.head = nnx.Linear(6, 1, rngs=rngs)

    def __call__(self, x):
        x = jnp.tanh(self.stem(x))
        x = x + jnp.tanh(self.square(x))
        return self.head(x + self.down(nnx.relu(self.norm(self.up(x)))))


@cache
def problem(changed=None):
    """Other targets at the rows whose half is named, if one is."""
    halves = {"train": np.arange(40), "validation": np.arange(40, 80)}
    y = Y if changed is None else Y.at[halves[changed]].add(1.0)
    return jaxarch.supervised(
        Residual, (X, y), loss=optax.squared_error, optimizer=optax.adam(1e-2), steps=60, batch_size=20,
        **halves,
    )  # fmt: skip


def search(target=0.5, **settings):
    return jaxarch.search.transformable(target, **{"scores_optimizer": optax.adam(0.03)} | settings)


def started(training):
    return training.init(training.settings, KEY, problem(), None)


@cache
def found(cost="multiply_adds"):
    learned = problem()
    return jax.jit(search(cost=cost))(KEY, learned)


def with_logits(state, logits):
    return state._replace(trainable={**state.trainable, "scores": logits})


@pytest.mark.long
def test_the_model_of_these_tests_has_a_stream_and_a_branch():
    sizes = started(search()).fixed.units.groups()
    assert sorted(sizes.values()) == [6, 10]


@pytest.mark.long
def test_two_candidates_are_drawn_and_weigh_1_together():
    drawn = jax.vmap(lambda key: tas._two_drawn(key, jnp.zeros(5), jnp.float32(1)))(jax.random.split(KEY, 50))
    assert ((drawn > 0).sum(axis=1) == 2).all()
    assert close(drawn.sum(axis=1), jnp.ones(50), 1e-6)
    assert len({tuple(row) for row in np.asarray(drawn > 0).tolist()}) == 10  # every pair of five


@pytest.mark.long
def test_candidates_are_drawn_by_their_probabilities_as_tau_falls():
    logits = jnp.log(jnp.array([0.7, 0.2, 0.1]))

    def weight_of_first(tau):
        keys = jax.random.split(KEY, 4000)
        return float(jax.vmap(lambda key: tas._two_drawn(key, logits, jnp.float32(tau)))(keys)[:, 0].mean())

    # At a high temperature all candidates are drawn as often and weigh alike.
    assert abs(weight_of_first(1e4) - 1 / 3) < 0.03
    # At a low one, the first of a pair is drawn by p and weighs 1, and the other one nothing.
    assert abs(weight_of_first(1e-3) - 0.7) < 0.03


def test_the_candidates_of_a_group_keep_shares_of_its_units_and_at_least_one_each_once():
    assert tas._candidates(10, (0.3, 0.7, 1.0)) == [3, 7, 10]
    assert tas._candidates(3, (0.1, 0.3, 0.5, 1.0)) == [1, 3]


@pytest.mark.long
def test_a_unit_weighs_as_much_as_the_candidates_that_have_it():
    fixed = started(search(widths=(0.5, 1.0))).fixed
    name = next(name for name, size in fixed.units.groups().items() if size == 6)
    made = tas._kept(fixed, name, jnp.array([0.25, 0.75]))[jnp.argsort(fixed.ranks[name])]
    assert close(made, jnp.array([1, 1, 1, 0.75, 0.75, 0.75]), 1e-6)


@pytest.mark.long
def test_each_unit_contributes_its_weight_once_whatever_normalises_it():
    state = started(search())
    graph, _, rest = nnx.split(Residual(nnx.Rngs(0)), nnx.Param, ...)
    params = jax.tree.map(lambda leaf: leaf + 0.1, state.trainable["weights"])
    sizes = state.fixed.units.groups()
    soft = {name: jnp.linspace(0.1, 1.0, size) for name, size in sizes.items()}
    branch, stream = (next(soft[name] for name, size in sizes.items() if size == of) for of in (10, 6))
    masked = jaxarch.masks.apply_mask(state.fixed.read.spread(soft, params), params)
    made = nnx.merge(graph, masked, rest, copy=True)(X[:7])
    model = nnx.merge(graph, params, rest, copy=True)
    x = jnp.tanh(model.stem(X[:7]))
    x = x + jnp.tanh(model.square(x * stream[None]))
    inner = nnx.relu(model.norm(model.up(x * stream[None]))) * branch[None]
    assert close(made, model.head((x + model.down(inner)) * stream[None]), 1e-5)


@pytest.mark.long
def test_while_it_searches_biases_and_norms_stay_and_kernels_that_read_units_are_masked():
    training, state = search(), started(search())
    before, now = (
        jaxarch.named_leaves(tree)
        for tree in (state.trainable["weights"], training.params(training.settings, state))
    )
    changed = {path for path, leaf in now.items() if not same(leaf, before[path])}
    assert changed <= {"square/kernel", "up/kernel", "down/kernel", "head/kernel"}
    assert "down/kernel" in changed
    mask = jaxarch.named_leaves(training.network(training.settings, state).mask)
    assert {"norm/scale", "norm/bias", "up/bias"} <= set(mask)


@pytest.mark.long
def test_the_expected_cost_is_the_mean_over_all_widths():
    state = started(search(cost="parameters"))
    fixed, sizes = state.fixed, state.fixed.units.groups()
    names = list(sizes)
    probabilities = {
        name: jax.nn.softmax(jax.random.normal(jax.random.key(index), fixed.counts[name].shape))
        for index, name in enumerate(names)
    }
    params, _ = problem().init(KEY)
    leaves = jaxarch.named_leaves(params)

    def count(*kept):
        of = dict(zip(names, kept, strict=True))
        return fixed.units.connections(leaves, of)

    dense = sum(leaf.size for leaf in leaves.values())
    mean = sum(
        np.prod([probabilities[name][place] for name, place in zip(names, places, strict=True)])
        * count(*(int(fixed.counts[name][place]) for name, place in zip(names, places, strict=True)))
        for places in itertools.product(*(range(len(fixed.counts[name])) for name in names))
    )
    assert close(tas._cost(fixed, probabilities), mean / dense, 1e-5)


@pytest.mark.long
@pytest.mark.parametrize("cost", ["multiply_adds", "parameters", "units"])
def test_the_cost_found_is_that_of_the_smaller_model(cost):
    network, learned = found(cost), problem()
    small = jaxarch.shrink(network, learned)
    kept = {name: int(count) for name, count in network.info["kept"].items()}
    assert {name: int(units.sum()) for name, units in small.kept.items() if name in kept} == kept
    if cost == "units":
        share = sum(kept.values()) / 16
    else:
        total = jaxarch.cost(network, learned).total
        share = getattr(total.shrunk, cost) / getattr(total.dense, cost)
    assert close(network.info["cost"], share, 1e-5)
    assert bool(network.info["reached"]) == (abs(share - 0.5) <= 0.025)


@pytest.mark.long
def test_the_pull_is_towards_the_target_and_0_near_it():
    training = search(0.5, cost="units", widths=(0.5, 1.0), strength=3.0)
    state = started(training)
    fixed = state.fixed

    def pulled(places):
        logits = {
            name: jnp.zeros(2).at[place].set(0.1) for name, place in zip(fixed.counts, places, strict=True)
        }
        return tas._pull(training.settings, fixed, logits), logits

    too_much, logits = pulled((1, 1))
    expected = tas._cost(fixed, {name: jax.nn.softmax(of) for name, of in logits.items()})
    assert close(too_much, 3 * jnp.log(expected), 1e-6)
    assert float(pulled((0, 0))[0]) == 0
    small = search(1.0, cost="units", widths=(0.5, 1.0), strength=3.0)
    assert close(
        tas._pull(small.settings, fixed, logits | {name: -of for name, of in logits.items()}),
        -3 * jnp.log(tas._cost(fixed, {name: jax.nn.softmax(-of) for name, of in logits.items()})),
        1e-6,
    )


@pytest.mark.long
def test_widths_that_met_the_target_last_are_kept_if_the_last_ones_do_not():
    training = search(0.5, cost="units", widths=(0.5, 1.0))
    state = started(training)
    half = {name: jnp.array([1.0, 0.0]) for name in state.trainable["scores"]}
    whole = {name: jnp.array([0.0, 1.0]) for name in half}
    met = training.after_step(training.settings, with_logits(state, half))
    missed = training.after_step(training.settings, with_logits(state._replace(memory=met), whole))
    assert bool(missed.reached)
    assert close(missed.cost, 0.5, 1e-6)
    never = state._replace(memory=met._replace(reached=jnp.asarray(False)))
    lost = training.after_step(training.settings, with_logits(never, whole))
    assert not bool(lost.reached)
    assert close(lost.cost, 1.0, 1e-6)


@pytest.fixture
def draws(monkeypatch):
    """Temperatures and keys of all draws, as they are made."""
    seen, drawn = [], tas._two_drawn

    def two_drawn(key, logits, tau):
        seen.append((float(tau), tuple(jax.random.key_data(key).tolist())))
        return drawn(key, logits, tau)

    monkeypatch.setattr(tas, "_two_drawn", two_drawn)
    return seen


@pytest.mark.long
def test_tau_falls_linearly_and_each_step_and_group_draws_anew(draws):
    training = search(tau=(5.0, 1.0))
    state = training.init(training.settings, KEY, problem().descending(steps=5), None)
    for step in (0, 1, 4):
        training.params(training.settings, state._replace(step=jnp.int32(step)))
    assert [tau for tau, _ in draws] == [5, 5, 4, 4, 1, 1]
    assert len({key for _, key in draws}) == 6


@pytest.mark.long
def test_logits_move_along_the_gradient_of_the_loss_of_validation_rows_and_of_the_pull(draws):
    training = search(optimizer=optax.sgd(0.1), scores_optimizer=optax.sgd(1.0), batch_size=None)
    learned = training.on(problem())
    state = training.init(training.settings, KEY, learned, None)
    # The most probable widths, by which the pull is towards the target, stay the same nearby.
    logits = {name: jnp.linspace(0.0, 2.0, of.size) for name, of in state.trainable["scores"].items()}
    state = with_logits(state, logits)
    training.params(training.settings, state)
    optimizer = training.optimizer(KEY, learned, state)
    nothing = jax.tree.map(jnp.zeros_like, state.trainable)
    updates, _ = optimizer.update(nothing, optimizer.init(state.trainable), state.trainable, step=0)
    # The two groups have a draw for the weights, and another for the logits.
    assert len({key for _, key in draws}) == len(draws) == 4

    batch = learned.gather(learned.data, None, learned.validation)

    def loss(share):
        moved = {name: of + share * updates["scores"][name] for name, of in logits.items()}
        at = with_logits(state, moved)._replace(sample=jnp.int32(1))
        value, _ = learned.loss(training.params(training.settings, at), state.model, batch, KEY)
        return value + tas._pull(training.settings, state.fixed, moved)

    squared = sum(jnp.square(of).sum() for of in updates["scores"].values())
    step = 0.05 / jnp.sqrt(squared)
    assert close((loss(step) - loss(-step)) / (2 * step), -squared, 2e-2 * squared)


@cache
def moved(changed):
    """The logits and the weights after one step of plain descent."""
    training = search(optimizer=optax.sgd(0.1), scores_optimizer=optax.sgd(1.0), steps=1)
    learning = problem(changed)
    carry = jaxarch.run.begin(training, KEY, learning, None)
    carry, _ = jaxarch.run.advance(training, KEY, learning, carry, 0, 1, 1)
    return carry.state.trainable["scores"], carry.state.trainable["weights"]


@pytest.mark.long
def test_logits_learn_from_validation_rows_alone():
    assert same(moved(None)[0], moved("train")[0])
    assert not same(moved(None)[0], moved("validation")[0])


@pytest.mark.long
def test_weights_learn_from_training_rows_alone():
    assert same(moved(None)[1], moved("validation")[1])
    assert not same(moved(None)[1], moved("train")[1])


@pytest.mark.long
def test_after_another_stage_it_keeps_the_largest_units_within_the_mask():
    learned = problem()
    before = jaxarch.search.magnitude_pruning(0.75, fraction=None, units="neurons")(KEY, learned)
    state = search().init(search().settings, KEY, learned, before)
    units, fixed = state.fixed.units, state.fixed
    there = units.score_within(jax.tree.map(jnp.abs, jaxarch.select(before.params)), before.mask)
    for name, left in there[1].items():
        size = int(left.sum())
        assert int(fixed.counts[name].max()) == size
        assert set(np.asarray(fixed.ranks[name])[np.asarray(left)]) == set(range(size))
        order = np.asarray(there[0][name])[np.argsort(np.asarray(fixed.ranks[name]))][:size]
        assert (np.diff(order) <= 0).all()
    network = jax.jit(search(0.4))(KEY, learned, before)
    inside = jax.tree.map(lambda new, old: (new <= old).all(), network.mask, before.mask)
    assert all(jax.tree.leaves(inside))


@pytest.mark.long
@pytest.mark.parametrize("where", ["up/kernel", "square/kernel"])
def test_units_go_as_a_whole_if_some_of_their_kernels_are_not_selected(where):
    learned, narrow = problem(), search(0.9, where=where, widths=(0.3, 1.0), steps=1)
    state = narrow.init(narrow.settings, KEY, learned, None)
    least = {name: jnp.zeros_like(of, int) for name, of in state.memory.places.items()}
    cost = tas._cost(state.fixed, {name: jnp.array([1.0, 0.0]) for name in least})
    network = narrow.network(narrow.settings, state._replace(memory=tas.Chosen(least, cost, True)))
    total = jaxarch.cost(network, learned).total
    assert close(network.info["cost"], total.shrunk.multiply_adds / total.dense.multiply_adds, 1e-5)


@pytest.mark.long
def test_kernels_that_are_not_selected_read_units_as_often_as_selected_ones():
    params = started(search()).trainable["weights"]
    made = {
        where: search(where=where).init(search(where=where).settings, KEY, problem(), None).fixed.read
        for where in ("square/kernel", ("square/kernel", "head/kernel"))
    }
    soft = {name: jnp.linspace(0.1, 1.0, 6) for name, size in started(search()).fixed.units.groups().items()}
    one, several = (
        read.spread({name: soft[name] for name in read.groups()}, params) for read in made.values()
    )
    assert {path for path, leaf in jaxarch.named_leaves(one).items() if leaf is not None} >= {"head/kernel"}
    assert same(one, several)


@pytest.mark.long
def test_an_earlier_mask_may_leave_less_than_the_smallest_widths():
    learned = problem()
    sizes = started(search()).fixed.units.groups()
    params, state = learned.init(KEY)
    mask = started(search()).fixed.units.spread(
        {name: jnp.arange(size) < 1 for name, size in sizes.items()}, params
    )
    before = jaxarch.Network(jaxarch.masks.apply_mask(mask, params), mask, state)
    narrow = search(1 / 8, cost="units")  # 2 of 16 units, and the smallest of all widths are 4
    with pytest.raises(ArgumentError, match="out of reach"):
        narrow.init(narrow.settings, KEY, learned, None)
    assert bool(narrow.init(narrow.settings, KEY, learned, before).memory.reached)


@pytest.mark.parametrize("sizes", [(16, 32), (7, 9, 11)])
def test_a_tolerance_of_0_is_met_by_each_cost_that_is_exactly_the_target(sizes):
    total = sum(sizes)
    shares = tas.Shares(tuple(size / total for size in sizes), tuple(((n, 1),) for n in range(len(sizes))))
    kept = np.array(list(itertools.product(*(tas._candidates(size, tas.WIDTHS) for size in sizes))))
    widths = {str(n): jnp.asarray(kept[:, n, None] / size, jnp.float32) for n, size in enumerate(sizes)}
    only = {name: jnp.ones(1) for name in widths}
    costs = jax.vmap(lambda of: shares.expected(of, only))(widths)
    settings = search(0.5, tolerance=0.0).settings
    exact = dataclasses.replace(settings, target=kept.sum(axis=1) / total)
    assert (tas._side(exact, costs) == 0).all()
    assert (tas._side(dataclasses.replace(exact, target=exact.target - 0.5 / total), costs) == 1).all()
    assert (tas._side(dataclasses.replace(exact, target=exact.target + 0.5 / total), costs) == -1).all()


@pytest.mark.long
def test_many_targets_in_one_program_are_as_one_each():
    learned, keys = problem(), jax.random.split(KEY, 2)
    targets = jnp.array([0.5, 0.7])
    network, _ = jaxarch.over_seeds(search, keys, learned, targets)
    for run, target in enumerate((0.5, 0.7)):
        one, _ = jaxarch.over_seeds(search(target), keys, learned)
        assert same(one.of_run(run).mask, network.of_run(run).mask)
        assert close(one.of_run(run).info["target"], target, 1e-6)


@pytest.mark.long
def test_a_target_that_no_run_meets_is_remarked_upon():
    far = search(0.9, scores_optimizer=optax.sgd(1e-9), widths=(0.5, 1.0))
    with pytest.warns(jaxarch.ResultWarning, match="the target was missed in 1 of 1 runs"):
        jaxarch.over_seeds(far, jax.random.split(jax.random.key(3), 1), problem())


WRONG = {
    "target": (lambda: search(1.5), "target: expected"),
    "quantity": (lambda: search(cost="time"), "cost: expected"),
    "blocks": (lambda: search(units=(4, 4)), "units: expected 'neurons', 'channels' or 'heads'"),
    "no units": (lambda: search(units=()), "units: expected 'neurons', 'channels' or 'heads'"),
    "one width": (lambda: search(widths=(1.0,)), "widths: expected two or more shares"),
    "no whole width": (lambda: search(widths=(0.5, 0.9)), "widths: expected two or more shares"),
    "a width of 0": (lambda: search(widths=(0.0, 1.0)), "widths: expected two or more shares"),
    "one temperature": (lambda: search(tau=1.0), "tau: expected the first and the last temperature"),
    "cold": (lambda: search(tau=(10.0, 0.0)), r"tau\[1\]: expected"),
    "strength": (lambda: search(strength=-1.0), "strength: expected"),
    "tolerance": (lambda: search(tolerance=1.0), "tolerance: expected a number in"),
    "out of reach": (
        lambda: search(0.01)(KEY, problem()),
        "target: 0.01 of the multiply_adds is out of reach, since the smallest",
    ),
    "no such units": (lambda: search(units="heads")(KEY, problem()), "heads"),
}


@pytest.mark.parametrize(("call", "message"), WRONG.values(), ids=WRONG)
def test_what_it_does_not_take_is_named(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()
