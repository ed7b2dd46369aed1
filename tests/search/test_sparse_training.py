"""Searches whose mask changes while weights descend: by hand, in the loop, stopped early and resumed."""

import dataclasses
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import Interrupted, interrupt_at, same

import jaxarch
from jaxarch import masks
from jaxarch.optim import find_mask, sparse
from jaxarch.run import _training as single
from jaxarch.search import acdc, cht, dense, gradual_magnitude, granet, rigl, sparse_evolution, top_kast

KEYS = jax.random.split(jax.random.key(0), 3)
X = jax.random.normal(jax.random.key(1), (40, 10))
Y = jnp.tanh(X @ jnp.linspace(-1, 1, 100).reshape(10, 10))


def one_kernel(weights, slopes, steps):
    """A kernel of a loss that is linear in it: its gradient is `slopes`, and at a rate of 0 it stays."""

    def init(key):
        return {"kernel": jnp.asarray(weights)}, {}

    def loss(params, state, batch, key):
        return jnp.sum(params["kernel"] * jnp.asarray(slopes)), state

    return jaxarch.Problem(init, loss, jnp.ones(1), jaxarch.Descent(optax.sgd(0.0, momentum=0.9), steps))


def two_kernels(steps=20):
    """A hidden layer of 12 units on 40 examples, 30 to train on: 240 connections."""

    def init(key):
        first, second = jax.random.split(key)
        hidden = {"kernel": jax.random.normal(first, (10, 12)) / 3, "bias": jnp.zeros(12)}
        return {"hidden": hidden, "head": {"kernel": jax.random.normal(second, (12, 10)) / 3}}

    def apply(params, x):
        hidden = jnp.tanh(x @ params["hidden"]["kernel"] + params["hidden"]["bias"][None])
        return hidden @ params["head"]["kernel"]

    return jaxarch.supervised(
        (init, apply),
        (X, Y),
        loss=lambda outputs, y: jnp.square(outputs - y).mean(-1),
        optimizer=optax.adam(1e-2),
        steps=steps,
        batch_size=10,
        train=np.arange(30),
        validation=np.arange(30, 40),
    )


def states(training, problem, key=KEYS[0]):
    """What is carried after every step, each leaf with a leading axis of steps, and before the first one."""
    steps = training.on(problem).descent.steps
    begun = single.begin(training, key, problem, None)

    def step(carry, index):
        carry, _ = single.step(training, key, problem, carry, index)
        return carry, carry

    return jax.jit(lambda begun: jax.lax.scan(step, begun, jnp.arange(steps))[1])(begun), begun


def kept(carries):
    """How many connections there are after every step."""
    return np.asarray(jax.vmap(masks.connections)(carries.state.memory)).tolist()


def places(leaf):
    return set(np.flatnonzero(np.asarray(leaf)).tolist())


@pytest.mark.long
def test_the_density_falls_along_the_cubic_schedule_by_hand():
    problem = one_kernel(np.arange(1.0, 101.0).reshape(10, 10), np.zeros((10, 10)), steps=20)
    carries, _ = states(gradual_magnitude(0.1, begin=0.1, end=0.6, every=2), problem)
    # From step 2 to step 12: 100 (.1 + .9 u^3) with u = .8, .6, .4, .2 and 0.
    assert kept(carries) == [100] * 4 + [56] * 2 + [29] * 2 + [16] * 2 + [11] * 2 + [10] * 8


@pytest.mark.long
def test_the_smallest_weights_of_all_leaves_go_and_the_others_train_on():
    carries, _ = states(gradual_magnitude(0.25, begin=0.0, end=0.5, every=2), two_kernels(4))
    before, after = (jax.tree.map(lambda leaf, i=i: leaf[i], carries.state) for i in (1, 2))
    assert kept(carries) == [240, 240, 60, 60]
    assert same(after.memory, masks.keep(jaxarch.select(jax.tree.map(jnp.abs, before.trainable)), 0.25))
    moved = carries.state.trainable["hidden"]["kernel"][3] != after.trainable["hidden"]["kernel"]
    assert (moved == after.memory["hidden"]["kernel"]).all()


SIZES = np.random.default_rng(3).permutation(np.arange(1.0, 21.0)).reshape(4, 5).astype(np.float32)
SLOPES = np.random.default_rng(4).permutation(np.arange(1.0, 21.0)).reshape(4, 5).astype(np.float32)
SLOPES *= np.where(np.arange(5) % 2, 1, -1)  # of either sign


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_rigl_changes_as_its_algorithm_says_by_hand(seed):
    # Of 20 connections 10; at step 1 of T = 2, .8 / 2 (1 + cos(pi / 2)) = .4 of them are replaced.
    search = rigl(0.5, replaced=0.8, until=0.5, every=1)
    carries, begun = states(search, one_kernel(SIZES, SLOPES, 4), KEYS[seed])
    first = np.asarray(begun.state.memory["kernel"])
    assert first.sum() == 10
    retained = places(np.where(first, SIZES, 0) >= np.sort(SIZES[first])[4])
    grown = set(sorted(set(range(20)) - retained, key=lambda place: -abs(SLOPES.flat[place]))[:4])
    for step in (1, 2, 3):
        assert places(carries.state.memory["kernel"][step]) == retained | grown
        weights = np.asarray(carries.state.trainable["kernel"][step])
        assert np.array_equal(weights.flat[sorted(retained)], SIZES.flat[sorted(retained)])
        assert places(weights) == retained


@pytest.mark.long
def test_what_grows_for_the_first_time_has_a_moment_of_0():
    carries, begun = states(rigl(0.5, replaced=0.8, until=0.5, every=1), one_kernel(SIZES, SLOPES, 4))
    first, after = begun.state.memory["kernel"], carries.state.memory["kernel"][1]
    trace = np.asarray(carries.opt_state.inner[0].trace["kernel"])
    assert (after & ~first).any()
    assert not trace[1][after & ~first].any()
    assert trace[2][after & ~first].all()


@pytest.mark.long
def test_set_retains_the_largest_of_each_change_by_hand():
    # Of 10 connections 3 go at step 1 and at step 2, where those that have grown are still 0: they go again.
    carries, begun = states(sparse_evolution(0.5, replaced=0.3, every=1), one_kernel(SIZES, SLOPES, 3))
    first = np.asarray(begun.state.memory["kernel"])
    retained = places(np.where(first, SIZES, 0) >= np.sort(SIZES[first])[3])
    masks_ = np.asarray(carries.state.memory["kernel"])
    assert places(masks_[0]) == places(first)
    for step in (1, 2):
        assert retained < places(masks_[step])
        assert places(carries.state.trainable["kernel"][step]) == retained
    assert places(masks_[1]) != places(masks_[2])


@pytest.mark.long
def test_set_grows_each_free_place_as_likely_as_any_other():
    search, problem = sparse_evolution(0.5, replaced=0.3, every=1), one_kernel(SIZES, SLOPES, 2)

    def one(key):
        network = search(key, problem)
        there, grown = network.params["kernel"] != 0, network.mask["kernel"]
        return ~there, grown & ~there

    free, grown = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(5), 2000))
    share = np.asarray(grown.sum(0) / free.sum(0))
    # 3 of 13; the standard deviation of a share of 1000 draws is .013.
    assert np.abs(share - 3 / 13).max() < 0.06


SEARCHES = {
    "gradual magnitude": lambda density: gradual_magnitude(density, every=2),
    "SET": lambda density: sparse_evolution(density, every=2),
    "RigL": lambda density: rigl(density, every=2),
    "GraNet": lambda density: granet(density, every=2),
    "AC/DC": lambda density: acdc(density, every=2),
    "CHT": lambda density: cht(density, every=2),
    "Top-KAST": lambda density: top_kast(density, every=2),
}


@cache
def whole(name):
    """Return what a search finds in chunks of 2 steps, and what there was at every border, by its step."""
    borders = {}
    network, _ = jaxarch.over_seeds(
        SEARCHES[name](0.1),
        KEYS,
        shared(),
        chunk=2,
        progress=lambda told: borders.update({told.step: told.network()}),
    )
    return network, borders


@cache
def shared():
    return two_kernels()


@pytest.mark.long
@pytest.mark.parametrize("name", SEARCHES)
def test_the_density_is_exact_at_every_border_and_what_is_not_there_is_0(name):
    seen = list(whole(name)[1].values())
    counts = [np.asarray(jax.vmap(masks.connections)(network.mask)).tolist() for network in seen]
    steps = np.arange(0, 20, 2)
    falling = {"gradual magnitude": (2, 12), "GraNet": (0, 14)}
    expected = np.full(10, 24)
    if name in falling:
        first, span = falling[name]
        expected = np.rint(240 * (0.1 + 0.9 * (1 - np.clip((steps - first) / span, 0, 1)) ** 3))
    if name == "AC/DC":
        expected = np.where((steps % 4 == 2) & (steps < 14) | (steps >= 16), 24, 240)
    assert counts == [[count] * 3 for count in expected.tolist()]
    for network in seen:
        assert same(masks.apply_mask(network.mask, network.params), network.params)


@pytest.mark.long
@pytest.mark.parametrize("name", ["SET", "CHT", "RigL", "GraNet", "AC/DC"])
def test_the_mask_does_not_stay_what_it_was_at_first(name):
    carries, begun = states(SEARCHES[name](0.2), two_kernels())
    last = jax.tree.map(lambda leaf: leaf[-1], carries.state.memory)
    assert 0.1 < float(masks.overlap(begun.state.memory, last)) < 0.9


@pytest.mark.long
def test_rigl_leaves_its_mask_alone_at_the_end():
    carries, _ = states(rigl(0.2, until=0.5, every=2), two_kernels())
    rows = np.asarray(carries.state.memory["hidden"]["kernel"]).reshape(20, -1)
    changes = 1 + np.flatnonzero((rows[1:] != rows[:-1]).any(1))
    assert set(changes) <= {2, 4, 6, 8}
    assert 2 in changes
    # Four changes took the place of a step of Adam, and no more.
    assert carries.opt_state.inner[0].count[-1] == 20 - 4


@pytest.mark.long
@pytest.mark.parametrize("name", SEARCHES)
def test_densities_as_settings_are_one_program_and_each_as_alone(name):
    densities = jnp.asarray([0.3, 0.1, 0.05])
    make = SEARCHES[name]
    swept, _ = jaxarch.over_seeds(
        lambda s: make(s["density"]), KEYS, shared(), {"density": densities}, chunk=2
    )
    assert jax.vmap(masks.connections)(swept.mask).tolist() == [72, 24, 12]
    alone, _ = whole(name)
    assert same(swept.of_run(1).mask, alone.of_run(1).mask)
    assert same(swept.of_run(1).params, alone.of_run(1).params)


@pytest.mark.long
@pytest.mark.parametrize("name", SEARCHES)
def test_what_early_stopping_keeps_has_the_mask_of_its_own_weights(name):
    _, borders = whole(name)
    stop = jaxarch.EarlyStopping(patience=100, mode="max")  # the best border is one of the first
    network, _ = jaxarch.over_seeds(SEARCHES[name](0.1), KEYS, shared(), chunk=2, early_stopping=stop)
    kept_at = np.asarray(network.info["kept_at"]).tolist()
    assert max(kept_at) < 20
    for run, step in enumerate(kept_at):
        assert same(network.of_run(run).mask, borders[step].of_run(run).mask)
        assert same(network.of_run(run).params, borders[step].of_run(run).params)
        assert not same(network.of_run(run).mask, borders[20].of_run(run).mask)


@pytest.mark.long
@pytest.mark.parametrize("name", SEARCHES)
def test_a_fit_that_is_resumed_finds_the_same_mask(name, tmp_path):
    options = {"checkpoint": jaxarch.Checkpoints(tmp_path), "chunk": 2}
    with pytest.raises(Interrupted):
        jaxarch.over_seeds(SEARCHES[name](0.1), KEYS, shared(), progress=interrupt_at(10), **options)
    resumed, _ = jaxarch.over_seeds(SEARCHES[name](0.1), KEYS, shared(), **options)
    assert same(resumed, whole(name)[0])


def still(settings, key, problem, state):
    return sparse(problem.descent.optimizer, mask=state.memory)


@pytest.mark.long
def test_a_fit_is_not_resumed_with_something_else_around_its_optimiser(tmp_path):
    options = {"checkpoint": jaxarch.Checkpoints(tmp_path), "name": "one"}
    search = SEARCHES["SET"](0.1)
    jaxarch.over_seeds(search, KEYS, shared(), chunk=2, **options)
    other = dataclasses.replace(search, wrap_optimizer=still)
    with pytest.raises(jaxarch.ArgumentError, match="another strategy"):
        jaxarch.over_seeds(other, KEYS, shared(), chunk=2, **options)


def outside_of_conditions(jaxpr):
    """The names of all primitives that are computed at every step."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        if equation.primitive.name != "cond":
            inner = jax.tree.leaves(list(equation.params.values()), is_leaf=lambda p: hasattr(p, "jaxpr"))
            for part in inner:
                if hasattr(part, "jaxpr") or hasattr(part, "eqns"):
                    yield from outside_of_conditions(getattr(part, "jaxpr", part))


@pytest.mark.long
@pytest.mark.parametrize("name", SEARCHES)
def test_no_mask_is_computed_between_changes_in_many_runs_at_once(name):
    search, problem = SEARCHES[name](0.1), two_kernels()
    carries = jax.vmap(lambda key: single.begin(search, key, problem, None))(KEYS)

    def steps(carries, index):
        each = lambda key, carry: single.step(search, key, problem, carry, index)  # noqa: E731
        return jax.vmap(each)(KEYS, carries)

    names = set(outside_of_conditions(jax.make_jaxpr(steps)(carries, jnp.asarray(0)).jaxpr))
    assert "cond" in names
    # The bits of all scores, from which the k largest are found.
    assert "bitcast_convert_type" not in names
    changes = jax.vmap(lambda state: sparse(optax.sgd(0.1), every=1).update(PARAMS, state, PARAMS))
    alone = jax.make_jaxpr(changes)(jax.vmap(lambda _: sparse(optax.sgd(0.1)).init(PARAMS))(jnp.arange(3)))
    assert "bitcast_convert_type" in set(outside_of_conditions(alone.jaxpr))


PARAMS = {"kernel": jnp.ones((2, 2))}


def test_what_skips_updates_around_a_mask_lets_it_count_its_own():
    halved = sparse(optax.sgd(0.0), optax.linear_schedule(1.0, 0.5, 2), every=2)
    training = dense(nonnegative=False, optimizer=optax.MultiSteps(halved, 2))
    carries, _ = states(training, one_kernel(SIZES, SLOPES, 7))
    counts = jax.vmap(lambda state: masks.connections(find_mask(state)))(carries.opt_state)
    # The mask's third update, the one of its step 2, is the sixth step.
    assert counts.tolist() == [20] * 5 + [10] * 2


def test_a_step_that_is_given_is_the_one_that_counts():
    tx = sparse(optax.sgd(0.0), lambda step: 1 - step / 8, every=2)

    def masks_of(given):
        def step(carry, index):
            _, state = tx.update(PARAMS, carry, PARAMS, **({"step": index} if given else {}))
            return state, state.mask

        return jax.jit(lambda state: jax.lax.scan(step, state, jnp.arange(6))[1])(tx.init(PARAMS))

    assert same(masks_of(True), masks_of(False))


@pytest.mark.long
def test_a_leaf_that_lacks_what_is_rounded_up_is_made_up_for_by_another():
    # Of leaves of 8, 8 and 2, .84 are 6.72, 6.72, 1.68, or 7, 7, 1; and .78 are 6.24, 6.24, 1.56, or 6, 6, 2:
    # the third leaf cannot grow.
    params = {name: jnp.arange(1.0, size + 1)[None] for name, size in {"a": 8, "b": 8, "c": 2}.items()}
    tx = sparse(
        optax.sgd(0.0), lambda step: jnp.asarray([1, 0.84, 0.78])[step], every=1, scope="layer", until=3
    )
    state, counts = tx.init(params), []
    for _ in range(3):
        moves, state = tx.update(jax.tree.map(jnp.zeros_like, params), state, params)
        params = optax.apply_updates(params, moves)
        counts.append([int(leaf.sum()) for leaf in state.mask.values()])
    assert counts == [[8, 8, 2], [7, 7, 1], [7, 6, 1]]


@pytest.mark.long
def test_a_falling_density_may_be_spread_as_erk():
    tx = sparse(optax.sgd(0.0), lambda step: 1 - step / 4, every=1, scope="erk")
    params = jaxarch.select(two_kernels().init(KEYS[0])[0])
    state = tx.init(params)
    for _ in range(3):
        moves, state = tx.update(jax.tree.map(jnp.zeros_like, params), state, params)
        params = optax.apply_updates(params, moves)
    expected = jax.tree.map(jnp.sum, masks.keep(params, 0.5, scope="erk"))
    assert [int(leaf.sum()) for leaf in state.mask.values()] == jax.tree.leaves(expected)


REFUSED = {
    r"density: expected a number in \(0, 1\]": lambda: gradual_magnitude(90),
    r"begin: expected a fraction of the steps, in \[0, 1\), got 100": lambda: gradual_magnitude(begin=100),
    "end: expected more than begin = 0.7, got 0.7": lambda: gradual_magnitude(begin=0.7),
    "scope: expected 'global', 'layer' or 'erk'": lambda: rigl(scope="leaf"),
    "every: expected an integer of at least 1, got 0.02": lambda: rigl(every=0.02),
    r"replaced: expected a number in \[0, 1\), got 1.0": lambda: sparse_evolution(replaced=1.0),
    r"replaced: expected one number, got shape \(2,\)": lambda: rigl(replaced=[0.1, 0.2]),
    r"until: expected a fraction of the steps, in \(0, 1\], got 700": lambda: rigl(until=700),
    "steps: gradual magnitude pruning would never change its mask in 20 steps, with every=15": lambda: found(
        gradual_magnitude(every=15)
    ),
    "steps: sparse evolution would never change its mask in 20 steps, with every=20": lambda: found(
        sparse_evolution(every=20)
    ),
    "steps: RigL would never change its mask in 20 steps, with every=15": lambda: found(rigl(every=15)),
    "steps: RigL would never change its mask in 1 steps, with every=1": lambda: found(rigl(steps=1)),
    "state: two transformations mask 'head/kernel'": lambda: found(
        rigl(optimizer=sparse(optax.sgd(0.1), where=["head/kernel", "hidden/kernel"]))
    ),
}


def found(search):
    return jaxarch.over_seeds(search, KEYS, two_kernels())


@pytest.mark.parametrize("message", REFUSED)
def test_what_would_not_change_or_is_no_share_is_refused_in_one_line(message):
    with pytest.raises(jaxarch.ArgumentError, match=f"^{message}") as caught:
        REFUSED[message]()
    assert "\n" not in str(caught.value)
