"""Masks that change as training goes on: what is dropped, what grows, and that nothing else is there."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jaxarch
from jaxarch import masks, saliency
from jaxarch.optim import at_random, check_held, find_mask, hold, sparse

X = jax.random.normal(jax.random.key(0), (60, 10))
Y = jnp.sin(X @ jnp.arange(10.0) / 5)


def init(seed=1):
    first, second = jax.random.split(jax.random.key(seed))
    return {
        "hidden": {"kernel": jax.random.normal(first, (10, 12)) / 3, "bias": jnp.zeros(12)},
        "head": {"kernel": jax.random.normal(second, (12, 1)), "bias": jnp.zeros(1)},
    }


def loss(params):
    hidden = jnp.tanh(X @ params["hidden"]["kernel"] + params["hidden"]["bias"][None])
    return jnp.mean(((hidden @ params["head"]["kernel"] + params["head"]["bias"][None])[:, 0] - Y) ** 2)


def tenth(density=0.1, scope="erk"):
    """A random mask."""
    drawn = masks.init_scores(jax.random.key(2), jaxarch.select(init()), 0.0, 1.0)
    return masks.keep(drawn, density, scope=scope)


def trained(tx, params, steps):
    """Parameters and state after every step, each with a leading axis of steps."""

    def step(carry, _):
        params, state = carry
        updates, state = tx.update(jax.grad(loss)(params), state, params)
        carry = optax.apply_updates(params, updates), state
        return carry, carry

    return jax.jit(lambda carry: jax.lax.scan(step, carry, None, steps)[1])((params, tx.init(params)))


def changed_around(transformation):
    """Take two steps of an optimizer that computes with the state of the one inside."""
    tx = optax.contrib.sam(transformation(optax.sgd(0.1), 0.5, every=1), optax.sgd(0.1))
    state = tx.init(init())
    for _ in range(2):
        _, state = tx.update(init(), state, init())


def one_change(weights, mask, gradient, **settings):
    """The kernel's mask and weights after a change of the mask and a step of sgd at rate 0."""
    weights = jnp.asarray(weights)
    params = {"kernel": weights[None]}
    begun = {"kernel": jnp.asarray(mask, bool)[None]}
    tx = sparse(optax.sgd(0.0), mask=begun, every=1, **settings)
    state = tx.init(params)
    for _ in range(2):
        updates, state = tx.update({"kernel": jnp.asarray(gradient)[None]}, state, params)
        params = optax.apply_updates(params, updates)
    return state.mask["kernel"][0].astype(int).tolist(), params["kernel"][0].tolist()


def test_the_smallest_weights_are_dropped_to_the_density_of_the_step():
    mask, weights = one_change([4.0, -3.0, 2.0, 1.0], [1, 1, 1, 1], [9.0] * 4, density=lambda step: 0.5)
    assert mask == [1, 1, 0, 0]
    assert weights == [4.0, -3.0, 0.0, 0.0]


def test_as_many_grow_as_are_dropped_where_the_gradient_is_largest_of_those_that_are_not_there():
    mask, weights = one_change(
        [4.0, -3.0, 0.0, 0.0], [1, 1, 0, 0], [9.0, 0.0, 2.0, -5.0], replaced=0.5, regrow="gradients"
    )
    assert mask == [1, 0, 0, 1]
    assert weights == [4.0, 0.0, 0.0, 0.0]


def test_what_is_dropped_may_grow_again_and_begins_at_0():
    mask, weights = one_change(
        [4.0, -3.0, 0.0, 0.0], [1, 1, 0, 0], [0.0, 7.0, 2.0, -5.0], replaced=0.5, regrow="gradients"
    )
    assert mask == [1, 1, 0, 0]
    assert weights == [4.0, 0.0, 0.0, 0.0]


def test_a_function_scores_what_is_retained():
    mask, _ = one_change(
        [4.0, -3.0, 2.0, 1.0], [1, 1, 1, 1], [0.0, 1.0, 1.0, 9.0], density=lambda _: 0.5, score=saliency.snip
    )
    assert mask == [0, 1, 0, 1]


def test_a_connection_whose_score_is_nan_goes_before_one_that_is_not_there_comes():
    mask, _ = one_change(
        [np.nan, -3.0, 0.0, 0.0], [1, 1, 0, 0], [9.0, 9.0, np.nan, 1.0], replaced=0.5, regrow="gradients"
    )
    assert mask == [1, 1, 0, 0]


def test_a_density_that_rises_without_growth_changes_nothing():
    mask, _ = one_change([4.0, 0.0, 0.0, 0.0], [1, 0, 0, 0], [1.0] * 4, density=lambda step: 0.75)
    assert mask == [1, 0, 0, 0]


def test_a_density_that_rises_grows_where_something_does():
    mask, _ = one_change(
        [4.0, 0.0, 0.0, 0.0], [1, 0, 0, 0], [0, 1.0, 3.0, 2.0], density=lambda step: 0.75, regrow="gradients"
    )
    assert mask == [1, 0, 1, 1]


METHODS = {
    "gradual magnitude": lambda: {
        "density": optax.polynomial_schedule(1.0, 0.1, 3, transition_steps=40, transition_begin=10),
        "every": 5,
    },
    "SET": lambda: {"mask": tenth(), "replaced": 0.3, "regrow": at_random(jax.random.key(3)), "every": 5},
    "RigL": lambda: {
        "mask": tenth(),
        "replaced": optax.cosine_decay_schedule(0.3, 60),
        "regrow": "gradients",
        "every": 5,
        "until": 40,
    },
}


@pytest.fixture(scope="module")
def runs():
    """Sixty steps of each method, under Adam with weight decay."""

    def run(settings):
        start = masks.apply_mask(settings["mask"], init()) if "mask" in settings else init()
        return trained(sparse(optax.adamw(1e-2), **settings), start, 60)

    return {name: run(make()) for name, make in METHODS.items()}


@pytest.mark.long
@pytest.mark.parametrize("name", METHODS)
def test_after_every_step_the_connections_that_are_not_there_are_0(runs, name):
    params, state = runs[name]
    for path, leaf in jaxarch.named_leaves(params).items():
        if path in state.mask:
            assert not np.any(np.asarray(leaf)[~np.asarray(state.mask[path])])


@pytest.mark.long
@pytest.mark.parametrize("name", METHODS)
def test_the_mask_changes_at_its_steps_alone(runs, name):
    _, state = runs[name]
    rows = np.concatenate([np.asarray(leaf).reshape(60, -1) for leaf in state.mask.values()], axis=1)
    changes = 1 + np.flatnonzero((rows[1:] != rows[:-1]).any(axis=1))
    until = 40 if name == "RigL" else 60
    assert set(changes) <= set(range(5, until, 5))
    assert len(changes) >= 5


@pytest.mark.long
def test_gradual_pruning_follows_the_cubic_schedule(runs):
    _, state = runs["gradual magnitude"]
    kept = sum(np.asarray(leaf).reshape(60, -1).sum(axis=1) for leaf in state.mask.values())
    share = np.clip((np.arange(0, 60, 5) - 10) / 40, 0, 1)
    assert kept[::5].tolist() == np.rint(132 * (0.1 + 0.9 * (1 - share) ** 3)).tolist()


@pytest.mark.long
@pytest.mark.parametrize("name", ["SET", "RigL"])
def test_what_is_replaced_keeps_the_size_of_every_leaf(runs, name):
    _, state = runs[name]
    for path, leaf in jaxarch.named_leaves(tenth()).items():
        assert (np.asarray(state.mask[path]).sum(axis=(1, 2)) == leaf.sum()).all()


def test_rigl_replaces_as_many_as_the_cosine_says(runs):
    _, state = runs["RigL"]
    hidden = np.asarray(state.mask["hidden/kernel"])
    n = int(hidden[0].sum())
    for step in range(5, 40, 5):
        dropped = (hidden[step - 1] & ~hidden[step]).sum()
        assert dropped <= np.rint(n * 0.15 * (1 + np.cos(np.pi * step / 60)))


@pytest.mark.long
def test_seeds_are_one_program_and_each_as_alone():
    settings = METHODS["SET"]()

    def run(seed):
        start = masks.apply_mask(tenth(), init(seed))
        return trained(sparse(optax.sgd(0.05), **settings), start, 12)[1].mask

    together = jax.vmap(run)(jnp.arange(3))
    assert all(jax.vmap(masks.overlap)(together, jax.lax.map(run, jnp.arange(3))) == 1)


def test_where_something_grows_the_change_takes_the_place_of_a_step(runs):
    for name, taken in (("gradual magnitude", 60), ("SET", 60 - 11), ("RigL", 60 - 7)):
        _, state = runs[name]
        assert state.inner[0].count[-1] == taken
    params, state = runs["RigL"]
    for leaf in jax.tree.leaves(params):
        before, after = np.asarray(leaf[9]), np.asarray(leaf[10])
        assert ((after == before) | (after == 0)).all()


def test_an_optimiser_sees_no_gradient_of_what_is_not_there():
    start = masks.apply_mask(tenth(), init())
    _, state = trained(sparse(optax.sgd(0.05, momentum=0.9), mask=tenth()), start, 3)
    trace = jaxarch.named_leaves(state.inner[0].trace)
    for path, leaf in jaxarch.named_leaves(tenth()).items():
        assert not np.any(np.asarray(trace[path])[-1][~np.asarray(leaf)])
        assert np.any(np.asarray(trace[path])[-1])


@pytest.mark.parametrize(("share", "left"), [(-0.5, [1, 1, 0, 0]), (1.5, [0, 0, 1, 1])])
def test_a_traced_share_outside_of_0_and_1_counts_as_the_nearer_of_them(share, left):
    def mask_at(share):
        mask = {"kernel": jnp.arange(4) < 2}
        tx = sparse(optax.sgd(0.0), replaced=lambda step: share, regrow="gradients", mask=mask, every=1)
        params = {"kernel": jnp.array([4.0, 3.0, 0.0, 0.0])}
        state = tx.init(params)
        for _ in range(2):
            _, state = tx.update({"kernel": jnp.arange(4.0)}, state, params)
        return state.mask["kernel"].astype(int)

    assert jax.jit(mask_at)(share).tolist() == left


def test_the_mask_is_found_in_the_state_of_an_nnx_optimiser():
    model = nnx.Linear(10, 8, rngs=nnx.Rngs(0))
    tx = optax.chain(optax.clip(1.0), sparse(optax.adamw(1e-2), lambda step: 0.25, every=1))
    optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer):
        optimizer.update(model, nnx.grad(lambda model: jnp.mean(model(X) ** 2))(model))

    for _ in range(2):
        step(model, optimizer)
    params = nnx.state(model, nnx.Param)
    mask = find_mask(optimizer.opt_state, like=params)
    assert masks.density(mask) == 0.25
    check_held(mask, params)
    assert masks.density(masks.apply_mask(mask, params)["kernel"][...] != 0) == 0.25


@pytest.mark.long
def test_the_mask_is_found_in_the_parts_of_a_multi_transform():
    start = masks.apply_mask(tenth(), init())
    label = {"hidden": "hidden", "head": "head"}
    tx = optax.multi_transform(
        {
            "hidden": sparse(optax.adam(1e-2), mask=tenth(), replaced=0.3, regrow="gradients", every=2),
            "head": hold(tenth(), optax.sgd(0.1)),
        },
        label,
    )
    params, state = trained(tx, start, 7)
    last, state = jax.tree.map(lambda leaf: leaf[-1], (params, state))
    mask = find_mask(state, like=last)
    check_held(mask, last)
    assert masks.overlap(mask, tenth()) < 1
    assert masks.connections(mask) == masks.connections(tenth())


CUBIC = optax.polynomial_schedule(1.0, 0.1, power=3, transition_steps=50, transition_begin=10)


@pytest.mark.parametrize(
    "settings",
    [
        {"density": CUBIC, "every": 20, "until": 61},
        {"density": CUBIC, "every": 20},
        # A table that has no entry for later steps, and a schedule that is NaN there.
        {"density": lambda step: np.array([1.0, 0.5, 0.2])[int(step) // 10], "every": 10, "until": 30},
        {"density": lambda step: jnp.sqrt(1 - step / 100), "every": 10, "until": 101},
        # What is replaced may end anywhere, and nothing changes where a mask is held alone.
        {"replaced": optax.cosine_decay_schedule(0.3, 75), "regrow": "gradients", "every": 10, "until": 75},
        {"mask": tenth(), "until": 50},
        {"density": optax.constant_schedule(1.0)},
        {"replaced": optax.linear_schedule(0.0, 0.3, 10**5), "regrow": "gradients"},
    ],
)
def test_changes_that_come_are_not_refused(settings):
    sparse(optax.sgd(1.0), **settings)


def test_a_schedule_that_is_traced_is_not_looked_at():
    def made(density):
        schedule = optax.polynomial_schedule(1.0, density, 3, transition_steps=50)
        return sparse(optax.sgd(1.0), schedule, every=20, until=40).init(init()).step

    assert jax.jit(made)(0.1) == 0


def test_a_step_that_donates_the_state_leaves_the_mask_that_it_began_with():
    mask, params = tenth(), masks.apply_mask(tenth(), init())
    tx = sparse(optax.adamw(1e-2), mask=mask, every=2)
    start = jax.tree.map(jnp.copy, params)
    _, state = jax.jit(tx.update, donate_argnums=(1, 2))(params, tx.init(start), start)
    assert masks.overlap(find_mask(state, params), mask) == 1
    assert masks.density(mask) == masks.density(find_mask(tx.init(params), params))


REFUSED = {
    "replaced: nothing would grow in place of dropped connections": lambda: sparse(
        optax.sgd(1.0), replaced=0.3
    ),
    r"replaced: expected a number in \[0, 1\)": lambda: sparse(
        optax.sgd(1.0), replaced=1.0, regrow="gradients"
    ),
    r"density: expected a number in \(0, 1\]": lambda: sparse(optax.sgd(1.0), 10),
    r"density: expected a number in \[0, 1\], got 10.0 at step 5": lambda: sparse(
        optax.sgd(1.0), lambda step: 2.0 * step, every=5
    ),
    r"density: expected a number in \[0, 1\], got -0.5 at step 6": lambda: sparse(
        optax.sgd(1.0), lambda step: 1 - step / 4, every=1, until=7
    ),
    r"density: expected a number in \[0, 1\], got nan": lambda: sparse(optax.sgd(1.0), lambda step: jnp.nan),
    r"density: expected a number in \[0, 1\], got Array": lambda: sparse(
        optax.sgd(1.0), lambda step: jnp.ones(2)
    ),
    "density: expected a function of the step": lambda: sparse(optax.sgd(1.0), lambda: 0.5),
    r"replaced: expected a number in \[0, 1\], got 30": lambda: sparse(
        optax.sgd(1.0), replaced=lambda step: 30, regrow="gradients"
    ),
    "step: expected 0, the number of updates so far, got 3": lambda: sparse(optax.sgd(1.0)).update(
        init(), sparse(optax.sgd(1.0)).init(init()), init(), step=3
    ),
    "tx: expected an optax optimizer, as in sparse": lambda: sparse(0.1),
    "until: the mask would never change: its first change would be at step every=100, but until=75": lambda: (
        sparse(optax.sgd(1.0), 0.1, until=75)
    ),
    "until: the mask would never change: its first change would be at step every=50": lambda: sparse(
        optax.sgd(1.0), replaced=0.3, regrow="gradients", every=50, until=50
    ),
    r"until: the last change .* at step 40, has density 0.158, .* goes on to 0.1; set until=61 or more": (
        lambda: sparse(optax.sgd(1.0), CUBIC, every=20, until=60)
    ),
    r"until: .* at step 900, has density 0.5, .* goes on to 0.25; set until=5001 or more": lambda: sparse(
        optax.sgd(1.0),
        optax.piecewise_constant_schedule(1.0, {50: 0.5, 4950: 0.5}),
        every=100,
        until=1000,
    ),
    r"until: .* at step 10, has density 0.9, .* goes on to 0; let the schedule end by step 10": lambda: (
        sparse(optax.sgd(1.0), lambda step: 1 - step / 100, every=10, until=20)
    ),
    r"replaced: it is 0 at every change of the mask, first at step every=100": lambda: sparse(
        optax.sgd(1.0), replaced=optax.cosine_decay_schedule(0.3, 75), regrow="gradients"
    ),
    r"density: it is 1 at every change of the mask, .* but not at step 0": lambda: sparse(
        optax.sgd(1.0), lambda step: jnp.where(step < 15, 0.5, 1.0), every=20
    ),
    r"state: the mask of 'head/kernel' has become int32, since sam": lambda: changed_around(sparse),
    "gradients: the masked leaf 'head/kernel' is missing": lambda: sparse(optax.sgd(1.0)).update(
        {"hidden": init()["hidden"]}, sparse(optax.sgd(1.0)).init(init()), init()
    ),
    "score: expected 'magnitude' or a function": lambda: sparse(optax.sgd(1.0), score="snip"),
    "regrow: expected 'gradients' or a function": lambda: sparse(optax.sgd(1.0), regrow="random"),
    "every: expected": lambda: sparse(optax.sgd(1.0), every=0),
    "params: .* pruned weights of 'head/kernel' are not 0": lambda: sparse(optax.sgd(1.0), mask=tenth()).init(
        init()
    ),
    "mask: the parameters have no 'head/kernel'": lambda: sparse(optax.sgd(1.0), mask=tenth()).init(
        {"kernel": jnp.ones((2, 2))}
    ),
    "params: sparse needs the parameters": lambda: sparse(optax.sgd(1.0)).update(
        init(), sparse(optax.sgd(1.0)).init(init())
    ),
    "params: lookahead would average": lambda: sparse(optax.sgd(1.0)).init(
        optax.LookaheadParams.init_synced(init())
    ),
    "score: expected scores of shape ": lambda: sparse(
        optax.sgd(1.0), lambda step: 0.5, lambda params, gradients: {}
    ).init(init()),
    "regrow: expected scores of shape ": lambda: sparse(
        optax.sgd(1.0), replaced=0.1, regrow=lambda step, params, gradients: jnp.ones(3)
    ).init(init()),
    "key: expected": lambda: at_random(3),
    "state: it holds no mask": lambda: find_mask(optax.adam(1.0).init(init())),
    "state: two transformations mask 'head/kernel'": lambda: find_mask(
        [hold(tenth(), optax.sgd(0.1)).init(masks.apply_mask(tenth(), init()))] * 2
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_trained_so_is_refused_in_one_line(message):
    with pytest.raises(jaxarch.ArgumentError, match=message) as caught:
        REFUSED[message]()
    assert "\n" not in str(caught.value)
